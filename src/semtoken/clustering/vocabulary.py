"""The tokens of a tokenizer: their texts, their classes, and decoding of ids.

A `Vocabulary` holds all that scoring needs of a tokenizer, so that an answer can be scored where no tokenizer
is at hand. It knows nothing of probabilities or clusters.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Literal, get_args

import numpy as np

from semtoken.clustering.function_words import english_stopwords
from semtoken.clustering.tokenizers import REPLACEMENT, character_ranges, read_tokens
from semtoken.errors import InvalidInputError, VocabularyError, VocabularyMismatch
from semtoken.support import inputs
from semtoken.support.arrays import BoolArray, IdArray, as_ids

ByteErrors = Literal["replace", "run", "each"]
"""The way in which bytes that are not UTF-8 are decoded: one U+FFFD for each broken character (byte-level BPE), for
each byte of a run of byte tokens that is broken anywhere (`ByteFallback`), or for each broken byte (SentencePiece)."""


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return REPLACEMENT * (error.end - error.start), error.end


codecs.register_error("semtoken.each", _replace_each_byte)


def normalize(text: str) -> str:
    """`norm` of the paper: without surrounding white space, in lower case."""
    return text.strip().lower()


def clean_up_spaces(text: str) -> str:
    """Remove the blanks before punctuation and English contractions that word-piece decoding leaves behind."""
    for mark in (" .", " ?", " !", " ,"):
        text = text.replace(mark, mark[1:])
    text = text.replace(" ' ", "'")
    for mark in (" n't", " 'm", " 's", " 've", " 're"):
        text = text.replace(mark, mark[1:])
    return text


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The V tokens of a tokenizer as text.

    Build one with `Vocabulary.from_tokenizer`; the fields are what an artifact stores.
    """

    texts: tuple[str, ...]
    """Text of each token decoded by itself, special tokens skipped (V strings)."""
    pieces: tuple[bytes, ...]
    """UTF-8 bytes that each token adds inside a longer text; a piece of a character is not valid UTF-8."""
    neutral: BoolArray
    """Function words and blank tokens (bool [V]): `text.strip()` is a stopword or empty."""
    byte_tokens: BoolArray
    """Tokens that stand for one raw byte, such as `<0x0A>` (bool [V])."""
    byte_errors: ByteErrors = "replace"
    """The way in which broken bytes are decoded: one replacement character for each broken character, for each
    byte of a broken run of byte tokens, or for each broken byte."""
    clean_up: bool = False
    """True if decoding removes blanks before punctuation, as that of word-piece tokenizers of transformers does."""

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, stopwords: Collection[str] | None = None) -> Vocabulary:
        """Read every token of a tokenizer.

        Parameters
        ----------
        tokenizer
            A transformers tokenizer (fast, slow or Mistral's own) or a `tokenizers.Tokenizer`. V is one more than its
            largest id: rows of an lm_head beyond it are padding. Ids without a token have empty texts.
        stopwords
            Function words to treat as neutral, compared case-sensitively. Default: NLTK's English list.

        Returns
        -------
        Vocabulary

        Raises
        ------
        VocabularyError
            `tokenizer` is not a tokenizer, is empty, or decodes in a way that cannot be reproduced.
        """
        tokens = read_tokens(tokenizer)
        vocabulary = cls(
            texts=tokens.texts,
            pieces=tokens.pieces,
            neutral=neutral_mask(tokens.texts, english_stopwords() if stopwords is None else stopwords),
            byte_tokens=tokens.byte_tokens,
            clean_up=tokens.clean_up,
        )
        return _with_byte_errors(vocabulary, tokens.decode)

    def first(self, size: int) -> Vocabulary:
        """The vocabulary of the first `size` tokens (1 to V), for a model whose head has fewer rows than its tokenizer
        has ids.
        """
        size = inputs.whole(size, "size", low=1, high=self.size)
        return replace(
            self,
            texts=self.texts[:size],
            pieces=self.pieces[:size],
            neutral=self.neutral[:size],
            byte_tokens=self.byte_tokens[:size],
        )

    @cached_property
    def size(self) -> int:
        """The number of tokens, V."""
        return len(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"Vocabulary({self.size} tokens, fingerprint {self.fingerprint[:12]})"

    @cached_property
    def normalized(self) -> tuple[str, ...]:
        """`norm(text)` of each token (V strings)."""
        return tuple(normalize(text) for text in self.texts)

    @cached_property
    def inner_texts(self) -> tuple[str, ...]:
        """Text that each token adds inside a longer text, as far as it is whole characters (V strings)."""
        return tuple(piece.decode("utf-8", "ignore") for piece in self.pieces)

    @cached_property
    def longest_piece(self) -> int:
        """The number of bytes of the longest token, which limits the length of a text by its number of tokens."""
        return max(map(len, self.pieces))

    @cached_property
    def _by_norm(self) -> dict[str, list[int]]:
        ids_by_text: dict[str, list[int]] = {}
        for token, text in enumerate(self.normalized):
            ids_by_text.setdefault(text, []).append(token)
        return ids_by_text

    def tokens_of(self, norm: str) -> IdArray:
        """The ids of all tokens with this normalized text (`normalize`): int64 [m], ascending; perhaps none."""
        return np.array(self._by_norm.get(inputs.text(norm, "norm"), ()), dtype=np.int64)

    @cached_property
    def numeral(self) -> BoolArray:
        """Tokens with a digit anywhere in their text (bool [V])."""
        return np.array([any(map(str.isdigit, text)) for text in self.texts], dtype=bool)

    @cached_property
    def blank(self) -> BoolArray:
        """White space, newlines and special tokens (bool [V])."""
        return np.array([not text.strip() for text in self.texts], dtype=bool)

    @cached_property
    def special(self) -> BoolArray:
        """Tokens that decoding skips (bool [V])."""
        pairs = zip(self.texts, self.pieces, strict=True)
        return np.array([not text and not piece for text, piece in pairs], dtype=bool)

    @cached_property
    def word_start(self) -> BoolArray:
        """Tokens that begin with white space inside a text, so that a word starts with them (bool [V])."""
        return np.array([piece.decode("utf-8", "ignore")[:1].isspace() for piece in self.pieces], dtype=bool)

    @cached_property
    def broken(self) -> BoolArray:
        """Tokens that hold only a part of some character (bool [V])."""
        return np.array([_is_broken(piece) for piece in self.pieces], dtype=bool)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all token texts and pieces and of the rules for decoding them; equal for vocabularies of the same
        tokenizer. Which tokens are `neutral` is not part of it.
        """
        digest = hashlib.sha256(f"{self.byte_errors}|{self.clean_up}|{self.size}".encode())
        for text, piece in zip(self.texts, self.pieces, strict=True):
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(b"%d,%d;" % (len(encoded), len(piece)) + encoded + piece)
        return digest.hexdigest()

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of a sequence of ids, special tokens skipped, as the tokenizer's own decoding gives it.

        Spaces before punctuation are kept, also where the tokenizer would clean them up. `VocabularyError` if an id is
        outside the vocabulary, `InvalidInputError` if it is not a whole number.
        """
        parts = self.parts(self.checked_ids(token_ids))
        text = self._join(parts)
        if parts and not self.texts[parts[0]].startswith(" ") and text.startswith(" "):
            return text[1:]
        return text

    def parts(self, token_ids: Iterable[int]) -> list[int]:
        """The ids that appear in the text: all except special tokens."""
        return [i for i in token_ids if self.pieces[i] or self.texts[i]]

    def _join(self, parts: Sequence[int]) -> str:
        if self.byte_errors != "run":
            errors = "replace" if self.byte_errors == "replace" else "semtoken.each"
            return b"".join(self._contributions(parts)).decode("utf-8", errors)
        return self._join_runs(parts)

    def _contributions(self, parts: Sequence[int]) -> list[bytes]:
        """The bytes that each part adds to the text."""
        added = [self.pieces[token] for token in parts]
        # Subtle: the first token of a text may look different from the same token inside it ("##ing", " the").
        if parts and not self.byte_tokens[parts[0]] and not _is_broken(added[0]):
            text = self.texts[parts[0]].encode("utf-8", "surrogatepass")
            added[0] = added[0] if added[0][:1] == b" " and added[0][1:] == text else text
        return added

    def _join_runs(self, parts: Sequence[int]) -> str:
        out: list[str] = []
        run = bytearray()
        for token, added in zip(parts, self._contributions(parts), strict=True):
            if self.byte_tokens[token]:
                run += added
                continue
            out.append(decode_run(bytes(run)))
            run.clear()
            out.append(added.decode("utf-8", "replace"))
        return "".join([*out, decode_run(bytes(run))])

    def offsets(self, token_ids: Sequence[int]) -> list[tuple[int, int]]:
        """Character range (start, end) of each token in `decode(token_ids)`, which has the same errors.

        Tokens that share one character all carry its range; special tokens carry an empty one.
        """
        token_ids = self.checked_ids(token_ids)
        length = len(self.decode(token_ids))
        parts = self.parts(token_ids)
        spans = self._spans(parts)
        skipped = (spans[-1][1] if spans else 0) - length
        ranges: list[tuple[int, int]] = []
        position, last = 0, 0
        for token in token_ids:
            start, end = last, last
            if self.pieces[token] or self.texts[token]:
                start, end = spans[position]
                position += 1
            last = end
            ranges.append((max(start - skipped, 0), max(end - skipped, 0)))
        return ranges

    def _spans(self, parts: Sequence[int]) -> list[tuple[int, int]]:
        """Character range of each part in `_join(parts)`."""
        alone = self._in_broken_runs(parts) if self.byte_errors == "run" else frozenset()
        pieces = [None if k in alone else added for k, added in enumerate(self._contributions(parts))]
        return character_ranges(pieces, "semtoken.each" if self.byte_errors == "each" else "replace")

    def _in_broken_runs(self, parts: Sequence[int]) -> frozenset[int]:
        """Positions of the byte tokens in runs that are broken somewhere: each is a character of its own."""
        positions: list[int] = []
        for is_byte, group in groupby(range(len(parts)), key=lambda k: bool(self.byte_tokens[parts[k]])):
            run = list(group)
            if is_byte and _is_broken(b"".join(self.pieces[parts[k]] for k in run)):
                positions += run
        return frozenset(positions)

    def check_ids(self, token_ids: Sequence[int], first: int = 0) -> None:
        """Raise `VocabularyError` if an id is outside 0..V-1, `InvalidInputError` if it is not a whole number.

        `first` is the step of the first one in its answer, from 0 on, which the message counts from.
        """
        self.checked_ids(token_ids, first)

    def checked_ids(self, token_ids: Any, first: int = 0) -> list[int]:
        """Token ids from a list, array or tensor as a list of integers, checked as `check_ids` does."""
        # Most are so, and it costs little to see it.
        is_plain = type(token_ids) is list and set(map(type, token_ids)) <= {int}
        if is_plain and (not token_ids or 0 <= min(token_ids) <= max(token_ids) < len(self.texts)):
            plain: list[int] = token_ids
            return plain
        first = inputs.whole(first, "first", low=0)
        ids = as_ids(token_ids, first)
        for step, token in enumerate(ids, first):
            if not 0 <= token < self.size:
                raise VocabularyError(
                    f"Token id {token} at step {step} is out of range: the vocabulary has {self.size:,} tokens "
                    f"(ids 0 to {self.size - 1:,}). Were these ids made with another tokenizer?"
                )
        return ids

    def require_same(
        self, other: Vocabulary, *, mine: str = "These clusters were made for", theirs: str = "the tokenizer has"
    ) -> None:
        """Raise `VocabularyMismatch` unless both vocabularies are the same; its message names the first difference.

        `mine` and `theirs` begin what it says of this vocabulary and of the other one.
        """
        if self.fingerprint != inputs.instance(other, Vocabulary, "other").fingerprint:
            raise VocabularyMismatch(
                f"{mine} {self.size:,} tokens (fingerprint {self.fingerprint[:12]}), {theirs} {other.size:,} "
                f"(fingerprint {other.fingerprint[:12]}): {_first_difference(self, other)}. "
                "Load the matching pair, or make clusters for this model with `semtoken cluster make MODEL`."
            )


def decode_run(run: bytes) -> str:
    """Decode a run of byte tokens, or give one replacement character for each byte if any is broken."""
    try:
        return run.decode("utf-8")
    except UnicodeDecodeError:
        return REPLACEMENT * len(run)


def neutral_mask(texts: Sequence[str], stopwords: Collection[str]) -> BoolArray:
    """A mask of the texts that are a stopword or empty once stripped (bool [V]); case counts.

    `InvalidInputError` if `stopwords` is not a collection of words.
    """
    try:
        words = frozenset(stopwords)
    except Exception as error:
        raise InvalidInputError(f"'stopwords' must be a collection of words, got {inputs.shown(stopwords)}.") from error
    return np.array([not (word := text.strip()) or word in words for text in texts], dtype=bool)


def _is_broken(piece: bytes) -> bool:
    try:
        piece.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


def _first_difference(a: Vocabulary, b: Vocabulary) -> str:
    for token, (left, right) in enumerate(zip(a.texts, b.texts, strict=False)):
        if left != right:
            return f"token {token} is {left!r} in the first and {right!r} in the second"
    if a.size != b.size:
        longer = a if a.size > b.size else b
        first = min(a.size, b.size)
        return f"one has {abs(a.size - b.size)} more, the first of them {longer.texts[first]!r}"
    return "the same texts, but spelled with other bytes or decoded by other rules"


def _with_byte_errors(vocabulary: Vocabulary, decode: Callable[[list[int]], str]) -> Vocabulary:
    """The vocabulary with the rule for broken bytes under which it decodes trial sequences as the tokenizer does."""
    trials = _trial_sequences(vocabulary)
    # Some decoders drop a blank at the beginning; nothing that is asked here depends on the ends.
    expected = [decode(ids).strip() for ids in trials]
    # A tokenizer does not say which decoder it has, so the rules are tried.
    for rule in get_args(ByteErrors):
        candidate = replace(vocabulary, byte_errors=rule)
        if all(_decoded(candidate, ids) == text for ids, text in zip(trials, expected, strict=True)):
            return candidate
    ids, text = next((i, t) for i, t in zip(trials, expected, strict=True) if _decoded(vocabulary, i) != t)
    raise VocabularyError(
        f"This tokenizer joins tokens in a way that semtoken does not know: ids {ids} give {text!r}, "
        f"their pieces give {_decoded(vocabulary, ids)!r}. Please report the tokenizer's name."
    )


def _decoded(vocabulary: Vocabulary, ids: list[int]) -> str:
    text = vocabulary.decode(ids).strip()
    return clean_up_spaces(text).strip() if vocabulary.clean_up else text


def _trial_sequences(vocabulary: Vocabulary) -> list[list[int]]:
    """Fixed random id sequences: ordinary tokens, and runs rich in pieces of characters."""
    # Fixed, so that a tokenizer is accepted or refused by every process alike.
    random = np.random.default_rng(0)
    fragments = np.flatnonzero(vocabulary.broken | vocabulary.byte_tokens)
    ordinary = np.flatnonzero(~vocabulary.special)  # some tokenizers decode what special tokens part separately
    trials = [random.choice(ordinary, length) for length in (2, 3, 5, 8, 13) * 12]
    mixed = (
        [np.where(random.random(len(t)) < 0.6, random.choice(fragments, len(t)), t) for t in trials]
        if len(fragments)
        else []
    )
    return [[int(i) for i in trial] for trial in [*trials, *mixed]]
