"""The names of tokens of a known vocabulary, in the lists of one answer: what each of them means."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.engine_tokens.checked_list import (
    ASK_FOR_IDS,
    OVERFULL,
    Alike,
    ListedStep,
    Meant,
    MeantStep,
    Names,
    not_in_vocabulary,
)
from semtoken.core.engine_tokens.token_names import NameMatches, TokenNames, ends_character, token_names
from semtoken.core.engine_tokens.top_steps import (
    NAMELESS,
    STAND_INS,
    Entry,
    Name,
    TopStep,
    TopToken,
    entries_of,
    is_borrowed,
    is_given,
)
from semtoken.errors import BackendError, InvalidInputError, SemtokenError, VocabularyMismatch

OUTSIDE = 0.01  # probability beyond the vocabulary; rows that pad a model's head get next to none


class KnownNames(Names):
    """The names in the lists of one answer, which mean tokens of a vocabulary: the `Names` of a `ListReader`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.size: int | None = vocabulary.size
        self._vocabulary = vocabulary
        self._names = token_names(vocabulary)
        self._matches = self._names.matches
        """Gives the tokens that may be meant by a name, as the engine spells it."""
        self._blanks_left_out = False
        """The engine is known to name tokens without the blank that they begin with."""

    def clear(self, step: TopStep, position: int) -> ListedStep | None:
        """Read a list of which all names and numbers are clear; see `Names.clear`."""
        if not self._blanks_left_out and self._matches[step.names[0]].blanks == "left_out":
            # One such name shows how the engine names all tokens, from here on.
            self._blanks_left_out, self._matches = True, self._names.matches_without_blank
        log_probs = step.log_probs
        if len(log_probs) < 2 or not is_given(min(log_probs)) or max(log_probs) > 0:
            return None
        meant = list(map(self._matches.__getitem__, step.names))
        chosen, *ids = [match.clear for match in meant]
        # A byte token's name may stand for a whole character, so that `any_list` has to look.
        if chosen < 0 or min(ids) < 0 or len(set(ids)) < len(ids) or self._vocabulary.byte_tokens[chosen]:
            return None
        own, *probabilities = map(math.exp, log_probs)
        others = list(log_probs[1:])
        if log_probs[0] in STAND_INS:
            return None
        if chosen in ids:
            place = ids.index(chosen)
            # Two numbers for one token: `any_list` knows which counts.
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

    def _inside(self, step: TopStep, position: int) -> tuple[TopStep, float]:
        """The step without the rows that pad a model's head, and what has to be added to log-probabilities without
        them.

        `VocabularyMismatch` if more of the probability is outside the vocabulary than padding gets.
        """
        top = step.top
        outside = [token for token in top if token.id is not None and token.id >= self._vocabulary.size]
        if not outside:
            return step, 0.0
        mass = math.fsum(math.exp(min(token.log_prob, 0.0)) for token in outside)
        # Padding rows have hardly any probability: what has more is a token of another vocabulary.
        if mass > OUTSIDE:
            likeliest = max(outside, key=lambda token: token.log_prob)
            raise VocabularyMismatch(
                f"At step {position} the engine lists {likeliest.name} with the probability {mass:.3g}; the vocabulary "
                f"ends before, with {self._vocabulary.size:,} tokens. It belongs to another model."
            )
        inside = [token for token in top if token.id is None or token.id < self._vocabulary.size]
        return TopStep(step.chosen, inside), -math.log1p(-mass)

    def meant(self, step: TopStep, before: Name | None, position: int) -> MeantStep:
        """The meaning of the names of a step; see `Names.meant`."""
        inside, shift = self._inside(step, position)
        entries = entries_of(inside, shift)
        meant = [self._matches[entry.name] for entry in entries]
        for entry, match in zip(entries, meant, strict=True):
            if not match.fits:
                raise _misnamed(_token(entry), self._names, position)
        own, *listed = entries
        chosen = self._chosen(entries, meant[0], position)
        blanks = [match.blanks for match in meant]
        return MeantStep(
            chosen,
            own,
            [(entry, _meant(entry, match, own, chosen[0])) for entry, match in zip(listed, meant[1:], strict=True)],
            any_special=meant[0].any_special,
            with_blank=blanks.count("begins"),
            without_blank=0 if self._blanks_left_out else blanks.count("lacks"),
            padded=inside is not step,
        )

    def _chosen(self, entries: Sequence[Entry], meant: NameMatches, position: int) -> tuple[int, ...]:
        """The chosen token's id; those of all special tokens where its name says no more."""
        candidates, likely = meant.candidates, meant.likely
        if is_borrowed(entries[0].name):
            candidates = likely = tuple(token for token in candidates if self._vocabulary.broken[token])
        if len(likely) == 1:
            return likely
        if meant.any_special and not any(entry.name[0] in candidates for entry in entries[1:]):
            return candidates  # if special tokens were listed by id, one of them might be the chosen one
        token = _token(entries[0])
        if not candidates and entries[0].name != NAMELESS:
            raise not_in_vocabulary(token, position)
        raise InvalidInputError(
            f"The token chosen at step {position}, {token.name}, may be any of {len(candidates) or self.size} tokens "
            f"of the vocabulary. {ASK_FOR_IDS}"
        )

    def alike(self, chosen: int, others: Mapping[int, float]) -> Alike:
        """Say whether another token of the chosen one's name agrees; see `Names.alike`."""
        return Alike(namesakes=not (self._vocabulary.blank[chosen] or self._vocabulary.broken[chosen]))

    def is_blank(self, token: int) -> bool:
        """Return True for a token that is white space or a special one."""
        return bool(self._vocabulary.blank[token])


def _meant(entry: Entry, match: NameMatches, own: Entry, chosen: int) -> Meant:
    candidates, likely = match.candidates, match.likely
    if match.any_special and _bytes_of(own.name) not in (None, _bytes_of(entry.name)):
        candidates = tuple(token for token in candidates if token != chosen)  # that one has another name
        likely = tuple(token for token in likely if token != chosen) or candidates
    is_chosen = likely == (chosen,) or (chosen in candidates and entry.named_alike)
    return Meant(candidates, likely, is_chosen, match.shared)


def _token(entry: Entry) -> TopToken:
    return TopToken(entry.log_prob, *entry.name)


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


def _bytes_of(name: Name) -> bytes | None:
    _, text, spelled = name
    return spelled or (text.encode("utf-8", "surrogatepass") if text else None)
