"""The steps of recorded answers: what `answer.py` wrote, with the classes of tokens that rules ask for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken import Vocabulary
from semtoken.clustering.function_words import english_stopwords
from semtoken.core.prefixes import PrefixIndex
from semtoken.support.almanac import normalize_answer

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Steps:
    """N steps of all answers, one after another, with the K most probable tokens of each (the chosen one first)."""

    vocabulary: Vocabulary
    records: list[dict[str, Any]]
    ids: npt.NDArray[np.int32]
    """[N, K]; the first column is the chosen token."""
    p: npt.NDArray[np.float32]
    """[N, K] raw probabilities."""
    lengths: Ints
    """Steps of each answer."""

    @classmethod
    def read(cls, path: Path, vocabulary: Vocabulary) -> Steps:
        """Read PATH.jsonl and PATH.npz."""
        lines = path.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
        with np.load(path.with_suffix(".npz")) as rows:
            return cls(
                vocabulary, [*map(json.loads, lines)], rows["top_ids"], np.exp(rows["top_log_probs"]), rows["lengths"]
            )

    @property
    def chosen(self) -> npt.NDArray[np.int32]:
        """[N] chosen tokens."""
        return self.ids[:, 0]

    @property
    def starts(self) -> Ints:
        """Where each answer's steps begin."""
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]])

    @cached_property
    def beginnings(self) -> npt.NDArray[np.bool_]:
        """[N, K]: the token spells the beginning of what follows (the paper's prefix set)."""
        index = PrefixIndex(self.vocabulary)
        sets = [ids for record in self.records for ids in index.prefix_sets(record["ids"])]
        return np.array([np.isin(row, ids) for row, ids in zip(self.ids, sets, strict=True)])

    @cached_property
    def characters(self) -> Ints:
        """[V] length of each token's normalized text."""
        return np.array([len(text) for text in self.vocabulary.normalized])

    @cached_property
    def spelling(self) -> Ints:
        """[V] number of each token's normalized text. Blank tokens and pieces of characters are alone."""
        texts = self.vocabulary.normalized
        alone = ~self.vocabulary.broken & np.array([bool(text) and "\ufffd" not in text for text in texts])
        return numbered([text if known else i for i, (text, known) in enumerate(zip(texts, alone, strict=True))])

    def uncertainties(self, masses: npt.NDArray[Any]) -> Floats:
        """-log of the product of the masses over the steps of each answer: it ranks as 1 - product does."""
        return -np.add.reduceat(np.log(np.clip(masses, 1e-30, 1.0)), self.starts)


def numbered(keys: Sequence[Any]) -> Ints:
    """Equal numbers for equal keys, in order of first appearance."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


# ---- which answers are right ------------------------------------------------------------------------------------


def is_exact(answer: str, accepted: Sequence[str]) -> bool:
    """The first judge: equal to an accepted answer after normalization."""
    words = normalize_answer(answer)
    return bool(words) and words in map(normalize_answer, accepted)


def is_close(answer: str, accepted: Sequence[str]) -> bool:
    """The second judge: exact, or the words of an accepted answer stand in the answer, or the reverse."""
    words = normalize_answer(answer).split()
    content = any(len(word) >= 3 and word not in english_stopwords() for word in words)
    listed = [normalize_answer(text).split() for text in accepted]
    return is_exact(answer, accepted) or any(
        _stands_in(right, words) or (content and _stands_in(words, right)) for right in listed
    )


def is_no_echo(question: str, answer: str, accepted: Sequence[str]) -> bool:
    """The second judge without echoes: what made an answer right does not stand in the question."""
    if is_exact(answer, accepted):
        return True
    words, asked = normalize_answer(answer).split(), set(normalize_answer(question).split())
    content = [word for word in words if word not in english_stopwords()]
    for right in (normalize_answer(text).split() for text in accepted):
        if _stands_in(right, words) and not set(right) <= asked:
            return True
        if _stands_in(words, right) and not set(content) <= asked and is_close(answer, accepted):
            return True
    return False


def _stands_in(part: list[str], whole: list[str]) -> bool:
    size = len(part)
    return size > 0 and any(whole[i : i + size] == part for i in range(len(whole) - size + 1))
