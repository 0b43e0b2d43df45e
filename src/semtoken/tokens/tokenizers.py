"""Reading the tokens of transformers, tokenizers and Mistral tokenizers into plain texts and bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
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
    """What was read of a tokenizer, before it is known how it decodes broken characters."""

    texts: tuple[str, ...]
    pieces: tuple[bytes, ...]
    byte_tokens: npt.NDArray[np.bool_]
    clean_up: bool
    decode: Callable[[list[int]], str]


def read_tokens(tokenizer: Any) -> RawTokens:
    """Texts and pieces of every token, by decoding each one alone and behind an ordinary letter."""
    size, decode, token_string = _adapt(tokenizer)
    if size == 0:
        raise VocabularyError("The tokenizer has no tokens.")
    clean_up = _cleans_up(tokenizer)
    kwargs = {"clean_up_tokenization_spaces": False} if clean_up else {}
    texts = tuple(decode([i]) for i in range(size))
    anchor = next((i for i, text in enumerate(texts) if len(text) == 1 and text.isascii() and text.isalpha()), None)
    if anchor is None:
        raise VocabularyError("The tokenizer has no token for a single letter; is it one for text?")
    lead = len(decode([anchor], **kwargs))
    behind = [decode([anchor, i], **kwargs)[lead:] for i in range(size)]
    strings = [token_string(i) for i in range(size)]
    is_byte = [bool(BYTE_TOKEN.fullmatch(s)) if isinstance(s, str) else False for s in strings]
    pieces = tuple(_piece(text, string, byte) for text, string, byte in zip(behind, strings, is_byte, strict=True))
    return RawTokens(texts, pieces, np.array(is_byte, dtype=bool), clean_up, decode)


def _piece(text: str, string: str | bytes | None, is_byte: bool) -> bytes:
    if is_byte and isinstance(string, str) and text:
        return bytes([int(string[3:5], 16)])
    if REPLACEMENT not in text:
        return text.encode("utf-8", "surrogatepass")
    if isinstance(string, bytes):
        return string
    spelled = spelled_bytes(string or "")
    return text.encode() if spelled is None else spelled


@cache
def byte_alphabet() -> dict[str, int]:
    """The printable characters in which byte-level BPE spells the 256 bytes."""
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


def _token_strings(tokenizer: Any) -> Callable[[int], str | bytes | None]:
    inner = getattr(getattr(tokenizer, "tokenizer", None), "instruct_tokenizer", None)
    if inner is not None:  # Mistral's own tokenizers know the bytes of a piece
        return _mistral_pieces(inner.tokenizer)
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        return lambda i: tokenizer.convert_ids_to_tokens(i)
    return lambda i: None


def _mistral_pieces(tokenizer: Any) -> Callable[[int], str | bytes | None]:
    if hasattr(tokenizer, "id_to_byte_piece") and type(tokenizer).__name__ == "Tekkenizer":
        specials = tokenizer.num_special_tokens
        return lambda i: None if i < specials else bytes(tokenizer.id_to_byte_piece(i))
    return lambda i: str(tokenizer.id_to_piece(i))


def _cleans_up(tokenizer: Any) -> bool:
    """Whether decoding removes blanks before punctuation, found by trying."""
    try:
        plain = tokenizer.decode
        ids = tokenizer.encode("a , b . c ' d", add_special_tokens=False)
        return bool(
            plain(ids, skip_special_tokens=True)
            != plain(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )
    except (TypeError, AttributeError, ValueError, NotImplementedError):
        return False  # no such option
