"""`semtoken cluster`: make the clusters of a model's tokens, and look into them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from semtoken.cli.console import err, out, phases, plain_table, tell
from semtoken.cli.model import name_and_revision
from semtoken.cli.parameters import ClustersNamed, ModelNamed, ToFolder
from semtoken.cli.statuses import UsageError
from semtoken.errors import ArtifactError, InvalidInputError
from semtoken.support.almanac import ALMANAC
from semtoken.support.checkpoints.hub import require_model

if TYPE_CHECKING:
    from rich.table import Table

    from semtoken import TokenClusters, Vocabulary
    from semtoken.clustering.tables import EmbeddingTable
    from semtoken.clustering.token_clusters import ClusterSettings


INSTEAD = "Choose another folder, or delete this one. Nothing was written."
"""The advice for a folder that cannot take the clusters that are to be made."""
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def make(
    model: str,
    /,
    *,
    output: ToFolder[Path | None] = None,
    n_clusters: Annotated[
        tuple[Annotated[int, Parameter(validator=Number(gte=1))], ...], Parameter(name=("--n-clusters", "-k"))
    ] = (),
    memory_budget: Annotated[str | None, Parameter(metavar="SIZE")] = None,
) -> None:
    """Make the clusters of a model's tokens, which the preset paper reads.

    A minute for 49,000 tokens, an hour for many more. Reads only the two embedding matrices and the tokenizer; the
    settings are the paper's; `TokenClusters.from_model` takes others.

    Example: `semtoken cluster make Qwen/Qwen2.5-3B`

    Parameters
    ----------
    model
        A fetched name, a directory, a GGUF file, or a hub id (ID@REVISION).
    output
        Folder of the clusters; with several numbers one in it for each. Default: the cache, where other
        commands find them.
    n_clusters
        Number of clusters; may be repeated. Default: 16,000, at most half the tokens.
    memory_budget
        Memory that clustering may use, such as 8G. Default: most of what is free.
    """
    model, revision = name_and_revision(model)
    budget = None if memory_budget is None else parse_bytes(memory_budget)
    _targets(output, n_clusters or (1,))  # before anything is read
    require_model(model, revision)
    from semtoken.clustering.cache import clusters_for_model, default_settings, store
    from semtoken.clustering.model_vocabulary import vocabulary_of
    from semtoken.clustering.tables import read_table
    from semtoken.clustering.token_clusters import ClusterSettings, cluster_vocabulary

    vocabulary = vocabulary_of(model, None, revision=revision)
    targets = _targets(output, n_clusters or (default_settings(vocabulary).n_clusters,))
    wanted = {ClusterSettings(k): target for k, target in targets.items()}
    for settings in wanted:
        settings.check(vocabulary)
    table = None if output is None else read_table(model, revision=revision)
    if table is not None:
        _keep_others(wanted, table, vocabulary)
    for settings, target in wanted.items():
        with phases("clustering") as progress:
            how: dict[str, Any] = {"memory_budget": budget, "progress": progress}
            if table is None or target is None:
                clusters = clusters_for_model(model, vocabulary, settings=settings, revision=revision, **how)
                tell(f"Kept as {store(clusters).name}")
            else:
                clusters = cluster_vocabulary(table, vocabulary, settings, **how)
                clusters.save_pretrained(target)
                tell(f"Saved in {target}")
        _report(clusters)


def _targets(output: Path | None, n_clusters: Sequence[int]) -> dict[int, Path | None]:
    """Number of clusters -> where they go. Places that cannot be written are found before the work."""
    from semtoken.clustering.cache import directory
    from semtoken.support.files.artifacts import check_target
    from semtoken.support.files.safe_files import check_place

    numbers = dict.fromkeys(n_clusters)
    if output is None:
        check_place(directory())
        return numbers
    targets: dict[int, Path | None] = {k: output if len(numbers) == 1 else output / f"k{k}" for k in numbers}
    for target in filter(None, targets.values()):
        check_target(target)
    return targets


def _keep_others(targets: Mapping[ClusterSettings, Path | None], table: EmbeddingTable, vocabulary: Vocabulary) -> None:
    """Refuse (`InvalidInputError`) to replace other clusters than those that are to be made."""
    from semtoken.clustering.cache import is_made_from
    from semtoken.support.files.artifacts import is_saved, read_config

    there = {settings: target for settings, target in targets.items() if target is not None and is_saved(target)}
    for settings, target in there.items():
        try:
            config = read_config(target)
        except ArtifactError as error:
            raise InvalidInputError(f"{error} {INSTEAD}") from error
        if not is_made_from(config, settings, vocabulary, content_hash=table.content_hash):
            raise InvalidInputError(
                f"{target} holds clusters of another model or tokenizer, or made in another way "
                f"({config['signature']}). {INSTEAD}"
            )


def parse_bytes(text: str) -> int:
    """Parse a number of bytes such as "8G", "512 MB" or "1.5GiB", in powers of 1,024."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", text.upper())
    if not match or not float(match[1]):
        raise InvalidInputError(f"The memory budget must be a size such as 8G or 512M. Got {text!r} instead.")
    return int(float(match[1]) * UNITS[match[2]])


