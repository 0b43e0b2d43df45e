"""Clusters and rules, prepared for scoring: which tokens agree with a chosen one, and why."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from semtoken.clusters import TokenClusters
from semtoken.results import Alternative, Source
from semtoken.scoring.endings import KINDS, Endings, endings_of
from semtoken.scoring.prefixes import NO_IDS, PrefixIndex
from semtoken.scoring.rules import PAPER_RULES, SAME_LETTERS, SURFACE_RULES, ScoringRules
from semtoken.scoring.step_tables import StepTables, lists_of_equals
from semtoken.support.arrays import IdArray
from semtoken.tokens.vocabulary import BoolArray, Vocabulary

SOURCES: tuple[Source, ...] = ("other", "cluster", "prefix", "neutral")
"""Why a token counts, by the number that `Scorer.kinds` gives it; the first does not count."""
TOKENS_KEPT = 4096
"""Chosen tokens whose columns are kept: an answer chooses few tokens often. A few kilobytes each."""


@dataclass(frozen=True, eq=False)
class TokenColumns:
    """Which columns of a row of logits are needed when a token was chosen from it, whatever comes before and after."""

    token: int
    """The chosen token y_i."""
    opening: bool
    """Only blanks come before."""
    neutral: bool
    """y_i is neutral under the rules."""
    paper_neutral: bool
    """y_i is neutral under the paper's rules."""
    summed: IdArray
    """y_i itself, other members of its cluster that the paper does not call neutral, all tokens that the paper calls
    neutral, those of them that are in y_i's cluster, and other tokens that are spelled as y_i is."""
    bounds: tuple[int, ...]
    """Where each of these five groups begins in `summed`, and where the last ends."""
    candidates: IdArray
    """Ascending ids of tokens that may turn out to spell the beginning of what follows."""
    known: bool
    """Whether y_i tells with what the text begins; otherwise any token may turn out to spell its beginning."""
    decided: bool
    """Whether the candidates are the prefix set, whatever follows."""

    def group(self, number: int) -> IdArray:
        """The ids of one of the five groups."""
        return self.summed[self.bounds[number] : self.bounds[number + 1]]


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
        self.signature = f"{clusters.signature}|{rules.signature}"
        self.neutral_masks: BoolArray = np.stack(rules.neutral_masks(clusters.vocabulary))
        """Which tokens are neutral at a step that opens the answer, and at a later one (bool [2, V])."""

    @cached_property
    def paper(self) -> Scorer:
        """The scorer of the same clusters under the paper's rules."""
        return self if self.rules == PAPER_RULES else Scorer(self.clusters, PAPER_RULES, self.index)

    @cached_property
    def surface(self) -> Scorer:
        """The scorer of the same clusters under the equality `surface`."""
        return self if self.rules == SURFACE_RULES else Scorer(self.clusters, SURFACE_RULES, self.index)

    @cached_property
    def tables(self) -> StepTables:
        """The same as tables for the compiled kernel."""
        return _step_tables(self)

    @cached_property
    def first_letters(self) -> IdArray:
        """A number for the letters in which related members of a cluster agree (int64 [V])."""
        return self.index.first_letters(SAME_LETTERS)

    @cached_property
    def _neutral_ids(self) -> tuple[IdArray, ...]:
        return tuple(np.flatnonzero(mask) for mask in self.neutral_masks)

    def neutral_mask(self, opening: bool) -> BoolArray:
        """Which tokens are neutral at a step that opens the answer, or at a later one (bool [V])."""
        return np.asarray(self.neutral_masks[0 if opening else 1])

    def are_neutral(self, ids: IdArray, opening: BoolArray | bool) -> BoolArray:
        """Which of `ids` are neutral at steps that open the answer or not, one for all or one for each."""
        if isinstance(opening, bool):
            return self.neutral_mask(opening)[ids]
        return np.asarray(self.neutral_masks[np.where(opening, 0, 1), ids])

    def neutral_ids(self, opening: bool) -> IdArray:
        """The tokens that are neutral there."""
        return self._neutral_ids[0 if opening else 1]

    @cached_property
    def endings(self) -> Endings:
        """The classes of the vocabulary's tokens by the values they end."""
        return endings_of(self.vocabulary)

    @cached_property
    def columns_of(self) -> Callable[[int, bool], TokenColumns]:
        """Of a chosen token, and whether it opens the answer: which columns of its row are needed (cached)."""
        return lru_cache(maxsize=TOKENS_KEPT)(self._columns_of)

    def _columns_of(self, token: int, opening: bool) -> TokenColumns:
        heads = self.index.heads([token], complete=False)
        known = all(heads)  # not so after a blank or a piece of a character
        mask = self.paper.neutral_mask(opening)
        members = self.paper.cluster_of(token)
        members = members[members != token]
        neutral = mask[members]
        alike = self.index.spelled_alike(token)
        own = np.array([token], dtype=np.int64)
        groups = (own, members[~neutral], self.paper.neutral_ids(opening), members[neutral], alike[alike != token])
        return TokenColumns(
            token=token,
            opening=opening,
            neutral=bool(self.neutral_mask(opening)[token]),
            paper_neutral=bool(mask[token]),
            summed=np.concatenate(groups),
            bounds=(0, *itertools.accumulate(map(len, groups))),
            candidates=self.candidates(heads) if known else NO_IDS,
            known=known,
            decided=self.index.is_decided(heads, complete=False),
        )

    def cluster_of(self, token: int) -> IdArray:
        """T^e: the ids that share the token's label and count; a numeral (or any token without clustering) is alone."""
        if not self.rules.clustering or self.vocabulary.numeral[token]:
            return np.array([token], dtype=np.int64)
        members = self.clusters.cluster_ids(token)
        return members if self.rules.members == "all" else members[self.in_cluster(token, members)]

    def in_cluster(self, token: int | IdArray, ids: IdArray) -> BoolArray:
        """Which of `ids` are in the cluster of `token`, one for all or one for each, and count."""
        if not self.rules.clustering:
            return np.asarray(ids == token)
        same = self.clusters.labels[ids] == self.clusters.labels[token]
        if self.rules.members != "all":
            same &= self.first_letters[ids] == self.first_letters[token]
        return np.asarray((same & ~self.vocabulary.numeral[token]) | (ids == token))

    def alike(self, token: int | IdArray, ids: IdArray) -> BoolArray:
        """Which of `ids` count since they are spelled as the chosen `token` is, one for all or one for each."""
        if not self.rules.same_spelling:
            return np.asarray(ids == token)
        return np.asarray(self.index.spellings[ids] == self.index.spellings[token])

    def in_prefix_set(self, prefixes: IdArray) -> BoolArray:
        """Which of the tokens that spell the beginning of what follows count."""
        if not self.rules.prefix_matching:
            return np.zeros(len(prefixes), dtype=bool)
        return np.asarray(self.index.lengths[prefixes] >= self.rules.shortest_prefix)

    @cached_property
    def related_count(self) -> Callable[[int, bool, bool], int]:
        """How many tokens count beside the prefix set of a token: its cluster, and those that are spelled as it is.

        Takes the token, whether only blanks come before it, and whether neutral tokens count; then these are all of
        the neutral tokens there, and the related ones that are not neutral (cached).
        """
        return lru_cache(maxsize=TOKENS_KEPT)(self._related_count)

    def _related_count(self, token: int, opening: bool, neutrality: bool) -> int:
        alike = self.index.spelled_alike(token) if self.rules.same_spelling else NO_IDS
        related = np.union1d(self.cluster_of(token), alike)
        if not neutrality:
            return len(related)
        return int(np.count_nonzero(~self.neutral_mask(opening)[related])) + len(self.neutral_ids(opening))

    @cached_property
    def related_kinds(self) -> Callable[[int], Mapping[int, int]]:
        """The tokens that count beside the prefix set of a token, and why, as `kinds` has it without neutral ones.

        Cached.
        """
        return lru_cache(maxsize=TOKENS_KEPT)(self._related_kinds)

    def _related_kinds(self, token: int) -> Mapping[int, int]:
        alike = self.index.spelled_alike(token) if self.rules.same_spelling else NO_IDS
        return dict.fromkeys(alike.tolist(), 2) | dict.fromkeys(self.cluster_of(token).tolist(), 1)

    @cached_property
    def neutral_bytes(self) -> tuple[bytes, bytes]:
        """`neutral_masks` for looks at single tokens."""
        return self.neutral_masks[0].tobytes(), self.neutral_masks[1].tobytes()

    def kinds(
        self,
        token: int | IdArray,
        ids: IdArray,
        begins: BoolArray,
        *,
        opening: bool | BoolArray,
        neutrality: bool | BoolArray,
    ) -> npt.NDArray[np.intp]:
        """Why each of `ids` counts as agreeing with the chosen `token`: indices into `SOURCES`, 0 for not at all.

        Parameters
        ----------
        token
            The chosen token, one for all or one for each; it counts as one of its cluster, even if it is neutral.
        ids
            Any tokens.
        begins
            Which of them spell the beginning of what follows (`PrefixIndex.beginnings`).
        opening
            Only blanks come before.
        neutrality
            Whether neutral tokens count, once for all or for each.
        """
        found = np.zeros(len(ids), dtype=np.intp)
        found[self.alike(token, ids)] = 2
        if self.rules.prefix_matching:
            found[begins & self.in_prefix_set(ids)] = 2
        found[self.in_cluster(token, ids)] = 1
        found[self.are_neutral(ids, opening) & (ids != token) & neutrality] = 3
        return found

    def alternatives(
        self,
        token: int | IdArray,
        probabilities: Mapping[int, float] | Sequence[tuple[int, float]],
        begins: BoolArray,
        *,
        opening: bool | BoolArray,
        neutrality: bool | BoolArray,
    ) -> tuple[Alternative, ...]:
        """Other tokens with their probabilities, in their order, and what they are to the chosen `token`.

        One that counts has the reason why it counts; one that does not is described as the paper's rules see it.
        The parameters are those of `kinds`.
        """
        pairs = list(probabilities.items() if isinstance(probabilities, Mapping) else probabilities)
        tokens = [token for token, _ in pairs]
        ids = np.array(tokens, dtype=np.int64)
        counted = self.kinds(token, ids, begins, opening=opening, neutrality=neutrality)
        described = self.paper.kinds(token, ids, begins, opening=opening, neutrality=True)
        sources = np.where(counted > 0, counted, described).tolist()
        texts = self.vocabulary.texts
        columns = (
            tokens,
            [texts[i] for i in tokens],
            [probability for _, probability in pairs],
            [SOURCES[source] for source in sources],
            (counted > 0).tolist(),
        )
        return tuple(map(Alternative, *columns))

    def candidates(self, heads: Sequence[str]) -> IdArray:
        """Ascending ids, some of them twice, of the tokens that may be in a prefix set that begins with a head."""
        found = [ids for head in heads for ids in (self.index.beginnings(head), self.index.continuations(head))]
        return np.sort(np.concatenate(found))


