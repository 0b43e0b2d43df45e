"""Scores and labels of answers, checked before anything is fitted on them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any

import numpy as np

from semtoken.core.results import ScoredAnswer
from semtoken.errors import CalibratorMismatchError, InvalidInputError
from semtoken.support.arrays import FloatArray, real_numbers
from semtoken.support.inputs import listed, text
from semtoken.support.text import did_you_mean

PRODUCT = "stc"
"""The method whose score is `ScoredAnswer.log_confidence`."""
CONFIDENCE = "confidence"
"""The name that stands for the confidence of each answer, `ScoredAnswer.confidence`, which counts unless another method
is asked for.
"""
FEWEST_LABELS, FEWEST_OF_EITHER = 30, 5
"""Fewest labeled answers, and fewest right and wrong ones, to fit a calibrator: with fewer it makes the probabilities
worse than the score by itself.
"""


@dataclass(frozen=True, eq=False)
class LabeledScores:
    """Scores and labels of the same answers; blank ones are left out."""

    log_confidence: FloatArray
    """[n] log scores, at most 0; -inf for an empty answer."""
    correct: FloatArray
    """[n] of 1 (right) and 0 (wrong)."""
    n_blank: int
    """The number of empty answers that were left out; they are never accepted."""

    @property
    def uncertainty(self) -> FloatArray:
        """The uncertainty in units of -log_confidence, [n]; higher is riskier."""
        return -self.log_confidence

    @property
    def turned(self) -> LabeledScores:
        """The same from the doubtful end: scores with the other sign, and right answers in the place of wrong ones."""
        return LabeledScores(-self.log_confidence, 1 - self.correct, self.n_blank)

    @property
    def n(self) -> int:
        """The number of labeled answers that are not blank."""
        return self.correct.size

    @property
    def n_correct(self) -> int:
        """The number of labeled answers that are right."""
        return int(self.correct.sum())


def list_of(scored: Any) -> Sequence[Any] | None:
    """Answers or scores in a list, in the values of a dictionary, or as objects in an array or a column of a table.

    None for anything else, such as an array of numbers or one answer.
    """
    if isinstance(scored, Sequence) and not isinstance(scored, str | bytes):
        return scored
    holds_objects = str(getattr(scored, "dtype", "")) == "object" and scored.ndim == 1
    return list(scored) if holds_objects or isinstance(scored, ValuesView) else None


def several(scored: Any) -> Sequence[Any]:
    """Answers or scores as a list: what is no list is one of them."""
    found = list_of(scored)
    return [scored] if found is None else found


def chosen_method(scored: Any, by: str | None) -> str | None:
    """The method whose scores count, as fingerprints name it: None for the product.

    Without `by` it is the confidence, or the product where answers have none or numbers are given.
    """
    if by is None:
        items = several(scored)
        by = CONFIDENCE if len(items) and all(getattr(item, "confidence_method", None) for item in items) else PRODUCT
    return None if text(by, "score") == PRODUCT else by


def log_confidences(scored: Any, by: str | None = None) -> FloatArray:
    """Log scores of scored answers, or of numbers that are log scores, [n]; -inf for an empty answer.

    `by` None or `PRODUCT`: `log_confidence`. `CONFIDENCE`: the logarithm of the confidence. An uncertainty U
    of another method becomes -ln(1 + e^U): below 0, and in the same order. `InvalidInputError` for NaN, a number above
    0 or what has no score, `CalibratorMismatchError` if an answer has no score by that method.
    """
    found = list_of(scored)
    items = scored if found is None else list(found)
    if found is not None and any(hasattr(item, "log_confidence") for item in items):
        items = [_by_method(item, by or PRODUCT) if hasattr(item, "log_confidence") else item for item in items]
    try:
        values = np.atleast_1d(real_numbers(items, "scored").astype(np.float64))
    except InvalidInputError as error:
        raise InvalidInputError(f"Scores must be scored answers or their log scores: {error}") from error
    if values.ndim != 1:
        raise InvalidInputError(f"Scores must be one per answer. Got an array of shape {values.shape} instead.")
    bad = np.flatnonzero(np.isnan(values) | (values > 0))
    if bad.size:
        raise InvalidInputError(
            f"A log score must be at most 0, got {values[bad[0]]:g} at position {bad[0]}. Give `log_confidence`, not "
            "the "
            "uncertainty."
        )
    return values


def _by_method(answer: Any, by: str) -> float | None:
    """The log score of one answer by a method; -inf for an empty answer."""
    if by == PRODUCT or answer.log_confidence is None or answer.log_confidence == -math.inf:
        log_confidence: float | None = answer.log_confidence
        return log_confidence
    method = getattr(answer, "confidence_method", None)
    if by == CONFIDENCE and method is not None:
        return float(answer.log_confidence if method == PRODUCT else log_of(answer.confidence))
    scores = answer.scores
    if by not in scores:
        held = f"those by {', '.join(scores)}" if scores else "no other score than the product over its tokens"
        raise CalibratorMismatchError(
            f"This is about scores by the method {by}{did_you_mean(by, scores)}, and the answer has {held}. Score it "
            f"with --methods {by} (methods=[{by!r}]), or use a calibrator of what it has."
        )
    value = given_score(answer, by)
    return -float(np.logaddexp(0.0, math.inf if value is None else value))


def given_score(answer: Any, name: str) -> float | None:
    """An answer's score in a file; None if unbounded or missing, `InvalidInputError` if the field holds something
    else.
    """
    value = answer.scores.get(name)
    if value is None or value == "":
        return None
    try:
        score = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if math.isnan(score):
        where = getattr(answer, "where", "An answer")
        raise InvalidInputError(f"{where}: the score by {name} must be a number, got {value!r:.40}.")
    return score


def log_score_ends(answer: Any, by: str | None) -> tuple[float, float] | None:
    """The bounds of an answer's log score by a method; None where the score is exact or not known."""
    if by is None or (by == CONFIDENCE and answer.confidence_method == PRODUCT):
        bounds: tuple[float, float] | None = answer.log_confidence_interval
        return bounds
    if by == CONFIDENCE:
        low, high = getattr(answer, "confidence_interval", (0.0, 0.0))
        return None if low == high else (log_of(low), log_of(high))
    low, high = getattr(answer, "score_bounds", {}).get(by, (None, None))
    return None if low is None else (-float(np.logaddexp(0.0, high)), -float(np.logaddexp(0.0, low)))


