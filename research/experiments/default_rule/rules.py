"""What may count as agreeing with a chosen token: every rule that was tried for preset `default`.

An *agreement* is either a partition of the vocabulary (a label for each token), or a sparse matrix of weights [V, V].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from nltk.stem import SnowballStemmer
from steps import Ints, Steps, numbered

from semtoken import TokenClusters, Vocabulary, token_table

Weights = npt.NDArray[Any]
Agreement = Any  # Ints or a sparse matrix
FunctionWords = Literal["off", "paper", "chosen", "word starts", "blanks"]
LARGEST_COMPARED = 2500  # a larger cluster (of rarely used tokens) has no pairs in the matrices


@dataclass(frozen=True)
class Rule:
    """One way to count the mass that agrees with the chosen token."""

    agreement: Agreement | None = None
    beginnings: int | None = 1
    """Tokens that spell the beginning of what follows count from so many characters on; None: they do not count."""
    words: FunctionWords = "off"
    """`paper`: function words and blanks count everywhere. `chosen`: only a chosen one, as certain. `word starts`:
    only where they start a word. `blanks`: only a chosen blank, as certain."""
    at_step: Callable[[Steps, Weights], Weights] | None = None
    """Changes the weights [N, K] of the agreement by what else is probable at the step."""

    def masses(self, steps: Steps, places: Ints | None = None) -> Weights:
        """[N] agreeing mass of every step; `places` puts each token in another one's place (the shuffled control)."""
        vocabulary, neutral = steps.vocabulary, steps.vocabulary.neutral
        weights = np.zeros(steps.ids.shape, np.float32)
        if self.agreement is not None:
            weights = agreeing(steps, self.agreement, places) * ~vocabulary.numeral[steps.chosen][:, None]
        if self.at_step is not None:
            weights = self.at_step(steps, weights)
        if self.beginnings is not None:
            weights = np.maximum(weights, steps.beginnings & (steps.characters[steps.ids] >= self.beginnings))
        weights[:, 0] = 1
        certain = {"chosen": neutral, "paper": neutral, "blanks": vocabulary.blank}.get(self.words)
        if self.words == "paper":
            weights = np.maximum(weights, neutral[steps.ids])
        if self.words == "word starts":
            inside = vocabulary.blank | (neutral & vocabulary.word_start)
            opening = np.isin(np.arange(len(steps.ids)), steps.starts)
            weights = np.maximum(weights, np.where(opening[:, None], vocabulary.blank[steps.ids], inside[steps.ids]))
            sure = np.where(opening, vocabulary.blank[steps.chosen], inside[steps.chosen])
        else:
            sure = np.zeros(len(steps.ids), bool) if certain is None else certain[steps.chosen]
        return np.where(sure, 1.0, (weights * steps.p).sum(1))


def agreeing(steps: Steps, agreement: Agreement, places: Ints | None = None) -> Weights:
    """[N, K] weights of the step's tokens under an agreement."""
    if isinstance(agreement, np.ndarray):
        labels = agreement if places is None else agreement[places]
        return (labels[steps.ids] == labels[steps.chosen][:, None]).astype(np.float32)
    matrix = agreement if places is None else agreement[places][:, places].tocsr()
    weights = np.zeros(steps.ids.shape, np.float32)
    row = np.zeros(matrix.shape[0], np.float32)
    for i, token in enumerate(steps.chosen):
        members = matrix.indices[matrix.indptr[token] : matrix.indptr[token + 1]]
        if len(members):
            row[members] = matrix.data[matrix.indptr[token] : matrix.indptr[token + 1]]
            weights[i] = row[steps.ids[i]]
            row[members] = 0
    return weights


