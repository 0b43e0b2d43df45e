"""The part of an unknown vocabulary that lists of the best tokens show: the tokens in them, by their spelling.

Tokens are numbered as they come. A name without bytes may be spelled as the tokenizer's own files spell it ("ĠParis",
"▁Paris", "<0x0A>"). Unless some name of the answer shows that this is not so, both readings are kept: two tokens surely
have one spelling if they have it in both, and perhaps if they have it in one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from semtoken.clustering.function_words import english_stopwords
from semtoken.clustering.tokenizers import BYTE_TOKEN, REPLACEMENT
from semtoken.clustering.vocabulary import Vocabulary, neutral_mask, normalize
from semtoken.core.engine_tokens.checked_list import OVERFULL, Alike, Doubts, ListedStep, Meant, MeantStep, Names
from semtoken.core.engine_tokens.passes import BLANKS
from semtoken.core.engine_tokens.token_names import SENTENCEPIECE_BLANK, KeptByName, bytes_in_files, is_markup
from semtoken.core.engine_tokens.top_steps import (
    NAMELESS,
    SPELLED,
    STAND_INS,
    Name,
    TopStep,
    ends_inside,
    entries_of,
    is_unnamed,
)
from semtoken.errors import InvalidInputError

SpellingRule: TypeAlias = Callable[[str], str]
"""The text of a token -> how it is spelled, "" for one that is spelled like no other."""
NOBODY = 0
"""Number of a token that agrees with no other. An entry that perhaps agrees with the chosen token may be this one
instead."""


_ID = itemgetter(0)


class Spelling(NamedTuple):
    """The spelling of a token, as far as its name shows it."""

    text: str
    """The text as the engine spells it; U+FFFD for a piece of a character that it does not spell."""
    in_files: str
    """The text if the engine spells it as the tokenizer's files do."""
    piece: bytes
    read: tuple[str, str]
    """The spellings of `text` and of `in_files` under the rules."""
    blank: bool
    """True if the text is white space or empty."""
    alone: bool
    """True if the token is spelled like no other, as blanks and pieces of characters are."""
    markup: bool
    """True if the token is written as special tokens are, or has no text: it may be text, a special token, or a piece
    of a character."""
    decoded: bool = False
    """True if the text begins with a blank, as none does in a tokenizer's files."""
    nameless: bool = False
    """True if the token has no usable name, so that it may be spelled as any other token is."""

    @classmethod
    def of(cls, rule: SpellingRule, text: str, in_files: str, piece: bytes) -> Spelling:
        """The spelling of a token by its text in both readings, and its bytes."""
        first, second = rule(text), rule(in_files)
        blank = not text.strip() and not in_files.strip()
        # `<0x0A>` looks like markup, and is a byte.
        markup = is_markup(text) and not BYTE_TOKEN.fullmatch(text)
        alone = (not first and not second) or REPLACEMENT in first
        return cls(text, in_files, piece, (first, second), blank, alone, markup)


def _spelling_of(rule: SpellingRule, _: int | None, text: str | None, spelled: bytes | None) -> Spelling:
    if spelled:
        said = spelled.decode("utf-8", "replace")
        return Spelling.of(rule, said, said, spelled)
    if not text:
        return Spelling.of(rule, REPLACEMENT, REPLACEMENT, REPLACEMENT.encode())._replace(markup=text is None)
    piece = text.encode("utf-8", "surrogatepass")
    said = text.removeprefix(REPLACEMENT)
    if said and said != text and REPLACEMENT not in said:  # a piece of a character, or the token that is named behind
        return Spelling.of(rule, said, said, piece)._replace(text=text, in_files=text, markup=True)
    spelling = Spelling.of(rule, text, text if REPLACEMENT in text else _as_in_files(text), piece)
    return spelling._replace(decoded=True) if text[:1].isspace() else spelling


@lru_cache(maxsize=4)
def _spellings(rule: SpellingRule) -> KeptByName[Spelling]:
    """The spellings of names by a rule, which are kept."""
    return KeptByName(partial(_spelling_of, rule))


NONE_ALIKE = Alike(many=True), Alike()
"""For a list that shows no token that is spelled as the chosen one: whether there may be others, and where none may."""
_NOBODYS = Spelling("", "", b"", ("", ""), blank=True, alone=True, markup=False)
_UNKNOWN = Spelling.of(normalize, REPLACEMENT, REPLACEMENT, REPLACEMENT.encode())._replace(alone=False, nameless=True)


