"""An engine's lists, read: which tokens are listed with which probability, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.engine_tokens.token_names import NameMatches, TokenNames, ends_character, token_names
from semtoken.core.engine_tokens.top_steps import (
    ABOVE_ZERO,
    STAND_INS,
    Entry,
    Name,
    TopStep,
    TopToken,
    entries_of,
    is_given,
)
from semtoken.errors import BackendError, InvalidInputError, InvalidLogits, SemtokenError, VocabularyMismatch

OVERFULL = 1.05  # a list whose probabilities add up to more holds no probabilities
OUTSIDE = 0.01  # probability beyond the vocabulary; rows that pad a model's head get next to none
ASK_FOR_IDS = "Have the engine send token ids (vLLM: return_tokens_as_token_ids) or bytes."


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
    """Sum of the listed probabilities, those of unclear entries included."""
    smallest: float
    """The highest probability that a token outside the list can have; 1 where the list does not show it."""
    complete: bool
    """Whether every token of the vocabulary is listed."""
    listed: int
    """The number of entries with a probability beside the chosen token."""
    unmapped: float = 0.0
    """Sum of the probabilities of entries whose names fit no token."""
    alike: float = 0.0
    """Probability of another token that is written as the chosen one is: a list keyed by texts has lost an id."""
    doubtful: float = 0.0
    """Sum of the probabilities of entries that seem to be the chosen token and have another number than its own: they
    count for the upper end only, and not in `total`."""
    perhaps: float = 0.0
    """Sum of the probabilities of entries that may be spelled as the chosen token is, where no vocabulary shows it."""
    many: bool = False
    """Whether any number of tokens may be spelled as the chosen token is, where no vocabulary shows it."""
    with_blank: int = 0
    """The number of names that begin with a blank."""
    without_blank: int = 0
    """The number of names that would be another token's, too, if the engine left out the blank at its beginning."""
    ambiguous: tuple[tuple[tuple[int, ...], float], ...] = ()
    """The entries whose names fit several tokens: the ids of these tokens, and the probability of the entry."""
    bare: bool = False
    """Whether the engine gave no list at all."""
    stands_for: tuple[int, ...] = ()
    """The special tokens that the chosen one may be, if its name does not say which; `token` is the first of them."""
    others: TopStep | None = None
    """The step, if `ids` are only the chosen token and those that may agree with it: the others have no numbers yet."""
    spelled: tuple[int, ...] = ()
    """The `ids` of tokens that are surely spelled as the chosen token is, where no vocabulary shows it."""


@dataclass
class Entries:
    """The entries of a list, sorted by what is known of them. Fields without a docstring are those of `ListedStep`."""

    chosen: int
    """The id of the chosen token."""
    own: Entry
    """The name and number that the chosen token itself came with."""
    ambiguous: list[tuple[tuple[int, ...], float]] = field(default_factory=list)
    unmapped: float = 0.0
    alike: float = 0.0
    doubtful: float = 0.0
    listed: int = 0

    def __post_init__(self) -> None:
        self.known = self.own.may_be_own
        """True if the chosen token has a number of its own; it then goes before that of every entry."""
        self.found = {self.chosen: self.own.probability} if self.known else {}
        """The probability of each token that is named clearly."""

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

    def listed_step(self, position: int, *, whole: float = 1.0, **more: Any) -> ListedStep:
        """The step as far as it is known, with clear probabilities as shares of a `whole`.

        `InvalidLogits` if all of them add up to more than 1.
        """
        own, probabilities = self.found.get(self.chosen), [probability / whole for probability in self.found.values()]
        unclear = [probability for _, probability in self.ambiguous]
        total = math.fsum([*probabilities, *unclear, self.unmapped, self.alike])
        if total > OVERFULL:
            raise overfull(total, position)
        return ListedStep(
            token=self.chosen,
            ids=list(self.found),
            probabilities=probabilities,
            log_prob=math.log(own) if own else -math.inf,
            total=total,
            listed=self.listed,
            unmapped=self.unmapped,
            alike=self.alike,
            doubtful=self.doubtful,
            ambiguous=tuple(self.ambiguous),
            **more,
        )