@dataclass(frozen=True)
class Agreements:
    """The agreements that can be made from a model's clusters and its token table."""

    clusters: TokenClusters
    model: Path

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the model."""
        return self.clusters.vocabulary

    @property
    def labels(self) -> Ints:
        """The paper's clusters."""
        return np.asarray(self.clusters.labels, dtype=np.int64)

    @cached_property
    def table(self) -> npt.NDArray[np.float32]:
        """Unit rows of the input embeddings."""
        return np.asarray(token_table(self.model, kind="input")[: self.vocabulary.size])

    def sharing(self, key: Callable[[str], str], *, in_cluster: bool) -> Ints:
        """Tokens whose letters have the same key agree; those without letters are alone."""
        found: list[Any] = []
        for i, text in enumerate(self.vocabulary.normalized):
            letters = "".join(filter(str.isalpha, text))
            alone = self.vocabulary.numeral[i] or not letters
            found.append(i if alone else (int(self.labels[i]) if in_cluster else 0, key(letters)))
        return numbered(found)

    def letters(self, count: int, *, in_cluster: bool) -> Ints:
        """The same first letters."""
        return self.sharing(lambda letters: letters[:count], in_cluster=in_cluster)

    def stem(self, *, in_cluster: bool) -> Ints:
        """The same Snowball stem."""
        return self.sharing(SnowballStemmer("english").stem, in_cluster=in_cluster)

    @cached_property
    def pairs(self) -> tuple[Ints, Ints, npt.NDArray[np.float32]]:
        """Pairs of different tokens of one cluster, with their cosine."""
        order = np.argsort(self.labels, kind="stable")
        first, second, cosines = [], [], []
        for members in np.split(order, np.flatnonzero(np.diff(self.labels[order])) + 1):
            if 1 < len(members) <= LARGEST_COMPARED:
                i, j = np.nonzero(~np.eye(len(members), dtype=bool))
                first.append(members[i])
                second.append(members[j])
                cosines.append((self.table[members] @ self.table[members].T)[i, j])
        return np.concatenate(first), np.concatenate(second), np.concatenate(cosines)

    def weighted(self, weigh: Callable[[npt.NDArray[np.float32]], Weights]) -> sp.csr_matrix:
        """Members of a cluster, weighted by their cosine."""
        first, second, cosines = self.pairs
        size = self.vocabulary.size
        return sp.csr_matrix((weigh(cosines).astype(np.float32), (first, second)), shape=(size, size))

    def spelled_alike(self, share: float) -> sp.csr_matrix:
        """Members of a cluster at an edit distance of at most this share of the longer one."""
        first, second, _ = self.pairs
        texts = self.vocabulary.normalized
        near = [edit_distance(texts[i], texts[j]) <= share * max(len(texts[i]), len(texts[j]), 1) for i, j in
                zip(first.tolist(), second.tolist(), strict=True)]  # fmt: skip
        return self.weighted(lambda _: np.array(near))

    def mutual_neighbors(self, count: int, *, in_cluster: bool) -> sp.csr_matrix:
        """Tokens that are among each other's nearest of another spelling."""
        size, spelling = self.vocabulary.size, numbered(self.vocabulary.normalized)
        nearest = np.empty((size, count), np.int64)
        for start in range(0, size, 512):
            rows = slice(start, min(start + 512, size))
            cosines = self.table[rows] @ self.table.T
            top = np.argpartition(-cosines, count + 16, axis=1)[:, : count + 16]
            values = np.take_along_axis(cosines, top, 1)
            values[spelling[top] == spelling[rows][:, None]] = -9
            nearest[rows] = np.take_along_axis(top, np.argsort(-values, axis=1)[:, :count], 1)
        ones = np.ones(size * count, np.float32)
        directed = sp.csr_matrix((ones, (np.repeat(np.arange(size), count), nearest.ravel())), shape=(size, size))
        mutual = directed.multiply(directed.T).tocoo()
        kept = self.labels[mutual.row] == self.labels[mutual.col] if in_cluster else np.ones(len(mutual.row), bool)
        return sp.csr_matrix((mutual.data[kept], (mutual.row[kept], mutual.col[kept])), shape=(size, size))

    def shuffle(self, rng: np.random.Generator, bins: int = 20) -> Ints:
        """Another place for each token: inside bins of token id, which goes by frequency; the largest cluster stays."""
        largest = self.labels == np.bincount(self.labels).argmax()
        places = np.arange(self.vocabulary.size)
        for part in np.array_split(np.arange(self.vocabulary.size), bins):
            moved = part[~largest[part]]
            places[moved] = rng.permutation(moved)
        return places


def edit_distance(a: str, b: str) -> int:
    """Levenshtein's."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (letter != other))
    return row[-1]


# ---- weights that depend on the step ----------------------------------------------------------------------------


def without_rivals(share: float) -> Callable[[Steps, Weights], Weights]:
    """A member that has this share of the chosen token's probability is a rival, and does not count."""
    return lambda steps, weights: np.where(steps.p < share * steps.p[:, :1], weights, 0)


def by_distance_to_peak(steps: Steps, weights: Weights) -> Weights:
    """A member counts the less the nearer its probability is to the chosen token's."""
    return weights * np.clip(1 - steps.p / np.maximum(steps.p[:, :1], 1e-9), 0, 1)


def unless_two_rivals(share: float) -> Callable[[Steps, Weights], Weights]:
    """Members do not count where two of them, of other spellings, compete: a closed class, such as capitals."""

    def change(steps: Steps, weights: Weights) -> Weights:
        other = steps.spelling[steps.ids] != steps.spelling[steps.chosen][:, None]
        rivals = ((weights > 0) & other & (steps.p >= share * steps.p[:, :1])).sum(1)
        return weights * (rivals < 2)[:, None]

    return change


def nearest_at_step(table: npt.NDArray[np.float32], count: int) -> Callable[[Steps, Weights], Weights]:
    """A member counts if the chosen word is the nearest to it among the step's most probable tokens."""

    def change(steps: Steps, weights: Weights) -> Weights:
        changed = weights.copy()
        for i in np.flatnonzero((weights[:, 1:count] > 0).any(1)):
            likely = steps.ids[i, :count]
            cosines = table[likely] @ table[likely].T
            cosines[steps.spelling[likely][:, None] == steps.spelling[likely][None]] = -1
            nearest = likely[cosines.argmax(1)]
            changed[i, :count] *= steps.spelling[nearest] == steps.spelling[steps.chosen[i]]
        return changed

    return change