def _report(clusters: TokenClusters) -> None:
    """Print the clusters that were made, and the time and memory that they took."""
    if least := clusters.provenance.get("least_cosine"):
        out().print(
            "Input and output embeddings are one matrix that was quantized twice (the cosine of every row is at least "
            f"{least:.3f}), so the output's copy was clustered, at half the cost."
        )
    out().print(f"{clusters.n_clusters:,} clusters of {clusters.vocabulary.size:,} tokens", style="bold")
    report: Mapping[str, Any] = clusters.provenance.get("clustering", {})
    cuts = [cut for cut in report.get("cuts", ()) if cut["n_clusters"] == clusters.n_clusters]
    if cuts:
        out().print(_sizes(cuts[0]))
        out().print(clusters.sizes_sentence)
    if cost := clusters.cost_sentence:
        out().print(cost)
    err().print(clusters.signature, style="dim", soft_wrap=True, markup=False)


def _sizes(cut: Mapping[str, Any]) -> Table:
    """A table of the number of clusters of each size, with bars."""
    table = plain_table("tokens in a cluster", "clusters", "", numbers=("tokens in a cluster", "clusters"))
    most = max(cut["sizes"].values())
    for name, count in cut["sizes"].items():
        table.add_row(name, f"{count:,}", "█" * max(1, round(30 * count / most)))
    return table


def show(
    text: str,
    /,
    *,
    clusters: ClustersNamed[str | None] = None,
    model: ModelNamed[str | None] = None,
) -> None:
    """Show the tokens that share a cluster with a word.

    With and without a space before it, in any case.

    Example: `semtoken cluster show USA`

    Parameters
    ----------
    text
        A token: a word, or a part of one.
    clusters
        A directory or hub id of clusters.
    model
        Look into the clusters kept for this model. Default: almanac, built in.
    """
    if clusters is not None and model is not None:
        raise UsageError("--model has no effect with --clusters: leave one of them out.")
    model, revision = name_and_revision(model or ALMANAC)
    token_clusters = _load(clusters, model, revision)
    for own, members in token_clusters.clusters_of(text):
        title = ", ".join(map(repr, own))
        out().print(f"{title}  cluster of {len(members):,}", style="bold", markup=False)
        out().print("  " + "  ".join(map(repr, members)), markup=False)


def _load(clusters: str | None, model: str, revision: str | None) -> TokenClusters:
    from semtoken import TokenClusters
    from semtoken.clustering.cache import kept_for

    if clusters is not None or model == ALMANAC:
        return TokenClusters.from_pretrained(clusters or ALMANAC, revision=revision)
    require_model(model, revision)
    return kept_for(model, revision)
