"""Semantic Token Clustering by plain loops, written from the definition alone: the twin that scoring is held against.

It shares no code with the package: it asks the tokenizer to decode every suffix whole, walks over every token of the
vocabulary at every step and adds probabilities one by one in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

Decode = Callable[[list[int]], str]
"""Text of a list of ids, special tokens skipped: the tokenizer's own decoding."""

STOPWORDS = frozenset(
    (Path(__file__).parents[2] / "src/semtoken/data/stopwords_english.txt").read_text(encoding="utf-8").split()
)


def norm(text: str) -> str:
    return text.strip().lower()


def softmax(logits: npt.ArrayLike, size: int) -> npt.NDArray[np.float64]:
    """Next-token probabilities of each step over the first `size` columns (float64 [n, size])."""
    rows = np.asarray(logits, dtype=np.float64)[:, :size]
    weights = np.exp(rows - rows.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def mass(probabilities: npt.NDArray[np.float64], tokens: Collection[int]) -> float:
    return min(1.0, math.fsum(float(probabilities[t]) for t in sorted(tokens)))


@dataclass(frozen=True)
class Answer:
    """The numbers of one answer by the twin."""

    probabilities: list[float]
    clustered: list[float]
    surface: list[float]
    meaning: list[float]
    log_confidence: float
    neutral: list[bool]
    neutral_only: bool


@dataclass(frozen=True)
class Twin:
    """The definition for one tokenizer and one set of labels."""

    decode: Decode
    size: int
    labels: Sequence[int]
    letter: int
    """Id of some token for one ordinary letter, to see what another token looks like inside a text."""
    decode_plain: Decode | None = None
    """Decoding without the removal of blanks before punctuation, where the tokenizer removes them."""
    stopwords: Collection[str] = STOPWORDS

    @cached_property
    def texts(self) -> list[str]:
        return [self.decode([t]) for t in range(self.size)]

    @cached_property
    def normalized(self) -> list[str]:
        return [norm(text) for text in self.texts]

    def starts_word(self, token: int) -> bool:
        plain = self.decode_plain or self.decode
        return plain([self.letter, token])[len(plain([self.letter])) :][:1].isspace()

    @cached_property
    def blanks(self) -> list[bool]:
        return [text.strip() == "" for text in self.texts]

    @cached_property
    def stopword_tokens(self) -> list[bool]:
        return [text.strip() in self.stopwords for text in self.texts]

    @cached_property
    def word_starts(self) -> dict[int, bool]:
        return {t: self.starts_word(t) for t in range(self.size) if self.stopword_tokens[t]}

    def is_numeral(self, token: int) -> bool:
        return any(c.isdigit() for c in self.texts[token])

    def is_neutral(self, token: int, step: int, first_word: int, function_words: str) -> bool:
        """Whether a token is neutral at a step, `first_word` being the step of the first token that is not blank."""
        if function_words == "off":
            return False
        if self.blanks[token]:
            return True
        if not self.stopword_tokens[token]:
            return False
        return function_words == "paper" or (self.word_starts[token] and step != first_word)

    def prefix_set(self, ids: Sequence[int], step: int) -> set[int]:
        rest = norm(self.decode(list(ids[step:])))
        return {t for t in range(self.size) if self.normalized[t] != "" and rest.startswith(self.normalized[t])}

    def embedding_cluster(self, token: int) -> set[int]:
        if self.is_numeral(token):
            return {token}
        return {t for t in range(self.size) if self.labels[t] == self.labels[token]}

    def spelled_alike(self, token: int, other: int) -> bool:
        """Whether the first three characters are the same, case and blanks aside."""
        return self.normalized[token][:3] == self.normalized[other][:3]

    def same_spelling(self, token: int) -> set[int]:
        """Tokens of the same text up to case and blanks; blanks and pieces of characters are like themselves alone."""
        text = self.normalized[token]
        if text == "" or "\N{REPLACEMENT CHARACTER}" in text:
            return {token}
        return {t for t in range(self.size) if self.normalized[t] == text}

    def surface_with_beginnings(self, ids: Sequence[int], step: int) -> set[int]:
        """Tokens of the same spelling, or that spell at least two characters of what follows."""
        return self.same_spelling(ids[step]) | {t for t in self.prefix_set(ids, step) if len(self.normalized[t]) > 1}

    def paper_mass(self, probabilities: npt.NDArray[np.float64], ids: Sequence[int], step: int) -> float:
        """Agreeing probability under the paper's rules."""
        if self.blanks[ids[step]] or self.stopword_tokens[ids[step]]:
            return 1.0
        neutral = {t for t in range(self.size) if self.blanks[t] or self.stopword_tokens[t]}
        return mass(probabilities[step], self.embedding_cluster(ids[step]) | self.prefix_set(ids, step) | neutral)

    def score(
        self,
        probabilities: npt.NDArray[np.float64],
        ids: Sequence[int],
        *,
        preset: str = "paper",
        equality: str = "meaning",
        function_words: str = "paper",
        clustering: bool = True,
        prefix_matching: bool = True,
        members: str = "all",
    ) -> Answer:
        """Probabilities of every token under each equality and under these switches, and the log score."""
        if (
            equality == "meaning" and not clustering and not prefix_matching
        ):  # the ablation "neither" is the sequence probability
            function_words = "off"
        first_word = next((i for i, y in enumerate(ids) if not self.blanks[y]), -1)
        neutral = [self.is_neutral(y, i, first_word, function_words) for i, y in enumerate(ids)]
        neutral_only = bool(ids) and all(neutral)
        if neutral_only and preset == "default":
            function_words = "off"
            neutral = [False] * len(ids)
        clustered = []
        for i, y in enumerate(ids):
            if neutral[i]:
                clustered.append(1.0)
                continue
            consistent = {y}
            if clustering:
                cluster = self.embedding_cluster(y)
                consistent |= cluster if members == "all" else {t for t in cluster if self.spelled_alike(y, t)}
            if equality == "surface":
                consistent |= self.surface_with_beginnings(ids, i) if prefix_matching else self.same_spelling(y)
            elif prefix_matching:
                consistent |= {
                    t for t in self.prefix_set(ids, i) if equality == "meaning" or len(self.normalized[t]) > 1
                }
            consistent |= {t for t in range(self.size) if self.is_neutral(t, i, first_word, function_words)}
            clustered.append(mass(probabilities[i], consistent))
        return Answer(
            probabilities=[float(probabilities[i, y]) for i, y in enumerate(ids)],
            clustered=clustered,
            surface=[mass(probabilities[i], self.same_spelling(y)) for i, y in enumerate(ids)],
            meaning=[self.paper_mass(probabilities, ids, i) for i in range(len(ids))],
            log_confidence=self.log_confidence(ids, clustered),
            neutral=neutral,
            neutral_only=neutral_only,
        )

    def log_confidence(self, ids: Sequence[int], clustered: Sequence[float]) -> float:
        if self.decode(list(ids)).strip() == "":
            return -math.inf
        return math.fsum(math.log(p) if p > 0 else -math.inf for p in clustered)