def log_of(probability: float) -> float:
    """The natural logarithm of a probability; minus infinity for 0."""
    return math.log(probability) if probability > 0 else -math.inf


def labeled(scored: Any, correct: Any, prompts: Sequence[Any] | None = None, by: str | None = None) -> LabeledScores:
    """Checked arrays of labeled answers, with their log scores by a method (see `log_confidences`).

    `InvalidInputError` if lengths differ, labels are not right or wrong, there is NaN, or the same answer comes twice.
    """
    scores, labels = scores_and_labels(scored, correct, prompts, by)
    blank = np.isneginf(scores)
    return LabeledScores(scores[~blank], labels[~blank], int(blank.sum()))


def scores_and_labels(
    scored: Any, correct: Any, prompts: Sequence[Any] | None, by: str | None = None
) -> tuple[FloatArray, FloatArray]:
    """`labeled` with the empty answers, whose log score is -inf: [n] log scores and [n] of 1 and 0."""
    scores = log_confidences(scored, by)
    try:
        labels = real_numbers(correct, "correct", booleans=True).astype(np.float64)
    except InvalidInputError as error:
        raise InvalidInputError(f"Labels must be true or false: {error}") from error
    if labels.shape != scores.shape:
        raise InvalidInputError(
            f"There are {scores.size} scores and labels of shape {labels.shape}; every answer needs one label."
        )
    bad = np.flatnonzero((labels != 0) & (labels != 1))
    if bad.size:
        raise InvalidInputError(
            f"A label must be true or false, got {labels[bad[0]]:g} at position {bad[0]}. Leave out answers that "
            "nobody judged."
        )
    _refuse_duplicates(scored, prompts, scores.size)
    return scores, labels


def require_enough(answers: LabeledScores) -> None:
    """Raise `InvalidInputError` if there are too few labels to fit a calibrator, naming how many are missing."""
    missing = FEWEST_LABELS - answers.n
    if missing > 0:
        raise InvalidInputError(
            f"A calibrator needs at least {FEWEST_LABELS} labeled answers that are not empty. There are {answers.n}: "
            f"label {missing} more."
        )
    for kind, count in (("right", answers.n_correct), ("wrong", answers.n - answers.n_correct)):
        if count < FEWEST_OF_EITHER:
            raise InvalidInputError(
                f"A calibrator needs at least {FEWEST_OF_EITHER} {kind} answers among the labeled ones. There are "
                f"{count} of {answers.n}: {FEWEST_OF_EITHER - count} more are missing. Label further answers."
            )


def _refuse_duplicates(scored: Any, prompts: Sequence[Any] | None, n: int) -> None:
    keys = _keys(scored, prompts, n)
    first: dict[Hashable, int] = {}
    for i, key in enumerate(keys):
        if key in first:
            raise InvalidInputError(
                f"Answers {first[key]} and {i} are the same prompt and answer. Repeated answers count as evidence that "
                "is not there: leave one of them out."
            )
        first[key] = i


def _keys(scored: Any, prompts: Sequence[Any] | None, n: int) -> list[Hashable]:
    """The keys by which repeated answers are found; empty for bare log scores without prompts."""
    answers = list_of(scored) or []
    texts = [getattr(answer, "text", None) for answer in answers] or [None] * n
    if prompts is not None:
        return [(str(prompt), said) for prompt, said in zip(one_for_each(prompts, n), texts, strict=True)]
    if not all(isinstance(answer, ScoredAnswer) for answer in answers):
        return []
    return [
        # Two prompts may have the same short answer, but not with the same numbers at all its tokens.
        (a.text, a.log_confidence, tuple((token.id, token.log_probability) for token in a.tokens))
        for a in answers
        if not a.empty
    ]


def one_for_each(prompts: Sequence[Any], n: int) -> list[Any]:
    """The prompts of n answers; `InvalidInputError` if there is not one for each."""
    given = listed(prompts, "prompts")
    if len(given) != n:
        raise InvalidInputError(f"There are {n} answers and {len(given)} prompts; every answer needs its own.")
    return given


def identities(scored: Any, prompts: Sequence[Any] | None = None) -> tuple[str, ...]:
    """The identity of labeled answers that are not blank, whatever their scores: a hash of question and text,
    or of text and tokens where no question is known; empty for bare scores and for answers without any text.
    """
    answers = list_of(scored) or []
    asked = prompts if prompts is not None else [getattr(answer, "question", None) or "" for answer in answers]
    hashes = []
    for answer, prompt in zip(answers, asked, strict=False):
        score = getattr(answer, "log_confidence", None)
        if score is None or score == -math.inf:
            continue
        tokens = "" if prompt else [getattr(token, "id", None) for token in getattr(answer, "tokens", ())]
        # NUL between the parts, so that no two of them can be divided otherwise.
        key = f"{prompt}\0{getattr(answer, 'text', '')}\0{tokens}"
        hashes.append(hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).hexdigest())
    return tuple(hashes) if any(asked) or any(getattr(answer, "text", "") for answer in answers) else ()
