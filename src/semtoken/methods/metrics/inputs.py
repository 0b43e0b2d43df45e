"""Scores and judgments as checked arrays, and what is done about those that are missing."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.support.arrays import FloatArray, real_numbers
from semtoken.support.inputs import one_of, shown

logger = logging.getLogger("semtoken.metrics")

MOST_DRAWS = 10**7  # resamples or exchanges in one call


class UndefinedMetric(RuntimeWarning):
    """A metric has no value on these answers; the message says why."""


@dataclass(frozen=True)
class JudgedAnswers:
    """The scores of answers and their judgments, checked and ready for a metric."""

    score: FloatArray
    """The metric's first argument, [n]. As an uncertainty it may hold infinities, never NaN."""
    target: FloatArray
    """`correct` or `quality`, [n], finite."""
    n_left_out: int
    """The number of answers without a judgment."""
    n_non_finite: int
    """The number of uncertainties that are NaN or +inf; they share the worst rank."""


@dataclass(frozen=True)
class PreparedMetric:
    """A metric on given answers, as a function of how often each answer counts."""

    answers: JudgedAnswers
    weighted: Callable[[FloatArray], FloatArray]
    """The metric, [b], by the times that each answer counts, [b, n]; NaN where it is undefined. A row of ones stands
    for the data as given."""
    undefined: str
    """Why the metric has no value on the data as given; empty if it has one."""

    def value(self) -> float:
        """The metric on the data as given, NaN if undefined."""
        if self.undefined:
            return float("nan")
        return float(self.weighted(np.ones((1, self.answers.target.size)))[0])


def name_of(metric: Any, functions: Mapping[str, Callable[..., float]]) -> str:
    """The name of a metric, given by name or as the function itself; raises `InvalidInputError` for anything else."""
    for name, function in functions.items():
        if metric is function or (isinstance(metric, str) and metric == name):
            return name
    raise InvalidInputError(f"'metric' must be one of {', '.join(functions)}, got {shown(metric)}.")


def all_options(metric: Callable[..., float], given: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a metric, with their defaults where none are given; `InvalidInputError` for one that it lacks."""
    _, _, *parameters = inspect.signature(metric).parameters.values()
    usual = {parameter.name: parameter.default for parameter in parameters}
    if unknown := [name for name in given if name not in usual]:
        raise InvalidInputError(
            f"The metric {metric.__name__} has no option {unknown[0]!r:.60}; it has {', '.join(usual)}."
        )
    return usual | dict(given)


def evaluate(prepared: PreparedMetric, name: str) -> float:
    """The value of a prepared metric; NaN with a warning if it is undefined."""
    if prepared.undefined:
        warnings.warn(f"{name} is undefined: {prepared.undefined}", UndefinedMetric, stacklevel=3)
    return prepared.value()


def judged_answers(
    uncertainty: npt.ArrayLike,
    target: npt.ArrayLike,
    *,
    target_name: str,
    non_finite: str = "worst",
) -> JudgedAnswers:
    """Check uncertainties and labels; unjudged answers are left out, NaN and +inf get the worst rank.

    `non_finite="lm_polygraph"` reproduces that library instead: NaN and -inf become -1e7, the MOST certain, and +inf
    becomes 1e7. `InvalidInputError` if the arrays differ in length or cannot be read, or a label is infinite.
    """
    score = vector(uncertainty, "uncertainty")
    labels = vector(target, target_name)
    same_length(score, labels, "uncertainty", target_name)
    judged = ~np.isnan(labels)
    score, labels = score[judged], labels[judged]
    if np.isinf(labels).any():
        raise InvalidInputError(f"'{target_name}' holds an infinite value; give a finite number, or NaN if not judged.")
    one_of("non_finite", non_finite, ("worst", "lm_polygraph"))
    missing = np.isnan(score) | (score == np.inf)
    if non_finite == "worst":
        score = np.where(missing, np.inf, score)
    else:
        score = np.where(np.isnan(score) | (score == -np.inf), -1e7, np.where(missing, 1e7, score))
    n_missing = int(missing.sum())
    if n_missing:
        logger.warning("%d of %d uncertainties are NaN or +inf (non_finite=%r)", n_missing, score.size, non_finite)
    return JudgedAnswers(score, labels, n_left_out=int((~judged).sum()), n_non_finite=n_missing)


def vector(values: npt.ArrayLike, name: str) -> FloatArray:
    """Convert values to a one-dimensional float64 array; raise `InvalidInputError` if they are none."""
    array = real_numbers(values, name, booleans=True).astype(np.float64)
    if array.ndim != 1:
        raise InvalidInputError(f"'{name}' must have one dimension, got the shape {array.shape}.")
    return array


def same_length(first: FloatArray, second: FloatArray, first_name: str, second_name: str) -> None:
    """Raise `InvalidInputError` for two arrays of different lengths."""
    if first.size != second.size:
        raise InvalidInputError(
            f"'{first_name}' has {first.size} values and '{second_name}' has {second.size}; "
            "both need one per answer, in the same order."
        )


def require_binary(labels: FloatArray, name: str) -> None:
    """Raise `InvalidInputError` for labels other than 0 and 1."""
    other = (labels != 0) & (labels != 1)
    if other.any():
        raise InvalidInputError(f"'{name}' must be 1 (right), 0 (wrong) or NaN (not judged), got {labels[other][0]:g}.")
