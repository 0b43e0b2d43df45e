"""Maps from a log score to a probability, and how their parameters are fitted: fitting needs scipy.

A curve reads and writes itself (msgspec): the types of its fields say what a file may hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from semtoken.choices import CurveName
from semtoken.errors import InvalidInputError
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require

LOWEST, HIGHEST = -50.0, -1e-6
"""Log scores are clipped to this range."""
ROUNDING = 1e-12
"""The largest difference of two isotonic fits that count as the same."""


def clipped(log_confidence: npt.ArrayLike) -> FloatArray:
    """Log scores limited to the range that calibrators use."""
    return np.clip(np.asarray(log_confidence, dtype=np.float64), LOWEST, HIGHEST)


def log_complement(logs: FloatArray) -> FloatArray:
    """ln(1 - exp(x)) for each log-probability x, [n], computed without loss of precision."""
    # Near 0, exp(x) rounds to 1 and 1 - exp(x) to 0; expm1 keeps the digits.
    return np.asarray(np.log(-np.expm1(logs)))


AtLeastZero: TypeAlias = Annotated[float, Meta(ge=0)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
"""A number in [0, 1]."""


class Temperature(Struct, frozen=True, tag_field="kind", tag="temperature"):
    """A curve with one parameter: P = exp(log_confidence / temperature)."""

    temperature: Annotated[float, Meta(ge=0.02, le=50)]

    def __call__(self, log_confidence: npt.ArrayLike) -> FloatArray:
        """The probability of being right for each log score, [n]."""
        return np.exp(clipped(log_confidence) / self.temperature)


class Sigmoid(Struct, frozen=True, tag_field="kind", tag="sigmoid"):
    """P = sigmoid(a ln c - b ln(1 - c) + m) with a, b >= 0: beta calibration; Platt on the logit where a = b.

    Kull, Silva Filho and Flach 2017, "Beta calibration".
    """

    a: AtLeastZero
    b: AtLeastZero
    m: float

    def __call__(self, log_confidence: npt.ArrayLike) -> FloatArray:
        """The probability of being right for each log score, [n]."""
        logs = clipped(log_confidence)
        z = self.a * logs - self.b * log_complement(logs) + self.m
        # sigmoid(z) = exp(-ln(1 + exp(-z))), which overflows for no z.
        return np.asarray(np.exp(-np.logaddexp(0.0, -z)))


class VennAbers(Struct, frozen=True, tag_field="kind", tag="venn-abers"):
    """Two isotonic fits: the new answer taken as wrong (p0) and as right (p1); P = p1 / (1 - p0 + p1).

    Vovk and Petej 2014, "Venn-Abers predictors". p0 steps at a labeled score, p1 just above one. `InvalidInputError` if
    the edges do not rise, or the values fall.
    """

    p0_edges: tuple[float, ...]
    p0_values: tuple[Share, ...]
    """[k + 1] values of p0, which do not fall: below the first of k edges, then from each edge on."""
    p1_edges: tuple[float, ...]
    p1_values: tuple[Share, ...]

    def __post_init__(self) -> None:
        _require_steps(self.p0_edges, self.p0_values, "p0")
        _require_steps(self.p1_edges, self.p1_values, "p1")
        p0, p1 = self.pair(np.array([*self.p0_edges, *self.p1_edges, LOWEST, HIGHEST]))
        if (p0 > p1 + ROUNDING).any():
            raise InvalidInputError("p0 is above p1")

    def pair(self, log_confidence: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """The two probabilities p0 and p1 of the Venn-Abers predictor for each log score, [n] each."""
        logs = clipped(log_confidence)
        p0 = np.asarray(self.p0_values)[np.searchsorted(self.p0_edges, logs, side="right")]
        p1 = np.asarray(self.p1_values)[np.searchsorted(self.p1_edges, logs, side="left")]
        return p0, p1

    def __call__(self, log_confidence: npt.ArrayLike) -> FloatArray:
        """The probability of being right for each log score, [n]."""
        p0, p1 = self.pair(log_confidence)
        return p1 / (1 - p0 + p1)


Curve: TypeAlias = Temperature | Sigmoid | VennAbers


def _require_steps(edges: Sequence[float], values: Sequence[float], name: str) -> None:
    if len(values) != len(edges) + 1:
        raise InvalidInputError(f"{len(edges)} edges need {len(edges) + 1} {name}, not {len(values)}")
    if (np.diff(edges) <= 0).any():
        raise InvalidInputError(f"the edges of {name} must rise")
    if (np.diff(values) < 0).any():
        raise InvalidInputError(f"{name} must not fall")


NEWTON_STEPS = 50


def smoothed_targets(correct: FloatArray) -> FloatArray:
    """Labels moved a little towards each other against overfitting (Platt 1999), [n]."""
    right = correct.sum()
    wrong = correct.size - right
    return np.where(correct == 1, (right + 1) / (right + 2), 1 / (wrong + 2))


def fit_temperature(log_confidence: FloatArray, correct: FloatArray) -> Temperature:
    """The temperature in [0.02, 50] of the least log loss against the labels as they are."""
    logs = clipped(log_confidence)

    def loss(log_temperature: float) -> float:
        z = logs / math.exp(log_temperature)
        return float(-np.where(correct == 1, z, log_complement(z)).sum())

    optimize = require("scipy.optimize", extra="calibrate")
    # In the logarithm, since temperatures of 0.1 and 10 are equally far from 1.
    minimum = optimize.minimize_scalar(
        loss, bounds=(math.log(0.02), math.log(50.0)), method="bounded", options={"xatol": 1e-10}
    )
    return Temperature(float(math.exp(minimum.x)))


def fit_beta(log_confidence: FloatArray, correct: FloatArray) -> Sigmoid:
    """Fit beta calibration (Kull et al. 2017) with slopes that are not negative."""
    logs = clipped(log_confidence)
    a, b, m = _logistic(np.stack([logs, -log_complement(logs)], axis=1), smoothed_targets(correct))
    return Sigmoid(a, b, m)


def fit_platt(log_confidence: FloatArray, correct: FloatArray) -> Sigmoid:
    """Fit Platt scaling of the logit of the confidence, with a slope that is not negative."""
    logs = clipped(log_confidence)
    a, m = _logistic((logs - log_complement(logs))[:, None], smoothed_targets(correct))
    return Sigmoid(a, a, m)


def fit_venn_abers(log_confidence: FloatArray, correct: FloatArray) -> VennAbers:
    """Fit Venn-Abers: two isotonic fits for every place that a new score can take.

    A new answer taken as wrong pools with the scores up to its own, one taken as right with those from its own on: so
    p0 can only step at a labeled score and p1 just above one.
    """
    scores, where, counts = np.unique(clipped(log_confidence), return_inverse=True, return_counts=True)
    right = np.bincount(where, correct, minlength=scores.size).astype(np.intp)
    pools = _pools_with_one_more(right, counts)
    # Seen from above, with right and wrong exchanged, a new wrong answer is what a new right one is from below.
    mirrored = _pools_with_one_more((counts - right)[::-1], counts[::-1])[::-1]
    # A new answer below all scores that counts as wrong, or one above all that counts as right, pools with nothing.
    p0 = [0.0, *((size - wrong) / size for wrong, size in mirrored)]
    p1 = [*(n_right / size for n_right, size in pools), 1.0]
    return VennAbers(*_steps(scores, np.array(p0)), *_steps(scores, np.array(p1)))


FITS: dict[str, Callable[[FloatArray, FloatArray], Curve]] = {
    "temperature": fit_temperature,
    "platt": fit_platt,
    "beta": fit_beta,
    "venn-abers": fit_venn_abers,
}


def maps_of(method: CurveName) -> tuple[str, ...]:
    """The maps, keys of `FITS`, whose mean is the probability by a method."""
    return ("beta", "venn-abers") if method == "blend" else (method,)


def _logistic(features: FloatArray, target: FloatArray) -> list[float]:
    """Slopes >= 0 and the intercept of the least log loss against soft targets.

    L-BFGS-B finds which slopes are zero; Newton steps on the others bring the last digits.
    """
    # ln c and ln(1 - c) may differ by orders of magnitude, and the search stops by the size of its steps.
    scale = np.maximum(features.std(axis=0), 1e-12)
    center = features.mean(axis=0)
    columns = np.column_stack([(features - center) / scale, np.ones(target.size)])

    def loss_and_slope(w: FloatArray) -> tuple[float, FloatArray]:
        z = columns @ w
        probability = np.exp(-np.logaddexp(0.0, -z))
        return float((np.logaddexp(0.0, z) - target * z).sum()), columns.T @ (probability - target)

    start = np.append(np.zeros(features.shape[1]), math.log(target.mean() / (1 - target.mean())))
    bounds = [(0.0, None)] * features.shape[1] + [(None, None)]
    optimize = require("scipy.optimize", extra="calibrate")
    minimum = optimize.minimize(
        loss_and_slope,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-10},
    )
    w = _polished(np.asarray(minimum.x), columns, target, loss_and_slope)
    slopes = w[:-1] / scale
    return [*map(float, slopes), float(w[-1] - (slopes * center).sum())]


def _polished(w: FloatArray, columns: FloatArray, target: FloatArray, loss_and_slope: Any) -> FloatArray:
    # A slope that the search left at zero is held there by its bound; the intercept has none.
    free = np.append(w[:-1] > 0, True)
    for _ in range(NEWTON_STEPS):
        loss, slope = loss_and_slope(w)
        z = columns @ w
        curvature = np.exp(-np.logaddexp(0.0, -z) - np.logaddexp(0.0, z))
        hessian = (columns[:, free] * curvature[:, None]).T @ columns[:, free]
        step = np.zeros_like(w)
        # Least squares, since equal scores make the matrix singular.
        step[free] = np.linalg.lstsq(hessian, slope[free], rcond=1e-14)[0]
        following = w - step
        if (following[:-1] < 0).any() or loss_and_slope(following)[0] > loss + 1e-12 * abs(loss):
            break
        w = following
        if np.abs(step).max() < 1e-13:
            break
    return w


def _pools_with_one_more(right: npt.NDArray[np.intp], counts: npt.NDArray[np.intp]) -> list[tuple[int, int]]:
    """The right answers and all answers of the pool that one more right answer at each score gets into, [k].

    `right` and `counts` [k] are those of each score, ascending. The fits for all k places take one walk: a pool is a
    side of the convex minorant of the cumulated counts, and one place further only its left end can change (Vovk, Petej
    and Fedorova 2015, "Large-scale probabilistic predictors with and without guarantees of validity", algorithms 1 and
    2). All is in whole numbers, so nothing is rounded.
    """
    before = [(0, 0), *zip(np.cumsum(counts).tolist(), np.cumsum(right).tolist(), strict=True)]
    corners: list[tuple[int, int]] = []  # of the minorant, from right to left
    for n, n_right in reversed([(0, 0), *((n + 1, n_right + 1) for n, n_right in before[1:])]):
        _add_corner(corners, (n, n_right))
    pools = []
    for passed in before[1:]:
        start, end = corners[-1], corners[-2]
        pools.append((end[1] - start[1], end[0] - start[0]))
        if _turn(start, passed, end) > 0:  # below the side, now that the new answer is to its right
            corners.pop()
            _add_corner(corners, passed)
    return pools


def _add_corner(corners: list[tuple[int, int]], point: tuple[int, int]) -> None:
    """Put a point to the left of a convex chain, without the corners that are not below the sides that it makes."""
    while len(corners) > 1 and _turn(point, corners[-1], corners[-2]) <= 0:
        corners.pop()
    corners.append(point)


def _turn(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> int:
    """Above 0 for a turn to the left on the way from a by b to c, below 0 for one to the right, 0 for none."""
    return (b[0] - a[0]) * (c[1] - b[1]) - (b[1] - a[1]) * (c[0] - b[0])


def _steps(edges: FloatArray, values: FloatArray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Edges and values of a step function, without the edges at which nothing changes."""
    changes = np.flatnonzero(np.diff(values) != 0)
    kept = np.append(0, changes + 1)
    return tuple(map(float, edges[changes])), tuple(map(float, values[kept]))


def mean_probability(maps: Sequence[Curve], n: int, scores: FloatArray) -> FloatArray:
    """The mean of the maps, within what n labels can show."""
    # The maps take finite numbers only; the caller puts NaN where an answer is blank.
    safe = np.where(np.isneginf(scores), 0.0, scores)
    mean = np.mean([curve(safe) for curve in maps], axis=0)
    # n labels cannot show a probability nearer to 0 or 1 than this (Laplace's rule of succession).
    probabilities: FloatArray = np.clip(mean, 1 / (n + 2), (n + 1) / (n + 2))
    return probabilities
