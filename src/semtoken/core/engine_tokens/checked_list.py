"""An engine's lists, read: which tokens are listed with which probability, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.engine_tokens.token_names import NameMatches, TokenNames, token_names
from semtoken.core.engine_tokens.top_steps import (
    ABOVE_ZERO,
    STAND_INS,
    Name,
    TopStep,
    TopToken,
    is_given,
    is_own,
    is_same_number,
    is_unnamed,
    may_be_one,
)
from semtoken.errors import InvalidInput, InvalidLogits, VocabularyMismatch

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
    """Its log-probability, <= 0; -inf where the engine does not tell it."""
    total: float
    """Sum of the listed probabilities, those of unclear entries included."""
    smallest: float
    """The highest probability that a token outside the list can have; 1 where the list does not tell."""
    complete: bool
    """Whether every token of the vocabulary is listed."""
    listed: int
    """How many entries beside the chosen token have a probability."""
    unmapped: float = 0.0
    """Sum of the probabilities of entries whose names fit no token."""
    alike: float = 0.0
    """Probability of another token that is written as the chosen one is: a list keyed by texts has lost an id."""
    doubtful: float = 0.0
    """Sum of the probabilities of entries that seem to be the chosen token and have another number than its own: they
    count for the upper end only, and not in `total`."""
    perhaps: float = 0.0
    """Sum of the probabilities of entries that may be spelled as the chosen token is, where no vocabulary tells."""
    many: bool = False
    """Whether any number of tokens may be spelled as the chosen one is, where no vocabulary tells."""
    with_blank: int = 0
    """How many names begin with a blank."""
    without_blank: int = 0
    """How many names would be another token's, too, if the engine left out the blank that a token begins with."""
    ambiguous: tuple[tuple[tuple[int, ...], float], ...] = ()
    """The entries whose names fit several tokens: the ids of these tokens, and the probability of the entry."""
    bare: bool = False
    """Whether the engine gave no list at all."""
    stands_for: tuple[int, ...] = ()
    """The special tokens that the chosen one may be, if its name does not say which; `token` is the first of them."""
    others: TopStep | None = None
    """The step, if the chosen token alone is among `ids`: the others have no numbers yet, as none agrees with it."""
    spelled: tuple[int, ...] = ()
    """Those of `ids` that are surely spelled as the chosen token is, where no vocabulary tells."""


