"""Finding the token of a vocabulary that an engine means by the bytes or the string that it gives.

Strings are no identities: byte pieces of characters decode alike, or to nothing, as special tokens do. A name that fits
several tokens is answered with all of them. A name in markup that fits none ("<|im_end|>") is that of a special token;
the vocabulary does not say of which. The names in some replies also say whether two models have the same tokenizer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Literal, TypeVar

import numpy as np

from semtoken.clustering.tokenizers import BYTE_TOKEN, REPLACEMENT, spelled_bytes
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.engine_tokens.top_steps import TopStep, TopToken, is_unnamed, spelling
from semtoken.errors import VocabularyMismatch

SENTENCEPIECE_BLANK = "\N{LOWER ONE EIGHTH BLOCK}"
MARKUP = re.compile(r"<[^<>\s]+>|\[/?(?=\w*[A-Z]{3})\w+\]")  # <|im_end|>, </s>, [INST], [gMASK]; no [i] of a program
K = TypeVar("K", bound=Hashable)


def is_markup(name: str | bytes | None) -> bool:
    """Return True if a name is written as those of special tokens are, such as `<|im_end|>` or `[INST]`."""
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    return text is not None and MARKUP.fullmatch(text) is not None


def bytes_in_files(text: str) -> bytes | None:
    """The bytes of a token by its name in a tokenizer's files, such as `▁the`, `<0x0A>` or `Ġthe`; None for others."""
    if SENTENCEPIECE_BLANK in text:
        return text.replace(SENTENCEPIECE_BLANK, " ").encode("utf-8", "surrogatepass")
    byte = BYTE_TOKEN.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else spelled_bytes(text)


def ends_character(piece: bytes) -> bool:
    """Return True if bytes begin inside a character, which a token before them has begun."""
    return bool(piece) and 0x80 <= piece[0] < 0xC0


@dataclass(frozen=True, slots=True)
class NameMatches:
    """The tokens of a vocabulary that a name from an engine may stand for."""

    candidates: tuple[int, ...]
    """Every token that may be meant; see `TokenNames.candidates`."""
    likely: tuple[int, ...]
    """The likely ones among them; see `TokenNames.likely`."""
    any_special: bool
    """True if the name says only that the token is special."""
    fits: bool
    """True if the name agrees with the id that is given beside it; true where there is none."""
    shared: bool
    """True if the name is a text alone, without id and bytes, which several tokens share."""
    blanks: Literal["begins", "lacks", "left_out"] | None
    """Evidence from the name on the blanks that tokens begin with; see `TokenNames.about_blanks`."""
    clear: int
    """The id of the token, if the name has one likely meaning, fits its id and is not shared; else -1."""


@lru_cache(maxsize=4)
def token_names(vocabulary: Vocabulary) -> TokenNames:
    """The table that finds the tokens of a vocabulary by name; made once for each of the last four vocabularies."""
    return TokenNames(vocabulary)


