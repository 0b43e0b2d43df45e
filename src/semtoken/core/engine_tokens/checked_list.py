"""The reader of an engine's lists: the tokens in them with their probabilities, and what is wrong with a list.

`ListReader` reads all of them. What it asks about tokens (which of them a name means, and which surely agree) is the
protocol `Names`: `KnownNames` answers by a vocabulary, `ListedNames` by the spellings of the names alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, count
from operator import is_not
from typing import NamedTuple, Protocol

from semtoken.core.engine_tokens.passes import without_copied_lists
from semtoken.core.engine_tokens.precision import Precision
from semtoken.core.engine_tokens.top_steps import ABOVE_ZERO, Entry, Name, TopStep, TopToken, is_given
from semtoken.errors import InvalidInputError, InvalidLogits

OVERFULL = 1.05  # a list whose probabilities add up to more holds no probabilities
ASK_FOR_IDS = "Have the engine send token ids (vLLM: return_tokens_as_token_ids) or bytes."


class Doubts(NamedTuple):
    """All that is not clear about a list."""

    unmapped: float = 0.0
    """Sum of the probabilities of entries whose names fit no token."""
    alike: float = 0.0
    """Probability of another token that is written as the chosen one is: a list keyed by texts has lost an id."""
    doubtful: float = 0.0
    """Sum of the probabilities of entries that have the name of the chosen token and another number than its own, and
    of which it is not known that they agree: they count for the upper end only."""
    perhaps: float = 0.0
    """Sum of the probabilities of entries that may be spelled as the chosen token is, where no vocabulary shows it."""
    ambiguous: tuple[tuple[tuple[int, ...], float], ...] = ()
    """The entries whose names fit several tokens: the ids of these tokens, and the probability of the entry."""
    stands_for: tuple[int, ...] = ()
    """The special tokens that the chosen one may be, if its name does not say which; `token` is the first of them."""


class Alike(NamedTuple):
    """The listed tokens that are spelled as a chosen one is, where no vocabulary shows it."""

    surely: tuple[int, ...] = ()
    perhaps: float = 0.0
    """The mass of those of which it is not clear."""
    many: bool = False
    """True if any number of tokens that are not listed may be spelled so, too."""
    namesakes: bool = True
    """True if another token that has the chosen one's name is surely spelled so."""


class ListedStep(NamedTuple):
    """The tokens that a list names for one step, with their probabilities and the mass that it does not name."""

    token: int
    """Id of the chosen token."""
    ids: Sequence[int]
    """Ids of the listed tokens whose names fit one token alone, each once. The chosen one is among them where its
    probability is known."""
    probabilities: Sequence[float]
    """The probabilities of these tokens, in the same order."""
    log_prob: float
    """Its log-probability, <= 0; -inf where the engine does not give it."""
    total: float
    """Sum of the listed probabilities, those of unclear entries included; without those of entries that seem to be the
    chosen token once more."""
    smallest: float
    """The highest probability that a token outside the list can have; 1 where the list does not show it."""
    complete: bool
    """True if every token of the vocabulary is listed."""
    listed: int
    """The number of entries with a probability beside the chosen token."""
    bare: bool = False
    """True if the engine gave no list at all."""
    others: TopStep | None = None
    """The step, if `ids` are only the chosen token and those that may agree with it: the others have no numbers yet."""
    alike: Alike = Alike()
    """The `ids` of tokens that are spelled as the chosen token is, where no vocabulary shows it."""
    doubts: Doubts | None = None
    """All that is not clear about the list; None where nothing is, as nearly always."""
    with_blank: int = 0
    """The number of names that begin with a blank."""
    without_blank: int = 0
    """The number of names that would be another token's, too, if the engine left out the blank at its beginning."""


@dataclass
class Entries:
    """The entries of a list, sorted by what is known of them. Fields without a docstring are those of `Doubts`."""

    chosen: int
    """The id of the chosen token."""
    own: Entry
    """The name and number that the chosen token itself came with."""
    ambiguous: list[tuple[tuple[int, ...], float]] = field(default_factory=list)
    unmapped: float = 0.0
    alike: float = 0.0
    doubtful: float = 0.0

    def __post_init__(self) -> None:
        self.known = self.own.may_be_own
        """True if the chosen token has a number of its own; it then goes before that of every entry."""
        self.found = {self.chosen: self.own.probability} if self.known else {}
        """The probability of each token that is named clearly."""

    def add(self, listed: Sequence[tuple[Entry, Meant]]) -> list[Entry]:
        """Take in the entries of a list by what their names mean; returns those that are not the chosen token."""
        others, seen = list[Entry](), set[Entry]()
        for entry, (candidates, likely, is_chosen, _, pooled) in listed:
            if not is_chosen:
                others.append(entry)
            if entry in seen or not entry.tells:
                continue
            seen.add(entry)
            if is_chosen:
                if self.add_chosen(entry, candidates):
                    others.append(entry)
            elif len(likely) == 1 and (pooled or likely[0] not in self.found):
                self.found[likely[0]] = self.found.get(likely[0], 0.0) + entry.probability
            elif len(likely) == 1:  # the same entry again, or another token of this name
                rest = tuple(token for token in candidates if token not in self.found)
                if rest and entry.probability != self.found[likely[0]]:
                    self.ambiguous.append((rest, entry.probability))
            elif candidates:
                self.ambiguous.append((candidates, entry.probability))
            else:
                self.unmapped += entry.probability
        return others

    def add_chosen(self, entry: Entry, candidates: Sequence[int] = ()) -> bool:
        """Take in an entry that seems to be the chosen token, whose own number counts; says whether it is another one.

        `candidates` are the tokens that its name may mean.
        """
        if not self.known:
            if entry.may_be_own:
                self.found.setdefault(self.chosen, entry.probability)
            return False
        if entry.close:
            return False
        # A list keyed by texts, best first, keeps the last token of a text: an entry that is less likely than the
        # chosen token can be another one that took its place.
        if not (_lost_its_namesake(self.own.name, entry.name) and entry.log_prob < self.own.log_prob):
            self.doubtful += entry.probability
            return False
        # Tokens with a number of their own cannot be meant once more.
        rest = tuple(token for token in candidates if token not in self.found)
        if rest:
            self.ambiguous.append((rest, entry.probability))
        else:
            self.alike += entry.probability
        return True