class ListReader:
    """Reads the steps of one answer one by one: finds their tokens in a vocabulary and checks their numbers."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._names = token_names(vocabulary)
        self._matches = self._names.matches
        """Gives the tokens that may be meant by a name, as the engine spells it."""
        self._blanks_left_out = False
        """The engine is known to name tokens without the blank that they begin with."""

    def read(self, step: TopStep, position: int) -> ListedStep:
        """Read and check one step; `position` is its number, for messages.

        `InvalidInput` if the chosen token is unknown or not clear, `InvalidLogits` if a log-probability is NaN or above
        0 or the probabilities add up to more than 1, `VocabularyMismatch` if the id and the name of a token disagree.
        """
        if not self._blanks_left_out and self._matches[step.names[0]].blanks == "left_out":
            self._blanks_left_out, self._matches = True, self._names.matches_without_blank
        return self._clear_list(step) or self._any_list(step, position)

    def _clear_list(self, step: TopStep) -> ListedStep | None:
        """A list of which every name and number is clear, as in nearly all; None for any other.

        What `_any_list` says of it, in a tenth of the time.
        """
        log_probs = step.log_probs
        if len(log_probs) < 2 or not is_given(min(log_probs)) or max(log_probs) > 0:
            return None
        meant = list(map(self._matches.__getitem__, step.names))
        chosen, *ids = [match.clear for match in meant]
        if chosen < 0 or min(ids) < 0 or len(set(ids)) < len(ids) or self._vocabulary.byte_tokens[chosen]:
            return None
        own, *probabilities = map(math.exp, log_probs)
        others = list(log_probs[1:])
        if log_probs[0] in STAND_INS:
            return None
        if chosen in ids:
            place = ids.index(chosen)
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

    def _any_list(self, step: TopStep, position: int) -> ListedStep:
        vocabulary, names, picked, listed = self._vocabulary, self._names, step.chosen, step.top
        for token in (picked, *listed):
            check_number(token, position)
        top, shift = _inside(listed, vocabulary, position)
        meant = [self._matches[token[1:]] for token in (picked, *top)]
        for token, match in zip((picked, *top), meant, strict=True):
            if not match.fits:
                raise _misnamed(token, names, position)
        may_be = _chosen_ids(picked, meant[0], top, position)
        chosen = may_be[0]
        entries = _Entries(picked, chosen, shift)
        for token, match in zip(top, meant[1:], strict=True):
            entries.add(token, match)
        blanks = [match.blanks for match in meant]
        probabilities = list(entries.found.values())
        complete = len(probabilities) == vocabulary.size
        if complete and len(top) < len(listed):  # the padding of a model's head had its share
            whole = math.fsum(probabilities)
            probabilities = [probability / whole for probability in probabilities]
        total = math.fsum([*probabilities, *(p for _, p in entries.ambiguous), entries.unmapped, entries.alike])
        if total > OVERFULL:
            raise overfull(total, position)
        return ListedStep(
            token=chosen,
            log_prob=math.log(entries.found[chosen]) if entries.found.get(chosen) else -math.inf,
            ids=list(entries.found),
            probabilities=probabilities,
            total=total,
            smallest=1.0 if any(match.shared for match in meant[1:]) else _smallest(entries.others, shift),
            complete=complete,
            listed=sum(is_given(token.log_prob) for token in entries.others),
            with_blank=blanks.count("begins"),
            without_blank=0 if self._blanks_left_out else blanks.count("lacks"),
            ambiguous=tuple(entries.ambiguous),
            unmapped=entries.unmapped,
            bare=not listed,
            alike=entries.alike,
            doubtful=entries.doubtful,
            stands_for=may_be if meant[0].any_special else (),
        )


class _Entries:
    """The entries of a list, sorted by what is known of them."""

    def __init__(self, picked: TopToken, chosen: int, shift: float) -> None:
        self.picked = picked
        """The chosen token as the engine names it."""
        self.chosen = chosen
        """The id of the chosen token."""
        self.shift = shift
        self.known = is_own(picked.log_prob)
        """Whether the chosen token has a number of its own, which every entry yields to."""
        self.found: dict[int, float] = {chosen: _probability(picked.log_prob, shift)} if self.known else {}
        self.alike = self.doubtful = 0.0
        self._seen: set[TopToken] = set()
        self.ambiguous: list[tuple[tuple[int, ...], float]] = []
        self.unmapped = 0.0
        self.others: list[TopToken] = []
        """The listed tokens that are not the chosen one."""

    def add(self, token: TopToken, meant: NameMatches) -> None:
        """Take in an entry of which is known what its name may mean."""
        candidates, likely = meant.candidates, meant.likely
        if meant.any_special and _spelled(self.picked) not in (None, _spelled(token)):
            candidates = tuple(c for c in candidates if c != self.chosen)  # that one has another name
            likely = tuple(c for c in likely if c != self.chosen) or candidates
        close = is_same_number(token.log_prob, self.picked.log_prob)
        named_alike = may_be_one(self.picked[1:], token[1:]) is not False and (close or not is_unnamed(token[1:]))
        itself = likely == (self.chosen,) or (self.chosen in candidates and (token.id is not None or named_alike))
        if not itself:
            self.others.append(token)
        if token in self._seen or (not is_given(token.log_prob) and token.log_prob > -math.inf):
            return
        self._seen.add(token)
        probability = _probability(token.log_prob, self.shift)
        if itself:
            self._add_once_more(token, candidates, probability, close=close)
        elif len(likely) == 1 and likely[0] not in self.found:
            self.found[likely[0]] = probability
        elif len(likely) == 1:  # the same entry again, or another token of this name
            rest = tuple(c for c in candidates if c not in self.found)
            if rest and probability != self.found[likely[0]]:
                self.ambiguous.append((rest, probability))
        elif candidates:
            self.ambiguous.append((candidates, probability))
        else:
            self.unmapped += probability

    def _add_once_more(self, token: TopToken, candidates: tuple[int, ...], probability: float, *, close: bool) -> None:
        """Take in an entry that seems to be the chosen token, whose own number is the one that counts."""
        if not self.known:
            if is_own(token.log_prob):
                self.found.setdefault(self.chosen, probability)
        elif close:
            return
        elif lost_its_namesake(self.picked[1:], token[1:]) and token.log_prob < self.picked.log_prob:
            self.others.append(token)
            rest = tuple(c for c in candidates if c not in self.found)
            if rest:
                self.ambiguous.append((rest, probability))
            else:
                self.alike += probability
        else:
            self.doubtful += probability


def lost_its_namesake(chosen: Name, entry: Name) -> bool:
    """Whether an entry can be another token of the chosen one's text, which overwrote it in a list keyed by texts.

    Nothing but the text is known of them then.
    """
    return chosen == entry == (None, chosen[1], None)


def _inside(top: tuple[TopToken, ...], vocabulary: Vocabulary, position: int) -> tuple[tuple[TopToken, ...], float]:
    """The entries that are tokens, and what their log-probabilities gain without the rows that pad a model's head.

    `VocabularyMismatch` if more of the probability lies outside the vocabulary than padding gets.
    """
    outside = [token for token in top if token.id is not None and token.id >= vocabulary.size]
    if not outside:
        return top, 0.0
    mass = math.fsum(_probability(token.log_prob) for token in outside)
    if mass > OUTSIDE:
        likeliest = max(outside, key=lambda token: token.log_prob)
        raise VocabularyMismatch(
            f"At step {position} the engine lists {likeliest.name} with the probability {mass:.3g}; the vocabulary "
            f"ends before, with {vocabulary.size:,} tokens. It belongs to another model."
        )
    return tuple(token for token in top if token.id is None or token.id < vocabulary.size), -math.log1p(-mass)


def _probability(log_prob: float, shift: float = 0.0) -> float:
    return math.exp(min(log_prob + shift, 0.0))


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


def _misnamed(token: TopToken, names: TokenNames, position: int) -> VocabularyMismatch:
    known = (
        repr(names.vocabulary.texts[token.id])
        if token.id is not None and 0 <= token.id < names.vocabulary.size
        else f"beyond its {names.vocabulary.size:,} tokens"
    )
    return VocabularyMismatch(
        f"At step {position} the engine names token {token.id} {token.name}; in the vocabulary it is "
        f"{known}. It belongs to another model."
    )


def _chosen_ids(token: TopToken, meant: NameMatches, top: Sequence[TopToken], position: int) -> tuple[int, ...]:
    """The chosen token's id; those of all special tokens where its name tells no more."""
    candidates = meant.candidates
    if len(meant.likely) == 1:
        return meant.likely
    if meant.any_special and not any(other.id in candidates for other in top):
        return candidates  # if special tokens were listed by id, one of them might be the chosen one
    if not candidates:
        raise not_in_vocabulary(token, position)
    raise InvalidInput(
        f"The token chosen at step {position}, {token.name}, may be any of {len(candidates)} tokens of the "
        f"vocabulary. {ASK_FOR_IDS}"
    )


def not_in_vocabulary(token: TopToken, position: int) -> InvalidInput:
    """The error for a chosen token whose name fits none."""
    return InvalidInput(
        f"The token chosen at step {position}, {token.name}, is not in the vocabulary. A special "
        f"token, or the vocabulary of another model? {ASK_FOR_IDS}"
    )


def _spelled(token: TopToken) -> bytes | None:
    return token.bytes or (token.text.encode("utf-8", "surrogatepass") if token.text else None)


def _smallest(others: Sequence[TopToken], shift: float) -> float:
    """What an unlisted token has at most, if no names are shared.

    Engines append the chosen token where it is not among the best, so only the others tell. A list keyed by strings
    has lost all but one of the tokens that are spelled alike.
    """
    if not others or any(not is_given(token.log_prob) for token in others):
        return 1.0
    return _probability(min(token.log_prob for token in others), shift)