@dataclass(frozen=True, eq=False)
class TokenNames:
    """The tokens of a vocabulary by id, by bytes and by string."""

    vocabulary: Vocabulary

    @cached_property
    def _by_piece(self) -> dict[bytes, tuple[int, ...]]:
        return _grouped(self.vocabulary.pieces)

    @cached_property
    def _by_text(self) -> dict[str, tuple[int, ...]]:
        return _grouped(self.vocabulary.texts)

    @cached_property
    def specials(self) -> tuple[int, ...]:
        """Ascending ids of the special tokens."""
        return tuple(np.flatnonzero(self.vocabulary.special).tolist())

    @cached_property
    def textless(self) -> tuple[int, ...]:
        """Ascending ids of the tokens whose text may be written as nothing: special tokens, blanks that are lost where
        they stand alone, and pieces of characters.
        """
        texts = self.vocabulary.texts
        return tuple(token for token, text in enumerate(texts) if not text or text.endswith(REPLACEMENT))

    @cached_property
    def matches(self) -> KeptByName[NameMatches]:
        """The tokens that a name (id, text, bytes) may stand for, looked up as in a dictionary; see `candidates`."""
        return KeptByName(self._matches_of)

    @cached_property
    def matches_without_blank(self) -> KeptByName[NameMatches]:
        """The same as `matches`, for engines that leave out the blank that a token begins with."""
        return KeptByName(partial(self._matches_of, blanks_left_out=True))

    def _matches_of(
        self, token: int | None, text: str | None, spelled: bytes | None, *, blanks_left_out: bool = False
    ) -> NameMatches:
        candidates = self.candidates(token, text, spelled, blanks_left_out=blanks_left_out)
        unnamed = is_unnamed((token, text, spelled))
        likely = candidates if unnamed else self.likely(candidates)
        says_special = not text if unnamed else is_markup(spelled or text)
        any_special = token is None and candidates == self.specials != () and says_special
        fits = token is None or self.fits(token, text, spelled)
        shared = token is None and spelled is None and (len(candidates) > 1 if unnamed else self.shares(text))
        return NameMatches(
            candidates,
            likely,
            any_special=any_special,
            fits=fits,
            shared=shared,
            blanks=self.about_blanks(token, text, spelled),
            clear=likely[0] if len(likely) == 1 and fits and not (any_special or shared) else -1,
        )

    def candidates(
        self, token: int | None, text: str | None, spelled: bytes | None, *, blanks_left_out: bool = False
    ) -> tuple[int, ...]:
        """All tokens that a name may stand for, by the most reliable part of it: id, then bytes, then string.

        Ascending ids; none for a name that fits no token, all special tokens for one in markup that fits no other, and
        for an empty string all that may be written as nothing. With `blanks_left_out`, bytes and string may lack the
        blank that the token begins with.
        """
        if token is not None:
            return (token,) if 0 <= token < self.vocabulary.size else ()
        if text is None and not spelled:
            return ()
        tokens = self._of_bytes(spelled) if spelled else self._of_string(text or "")
        if blanks_left_out:
            longer = self._of_bytes(b" " + (spelled or (text or "").encode("utf-8", "replace")))
            tokens = tuple(sorted({*tokens, *longer}))
        return tokens or (self.specials if is_markup(spelled or text) else ())

    def likely(self, candidates: tuple[int, ...]) -> tuple[int, ...]:
        """The candidates without byte tokens, unless all of them are byte tokens.

        Vocabularies with byte tokens have one for every byte; where a character has a token of its own, tokenizers
        spell it by that and models learn no other way.
        """
        plain = tuple(token for token in candidates if not self.vocabulary.byte_tokens[token])
        return plain or candidates

    def about_blanks(
        self, token: int | None, text: str | None, spelled: bytes | None
    ) -> Literal["begins", "lacks", "left_out"] | None:
        """Evidence from a name on whether its engine writes the blanks that tokens of this vocabulary begin with.

        `begins`: the name begins with a blank. `lacks`: it would also be the name of a token that begins with a blank,
        if the engine left blanks out. `left_out`: its id is that of such a token, so the engine does. None: it shows
        nothing.
        """
        name = spelled if spelled is not None else (text or "").encode("utf-8", "replace")
        if name.startswith((b" ", SENTENCEPIECE_BLANK.encode())):
            return "begins" if name.strip() else None  # of a token of two blanks one may have been left out
        longer = self._by_piece.get(b" " + name, ()) if name else ()
        if not any(self.vocabulary.texts[other].encode("utf-8", "replace") == name for other in longer):
            return None  # alone, too, such tokens keep their blank
        if token is None:
            return "lacks"
        return "left_out" if token in longer else None

    def _of_bytes(self, spelled: bytes) -> tuple[int, ...]:
        tokens = self._by_piece.get(spelled)
        if tokens:
            return tokens
        try:
            return self._by_text.get(spelled.decode("utf-8"), ())
        except UnicodeDecodeError:
            return ()

    def _of_string(self, text: str) -> tuple[int, ...]:
        """A string as decoded inside a text, or alone, or spelled as the tokenizer's own files spell it."""
        if not text:
            return self.textless
        if REPLACEMENT in text:
            return self._by_text.get(text, ()) or self._of_pieces(text)
        tokens = self._of_bytes(text.encode("utf-8", "surrogatepass"))
        if tokens:
            return tokens
        piece = bytes_in_files(text)
        if piece is None:
            return ()
        return self._of_bytes(piece) if SENTENCEPIECE_BLANK in text else self._by_piece.get(piece, ())

    def _of_pieces(self, text: str) -> tuple[int, ...]:
        """Pieces of characters: any behind U+FFFD alone, and those that end the character that stands behind one.

        Behind one may also stand a token's own name (`without_borrowed_names`).
        """
        whole = text.lstrip(REPLACEMENT)
        if not whole:
            return self._by_text.get(REPLACEMENT, ())
        if not text.startswith(REPLACEMENT) or REPLACEMENT in whole or whole[0].isascii():
            return ()
        spelled, first = whole.encode("utf-8", "surrogatepass"), len(whole[0].encode("utf-8", "surrogatepass"))
        ends = [token for k in range(1, first) for token in self._by_piece.get(spelled[k:], ())]
        return tuple(sorted({*ends, *self._of_bytes(spelled)}))

    def shares(self, text: str | None) -> bool:
        """Return True if several tokens are spelled like this, alone or inside a text."""
        alike = (
            *self._by_text.get(text or "", ()),
            *self._by_piece.get((text or "").encode("utf-8", "surrogatepass"), ()),
        )
        return len(set(alike)) > 1

    def fits(self, token: int, text: str | None, spelled: bytes | None) -> bool:
        """Return True if the text and bytes in a name agree with the token that its id names.

        Special tokens, and pieces of characters that come without bytes, have no names that could be compared: they
        fit.
        """
        vocabulary = self.vocabulary
        if not 0 <= token < vocabulary.size:
            return False
        if vocabulary.special[token] or (vocabulary.broken[token] and spelled is None):
            return True
        if text is not None and REPLACEMENT in text:
            text = None
        if spelled is not None and REPLACEMENT.encode() not in spelled:
            return spelled in (vocabulary.pieces[token], vocabulary.texts[token].encode("utf-8", "surrogatepass"))
        return not text or token in self._of_string(text) or text == vocabulary.texts[token]