class Naming(NamedTuple):
    """An engine's way of naming tokens, as the names so far show it. A field that is true stays true."""

    decoded: bool = False
    """Some name begins with a blank, as none does in a tokenizer's files."""
    texts: bool = False
    """Some entry of a list has a text; then those without one are special tokens or pieces of characters."""


class ListedNames(Names):
    """A vocabulary made of the tokens that the lists of one answer name, numbered from 1: `Names` of a `ListReader`.

    `rule` gives the spelling of a token (`ScoringRules.spelling`); None if tokens of the same spelling do not count.
    `naming` is what is known of the names before the first one comes.
    """

    def __init__(self, rule: SpellingRule | None = None, naming: Naming = Naming()) -> None:  # noqa: B008, immutable
        self.size: int | None = None
        self.rule = rule
        self.plain = rule in (None, normalize)
        """True if tokens that are spelled alike have the same letters."""
        self.spelled_by = _spellings(rule or normalize)
        """The spelling of each name, looked up as in a dictionary."""
        self.spellings: list[Spelling] = [_NOBODYS]
        self.ids: list[int] = [-1]
        """The ids that the engine gives, -1 where it gives none."""
        self.naming = naming
        self._known = naming
        """The naming that was known when the first step was read."""
        self._numbers: dict[Name, int] = {}
        self._others: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.spellings)

    def number(self, name: Name) -> int | None:
        """The number of a token, which is added if it is new; None if its name does not say how it is spelled."""
        known = self._numbers.get(name)
        if known is not None:
            return known
        token, text, spelled = name
        if text is None and not spelled and token is not None and not self.naming.texts:
            return None
        return self._added(name)

    def _added(self, name: Name) -> int:
        number = self._numbers[name] = self._append(self.spelled_by[name], name[0])
        return number

    def other(self, number: int) -> int:
        """The number of a second token that has the same name as this one: a list may hold a name twice."""
        if number not in self._others:
            text, in_files, piece, *_ = self.spellings[number]
            self._others[number] = self._append(Spelling.of(self.rule or normalize, text, in_files, piece), None)
        return self._others[number]

    def without_name(self, token: int | None) -> int:
        """The number of a new token without a usable name; `token` is its id, if the engine gives it."""
        return self._append(_UNKNOWN, token)

    def piece(self, name: Name, *, nameless: bool) -> int | None:
        """The number of a new token that is a piece of a character; None if its name does not say how it is spelled.

        A `nameless` one follows another piece, so that its name may be that of the whole character.
        """
        if self.number(name) is None and not nameless:
            return None
        spelling = _UNKNOWN if nameless else self.spelled_by[name]
        return self._append(spelling._replace(text=name[1] or REPLACEMENT), name[0])

    def _append(self, spelling: Spelling, token: int | None) -> int:
        number = len(self.spellings)
        self.spellings.append(spelling)
        self.ids.append(-1 if token is None else token)
        if spelling.decoded and not self.naming.decoded:
            self.naming = self.naming._replace(decoded=True)
        return number

    def with_others(self, listed: ListedStep, least: float) -> ListedStep:
        """A step with the tokens of its list of at least a probability, which are added if they are new; see
        `ListedStep.others`.
        """
        if listed.others is None:
            return listed
        named = zip(listed.others.names, map(math.exp, listed.others.log_probs), strict=True)
        probabilities = {self.number(name): probability for name, probability in named if probability >= least}
        return listed._replace(ids=list(probabilities), probabilities=list(probabilities.values()), others=None)  # type: ignore[arg-type]

    def same(self, number: int, other: int) -> bool | None:
        """Return True if two different tokens are spelled alike, case and spaces aside; None if that is not clear."""
        one, another = self.spellings[number], self.spellings[other]
        if number == other or one.alone or another.alone:
            return False
        if one.nameless or another.nameless:
            return None
        (first, second), (first_other, second_other) = one.read, another.read
        same, same_in_files = first == first_other, second == second_other and not self.naming.decoded
        if not (same or same_in_files):
            return False
        surely = same and (same_in_files or self.naming.decoded)
        return True if surely and not (one.markup or another.markup) else None

    def clear(self, step: TopStep, position: int) -> ListedStep | None:
        """Read a list whose tokens all have a number, bytes but for the chosen one, and an id if one of them has; see
        `Names.clear`.
        """
        if not self.naming.texts and any(text or spelled for _, text, spelled in step.names[1:]):
            self.naming = Naming(self.naming.decoded, texts=True)
            if not position:  # it is seen before any list is read
                self._known = self.naming
        own, names, log_probs = step.names[0], [*step.names], [*step.log_probs]
        if own in names[1:]:
            again = names.index(own, 1)
            if log_probs[again] != log_probs[0]:
                return None
            del names[again], log_probs[again]
        ids, spelled = list(map(_ID, names)), list(map(SPELLED, names))
        others = spelled[1:]
        if not all(others) or ids.count(None) not in (0, len(ids)) or log_probs[0] in STAND_INS:
            return None
        # Terminators have no bytes, and their names say which they are.
        if not own[2] and (is_unnamed(own) or own[1] in [text for _, text, _ in names[1:]]):
            return None
        if len(set(spelled if own[0] is None else ids)) < len(names):  # a token is there twice
            return None
        probabilities = list(map(math.exp, log_probs))
        total = math.fsum(probabilities)
        # A number that gives no probability may stand for none; one above 0 is no logarithm of a probability.
        if not all(probabilities) or total > OVERFULL or (total > 1.0 and max(log_probs) > 0.0):
            return None
        chosen = self._numbers.get(own) or self._added(own)
        spelling = self.spellings[chosen]
        if spelling.read[0] != spelling.read[1]:
            return None
        found = {chosen: probabilities[0]}
        # One look at all letters of the list: a token that reads alike has those of the chosen one.
        letters = b"\0".join(others).decode("utf-8", "replace").lower()
        if not spelling.alone and (not self.plain or spelling.read[0] in letters):
            for name, probability in zip(names[1:], probabilities[1:], strict=True):
                if self.spelled_by[name].read == spelling.read:
                    found[self._numbers.get(name) or self._added(name)] = probability
        alike = self.alike(chosen, found) if len(found) > 1 else NONE_ALIKE[spelling.alone]
        # By their places: keywords would cost a quarter of all that reading a list does.
        return ListedStep(
            chosen,
            list(found),
            list(found.values()),
            math.log(probabilities[0]),
            total,
            1.0,  # any number of tokens may be spelled alike
            False,  # and so the list is not complete
            len(others),
            len(step.names) < 2,
            step if others else None,
            alike,
            Doubts(perhaps=alike.perhaps) if alike.perhaps else None,
        )

    def meant(self, step: TopStep, before: Name | None, position: int) -> MeantStep:
        """The meaning of the names of a step, by which each entry is a token; see `Names.meant`."""
        own, *listed = entries_of(step)
        inside = before is not None and not before[2] and ends_inside(before)
        chosen = self._chosen(step.names, inside=inside)
        if chosen is None:
            raise InvalidInputError(
                f"The token chosen at step {position} is named only by its id, {own.name[0]}. Say whose ids "
                "these are: name the model, or its tokenizer."
            )
        seen = set[Name]()
        meant: list[Meant] = []
        for entry in listed:
            by_bytes = entry.is_chosen or (entry.is_chosen is None and entry.name[2] is not None)
            if entry.named_alike if own.may_be_own else by_bytes:
                meant.append(Meant((chosen,), (chosen,), is_chosen=True, shared=True))
            else:
                meant.append(self._another(entry.name, chosen, known=own.may_be_own, again=entry.name in seen))
            if entry.tells:
                seen.add(entry.name)
        return MeantStep((chosen,), own, list(zip(listed, meant, strict=True)))

    def _chosen(self, names: Sequence[Name], *, inside: bool) -> int | None:
        """The number of the chosen token, the first of some names; None if its name does not say how it is spelled.

        `inside`: the token before may end inside a character, so that the name may be that of a whole character.
        """
        own = names[0]
        chosen = self.piece(own, nameless=inside) if not own[2] and is_unnamed(own) else self.number(own)
        if chosen is None and not self.naming.texts and all(name[0] is not None for name in names):
            return self.without_name(own[0])  # lists of ids
        return chosen

    def _another(self, name: Name, chosen: int, *, known: bool, again: bool) -> Meant:
        """The meaning of an entry that is another token than the chosen one, or may be one.

        `known`: the chosen token has a number of its own. `again`: the list has had this name before.
        """
        number = None if name == NAMELESS else self.number(name)
        if number is None and self.rule is None:
            number = self.without_name(name[0])
        if number is None:
            return Meant((), (), shared=True)
        if again and not is_unnamed(name):  # with another number it counts for the upper end only, if it may agree
            may_agree = number == chosen or (self.rule is not None and self.same(chosen, number) is not False)
            return Meant((chosen, NOBODY), (), shared=True) if may_agree else Meant((number,), (number,), shared=True)
        number = self.other(number) if number == chosen else number
        if not known and self.spellings[chosen].text == self.spellings[number].text:
            return Meant((chosen, NOBODY), (), shared=True)
        return Meant((number,), (number,), shared=True, pooled=True)

    def alike(self, chosen: int, others: Mapping[int, float]) -> Alike:
        """The listed tokens that are spelled as the chosen one is; see `Names.alike`."""
        same = {number: self.same(chosen, number) for number in others if number != chosen}
        perhaps = math.fsum(others[number] for number, alike in same.items() if alike is None)
        surely = tuple(number for number, alike in same.items() if alike)
        own = self.spellings[chosen]
        return Alike(surely, perhaps, many=not own.alone, namesakes=not (own.alone or own.markup))

    def is_blank(self, token: int) -> bool:
        """Return True for a token that is white space or a special one."""
        return self.spellings[token].blank

    def learned(self) -> ListedNames | None:
        """The names once more from the start, if those read by now have shown how all are spelled; else None."""
        return None if self.naming == self._known else ListedNames(self.rule, self.naming)

    def vocabulary(self, said: str | None, ids: Sequence[int]) -> Vocabulary:
        """The tokens named so far as a `Vocabulary`; `ids` are the chosen ones.

        `said`, the answer as the engine gives it, shows whether markup at its end is text.
        """
        texts, pieces = [spelling.text for spelling in self.spellings], [spelling.piece for spelling in self.spellings]
        if not self.naming.decoded and any(text.startswith(BLANKS) for text in texts):
            texts = [spelling.in_files for spelling in self.spellings]
            pieces = [
                spelling.piece
                if spelling.in_files == spelling.text
                else spelling.in_files.encode("utf-8", "surrogatepass")
                for spelling in self.spellings
            ]
        if REPLACEMENT in "".join([texts[number] for number in ids]):
            for number, piece in _pieces_of_characters(texts, ids):
                texts[number], pieces[number] = REPLACEMENT, piece
        for number in self._special(texts, said, ids):
            texts[number], pieces[number] = "", b""
        return Vocabulary(
            texts=tuple(texts),
            pieces=tuple(pieces),
            neutral=neutral_mask(texts, english_stopwords()),
            byte_tokens=np.zeros(len(texts), dtype=bool),
        )

    def _special(self, texts: Sequence[str], said: str | None, ids: Sequence[int]) -> list[int]:
        """Tokens that may be special ones and are: no text follows them, and the answer does not spell them.

        So is a last token without a name, if the others spell the whole answer: a terminator, or the first piece of a
        character that was cut off. Several are no terminator: some streams lose whole characters.
        """
        *others, last = [*ids] or [-1]
        if said and texts[last] == REPLACEMENT and "".join(texts[i] for i in others).rstrip() == said.rstrip():
            return [last]
        may_be = [number for number, spelling in enumerate(self.spellings) if spelling.markup]
        if not may_be:
            return []
        ordinary = [k for k, i in enumerate(ids) if not (self.spellings[i].markup or self.spellings[i].blank)]
        inside = set(ids[: ordinary[-1]]) if ordinary else set()
        special = [number for number in may_be if number not in inside]
        spelled = "".join(texts[i] for i in ids if i not in special)
        return special if said is None or "".join(spelled.split()) == "".join(said.split()) else []


def _pieces_of_characters(texts: Sequence[str], ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """The bytes of the chosen tokens that spell one character together, as the name of the last of them gives it.

    How many of them each token has is not known, but all touch the same character: one each, and the last one the rest.
    """
    run: list[int] = []
    for number in ids:
        run.append(number)
        said = texts[number].removeprefix(REPLACEMENT)
        if said == texts[number] or REPLACEMENT in said:
            run.clear()
        elif said and len(spelled := said.encode("utf-8", "surrogatepass")) >= len(run):
            yield from zip(
                run, (*(spelled[k : k + 1] for k in range(len(run) - 1)), spelled[len(run) - 1 :]), strict=True
            )
            run.clear()


def _as_in_files(text: str) -> str:
    """A string as decoded text, if it is spelled as the tokenizer's own files spell it."""
    if SENTENCEPIECE_BLANK in text:
        return text.replace(SENTENCEPIECE_BLANK, " ")
    piece = bytes_in_files(text)
    return text if piece is None else piece.decode("utf-8", "replace")
