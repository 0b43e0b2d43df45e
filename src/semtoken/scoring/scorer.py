"""Clusters and rules, prepared for scoring: which tokens may count as consistent with a chosen one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from semtoken._arrays import IdArray
from semtoken.clusters import TokenClusters
from semtoken.scoring.masses import StepRequest
from semtoken.scoring.prefixes import PrefixIndex
from semtoken.scoring.rules import ScoringRules
from semtoken.vocabulary import BoolArray, Vocabulary


@lru_cache(maxsize=16)
def scorer_for(clusters: TokenClusters, rules: ScoringRules) -> Scorer:
    """The (cached) scorer of some clusters and rules."""
    return Scorer(clusters, rules, prefix_index(clusters.vocabulary))


@lru_cache(maxsize=4)
def prefix_index(vocabulary: Vocabulary) -> PrefixIndex:
    """The (cached) prefix index of a vocabulary."""
    return PrefixIndex(vocabulary)


class Scorer:
    """Clusters and rules, prepared for scoring; shared by all answers."""

    def __init__(self, clusters: TokenClusters, rules: ScoringRules, index: PrefixIndex) -> None:
        self.clusters = clusters
        self.vocabulary = clusters.vocabulary
        self.rules = rules
        self.index = index
        self._neutral_masks = rules.neutral_masks(clusters.vocabulary)
        self._neutral_ids = tuple(np.flatnonzero(mask) for mask in self._neutral_masks)
        self.signature = f"{clusters.signature}|{rules.signature}"

    def request(self, token: int, candidates: IdArray, *, opening: bool, needs_row: bool) -> StepRequest:
        """What is needed of the row from which `token` was chosen."""
        mask = self.neutral_mask(opening)
        members = self.cluster_of(token)
        members = members[members != token]
        neutral = mask[members]
        return StepRequest(
            token=token,
            neutral=bool(mask[token]),
            cluster=members[~neutral],
            cluster_neutral=members[neutral],
            neutrals=self._neutral_ids[0 if opening else 1],
            candidates=candidates,
            needs_row=needs_row,
        )

    def neutral_mask(self, opening: bool) -> BoolArray:
        """Which tokens are neutral at a step that opens the answer, or at a later one (bool [V])."""
        return self._neutral_masks[0 if opening else 1]

    def n_neutral(self, opening: bool) -> int:
        """How many tokens are neutral there."""
        return len(self._neutral_ids[0 if opening else 1])

    def cluster_of(self, token: int) -> IdArray:
        """T^e: the ids that share the token's label; a numeral (or any token without clustering) has itself only."""
        if not self.rules.clustering or self.vocabulary.numeral[token]:
            return np.array([token], dtype=np.int64)
        return self.clusters.cluster_ids(token)

    def in_cluster(self, token: int, ids: IdArray) -> BoolArray:
        """Which of `ids` are in the cluster of `token`."""
        if not self.rules.clustering or self.vocabulary.numeral[token]:
            return np.asarray(ids == token)
        return np.asarray(self.clusters.labels[ids] == self.clusters.labels[token])

    def candidates(self, heads: Sequence[str]) -> IdArray:
        """Ascending ids, some of them twice, of the tokens that may be in a prefix set that begins with a head."""
        found = [ids for head in heads for ids in (self.index.beginnings(head), self.index.continuations(head))]
        return np.sort(np.concatenate(found))
