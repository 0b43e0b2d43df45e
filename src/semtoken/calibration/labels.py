"""Labelled answers as checked arrays: what calibrators and thresholds are fitted on."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInput
from semtoken.results import ScoredResponse
from semtoken.support.arrays import real_numbers

FloatArray = npt.NDArray[np.float64]
Scored: TypeAlias = "Sequence[ScoredResponse] | npt.ArrayLike"
"""Scored answers, or their log scores, [n]."""

FEWEST_LABELS, FEWEST_OF_EITHER = 30, 5
"""Below these a calibrator makes the chances worse than the score alone."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """Scores and labels of the same answers, blank answers left out."""

    log_score: FloatArray
    """[n], finite, <= 0."""
    correct: FloatArray
    """[n] of 1 (right) and 0 (wrong)."""
    n_blank: int
    """Blank answers: they abstain in any case."""

    @property
    def uncertainty(self) -> FloatArray:
        """-log_score, [n]."""
        return -self.log_score

    @property
    def n(self) -> int:
        """Labelled answers that are not blank."""
        return self.correct.size

    @property
    def n_correct(self) -> int:
        """Right ones among them."""
        return int(self.correct.sum())


def log_scores(scored: Any) -> FloatArray:
    """Log scores of scored answers, or of numbers that are log scores, [n]; -inf for a blank answer.

    Raises
    ------
    InvalidInput
        NaN, a number above 0, or something that has no score.
    """
    items = list(scored) if isinstance(scored, Sequence) and not isinstance(scored, str) else scored
    if isinstance(items, list) and any(hasattr(item, "log_score") for item in items):
        items = [getattr(item, "log_score", item) for item in items]
    try:
        values = np.atleast_1d(real_numbers(items, "scored").astype(np.float64))
    except InvalidInput as error:
        raise InvalidInput(f"Scores must be scored answers or their log scores: {error}") from error
    if values.ndim != 1:
        raise InvalidInput(f"Scores must be one per answer. Got an array of shape {values.shape} instead.")
    bad = np.flatnonzero(np.isnan(values) | (values > 0))
    if bad.size:
        raise InvalidInput(
            f"A log score must be at most 0, got {values[bad[0]]:g} at position {bad[0]}. Give `log_score`, not the "
            "uncertainty."
        )
    return values


def labelled_pair(first: Any, first_correct: Any, second: Any, second_correct: Any) -> tuple[Labelled, Labelled]:
    """Checked arrays of two models' answers to the same questions; blank ones stay, at a log score of -inf.

    Raises
    ------
    InvalidInput
        As `labelled`, or the two have different lengths.
    """
    pair = _checked(first, first_correct, None), _checked(second, second_correct, None)
    if pair[0][0].size != pair[1][0].size:
        raise InvalidInput(
            f"There are {pair[0][0].size} answers of the first model and {pair[1][0].size} of the second; both must "
            "answer the same questions."
        )
    (one, one_labels), (other, other_labels) = pair
    return Labelled(one, one_labels, 0), Labelled(other, other_labels, 0)


def labelled(scored: Any, correct: Any, prompts: Sequence[Any] | None = None) -> Labelled:
    """Checked arrays of labelled answers.

    Raises
    ------
    InvalidInput
        Lengths that differ, labels other than right and wrong, NaN, or the same answer twice.
    """
    scores, labels = _checked(scored, correct, prompts)
    blank = np.isneginf(scores)
    return Labelled(scores[~blank], labels[~blank], int(blank.sum()))


def _checked(scored: Any, correct: Any, prompts: Sequence[Any] | None) -> tuple[FloatArray, FloatArray]:
    scores = log_scores(scored)
    try:
        labels = real_numbers(correct, "correct", booleans=True).astype(np.float64)
    except InvalidInput as error:
        raise InvalidInput(f"Labels must be true or false: {error}") from error
    if labels.shape != scores.shape:
        raise InvalidInput(
            f"There are {scores.size} scores and labels of shape {labels.shape}; every answer needs one label."
        )
    bad = np.flatnonzero((labels != 0) & (labels != 1))
    if bad.size:
        raise InvalidInput(
            f"A label must be true or false, got {labels[bad[0]]:g} at position {bad[0]}. Leave out answers that "
            "nobody judged."
        )
    _refuse_duplicates(scored, prompts, scores.size)
    return scores, labels


def require_enough(answers: Labelled) -> None:
    """Refuse what no calibrator should be fitted on, with the numbers that are missing."""
    missing = FEWEST_LABELS - answers.n
    if missing > 0:
        raise InvalidInput(
            f"A calibrator needs at least {FEWEST_LABELS} labelled answers that are not blank. There are {answers.n}: "
            f"label {missing} more."
        )
    for kind, count in (("right", answers.n_correct), ("wrong", answers.n - answers.n_correct)):
        if count < FEWEST_OF_EITHER:
            raise InvalidInput(
                f"A calibrator needs at least {FEWEST_OF_EITHER} {kind} answers among the labelled ones. There are "
                f"{count} of {answers.n}: {FEWEST_OF_EITHER - count} more are missing. Label further answers."
            )


def _refuse_duplicates(scored: Any, prompts: Sequence[Any] | None, n: int) -> None:
    keys = _keys(scored, prompts, n)
    first: dict[Hashable, int] = {}
    for i, key in enumerate(keys):
        if key in first:
            raise InvalidInput(
                f"Answers {first[key]} and {i} are the same prompt and answer. Repeated answers count as evidence that "
                "is not there: leave one of them out."
            )
        first[key] = i


def _keys(scored: Any, prompts: Sequence[Any] | None, n: int) -> list[Hashable]:
    """What makes an answer itself; nothing can be said of bare log scores."""
    answers = list(scored) if isinstance(scored, Sequence) else []
    texts = [getattr(answer, "text", None) for answer in answers] or [None] * n
    if prompts is not None:
        if len(prompts) != n:
            raise InvalidInput(f"There are {n} answers and {len(prompts)} prompts; every answer needs its own.")
        return [(str(prompt), text) for prompt, text in zip(prompts, texts, strict=True)]
    if not all(isinstance(answer, ScoredResponse) for answer in answers):
        return []
    return [
        (a.text, a.log_score, tuple((token.id, token.log_probability) for token in a.tokens))
        for a in answers
        if not a.empty
    ]
