"""What is asked about pairs of texts: whether alternatives say the same, and how much each token matters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.methods import token_text
from semtoken.support.arrays import FloatArray, IntArray

Pair: TypeAlias = tuple[str, str]
AskPairs: TypeAlias = Callable[[Sequence[Pair]], FloatArray]
"""Puts pairs of texts to a model: n pairs -> its answers, one row of numbers or one number for each pair."""


class UniquePairs:
    """Asks a model about pairs of texts, and about each different pair only once.

    One for each recording step, so that every step is charged for its own pairs and the seconds of a method do
    not depend on which other method ran before.

    Parameters
    ----------
    ask : callable
        Pairs of texts -> array with one entry a pair, in order.
    """

    def __init__(self, ask: AskPairs) -> None:
        self._ask = ask
        self._known: dict[Pair, npt.NDArray[Any]] = {}

    @property
    def asked(self) -> int:
        """How many different pairs the model has compared so far."""
        return len(self._known)

    def __call__(self, pairs: Iterable[Pair]) -> FloatArray:
        """The model's answers, in the order of the pairs."""
        listed = list(pairs)
        new = [pair for pair in dict.fromkeys(listed) if pair not in self._known]
        if new:
            self._known.update(zip(new, self._ask(new), strict=True))
        return np.array([self._known[pair] for pair in listed], dtype=np.float64)


def with_question(question: str | None, text: str) -> str:
    """An answer as similarity and NLI models read it: "question answer", one blank between, both stripped."""
    return f"{question.strip()} {text.strip()}".strip() if question is not None else text.strip()


ENTAILMENT = 2


def alternative_classes(
    ask: AskPairs, answers: Sequence[Sequence[Sequence[str]]]
) -> list[tuple[list[IntArray], list[IntArray]]]:
    """NLI classes of (chosen token, alternative) and of (alternative, chosen token), for every step of some answers.

    Texts are stripped of white space and punctuation at both ends; equal ones entail each other without being asked.

    Parameters
    ----------
    ask
        `EntailmentModel.logits`, or `UniquePairs` of it: pairs -> logits [n, 3].
    answers
        Of each answer, of each step: the best tokens decoded alone, the chosen one first.

    Returns
    -------
    list of two lists of int arrays of shapes (k_t,)
        0 contradiction, 1 neutral, 2 entailment; premise the chosen token, then premise the alternative.

    References
    ----------
    Fadeeva et al. 2024, claim-conditioned probability. Choices as in LM-Polygraph's `GreedyAlternativesNLICalculator`.
    """
    ahead = [[_with_chosen(texts) for texts in steps] for steps in answers]
    back = [[[(b, a) for a, b in pairs] for pairs in steps] for steps in ahead]
    listed = (pair for steps in (*ahead, *back) for pairs in steps for pair in pairs)
    asked = list(dict.fromkeys(pair for pair in listed if pair[0] != pair[1]))
    known: dict[Pair, int] = dict(zip(asked, ask(asked).argmax(axis=-1).tolist(), strict=True)) if asked else {}

    def classes(steps: list[list[Pair]]) -> list[IntArray]:
        return [np.array([known.get(pair, ENTAILMENT) for pair in pairs], dtype=np.int64) for pairs in steps]

    return [(classes(one), classes(other)) for one, other in zip(ahead, back, strict=True)]


def _with_chosen(texts: Sequence[str]) -> list[Pair]:
    stripped = [token_text(text) for text in texts]
    return [(stripped[0], text) for text in stripped]


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
        One similarity for each token of an answer, in the order of its tokens.

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
    """Ids in the tokenizer's table of added tokens; where there is none, those of its special tokens."""
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