def among(ids: IdArray, ascending: IdArray) -> BoolArray:
    """Which of a few `ids` are among others."""
    if not len(ascending):
        return np.zeros(len(ids), dtype=bool)
    places = np.searchsorted(ascending, ids).clip(max=len(ascending) - 1)
    return np.asarray(ascending[places] == ids)


def _step_tables(scorer: Scorer) -> StepTables:
    """The tables of some clusters and rules."""
    vocabulary, rules, index = scorer.vocabulary, scorer.rules, scorer.index
    labels = np.ascontiguousarray(scorer.clusters.labels, dtype=np.int32)
    members, cluster_of = lists_of_equals(labels)
    cluster_of[vocabulary.numeral] = 0
    spelled, spelling_of = lists_of_equals(index.spellings)
    candidates = index.candidates
    lists = np.where(index.tells, index.string_of, len(candidates.longer) - 1)
    end_ids = [scorer.endings.ids_asked(asked) for asked in range(8)]
    end_masks = [getattr(scorer.endings, kind) for kind in KINDS]
    neutral, neutral_ids = scorer.neutral_masks, scorer.paper.neutral_ids(False)
    return StepTables(
        members=members,
        cluster_of=cluster_of,
        labels=labels,
        numeral=vocabulary.numeral,
        spelled=spelled,
        spelling_of=spelling_of,
        letters=scorer.first_letters,
        neutral=neutral,
        paper_neutral=scorer.paper.neutral_mask(False),
        neutral_ids=neutral_ids,
        neutral_weights=neutral[:, neutral_ids].astype(np.float32),
        candidates=candidates.ids,
        candidates_of=np.stack([candidates.places[lists], candidates.places[lists + 1]], axis=1),
        tells=index.tells,
        decided=index.tells & ~candidates.longer[lists],
        end_ids=np.concatenate(end_ids),
        end_places=np.cumsum([0, *map(len, end_ids)], dtype=np.int64),
        leaves=scorer.endings.leaves,
        asks=scorer.endings.asks,
        end_kinds=np.sum([mask.astype(np.int64) << bit for bit, mask in enumerate(end_masks)], axis=0),
        clustering=rules.clustering,
        same_spelling=rules.same_spelling,
        same_letters=rules.members == "spelling",
    )