class Meant(NamedTuple):
    """The tokens that the name of an entry may mean, at a step where another token or the same was chosen."""

    candidates: tuple[int, ...]
    """Every token that may be meant; none if the name fits no token."""
    likely: tuple[int, ...]
    """The likely ones among them."""
    is_chosen: bool = False
    """True for an entry that seems to be the chosen token."""
    shared: bool = False
    """True if further tokens may have the name, which a list that is keyed by names has lost."""
    pooled: bool = False
    """True if all entries of this name count as one token, with the sum of their probabilities."""


class MeantStep(NamedTuple):
    """The entries of a step, with what their names mean."""

    chosen: tuple[int, ...]
    """The token that was chosen; if its name says only that it is special, all those that it may be."""
    own: Entry
    """The name and number that the chosen token came with."""
    listed: list[tuple[Entry, Meant]]
    """The entries of the list."""
    any_special: bool = False
    """True if the chosen token's name says only that it is special."""
    with_blank: int = 0
    """The number of names that begin with a blank."""
    without_blank: int = 0
    """The number of names that would be another token's, too, if the engine left out the blank at its beginning."""
    padded: bool = False
    """True if entries beyond the vocabulary were left out, so that the others had a share less than 1."""


class Names(Protocol):
    """The meaning of the names in one answer, and the tokens that agree, as far as the names alone show it."""

    size: int | None
    """The number of tokens that there are; None where the vocabulary is not known."""

    def clear(self, step: TopStep, position: int) -> ListedStep | None:
        """Read a list of which all names and numbers are clear, as nearly always; None for any other.

        The result is that of `ListReader.any_list`, in a tenth of the time.
        """

    def meant(self, step: TopStep, before: Name | None, position: int) -> MeantStep:
        """The meaning of the chosen token's name and of those of its list.

        `before` is the name of the token that was chosen before. `InvalidInputError` or `VocabularyMismatch` if the
        chosen token is unknown or not clear, or a name contradicts its id.
        """

    def is_blank(self, token: int) -> bool:
        """Return True for a token that is white space or a special one."""

    def alike(self, chosen: int, others: Mapping[int, float]) -> Alike:
        """The tokens, of some listed ones with their probabilities, that are spelled as the chosen one is, as far as no
        vocabulary shows it.
        """

    def learned(self) -> Names | None:
        """The same names as they are to be read from the first step on, if those read by now show that; else None."""
        return None

    def with_others(self, step: ListedStep, least: float) -> ListedStep:
        """A step that was read, with the tokens of its list of at least a probability; see `ListedStep.others`."""
        return step


