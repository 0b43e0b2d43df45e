"""The rules by which tokens agree with a chosen one: three equalities, two presets, and switches to change them.

A token agrees with the chosen one

- under `exact` if it is the chosen token;
- under `surface` if it spells the same text up to case and spaces. Spaces, special tokens and pieces of characters
  agree only with themselves. With `prefix_matching` the beginnings of what follows count too, from two characters on;
- under `meaning`, the paper's rule, if it is in the chosen token's embedding cluster, if it spells the beginning of the
  text that follows, or if it is a function word, white space or a special token ("neutral"). A neutral chosen token
  counts as certain.

A preset is an equality with its switches. `paper` is `meaning`, and `default` is `surface`: on real models neither
clusters nor beginnings nor function words were better than that (docs/method.md). Switches that are given win over
those of the preset. Only `meaning` reads clusters.

Everything that depends on which tokens agree is here: what scores rows of logits, compiled or not, and what scores
lists of tokens read no more than the `Companions`, masks and numbers that rules give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from semtoken.choices import Equality, FunctionWords, Members, Preset
from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.clustering.vocabulary import Vocabulary, normalize
from semtoken.errors import InvalidInputError
from semtoken.support.arrays import BoolArray, IdArray
from semtoken.support.inputs import flag, one_of

PRESETS: dict[Preset, dict[str, Any]] = {
    "paper": {"equality": "meaning"},
    "default": {"equality": "surface"},
}
"""The equality of each preset, and the switches in which it differs from that equality."""

EQUALITIES: dict[Equality, dict[str, Any]] = {
    "meaning": {"clustering": True, "members": "all", "prefix_matching": True, "function_words": "paper"},
    "surface": {"clustering": False, "members": "all", "prefix_matching": False, "function_words": "off"},
    "exact": {"clustering": False, "members": "all", "prefix_matching": False, "function_words": "off"},
}
"""The switches of each equality."""

SPELLINGS: dict[Equality, Callable[[str], str]] = {"surface": normalize}
"""Equalities under which tokens agree that are spelled alike: a token's text -> its spelling, "" for one that is alone.
"""

# One letter begins every word with that letter: "M" would count for "male", and "J" for three months.
SHORTEST_PREFIX = 2  # characters from which on a beginning counts where the equality is not `meaning`
SAME_LETTERS = 3  # members of a cluster are related in spelling if so many first characters are the same


class CompanionTable(NamedTuple):
    """`Companions` with the lists of those that agree with each token, for the sums over rows."""

    asks: IdArray
    has: IdArray
    ids: IdArray
    """[V] ids sorted by what they have."""
    places: IdArray
    """[V, 2] the range of `ids` that holds those that agree with each token."""


@dataclass(frozen=True, eq=False)
class Companions:
    """The pairs of V tokens that agree: one has what the other asks for (cluster, spelling), or they are the same."""

    asks: IdArray
    """[V] what other tokens must have to agree with each token, a number; -1: none does."""
    has: IdArray
    """[V] what each token has, numbers from 0."""

    @classmethod
    def of(cls, has: npt.NDArray[np.integer[Any]], alone: BoolArray) -> Companions:
        """Companions by number: tokens of the same number agree. No other token agrees with an `alone` one."""
        wide = has.astype(np.int64)
        return cls(np.where(alone, -1, wide), wide)

    @classmethod
    def none(cls, size: int) -> Companions:
        """Companions of a vocabulary in which no token agrees with another."""
        zeros = np.zeros(size, dtype=np.int64)
        return cls(zeros - 1, zeros)

    @cached_property
    def table(self) -> CompanionTable:
        """The same, with the list of tokens that agree with each."""
        order = np.argsort(self.has, kind="stable")
        ordered, places = self.has[order], np.empty((len(order), 2), dtype=np.int64)
        places[:, 0] = np.searchsorted(ordered, self.asks)
        places[:, 1] = np.searchsorted(ordered, self.asks, side="right")
        return CompanionTable(self.asks, self.has, order, places)

    def agree(self, token: int | IdArray, ids: IdArray) -> BoolArray:
        """For each of `ids`, True if it agrees with a token: one token for all of them, or one for each."""
        return np.asarray((self.has[ids] == self.asks[token]) | (ids == token))

    def listed(self, token: int) -> list[int]:
        """The tokens that agree with one, ascending; it may be among them or not."""
        if self.asks[token] < 0:
            return []
        first, last = self.table.places[token]
        return self.table.ids[first:last].tolist()  # type: ignore[no-any-return]


def numbered(texts: Sequence[str]) -> IdArray:
    """A number for each text, the same for equal ones, in order of first appearance."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)


