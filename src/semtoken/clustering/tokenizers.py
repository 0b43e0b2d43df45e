"""Tokens of transformers, tokenizers and Mistral tokenizers as plain texts and bytes, and what they spell together."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.errors import VocabularyError

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, eq=False)
class RawTokens:
    """The tokens read from a tokenizer, before it is known how it decodes broken characters."""

    texts: tuple[str, ...]
    pieces: tuple[bytes, ...]
    byte_tokens: npt.NDArray[np.bool_]
    clean_up: bool
    decode: Callable[[list[int]], str]


def read_tokens(tokenizer: Any) -> RawTokens:
    """Texts and pieces of every token, by decoding each one by itself and after an ordinary letter.
    `VocabularyError` if this is no tokenizer, it is empty, or it has no token for a single letter.
    """
    clean_up = _cleans_up(tokenizer)
    if not clean_up:
        tokenizer = _backend(tokenizer)
    size, decode, token_string = _adapt(tokenizer)
    if size == 0:
        raise VocabularyError("The tokenizer has no tokens.")
    known = set(tokenizer.get_vocab().values()) if hasattr(tokenizer, "get_vocab") else set()
    holes: set[int] = set()
    if max(known, default=0) >= size:  # ids that no token has stand before the last one
        size = max(known) + 1
        holes = set(range(size)) - known
    # The pieces are those before cleaning, which looks at two tokens at once and is done on the whole text.
    kwargs = {"clean_up_tokenization_spaces": False} if clean_up else {}
    texts = tuple("" if i in holes else decode([i]) for i in range(size))
    # Behind a letter a token shows the blank that some decoders drop at the beginning of a text.
    anchor = next((i for i, text in enumerate(texts) if len(text) == 1 and text.isascii() and text.isalpha()), None)
    if anchor is None:
        raise VocabularyError("The tokenizer has no token for a single letter; is it one for text?")
    lead = len(decode([anchor], **kwargs))
    behind = ["" if i in holes else decode([anchor, i], **kwargs)[lead:] for i in range(size)]
    strings = [None if i in holes else token_string(i) for i in range(size)]
    is_byte = [bool(BYTE_TOKEN.fullmatch(s)) if isinstance(s, str) else False for s in strings]
    pieces = tuple(_piece(text, string, byte) for text, string, byte in zip(behind, strings, is_byte, strict=True))
    return RawTokens(texts, pieces, np.array(is_byte, dtype=bool), clean_up, decode)


def _piece(text: str, string: str | bytes | None, is_byte: bool) -> bytes:
    # `<0x0A>` spells the byte in hexadecimal.
    if is_byte and isinstance(string, str) and text:
        return bytes([int(string[3:5], 16)])
    # Whole characters: the decoder has said all. Else the bytes are in the spelling of the token.
    if REPLACEMENT not in text:
        return text.encode("utf-8", "surrogatepass")
    if isinstance(string, bytes):
        return string
    spelled = spelled_bytes(string or "")
    return text.encode() if spelled is None else spelled


@cache
def byte_alphabet() -> dict[str, int]:
    """Each of the 256 printable characters in which byte-level BPE spells bytes -> the byte that it stands for."""
    # The table of GPT-2's `bytes_to_unicode`, which all byte-level BPE has taken over.
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in set(printable)]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def spelled_bytes(string: str) -> bytes | None:
    """Bytes of a byte-level BPE token string, or None if it is not spelled in that alphabet."""
    alphabet = byte_alphabet()
    if not string or any(c not in alphabet for c in string):
        return None
    return bytes(alphabet[c] for c in string)


def _adapt(tokenizer: Any) -> tuple[int, Callable[..., str], Callable[[int], str | bytes | None]]:
    if hasattr(tokenizer, "get_vocab_size") and hasattr(tokenizer, "id_to_token"):  # tokenizers.Tokenizer
        return (
            tokenizer.get_vocab_size(with_added_tokens=True),
            lambda ids, **_: str(tokenizer.decode(ids, skip_special_tokens=True)),
            tokenizer.id_to_token,
        )
    is_bytes = isinstance(tokenizer, bytes | bytearray)  # which have a length, and can decode
    if is_bytes or not hasattr(tokenizer, "decode") or not hasattr(tokenizer, "__len__"):
        raise VocabularyError(
            f"Expected a transformers tokenizer or a tokenizers.Tokenizer, got {type(tokenizer).__name__}."
        )

    def decode(ids: list[int], **kwargs: Any) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=True, **kwargs))

    return len(tokenizer), decode, _token_strings(tokenizer)


def _backend(tokenizer: Any) -> Any:
    """The `tokenizers.Tokenizer` inside a transformers tokenizer that only passes ids on to it, and takes twice as long
    for that; any other tokenizer as it is.
    """
    passes_on = getattr(sys.modules.get("transformers"), "PreTrainedTokenizerFast", None)
    if passes_on is None or not isinstance(tokenizer, passes_on):
        return tokenizer
    # A subclass that decodes in its own way is asked itself.
    own = [name for name in ("decode", "_decode") if getattr(type(tokenizer), name) is not getattr(passes_on, name)]
    return tokenizer if own else tokenizer.backend_tokenizer


def _token_strings(tokenizer: Any) -> Callable[[int], str | bytes | None]:
    inner = getattr(getattr(tokenizer, "tokenizer", None), "instruct_tokenizer", None)
    if inner is not None:
        mistral = inner.tokenizer
        if type(mistral).__name__ == "Tekkenizer" and hasattr(mistral, "id_to_byte_piece"):  # it knows a piece's bytes
            return lambda i: None if i < mistral.num_special_tokens else bytes(mistral.id_to_byte_piece(i))
        return lambda i: str(mistral.id_to_piece(i))
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        return lambda i: tokenizer.convert_ids_to_tokens(i)
    return lambda i: None


def _cleans_up(tokenizer: Any) -> bool:
    """Return True if decoding removes blanks before punctuation, found by trying."""
    try:
        plain = tokenizer.decode
        ids = tokenizer.encode("a , b . c ' d", add_special_tokens=False)
        return bool(
            plain(ids, skip_special_tokens=True)
            != plain(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )
    except (TypeError, AttributeError, ValueError, NotImplementedError):
        return False  # no such option


def character_ranges(pieces: Iterable[bytes | None], errors: str = "replace") -> list[tuple[int, int]]:
    """For each token, its first character and one past its last, in the text that all tokens spell together.
    `pieces` are UTF-8 bytes, or None for a token that is one replacement character whatever stands beside it; `errors`
    is how broken bytes are decoded. Tokens that share a character all hold it; one without bytes has an empty range.
    """
    reading = _Reading(errors)
    for piece in pieces:
        reading.add(piece)
    return reading.finished()


class _Reading:
    """The ranges so far, and the bytes of a character that is not whole yet."""

    def __init__(self, errors: str) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)
        self._ranges: list[tuple[int, int]] = []
        self._characters = 0
        """The number of characters that are whole, or known to be broken."""
        self._waiting: list[int] = []
        """The token of each byte that is waiting for the rest of its character."""

    def add(self, piece: bytes | None) -> None:
        """Take in the next token."""
        token, length = len(self._ranges), 1 if piece is None else _length(piece)
        self._ranges.append((self._characters, self._characters))
        if length is not None and not self._waiting:
            self._characters += length
            self._ranges[token] = self._ranges[token][0], self._characters
            return
        for byte in piece or b"":
            self._waiting.append(token)
            self._settle(len(self._decoder.decode(bytes([byte]))), len(self._decoder.getstate()[0]))

    def finished(self) -> list[tuple[int, int]]:
        """All ranges, once every token was taken in."""
        self._settle(len(self._decoder.decode(b"", True)), 0)
        return self._ranges

    def _settle(self, gained: int, left: int) -> None:
        """Give the characters that the decoder has just gained to the tokens of their bytes; some bytes still wait."""
        spelled = self._waiting[: len(self._waiting) - left]
        self._waiting = self._waiting[len(spelled) :]
        if not gained:
            return
        if gained > 1 and gained < len(spelled):  # a broken sequence, and the byte that breaks it
            self._spell(spelled[:-1], gained - 1)
            spelled, gained = spelled[-1:], 1
        self._spell(spelled, gained)

    def _spell(self, tokens: list[int], characters: int) -> None:
        """Some bytes spell one character, or one each."""
        for number, token in enumerate(tokens):
            character = self._characters + (0 if characters == 1 else number)
            start, end = self._ranges[token]
            self._ranges[token] = (character if start == end else start), character + 1
        self._characters += characters


def _length(piece: bytes) -> int | None:
    """The number of characters that a token spells by itself; None if it begins or ends inside one."""
    try:
        return len(piece.decode("utf-8"))
    except UnicodeDecodeError:
        return None