class ListReader:
    """Reads the steps of one answer in their order: finds what their names mean and checks their numbers."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.steps: list[ListedStep] = []
        self.precision = Precision()
        """The precision with which the engine writes its numbers."""
        self.copied: list[int] = []
        """The steps whose lists are copies of the list before, and are not used."""
        self.came: list[TopStep] = []
        """The steps that were read, as they came."""
        self._given: list[TopStep] = []
        """The steps, without such lists."""
        self._ended_by: tuple[TopToken, int] | None = None
        """The first token that can only be a special one, and its step."""

    def add(self, steps: Sequence[TopStep]) -> int:
        """Read the next steps; returns the number of the first one that was read.

        That is 0 where they show how all names are to be read: then all steps are read once more, so that their order
        does not matter. `InvalidLogits` if a number is no log-probability or the probabilities add up to more than 1,
        `InvalidInputError` if a chosen token is unknown or not clear, `VocabularyMismatch` if the id and the name of a
        token disagree.
        """
        position, own_lists = len(self.steps), without_copied_lists(steps, self.came[-1] if self.came else None)
        numbers = list(chain.from_iterable([step.log_probs for step in own_lists]))
        # Any sum with NaN is NaN, and a comparison with it false: one look at all numbers, where nothing is wrong.
        if not (max(numbers) <= 0.0 and sum(numbers) <= 0.0):
            for number, step in enumerate(own_lists, position):
                for token in (step.chosen, *step.top):
                    check_number(token, number)
        self.precision.add(numbers)
        self.copied += compress(count(position), map(is_not, own_lists, steps))
        self._given += own_lists
        first = self._read()
        self.came += steps
        return first

    def _read(self) -> int:
        """Read the steps that are given and have not been read; returns the number of the first one that was."""
        first = len(self.steps)
        while (at := len(self.steps)) < len(self._given):
            read = self._clear_from(at) or [self.any_list(self._given[at], at)]
            if self._ended_by is not None and not all(self.names.is_blank(step.token) for step in read):
                raise not_in_vocabulary(*self._ended_by)  # text goes on behind it
            if self._ended_by is None and read[0].doubts is not None and read[0].doubts.stands_for:
                self._ended_by = self._given[at].chosen, at
            self.steps += read
            if (names := self.names.learned()) is not None:
                self.names, self.steps, first = names, [], 0
        return first

    def _clear_from(self, first: int) -> list[ListedStep]:
        """The lists from a step on, up to the first that is not clear."""
        read = []
        # By their numbers: a copy of the rest at each unclear list would be quadratic in the length of an answer.
        for position in range(first, len(self._given)):
            if (clear := self.names.clear(self._given[position], position)) is None:
                break
            read.append(clear)
        return read

    def any_list(self, step: TopStep, position: int) -> ListedStep:
        """Read the list of a step entry by entry, whatever is in it."""
        before = self._given[position - 1].names[0] if position else None
        meant = self.names.meant(step, before, position)
        entries = Entries(meant.chosen[0], meant.own)
        others = entries.add(meant.listed)
        complete = len(entries.found) == self.names.size
        # Engines append the chosen token where it is not among the best, so only the others show what an unlisted token
        # has at most. A list keyed by strings has lost all but one of the tokens that are spelled alike.
        given = len(others) > 0 and all(is_given(other.log_prob) for other in others)
        bounded = given and not any(entry.shared for _, entry in meant.listed)
        # Where every token is listed, the padding of a model's head had its share.
        whole = math.fsum(entries.found.values()) if complete and meant.padded else 1.0
        probabilities = [probability / whole for probability in entries.found.values()]
        unclear = [probability for _, probability in entries.ambiguous]
        total = math.fsum([*probabilities, *unclear, entries.unmapped, entries.alike])
        if total > OVERFULL:
            raise overfull(total, position)
        own, alike = entries.found.get(entries.chosen), self.names.alike(entries.chosen, entries.found)
        # Blanks and special tokens agree with themselves alone: no other token of their name surely counts.
        namesake, doubtful = (entries.alike, 0.0) if alike.namesakes else (0.0, entries.alike)
        doubts = Doubts(
            unmapped=entries.unmapped,
            alike=namesake,
            doubtful=entries.doubtful + doubtful,
            perhaps=alike.perhaps,
            ambiguous=tuple(entries.ambiguous),
            stands_for=meant.chosen if meant.any_special else (),
        )
        return ListedStep(
            token=entries.chosen,
            ids=list(entries.found),
            probabilities=probabilities,
            log_prob=math.log(own) if own else -math.inf,
            total=total,
            smallest=min(other.probability for other in others) if bounded else 1.0,
            complete=complete,
            listed=sum(other.tells for other in others),
            bare=len(step.names) < 2,
            alike=alike,
            doubts=doubts if any(doubts) else None,
            with_blank=meant.with_blank,
            without_blank=meant.without_blank,
        )


def _lost_its_namesake(chosen: Name, entry: Name) -> bool:
    """True if an entry can be another token of the chosen one's text, which overwrote it in a list keyed by texts.

    Nothing but the text is known of them then.
    """
    return chosen == entry == (None, chosen[1], None)


def overfull(total: float, position: int) -> InvalidLogits:
    """The error for a list of tokens whose probabilities add up to more than 1."""
    return InvalidLogits(
        f"The probabilities listed at step {position} add up to {total:.3g}: these are no log-probabilities of the "
        "next token (logits?)."
    )


def check_number(token: TopToken, position: int) -> None:
    """Raise `InvalidLogits` if the number that a token comes with is no log-probability."""
    if math.isnan(token.log_prob) or token.log_prob > ABOVE_ZERO:
        raise InvalidLogits(
            f"At step {position} the token {token.name} has the log-probability {token.log_prob}: it must be at most "
            "0. Ask the engine for log-probabilities, not logits."
        )


def not_in_vocabulary(token: TopToken, position: int) -> InvalidInputError:
    """The error for a chosen token whose name fits none."""
    return InvalidInputError(
        f"The token chosen at step {position}, {token.name}, is not in the vocabulary. A special "
        f"token, or the vocabulary of another model? {ASK_FOR_IDS}"
    )
