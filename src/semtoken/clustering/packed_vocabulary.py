"""A vocabulary as a few arrays, about 14 bytes a token, and back.

The text of a token nearly always follows from its piece, so only the exceptions are stored as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.support import inputs

NEUTRAL = 1  # bits of the class byte of a token
BYTE_TOKEN = 2


def drops_blank(vocabulary: Vocabulary) -> bool:
    """True if tokens decoded by itself lose the blank that they bring into a text (SentencePiece, WordPiece), by the
    majority; the texts of the others are stored.
    """
    blank = [i for i, piece in enumerate(vocabulary.pieces) if piece[:1] == b" "]
    dropped = sum(b" " + _encode(vocabulary.texts[i]) == vocabulary.pieces[i] for i in blank)
    return 2 * dropped > len(blank)


def _implied_text(piece: bytes, drop: bool) -> str:
    return piece[drop and piece[:1] == b" " :].decode("utf-8", "replace")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def pack_vocabulary(vocabulary: Vocabulary) -> dict[str, npt.NDArray[Any]]:
    """The vocabulary as arrays: pieces and class bytes of all tokens, and texts that the pieces do not imply."""
    drop = drops_blank(vocabulary)
    pairs = zip(vocabulary.texts, vocabulary.pieces, strict=True)
    odd = [i for i, (text, piece) in enumerate(pairs) if text != _implied_text(piece, drop)]
    piece_bytes, piece_lengths = _pack(vocabulary.pieces)
    text_bytes, text_lengths = _pack([_encode(vocabulary.texts[i]) for i in odd])
    return {
        "classes": np.where(vocabulary.neutral, NEUTRAL, 0).astype(np.uint8)
        | np.where(vocabulary.byte_tokens, BYTE_TOKEN, 0).astype(np.uint8),
        "piece_bytes": piece_bytes,
        "piece_lengths": piece_lengths,
        "text_ids": np.array(odd, dtype=np.int32),
        "text_bytes": text_bytes,
        "text_lengths": text_lengths,
    }


def unpack_vocabulary(arrays: Mapping[str, npt.NDArray[Any]], config: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary that `pack_vocabulary` packed; `config` has `size`, `drops_blank`, `byte_errors` and `clean_up`.
    `KeyError` if an array is missing, `ValueError` if they do not fit together.
    """
    pieces = _unpack(arrays["piece_bytes"], arrays["piece_lengths"])
    texts = [_implied_text(piece, bool(config["drops_blank"])) for piece in pieces]
    stored = _unpack(arrays["text_bytes"], arrays["text_lengths"])
    for i, text in zip(arrays["text_ids"], stored, strict=True):
        texts[i] = text.decode("utf-8", "surrogatepass")
    classes = arrays["classes"]
    if len(classes) != len(pieces) or config["size"] != len(pieces):
        raise ValueError(f"{len(pieces)} pieces, {len(classes)} classes, {config['size']} tokens expected")
    return Vocabulary(
        texts=tuple(texts),
        pieces=tuple(pieces),
        neutral=(classes & NEUTRAL) != 0,
        byte_tokens=(classes & BYTE_TOKEN) != 0,
        byte_errors=config["byte_errors"],
        clean_up=bool(config["clean_up"]),
    )


def _pack(strings: Sequence[bytes]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    lengths = np.array([len(string) for string in strings], dtype=np.uint32)
    # Nearly all vocabularies fit 16 bits, which halves this part of the file.
    narrow = np.uint16 if lengths.max(initial=0) <= np.iinfo(np.uint16).max else np.uint32
    return np.frombuffer(b"".join(strings), dtype=np.uint8), lengths.astype(narrow)


def _unpack(blob: npt.NDArray[np.uint8], lengths: npt.NDArray[Any]) -> list[bytes]:
    data = blob.tobytes()
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    if (ends[-1] if ends else 0) != len(data):
        raise ValueError(f"{len(data)} bytes of token text where the lengths ask for {ends[-1] if ends else 0}")
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def neutral_hash(vocabulary: Vocabulary) -> str:
    """A short hash of which tokens are neutral, since the fingerprint does not depend on the stopword list."""
    inputs.instance(vocabulary, Vocabulary, "vocabulary")
    return hashlib.sha256(np.packbits(vocabulary.neutral).tobytes()).hexdigest()[:16]
