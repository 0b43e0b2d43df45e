"""Controls: STC with a part taken away, or with clusters that know nothing of meaning.

STC adds up three kinds of probability: of the chosen token's embedding cluster, of prefixes, and of function words. A
gain over sequence probability may come from any of them, or from adding up more probability whatever it is of. Every
control is scored on the same answers as STC, from the same pass of the model, so that differences are paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.clustering.token_clusters import LabelArray, TokenClusters
from semtoken.errors import InvalidInputError

Relabel = Callable[[TokenClusters, np.random.Generator, npt.NDArray[np.int64]], LabelArray]
"""Clusters, random numbers and a frequency bin for each token -> other labels for the same tokens."""

PREFIX = "control:"
"""The beginning of the names of artifacts that hold controls."""
ROW_MEANS = "row_means"
REPLACEMENT = "\ufffd"
"""Stands for a piece of a character."""


@dataclass(frozen=True)
class Control:
    """Clusters or rules that a method is run with to see which part of it matters."""

    name: str
    title: str
    about: str
    """The cause of a difference between STC and this control."""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `ScoringRules` that differ from those of the run."""
    relabel: Relabel | None = None
    """Gives other labels than the run's clusters have; None: the control scores with the run's own."""
    random: bool = False
    """True if the labels are drawn at random, so that the control is repeated with other random numbers."""


def _shuffled(clusters: TokenClusters, rng: np.random.Generator, bins: npt.NDArray[np.int64]) -> LabelArray:
    return rng.permutation(clusters.labels)


def _shuffled_in_bins(clusters: TokenClusters, rng: np.random.Generator, bins: npt.NDArray[np.int64]) -> LabelArray:
    labels = clusters.labels.copy()
    for bin_number in np.unique(bins):
        members = np.flatnonzero(bins == bin_number)
        labels[members] = rng.permutation(labels[members])
    return labels


def _largest_kept(clusters: TokenClusters, rng: np.random.Generator, bins: npt.NDArray[np.int64]) -> LabelArray:
    labels = clusters.labels.copy()
    others = np.flatnonzero(labels != np.bincount(labels).argmax())
    labels[others] = rng.permutation(labels[others])
    return labels


def _folded(clusters: TokenClusters, rng: np.random.Generator, bins: npt.NDArray[np.int64]) -> LabelArray:
    """Equal texts without case and outer white space share a cluster; empty ones and pieces of characters are alone."""
    folded = enumerate(clusters.vocabulary.normalized)
    texts = [text if text and REPLACEMENT not in text else i for i, text in folded]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return np.array([numbers[text] for text in texts], dtype=np.int32)


def _alone(clusters: TokenClusters, rng: np.random.Generator, bins: npt.NDArray[np.int64]) -> LabelArray:
    return np.arange(clusters.vocabulary.size, dtype=np.int32)


_NO_WORDS: Mapping[str, Any] = MappingProxyType({"function_words": "off"})
_ALL = (
    Control("no_clusters", "STC without clusters", "the clusters", {"clustering": False}),
    Control("no_prefixes", "STC without prefixes", "prefix matching", {"prefix_matching": False}),
    Control("no_function_words", "STC without function words", "function words", _NO_WORDS),
    Control("clusters_only", "Clusters only", "prefixes and function words", {"prefix_matching": False, **_NO_WORDS}),
    Control("prefixes_only", "Prefixes only", "clusters and function words", {"clustering": False, **_NO_WORDS}),
    Control(
        "function_words_only",
        "Function words only",
        "clusters and prefixes",
        {"prefix_matching": False},
        _alone,
    ),
    Control("shuffled", "Shuffled clusters", "which tokens share a cluster", {}, _shuffled, random=True),
    Control(
        "shuffled_by_frequency",
        "Shuffled within frequency bins",
        "which tokens of similar frequency share a cluster",
        {},
        _shuffled_in_bins,
        random=True,
    ),
    Control(
        "shuffled_largest_kept",
        "Shuffled, largest cluster kept",
        "which tokens share a cluster, the largest cluster aside",
        {},
        _largest_kept,
        random=True,
    ),
    Control("folded", "Clusters of the folded spelling", "meaning beyond the spelling", {}, _folded),
    Control(
        "preset_default",
        "STC, preset default",
        "everything but tokens of the same spelling",
        {"preset": "default", "function_words": None},
    ),
    Control(ROW_MEANS, "Cluster sizes only (row means)", "everything but the sizes of the clusters"),
)
CONTROLS: Mapping[str, Control] = MappingProxyType({control.name: control for control in _ALL})
"""Every control by name: parts taken away one at a time, parts alone, then clusters without meaning."""


