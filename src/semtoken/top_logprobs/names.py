"""Which token an engine means by the bytes or the string that it gives.

Strings are no identities: byte pieces of characters decode alike, special tokens to nothing. A name that fits several
tokens is answered with all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

from semtoken._tokenizers import BYTE_TOKEN, REPLACEMENT, spelled_bytes
from semtoken.vocabulary import Vocabulary

NAMED_BY_ID = "token_id:"
SENTENCEPIECE_BLANK = "\N{LOWER ONE EIGHTH BLOCK}"
K = TypeVar("K", bound=Hashable)


@lru_cache(maxsize=4)
def token_names(vocabulary: Vocabulary) -> TokenNames:
    """The (cached) names of a vocabulary."""
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

    def candidates(self, token: int | None, text: str | None, spelled: bytes | None) -> tuple[int, ...]:
        """Every token that may be meant, by the best of its names: id, "token_id:N", bytes, string.

        Parameters
        ----------
        token, text, spelled
            Id, string and bytes, as far as the engine gives them.

        Returns
        -------
        tuple of int
            Ascending ids; none for a name that fits no token, several for one that fits several.
        """
        if token is None and text is not None and text.startswith(NAMED_BY_ID):
            digits = text.removeprefix(NAMED_BY_ID)
            token = int(digits) if digits.isascii() and digits.isdigit() else None
        if token is not None:
            return (token,) if 0 <= token < self.vocabulary.size else ()
        if spelled:
            return self._of_bytes(spelled)
        return self._of_string(text) if text else ()

    def _of_bytes(self, spelled: bytes) -> tuple[int, ...]:
        found = self._by_piece.get(spelled)
        if found:
            return found
        try:
            return self._by_text.get(spelled.decode("utf-8"), ())
        except UnicodeDecodeError:
            return ()

    def _of_string(self, text: str) -> tuple[int, ...]:
        """A string as decoded inside a text, or alone, or spelled as the tokenizer's own files spell it."""
        if REPLACEMENT in text:
            return self._by_text.get(text, ())
        found = self._of_bytes(text.encode("utf-8", "surrogatepass"))
        if found:
            return found
        if SENTENCEPIECE_BLANK in text:
            return self._of_bytes(text.replace(SENTENCEPIECE_BLANK, " ").encode("utf-8", "surrogatepass"))
        byte = BYTE_TOKEN.fullmatch(text)
        piece = bytes([int(byte[1], 16)]) if byte else spelled_bytes(text)
        return () if piece is None else self._by_piece.get(piece, ())

    def shares(self, text: str | None) -> bool:
        """Whether several tokens are spelled like this, alone or inside a text."""
        alike = (
            *self._by_text.get(text or "", ()),
            *self._by_piece.get((text or "").encode("utf-8", "surrogatepass"), ()),
        )
        return len(set(alike)) > 1

    def fits(self, token: int, text: str | None, spelled: bytes | None) -> bool:
        """Whether the other names of a token whose id is given are names of that token here.

        Special tokens, pieces of characters and "token_id:N" have no names that could be compared: they fit.
        """
        vocabulary = self.vocabulary
        if not 0 <= token < vocabulary.size:
            return False
        if vocabulary.special[token] or (vocabulary.broken[token] and spelled is None):
            return True
        if text is not None and (text.startswith(NAMED_BY_ID) or REPLACEMENT in text):
            text = None
        if spelled is not None and not spelled.startswith(NAMED_BY_ID.encode()) and REPLACEMENT.encode() not in spelled:
            return spelled in (vocabulary.pieces[token], vocabulary.texts[token].encode("utf-8", "surrogatepass"))
        return not text or token in self._of_string(text) or text == vocabulary.texts[token]


def _grouped(names: Sequence[K]) -> dict[K, tuple[int, ...]]:
    groups: dict[K, list[int]] = defaultdict(list)
    for token, name in enumerate(names):
        if name:
            groups[name].append(token)
    return {name: tuple(ids) for name, ids in groups.items()}
