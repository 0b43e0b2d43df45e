"""`semtoken clusters`: look into clusters; list and remove those that are kept."""

from __future__ import annotations

import json
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from semtoken.almanac import ALMANAC
from semtoken.cli.console import out, tell
from semtoken.cli.help import ShortHelp
from semtoken.cli.models import check_there
from semtoken.cli.options import JsonOption, RevisionOption
from semtoken.errors import InvalidInput
from semtoken.support.extras import quiet_libraries

if TYPE_CHECKING:
    from semtoken import TokenClusters

app = typer.Typer(no_args_is_help=True, help="Look into clusters; list and remove those that are kept.")


@app.command(cls=ShortHelp)
def show(
    text: Annotated[str, typer.Argument(help="A token: a word, or a part of one.")],
    clusters: Annotated[str | None, typer.Option("--clusters", "-c", help="A directory or hub id of clusters.")] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="Look into the clusters kept for this model.")] = ALMANAC,
    revision: RevisionOption = None,
    as_json: JsonOption = False,
) -> None:
    """The tokens that share a cluster with a word: with and without a blank before it, in any case.

    For example:

    - `semtoken clusters show USA`
    - `semtoken clusters show television --clusters ./my-clusters`
    """
    found = _load(clusters, model, revision)
    ids = found.find(text)
    groups = dict.fromkeys(int(found.labels[i]) for i in ids)
    texts = found.vocabulary.texts
    tokens = {label: [i for i in ids if found.labels[i] == label] for label in groups}
    if as_json:
        rows = [
            {"tokens": [texts[i] for i in own], "cluster": [texts[i] for i in found.cluster_ids(own[0])]}
            for own in tokens.values()
        ]
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    for own in tokens.values():
        members = [texts[i] for i in found.cluster_ids(own[0])]
        title = ", ".join(repr(texts[i]) for i in own)
        out.print(Text(f"{title}  cluster of {len(members):,}", style="bold"))
        out.print(Text("  " + "  ".join(map(repr, members))))


def _load(clusters: str | None, model: str, revision: str | None) -> TokenClusters:
    from semtoken import TokenClusters

    if clusters is not None or model == ALMANAC:
        return TokenClusters.from_pretrained(clusters or ALMANAC, revision=revision)
    return _kept_for(model, revision)


def _kept_for(model: str, revision: str | None) -> TokenClusters:
    """The newest clusters in the cache that were made from the weights of a model."""
    from semtoken import TokenClusters
    from semtoken.clusters.cache import list_cached
    from semtoken.clusters.tables import read_table

    check_there(model, revision)
    quiet_libraries()
    for entry in list_cached():
        kept = TokenClusters.from_pretrained(entry.path)
        table = read_table(model, kept.provenance.get("embedding", "concatenated"), revision=revision)
        if kept.provenance.get("content_hash") == table.content_hash:
            return kept
    raise InvalidInput(f"No clusters are kept for '{model}'. Make some with: semtoken cluster {quote(model)}")


@app.command("list", cls=ShortHelp)
def list_(as_json: JsonOption = False) -> None:
    """The clusters that are kept on this machine, the newest first.

    For example:

    - `semtoken clusters list`
    """
    from semtoken.clusters.cache import directory, list_cached

    entries = list_cached()
    if as_json:
        for e in entries:
            facts = {"name": e.name, "path": str(e.path), "model": e.model, "settings": dict(e.settings)}
            numbers = {"vocabulary_size": e.vocabulary_size, "size": e.size, "created": e.created}
            typer.echo(json.dumps(facts | numbers, ensure_ascii=False))
        return
    if not entries:
        tell(f"No clusters are kept in {directory()}. Make some with: semtoken cluster MODEL")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    for name in ("name", "settings", "tokens", "MB", "made (UTC)"):
        whole = name == "name"  # it is typed again to remove an entry, so it must not be broken
        table.add_column(name, overflow="fold", no_wrap=whole, justify="right" if name in ("tokens", "MB") else "left")
    for e in entries:
        table.add_row(
            Text(e.name),
            Text(" ".join(str(value) for value in e.settings.values())),
            f"{e.vocabulary_size:,}",
            f"{e.size / 1e6:.1f}",
            e.created[:16].replace("T", " "),
        )
    out.print(table)
    tell(f"They lie in {directory()}.", style="dim")


@app.command(cls=ShortHelp)
def remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="As `semtoken clusters list` shows them.")],
) -> None:
    """Delete clusters that are kept. They can be made again.

    For example:

    - `semtoken clusters remove NAME`, with a name of `semtoken clusters list`
    """
    from semtoken.clusters import cache

    for name in names:
        cache.remove(name)
        tell(f"Removed {name}")
