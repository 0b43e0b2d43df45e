"""Does a confidence of 0.8 mean that 80% are right? The expected calibration error."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.methods.metrics.inputs import JudgedAnswers, PreparedMetric, evaluate, require_binary, same_length, vector
from semtoken.support.arrays import FloatArray
from semtoken.support.inputs import whole

MOST_BINS = 10_000


def expected_calibration_error(confidence: npt.ArrayLike, correct: npt.ArrayLike, n_bins: int = 15) -> float:
    """Mean distance between confidence and accuracy, over bins of equal width.

    ECE = sum_b (n_b / n) |accuracy_b - mean confidence_b|; bin b of B holds confidences in
    ((b-1)/B, b/B], the first one 0 as well. Empty bins count nothing.

    Parameters
    ----------
    confidence : array of shape (n,)
        In [0, 1], for STC 1 - uncertainty. NOT an uncertainty, and NaN is rejected: an answer without
        confidence has no bin.
    correct : array of shape (n,)
        1 right, 0 wrong, NaN not judged (left out).
    n_bins : int
        The number of bins; results for different numbers cannot be compared.

    Returns
    -------
    float in [0, 1]
        Lower is better; NaN with a warning if there is no answer.

    References
    ----------
    Guo et al. 2017, "On calibration of modern neural networks", equation 3 (15 bins).

    Examples
    --------
    >>> round(expected_calibration_error([0.9, 0.9, 0.2, 0.2], [1, 0, 0, 0], n_bins=10), 4)
    0.3
    """
    return evaluate(prepare_calibration_error(confidence, correct, n_bins=n_bins), "ECE")


def prepare_calibration_error(confidence: npt.ArrayLike, correct: npt.ArrayLike, *, n_bins: int = 15) -> PreparedMetric:
    """`expected_calibration_error` as a function of how often each answer counts, for resampling."""
    whole(n_bins, "n_bins", low=1, high=MOST_BINS)
    answers = _with_confidence(confidence, correct)
    # Bins are closed above, and 0 belongs to the first one.
    bins = np.maximum(np.ceil(answers.score * n_bins).astype(int) - 1, 0)
    membership = bins[:, None] == np.arange(n_bins)  # [n, bins]
    surplus = membership * (answers.score - answers.target)[:, None]

    def weighted(weights: FloatArray) -> FloatArray:
        # n_b |accuracy_b - confidence_b| = |sum of (confidence - correct) in the bin|
        error: FloatArray = np.abs(weights @ surplus).sum(axis=1) / weights.sum(axis=1)
        return error

    return PreparedMetric(answers, weighted, "" if answers.target.size else "there is no judged answer")


def _with_confidence(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> JudgedAnswers:
    score, labels = vector(confidence, "confidence"), vector(correct, "correct")
    same_length(score, labels, "confidence", "correct")
    if not ((score >= 0) & (score <= 1)).all():
        bad = score[~((score >= 0) & (score <= 1))][0]
        raise InvalidInputError(f"'confidence' must lie in [0, 1], got {bad:g}; only a probability can be calibrated.")
    judged = ~np.isnan(labels)
    require_binary(labels[judged], "correct")
    return JudgedAnswers(score[judged], labels[judged], n_left_out=int((~judged).sum()), n_non_finite=0)