@dataclass(frozen=True, init=False)
class ScoringRules:
    """Rules for which tokens agree with the chosen one; pass them as the `preset` of any scoring function.

    Rules that are not given come from the preset, or from the equality if there is one. The cluster, prefix and
    function-word rules are those of Cao et al. (EACL 2026); docs/method.md has the equations. `InvalidInputError` if a
    value is not one of those named below.

    >>> ScoringRules("paper").clustering, ScoringRules(equality="exact").signature
    (True, 'preset:default|words:off|clustering:off|prefix:off')
    """

    preset: Preset
    """`paper` reproduces the published code. `default` follows the evidence (docs/method.md), and does not call an
    answer that is only function words certain."""
    equality: Equality
    """`meaning`, `surface` or `exact`; the docstring of this module says what each counts."""
    function_words: FunctionWords
    """`paper`: stopwords and blank tokens are neutral wherever they stand. `whole-word`: blank tokens are, and
    stopwords only where the token starts a word and does not open the answer. `off`: no token is neutral."""
    clustering: bool
    """True if the mass of the chosen token's cluster counts."""
    prefix_matching: bool
    """True if the mass of tokens counts that spell the beginning of what follows. With this and `clustering` given as
    off, and no equality, the rules are those of `exact`."""
    members: Members
    """The members of the cluster that count: `all`, or those whose `spelling` is related, so that the first three
    characters are the same, case and spaces aside (all of them, where a token has fewer)."""

    def __init__(
        self,
        preset: Preset = "default",
        function_words: FunctionWords | None = None,
        clustering: bool | None = None,
        prefix_matching: bool | None = None,
        *,
        equality: Equality | None = None,
        members: Members | None = None,
    ) -> None:
        one_of("preset", preset, get_args(Preset))
        switches = PRESETS[preset]
        if equality is None and clustering is False and prefix_matching is False:
            equality = "exact"  # the ablation of everything, under any preset
        if equality is not None:
            one_of("equality", equality, EQUALITIES)
            switches = {"equality": equality}
        given = {
            "function_words": function_words,
            "clustering": clustering,
            "prefix_matching": prefix_matching,
            "members": members,
        }
        switches = EQUALITIES[switches["equality"]] | switches
        switches |= {name: value for name, value in given.items() if value is not None}
        for name in ("clustering", "prefix_matching"):
            flag(switches[name], name)
        one_of("function_words", switches["function_words"], get_args(FunctionWords))
        one_of("members", switches["members"], get_args(Members))
        for name, value in {"preset": preset, **switches}.items():
            object.__setattr__(self, name, value)

    @cached_property
    def effective_function_words(self) -> FunctionWords:
        """`function_words` as it is applied: `off` where the chosen token alone would count otherwise, so that the
        score is the sequence probability.
        """
        counts_others = self.clustering or self.prefix_matching or self.spelling is not None
        return self.function_words if counts_others else "off"

    @cached_property
    def signature(self) -> str:
        """The switches in one line; equal lines mean equal rules."""
        parts = [f"preset:{self.preset}", f"words:{self.effective_function_words}"]
        parts += [
            f"{name}:off" for name, on in (("clustering", self.clustering), ("prefix", self.prefix_matching)) if not on
        ]
        if self.clustering and self.members != "all":
            parts.append(f"members:{self.members}")
        if self.spelling is not None:
            parts.append("spelling:same" if self.equality == "surface" else f"spelling:{self.equality}")
        if self.prefix_matching and self.shortest_prefix > 1:
            parts.append(f"prefix:{self.shortest_prefix}+")
        return "|".join(parts)

    @cached_property
    def spelling(self) -> Callable[[str], str] | None:
        """A function from text to spelling, if tokens of the same spelling count whatever follows; else None."""
        return SPELLINGS.get(self.equality)

    @cached_property
    def lending(self) -> bool:
        """True if clusters or function words count beside the chosen token, so that `borrowed_flags` apply. Other
        spellings of it, and beginnings of what follows, are no reason for a flag.
        """
        return self.clustering or self.effective_function_words != "off"

    @cached_property
    def shortest_prefix(self) -> int:
        """The number of characters from which on a token counts as a beginning of the text that follows."""
        return 1 if self.equality == "meaning" else SHORTEST_PREFIX

    def in_cluster(self, vocabulary: Vocabulary, labels: npt.NDArray[np.integer[Any]] | None) -> Companions:
        """The tokens of each token's cluster that count (T^e in the paper); `labels` [V] are the clusters of tokens.

        A numeral is alone in its own, and every token is where the rules do not cluster or there are no labels.
        """
        if labels is None or not self.clustering:
            return Companions.none(vocabulary.size)
        if self.members == "spelling":
            letters = numbered([text[:SAME_LETTERS] for text in vocabulary.normalized])
            # One number for each pair of cluster and first letters, which may not fit into 32 bits.
            labels = labels.astype(np.int64) * (letters.max(initial=0) + 1) + letters
        # Numbers are close to each other in the embeddings and do not mean the same (the paper's numeral tokens).
        return Companions.of(labels, vocabulary.numeral)

    def alike(self, vocabulary: Vocabulary) -> Companions:
        """The tokens that are spelled as each token is, if they count. Blanks, special tokens and pieces of characters
        are spelled like no other token.
        """
        if self.spelling is None:
            return Companions.none(vocabulary.size)
        spelled = [self.spelling(text) for text in vocabulary.texts]
        alone = np.array([not spelling or REPLACEMENT in spelling for spelling in spelled], dtype=bool)
        numbers = numbered(spelled)
        # A number that no other token has, since `semtoken.models.probing` also groups tokens by these.
        numbers[alone] = len(numbers) + np.flatnonzero(alone)
        return Companions.of(numbers, alone)

    def neutral_masks(self, vocabulary: Vocabulary) -> tuple[BoolArray, BoolArray]:
        """Masks of the tokens that are neutral where they open an answer, and elsewhere (two bool [V])."""
        neutral = vocabulary.neutral
        match self.effective_function_words:
            case "paper":
                return neutral, neutral
            case "whole-word":
                return vocabulary.blank, vocabulary.blank | (neutral & vocabulary.word_start)
            case _:
                return neutral & False, neutral & False