class ListReader:
    """Reads the steps of one answer in their order: finds their tokens in a vocabulary and checks their numbers."""

    names = None
    """The tokens that lists have named, where there is no vocabulary: see `NameReader`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.steps: list[ListedStep] = []
        self._vocabulary = vocabulary
        self._names = token_names(vocabulary)
        self._matches = self._names.matches
        """Gives the tokens that may be meant by a name, as the engine spells it."""
        self._blanks_left_out = False
        """The engine is known to name tokens without the blank that they begin with."""
        self._ended_by: tuple[TopToken, int] | None = None
        """The first token that can only be a special one, and its step."""

    def add(self, steps: Sequence[TopStep]) -> int:
        """Read the next steps, whose numbers are log-probabilities; returns the number of the first of them.

        `InvalidInputError` if a chosen token is unknown or not clear, `InvalidLogits` if the probabilities add up to
        more than 1, `VocabularyMismatch` if the id and the name of a token disagree.
        """
        first = len(self.steps)
        for position, step in enumerate(steps, first):
            if not self._blanks_left_out and self._matches[step.names[0]].blanks == "left_out":
                # One such name shows how the engine names all tokens, from here on.
                self._blanks_left_out, self._matches = True, self._names.matches_without_blank
            read = self._clear(step) or self._any(step, position)
            if self._ended_by is not None and not self._vocabulary.blank[read.token]:
                raise not_in_vocabulary(*self._ended_by)  # text goes on behind it
            if read.stands_for and self._ended_by is None:
                self._ended_by = step.chosen, position
            self.steps.append(read)
        return first

    def is_blank(self, token: int) -> bool:
        """Return True for a token that is white space or a special one."""
        return bool(self._vocabulary.blank[token])

    def _clear(self, step: TopStep) -> ListedStep | None:
        """Read a list of which every name and number is clear, as in nearly all; None for any other.

        The result is that of `_any`, in a tenth of the time.
        """
        log_probs = step.log_probs
        if len(log_probs) < 2 or not is_given(min(log_probs)) or max(log_probs) > 0:
            return None
        meant = list(map(self._matches.__getitem__, step.names))
        chosen, *ids = [match.clear for match in meant]
        # A byte token's name may stand for a whole character, so that `_any` has to look.
        if chosen < 0 or min(ids) < 0 or len(set(ids)) < len(ids) or self._vocabulary.byte_tokens[chosen]:
            return None
        own, *probabilities = map(math.exp, log_probs)
        others = list(log_probs[1:])
        if log_probs[0] in STAND_INS:
            return None
        if chosen in ids:
            place = ids.index(chosen)
            # Two numbers for one token: `_any` knows which counts.
            if probabilities[place] != own:
                return None
            del others[place]
        else:
            ids.append(chosen)
            probabilities.append(own)
        total = math.fsum(probabilities)
        if not total <= OVERFULL:  # or NaN
            return None
        blanks = [match.blanks for match in meant]
        return ListedStep(
            chosen,
            ids,
            probabilities,
            math.log(own) if own else -math.inf,
            total,
            smallest=math.exp(min(others)) if others else 1.0,
            complete=len(ids) == self._vocabulary.size,
            listed=len(others),
            with_blank=blanks.count("begins"),
            without_blank=0 if self._blanks_left_out else blanks.count("lacks"),
        )

    def _any(self, given: TopStep, position: int) -> ListedStep:
        """Any list, entry by entry."""
        step, shift = _inside(given, self._vocabulary, position)
        meant = list(map(self._matches.__getitem__, step.names))
        for token, match in zip((step.chosen, *step.top), meant, strict=True):
            if not match.fits:
                raise _misnamed(token, self._names, position)
        may_be = _chosen_ids(step, meant[0], position)
        own, *listed = entries_of(step, shift)
        entries = Entries(may_be[0], own)
        others = self._sort(entries, zip(listed, meant[1:], strict=True))
        entries.listed = sum(is_given(other.log_prob) for other in others)
        complete = len(entries.found) == self._vocabulary.size
        # Engines append the chosen token where it is not among the best, so only the others show what an unlisted token
        # has at most. A list keyed by strings has lost all but one of the tokens that are spelled alike.
        bounded = entries.listed == len(others) > 0 and not any(match.shared for match in meant[1:])
        blanks = [match.blanks for match in meant]
        return entries.listed_step(
            position,
            # where every token is listed, the padding of a model's head had its share
            whole=math.fsum(entries.found.values()) if complete and step is not given else 1.0,
            smallest=min(other.probability for other in others) if bounded else 1.0,
            complete=complete,
            with_blank=blanks.count("begins"),
            without_blank=0 if self._blanks_left_out else blanks.count("lacks"),
            bare=len(given.names) < 2,
            stands_for=may_be if meant[0].any_special else (),
        )

    def _sort(self, entries: Entries, listed: Iterable[tuple[Entry, NameMatches]]) -> list[Entry]:
        """Take in the entries of a list by what their names may mean; returns those that are not the chosen token."""
        own, chosen = _bytes_of(entries.own.name), entries.chosen
        others, seen = list[Entry](), set[Entry]()
        for entry, match in listed:
            candidates, likely = match.candidates, match.likely
            if match.any_special and own not in (None, _bytes_of(entry.name)):
                candidates = tuple(token for token in candidates if token != chosen)  # that one has another name
                likely = tuple(token for token in likely if token != chosen) or candidates
            itself = likely == (chosen,) or (chosen in candidates and (entry.name[0] is not None or entry.named_alike))
            if not itself:
                others.append(entry)
            if entry in seen or not entry.tells:
                continue
            seen.add(entry)
            probability = entry.probability
            if itself:
                if entries.add_chosen(entry, candidates):
                    others.append(entry)
            elif len(likely) == 1 and likely[0] not in entries.found:
                entries.found[likely[0]] = probability
            elif len(likely) == 1:  # the same entry again, or another token of this name
                rest = tuple(token for token in candidates if token not in entries.found)
                if rest and probability != entries.found[likely[0]]:
                    entries.ambiguous.append((rest, probability))
            elif candidates:
                entries.ambiguous.append((candidates, probability))
            else:
                entries.unmapped += probability
        return others


def _lost_its_namesake(chosen: Name, entry: Name) -> bool:
    """Whether an entry can be another token of the chosen one's text, which overwrote it in a list keyed by texts.

    Nothing but the text is known of them then.
    """
    return chosen == entry == (None, chosen[1], None)


def _inside(step: TopStep, vocabulary: Vocabulary, position: int) -> tuple[TopStep, float]:
    """The step without the rows that pad a model's head, and what has to be added to log-probabilities without them.

    `VocabularyMismatch` if more of the probability is outside the vocabulary than padding gets.
    """
    top = step.top
    outside = [token for token in top if token.id is not None and token.id >= vocabulary.size]
    if not outside:
        return step, 0.0
    mass = math.fsum(math.exp(min(token.log_prob, 0.0)) for token in outside)
    # Padding rows have hardly any probability: what has more is a token of another vocabulary.
    if mass > OUTSIDE:
        likeliest = max(outside, key=lambda token: token.log_prob)
        raise VocabularyMismatch(
            f"At step {position} the engine lists {likeliest.name} with the probability {mass:.3g}; the vocabulary "
            f"ends before, with {vocabulary.size:,} tokens. It belongs to another model."
        )
    inside = [token for token in top if token.id is None or token.id < vocabulary.size]
    return TopStep(step.chosen, inside), -math.log1p(-mass)


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


def _misnamed(token: TopToken, names: TokenNames, position: int) -> SemtokenError:
    vocabulary, known, piece = names.vocabulary, f"beyond its {names.vocabulary.size:,} tokens", b""
    if token.id is not None and 0 <= token.id < vocabulary.size:
        known, piece = repr(vocabulary.texts[token.id]), vocabulary.pieces[token.id]
    spelled = _bytes_of(token[1:]) or b""
    # vLLM calls the token that completes a character by all of it (`without_borrowed_names`).
    if ends_character(piece) and spelled.endswith(piece):
        return BackendError(
            f"At step {position} the engine names token {token.id} by all of {spelled.decode('utf-8', 'replace')!r}, "
            "of which it is the last piece: the pieces before it are missing or out of order. Ask again."
        )
    return VocabularyMismatch(
        f"At step {position} the engine names token {token.id} {token.name}; in the vocabulary it is "
        f"{known}. It belongs to another model."
    )


def _chosen_ids(step: TopStep, meant: NameMatches, position: int) -> tuple[int, ...]:
    """The chosen token's id; those of all special tokens where its name says no more."""
    token, candidates = step.chosen, meant.candidates
    if len(meant.likely) == 1:
        return meant.likely
    if meant.any_special and not any(listed in candidates for listed, _, _ in step.names[1:]):
        return candidates  # if special tokens were listed by id, one of them might be the chosen one
    if not candidates:
        raise not_in_vocabulary(token, position)
    raise InvalidInputError(
        f"The token chosen at step {position}, {token.name}, may be any of {len(candidates)} tokens of the "
        f"vocabulary. {ASK_FOR_IDS}"
    )


def not_in_vocabulary(token: TopToken, position: int) -> InvalidInputError:
    """The error for a chosen token whose name fits none."""
    return InvalidInputError(
        f"The token chosen at step {position}, {token.name}, is not in the vocabulary. A special "
        f"token, or the vocabulary of another model? {ASK_FOR_IDS}"
    )


def _bytes_of(name: Name) -> bytes | None:
    _, text, spelled = name
    return spelled or (text.encode("utf-8", "surrogatepass") if text else None)
