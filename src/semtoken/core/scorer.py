"""A vocabulary, rules, and the clusters that some rules read, prepared for scoring: which tokens agree, and why.

It is the one place that answers which tokens agree, with a vocabulary or without one, and for every rule:
`Scorer.kinds` for the entries of rows, `Scorer.kinds_listed` for those of a list, `Scorer.related_count` for how many
there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.endings import Endings, endings_of
from semtoken.core.engine_tokens.checked_list import ListedStep
from semtoken.core.engine_tokens.listed_names import ListedNames
from semtoken.core.prefixes import NO_IDS, PrefixIndex
from semtoken.core.results import Source
from semtoken.core.rules import EXACT_RULES, PAPER_RULES, SURFACE_RULES, Companions, ScoringRules
from semtoken.errors import InvalidInputError
from semtoken.support.arrays import BoolArray, IdArray

if TYPE_CHECKING:
    from semtoken.clustering.token_clusters import TokenClusters


SOURCES: tuple[Source, ...] = ("other", "cluster", "prefix", "neutral")
"""The reasons why a token counts, by the number that `Scorer.kinds` gives it; the first does not count."""
CLUSTER, PREFIX, NEUTRAL = 1, 2, 3
TOKENS_KEPT = 4096
"""The number of chosen tokens for which the tokens that may agree are kept, a few kilobytes each: answers choose few
tokens often."""


@lru_cache(maxsize=16)
def scorer_for(tokens: Vocabulary | TokenClusters | None, rules: ScoringRules) -> Scorer:
    """The (cached) scorer of a vocabulary, or of clusters and their vocabulary, under some rules.

    None stands for the unknown vocabulary of lists that name their tokens; see `semtoken.core.growing`.
    `InvalidInputError` if the rules count what the vocabulary alone, or the lists alone, do not show.
    """
    if tokens is None:
        return Scorer(NO_VOCABULARY, rules, names=ListedNames(rules.spelling))
    if isinstance(tokens, Vocabulary):
        return Scorer(tokens, rules)
    return Scorer(tokens.vocabulary, rules, tokens)


@lru_cache(maxsize=4)
def prefix_index(vocabulary: Vocabulary) -> PrefixIndex:
    """The (cached) prefix index of a vocabulary."""
    return PrefixIndex(vocabulary)


NO_VOCABULARY = Vocabulary((), (), np.zeros(0, dtype=bool), np.zeros(0, dtype=bool))


class Scorer:
    """A vocabulary and rules in the tables that scoring reads, shared by all answers: it says which tokens agree.

    Get one from `scorer_for`. Clusters that are given although the rules do not read them ask for the masses of
    `meaning` beside the score.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        rules: ScoringRules,
        clusters: TokenClusters | None = None,
        *,
        names: ListedNames | None = None,
    ) -> None:
        if names is not None and (rules.clustering or rules.prefix_matching or rules.effective_function_words != "off"):
            raise InvalidInputError(
                f"These rules ({rules.signature}) count tokens that the lists need not show. Say whose tokens they "
                "are: name the model, or its tokenizer. The preset 'default' needs neither."
            )
        if rules.clustering and clusters is None:
            raise InvalidInputError(
                f"These rules ({rules.signature}) count clusters: give TokenClusters, which TokenClusters.from_model "
                "makes. The preset 'default' needs none."
            )
        self.vocabulary = vocabulary
        self.clusters = clusters
        self.rules = rules
        self.signature = (
            rules.signature if clusters is None or not rules.clustering else (f"{clusters.signature}|{rules.signature}")
        )
        """Everything that decides the numbers, in one line: the rules, and the clusters that they read."""
        self.open_ended = names is not None
        """True if there are other tokens than those of `vocabulary`: it holds those that lists have named."""
        self.by_spelling = rules.spelling is not None
        """True if tokens count that are spelled as the chosen one is."""
        self.by_spelling_alone = rules == SURFACE_RULES
        """True if no others count."""
        self.names = names
        """The tokens that lists have named, which are those of `vocabulary`; None where the vocabulary is known."""
        self.looks_ahead = rules.prefix_matching or clusters is not None
        """True if what a step counts depends on the tokens that follow it."""
        self.knows_neutral = rules.effective_function_words != "off"
        """True if some token may be neutral."""

    @cached_property
    def neutral_masks(self) -> BoolArray:
        """Masks of the tokens that are neutral at a step that opens the answer, and at a later one (bool [2, V])."""
        return np.stack(self.rules.neutral_masks(self.vocabulary))

    @cached_property
    def index(self) -> PrefixIndex:
        """Finds the tokens that spell the beginning of a text."""
        return prefix_index(self.vocabulary)

    @cached_property
    def paper(self) -> Scorer | None:
        """The scorer of the same clusters under the paper's rules; None where there are no clusters."""
        return None if self.clusters is None else self._under(PAPER_RULES)

    @property
    def surface(self) -> Scorer:
        """The scorer of the same vocabulary under the equality `surface`."""
        return self._under(SURFACE_RULES)

    @property
    def exact(self) -> Scorer:
        """The scorer of the same vocabulary under the equality `exact`."""
        return self._under(EXACT_RULES)

    def _under(self, rules: ScoringRules) -> Scorer:
        """The scorer of the same tokens under other rules; one that is kept, where the vocabulary is known."""
        if rules == self.rules:
            return self
        # Names are those of one answer, and grow with it: no other answer could use a scorer that is kept.
        if self.names is not None:
            return Scorer(self.vocabulary, rules, names=self.names)
        return scorer_for(self.vocabulary if self.clusters is None or not rules.clustering else self.clusters, rules)

    @cached_property
    def cluster(self) -> Companions:
        """The tokens of each token's cluster that count."""
        labels = None if self.clusters is None else self.clusters.labels
        return self.rules.in_cluster(self.vocabulary, labels)

    @cached_property
    def alike(self) -> Companions:
        """The tokens that are spelled as each token is, if they count."""
        return self.rules.alike(self.vocabulary)

    @cached_property
    def companions(self) -> list[Companions]:
        """The tables of tokens that may agree: under the rules, under the paper's, and by spelling; each once."""
        clusters = [self.cluster] if self.rules.clustering else []
        paper = [] if self.paper is None else [self.paper.cluster]
        spelled = [self.alike] if self.by_spelling else []
        # Scorers under equal rules are one, and so are their tables: each is read once.
        return list({id(table): table for table in [*clusters, *paper, *spelled, self.surface.alike]}.values())

    @cached_property
    def neutral_ids(self) -> IdArray:
        """The tokens that may be neutral, if the rules or the paper's ask for them; else none."""
        asked = self.knows_neutral or self.clusters is not None
        return np.flatnonzero(self.vocabulary.neutral) if asked else NO_IDS

    @cached_property
    def neutral_tokens(self) -> tuple[frozenset[int], frozenset[int]]:
        """The tokens that are neutral at a step later than the one that opens the answer, and at that one."""
        opening, later = (frozenset(np.flatnonzero(mask).tolist()) for mask in self.neutral_masks)
        return later, opening

    def are_neutral(self, ids: IdArray, opening: BoolArray) -> BoolArray:
        """For each of `ids` [n], True if it is neutral; `opening`, bool [n], says which steps open the answer."""
        if not self.knows_neutral:
            return np.zeros(len(ids), dtype=bool)
        return np.asarray(self.neutral_masks[np.where(opening, 0, 1), ids])

    @cached_property
    def endings(self) -> Endings:
        """The classes of tokens from which it is seen whether a number, a string or an array before them ends."""
        return endings_of(self.vocabulary)

    def in_prefix_set(self, prefixes: IdArray) -> BoolArray:
        """For each of n ids, of tokens that begin what was written, True if it counts under the rules (bool [n])."""
        if not self.rules.prefix_matching:
            return np.zeros(len(prefixes), dtype=bool)
        return np.asarray(self.index.lengths[prefixes] >= self.rules.shortest_prefix)

    @cached_property
    def related(self) -> Callable[[int], dict[int, int]]:
        """A function (cached) from a chosen token to the tokens that agree with it wherever it stands, itself among
        them, each with the reason: they are of its cluster, or spelled as it is.
        """

        @lru_cache(maxsize=TOKENS_KEPT)
        def found(token: int) -> dict[int, int]:
            alike, clustered = self.alike.listed(token), self.cluster.listed(token)
            return {**dict.fromkeys(alike, PREFIX), **dict.fromkeys([*clustered, token], CLUSTER)}

        return found

    def related_count(self, token: int, opening: bool, neutrality: bool) -> int:
        """The number of tokens that agree with a chosen one, its prefix set left out; the arguments are those of
        `kinds`.
        """
        related = self.related(token)
        if not (neutrality and self.knows_neutral):
            return len(related)
        neutral = self.neutral_tokens[opening]
        # The size of the union: neutral tokens of the cluster count once.
        return len(neutral) + sum(member not in neutral for member in related)

    @cached_property
    def may_begin(self) -> Callable[[int], tuple[IdArray, bool]]:
        """A function (cached) from a chosen token to the tokens that may be in its prefix set, and whether no later
        token can change that set. That is for a token that alone decides what the text from it on begins with.
        """

        @lru_cache(maxsize=TOKENS_KEPT)
        def candidates(token: int) -> tuple[IdArray, bool]:
            head = self.vocabulary.normalized[token]
            decided = not self.index.can_continue(head)
            # While later tokens may still make the text longer, the strings that it may become are candidates, too.
            return (self.index.beginnings(head) if decided else self.index.candidates([head])), decided

        return candidates

    def kinds(
        self,
        token: IdArray,
        ids: IdArray,
        begins: BoolArray,
        opening: BoolArray,
        *,
        neutrality: bool,
    ) -> IdArray:
        """The reason why each of `ids` agrees with the chosen `token`: indices into `SOURCES`, 0 for not at all.

        `token` was chosen in place of each; it counts as one of its cluster, even if it is neutral. `begins`: which
        spell the beginning of what follows (`PrefixIndex.beginnings`). `opening`: before which only blanks come.
        `neutrality`: whether neutral tokens count.
        """
        # A later line takes a token over from an earlier one, so that each has one source: its cluster goes before the
        # prefix set, and neutral tokens are summed apart, since rows bring the sum of all of them.
        sources = np.zeros(len(ids), dtype=np.int64)
        if self.by_spelling:
            sources[self.alike.agree(token, ids)] = PREFIX
        if self.rules.prefix_matching:
            sources[begins & self.in_prefix_set(ids)] = PREFIX
        sources[self.cluster.agree(token, ids) if self.rules.clustering else ids == token] = CLUSTER
        if neutrality and self.knows_neutral:
            sources[self.are_neutral(ids, opening) & (ids != token)] = NEUTRAL
        return sources

    def kinds_listed(
        self,
        step: ListedStep,
        ids: Iterable[int],
        prefix_set: IdArray,
        opening: bool,
        neutrality: bool,
    ) -> list[int]:
        """`kinds` of some tokens of the list of a step, which are too few for arrays."""
        token = step.token
        if self.open_ended:  # whose rules count neither beginnings nor neutral tokens
            counted = dict.fromkeys(step.alike.surely if self.by_spelling else (), PREFIX)
            counted[token] = CLUSTER
            return list(map(counted.get, ids, repeat(0)))
        counted = self.related(token)
        if self.rules.prefix_matching:
            begins: list[int] = prefix_set[self.in_prefix_set(prefix_set)].tolist()
            counted = {**dict.fromkeys(begins, PREFIX), **counted}
        if not (neutrality and self.knows_neutral):
            return [counted.get(listed, 0) for listed in ids]
        neutral = self.neutral_tokens[opening]
        return [NEUTRAL if listed in neutral and listed != token else counted.get(listed, 0) for listed in ids]

    def engine_ids(self, tokens: Sequence[int]) -> Sequence[int]:
        """The ids under which records show some tokens; -1 where lists do not give them."""
        return tokens if self.names is None else [self.names.ids[token] for token in tokens]


def among(ids: IdArray, ascending: IdArray) -> BoolArray:
    """For each of a few `ids`, True if it occurs in a sorted array of ids."""
    if not len(ascending):
        return np.zeros(len(ids), dtype=bool)
    places = np.searchsorted(ascending, ids).clip(max=len(ascending) - 1)
    return np.asarray(ascending[places] == ids)