def _grouped(names: Sequence[K]) -> dict[K, tuple[int, ...]]:
    groups: dict[K, list[int]] = defaultdict(list)
    for token, name in enumerate(names):
        if name:
            groups[name].append(token)
    return {name: tuple(ids) for name, ids in groups.items()}


T = TypeVar("T")
NamingArguments = tuple[Any, ...]
"""The arguments that name a token: ids, strings, bytes, switches."""

NAMES_KEPT = 2**17
LONGEST_KEPT = 100
"""Names with a part of more characters or bytes than this are not kept, so that what upstreams send cannot fill the
memory."""


class KeptByName(dict[NamingArguments, T]):
    """A dictionary that computes a value for each name once and keeps it.

    `function` gets the parts of a name as its arguments. Names with a long string are computed each time.
    """

    def __init__(self, function: Callable[..., T]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, name: NamingArguments) -> T:
        computed = self._function(*name)
        if not any(isinstance(part, str | bytes | tuple) and len(part) > LONGEST_KEPT for part in name):
            if len(self) >= NAMES_KEPT:
                self.clear()  # simpler than to forget the oldest, and as good: the usual names are back at once
            self[name] = computed
        return computed


ENOUGH = 20  # distinct tokens; any two tokenizers share the short ones
LONG = 5  # bytes from which on a token says something about a tokenizer


@dataclass(frozen=True)
class SharedVocabulary:
    """A count of the tokens of some replies that were looked for in a vocabulary by their bytes, and of those found."""

    n_tokens: int
    """Distinct tokens whose bytes (or clear strings) are known; special ones, and characters that the vocabulary spells
    with several tokens, apart.
    """
    n_fitting: int
    """The number of them that the vocabulary has."""
    n_long: int
    """Tokens of five bytes and more among the fitting ones: those that other tokenizers often lack."""
    misfits: tuple[str, ...]
    """The tokens that it lacks, at most ten of them."""

    @property
    def fits(self) -> bool:
        """True if every token of the replies can be one of the vocabulary."""
        return self.n_fitting == self.n_tokens

    @property
    def enough(self) -> bool:
        """True if all tokens fit, and are enough to conclude that the tokenizers are the same: 20 or more, a quarter of
        them long.
        """
        return self.fits and self.n_tokens >= ENOUGH and self.n_long * 4 >= self.n_tokens

    def require(self, model: str) -> None:
        """Raise `VocabularyMismatch`, which names the model of the reply, if a token is not in the vocabulary."""
        if self.fits:
            return
        raise VocabularyMismatch(
            f"{self.n_tokens - self.n_fitting} of {self.n_tokens} tokens of {model} are not in the vocabulary of the "
            f"clusters ({', '.join(self.misfits)}): it has another tokenizer, and these clusters cannot score it."
        )


def check_shared_vocabulary(steps: Iterable[TopStep], vocabulary: Vocabulary) -> SharedVocabulary:
    """Find out whether a model has the tokenizer of a vocabulary, before that vocabulary stands for its own.

    Parameters
    ----------
    steps
        The steps of one reply or of several (`as_top_steps`, or `Segment.steps`).
    vocabulary
        Every token that the steps name, the alternatives too, is looked up in it.

    Returns
    -------
    SharedVocabulary
        How many tokens there were, and those that the vocabulary lacks. Its `require` raises if there are any.
    """
    tokens = {spelled: token for step in steps for token in (step.chosen, *step.top) if (spelled := _spelled(token))}
    names = token_names(vocabulary)
    absent = {spelled for spelled in tokens if not names.candidates(None, None, spelled)}
    tokens = {spelled: token for spelled, token in tokens.items() if spelled not in absent or not _is_joined(spelled)}
    misfits = {spelled: token.name for spelled, token in tokens.items() if spelled in absent}
    return SharedVocabulary(
        n_tokens=len(tokens),
        n_fitting=len(tokens) - len(misfits),
        n_long=sum(len(spelled) >= LONG for spelled in tokens.keys() - misfits.keys()),
        misfits=tuple(misfits.values())[:10],
    )


def _is_joined(spelled: bytes) -> bool:
    """True if a token is one character beyond ASCII, with a blank before it or not, which a vocabulary need not have:
    where it took several tokens, engines name the last of them by the whole character.
    """
    character = spelled.decode("utf-8", "replace").strip()
    return len(character) == 1 and not character.isascii()


def _spelled(token: TopToken) -> bytes | None:
    """Bytes of a token that both names can be compared by; None for special tokens and pieces without bytes."""
    return None if is_markup(token.bytes or token.text) else spelling(token[1:]) or None
