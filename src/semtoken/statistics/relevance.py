"""How much each token matters to what an answer says: the similarity of the answer with and without it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from semtoken.statistics.pairs import AskPairs, FloatArray, Pair, with_question

ONLY_TOKEN = 0.5
"""Similarity of an answer of one token without that token: anything below 1 gives it the whole weight."""


def token_similarities(
    ask: AskPairs,
    answers: Sequence[tuple[str | None, Sequence[int]]],
    decode: Callable[[Sequence[int]], str],
    special_ids: Collection[int] = (),
) -> list[FloatArray]:
    """Similarity of each answer with and without each of its tokens.

    One position is taken out of the ids, and the rest decoded again. Special tokens have the similarity 1 without
    being asked, and the only token of an answer has `ONLY_TOKEN`.

    Parameters
    ----------
    ask
        `SimilarityModel.similarities`, or `UniquePairs` of it.
    answers
        Question (or None) and token ids of each answer.
    decode
        Ids -> text without special tokens.
    special_ids
        Ids of special tokens.

    Returns
    -------
    list of float arrays of shapes (T_m,)

    References
    ----------
    Duan et al. 2024, "Shifting attention to relevance", token relevance. Choices as in LM-Polygraph's
    `CrossEncoderSimilarityMatrixCalculator`.
    """
    special = frozenset(special_ids)
    asked = [[] if len(ids) == 1 else _pairs(question, ids, decode, special) for question, ids in answers]
    values = iter(ask([pair for pairs in asked for pair in pairs]))
    found = []
    for _, ids in answers:
        if len(ids) == 1:
            found.append(np.array([ONLY_TOKEN]))
        else:
            found.append(np.array([1.0 if token in special else float(next(values)) for token in ids]))
    return found


def special_token_ids(tokenizer: Any) -> frozenset[int]:
    """Ids in the tokenizer's table of added tokens."""
    return frozenset(map(int, getattr(tokenizer, "added_tokens_decoder", None) or tokenizer.all_special_ids))


def _pairs(
    question: str | None, ids: Sequence[int], decode: Callable[[Sequence[int]], str], special: frozenset[int]
) -> list[Pair]:
    listed = list(ids)
    whole = with_question(question, decode(listed))
    return [
        (whole, with_question(question, decode(listed[:t] + listed[t + 1 :])))
        for t, token in enumerate(listed)
        if token not in special
    ]