def recorded_equality(signature: str) -> Equality:
    """The equality, of those whose probability every scored token has, that comes nearest to the rules of a signature
    (`ScoringRules.signature`).
    """
    switches = signature.split("|")
    if "clustering:off" not in switches:
        return "meaning"
    return "surface" if any(switch.startswith("spelling:") for switch in switches) else "exact"


def as_rules(preset: Preset | ScoringRules, equality: Equality | None = None) -> ScoringRules:
    """The rules that the name of a preset stands for (`InvalidInputError` if none does), or those of an equality, which
    takes the place of the preset's; ready rules stay as they are, and have an equality already.
    """
    if isinstance(preset, str) and equality is None and preset in READY:
        return READY[preset]
    if not isinstance(preset, ScoringRules):
        return ScoringRules(preset, equality=equality)
    if equality is not None:
        raise InvalidInputError(
            "Ready rules have an equality already: ScoringRules(equality=...). Leave out 'equality'."
        )
    return preset


READY: dict[str, ScoringRules] = {preset: ScoringRules(preset) for preset in get_args(Preset)}
"""The rules of each preset."""
PAPER_RULES = READY["paper"]
"""The rules by which `ScoredToken.log_meaning_probability` counts."""
EXACT_RULES = ScoringRules(equality="exact")
"""The rules by which the token alone counts, whose probability is `ScoredToken.log_probability`."""
SURFACE_RULES = ScoringRules(equality="surface")
"""The rules by which `ScoredToken.log_surface_probability` counts."""