def artifact_names(repeats: int) -> list[str]:
    """Names of the artifacts of a run that hold controls: "control:folded", "control:shuffled.0", ..."""
    return [
        f"{PREFIX}{control.name}{suffix}"
        for control in CONTROLS.values()
        for suffix in ([f".{number}" for number in range(repeats)] if control.random else [""])
    ]


def control_of(artifact: str) -> tuple[Control, int]:
    """The control behind the name of an artifact, and the number of its repetition."""
    name, _, number = artifact.removeprefix(PREFIX).partition(".")
    return CONTROLS[name], int(number or 0)


def control_clusters(
    clusters: TokenClusters,
    artifact: str,
    *,
    seed: int = 0,
    n_bins: int = 20,
    token_counts: Sequence[int] | npt.NDArray[Any] | None = None,
) -> TokenClusters:
    """The clusters with which a control scores; the run's own clusters if it does not change them.

    Every control and repetition has random numbers of its own. `token_counts` [V] say how often each token occurs in
    some text (`InvalidInputError` if there is not one for each); without them the token's id stands for its rank, since
    tokenizers that learn merges number frequent tokens first.
    """
    control, number = control_of(artifact)
    if control.relabel is None:
        return clusters
    rng = np.random.default_rng([seed, number, list(CONTROLS).index(control.name)])
    bins = frequency_bins(clusters.vocabulary.size, n_bins, token_counts)
    return TokenClusters(control.relabel(clusters, rng, bins), clusters.vocabulary)


def frequency_bins(
    size: int, n_bins: int, token_counts: Sequence[int] | npt.NDArray[Any] | None = None
) -> npt.NDArray[np.int64]:
    """A bin for each token, [V]: equally many tokens in each, the most frequent ones in bin 0."""
    rank = np.arange(size)
    if token_counts is not None:
        counts = np.asarray(token_counts)
        if counts.shape != (size,):
            raise InvalidInputError(f"There are counts of shape {counts.shape} for {size:,} tokens; give one for each.")
        rank[np.argsort(-counts, kind="stable")] = np.arange(size)
    return np.asarray(rank * min(n_bins, size) // size, dtype=np.int64)


def row_means_log_score(clusters: TokenClusters, token_ids: Sequence[int], log_probs: npt.ArrayLike) -> float:
    """The log score of an answer if all other members of a cluster had the mean probability of their row.

    With s members in the cluster of a token of probability p, p + (s - 1)(1 - p)/(V - 1) is what a shuffled cluster has
    on average; prefixes and function words are left out, and a numeral is alone, as in STC. Compare it with
    `clusters_only`. At most 0; -inf for an answer whose text is empty.
    """
    ids = np.asarray(token_ids, dtype=np.int64)
    if not clusters.vocabulary.decode([int(token) for token in ids]).strip():
        return -math.inf
    sizes = np.bincount(clusters.labels)[clusters.labels[ids]]
    sizes = np.where(clusters.vocabulary.numeral[ids], 1, sizes)
    p = np.exp(np.asarray(log_probs, dtype=np.float64))
    mass = p + (sizes - 1) * (1.0 - p) / max(clusters.vocabulary.size - 1, 1)
    return math.fsum(np.log(np.minimum(mass, 1.0)).tolist())
