"""Maps from a log score to a probability, and how their parameters are fitted: fitting needs scipy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.errors import ArtifactError
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require

LOWEST, HIGHEST = -50.0, -1e-6
"""Log scores are clipped to this range."""


def clipped(log_confidence: npt.ArrayLike) -> FloatArray:
    """Log scores limited to the range that calibrators use."""
    return np.clip(np.asarray(log_confidence, dtype=np.float64), LOWEST, HIGHEST)


def log_complement(logs: FloatArray) -> FloatArray:
    """ln(1 - exp(x)) for each log-probability x, [n], computed without loss of precision."""
    return np.asarray(np.log(-np.expm1(logs)))


@dataclass(frozen=True)
class Temperature:
    """A curve with one parameter: P = exp(log_confidence / temperature)."""

    temperature: float

    def __call__(self, log_confidence: npt.ArrayLike) -> FloatArray:
        """The probability of being right for each log score, [n]."""
        return np.exp(clipped(log_confidence) / self.temperature)

    def problem(self) -> str | None:
        """Why the parameters cannot be used; None if they can."""
        return None if 0.02 <= self.temperature <= 50 else f"temperature {self.temperature} is outside [0.02, 50]"


@dataclass(frozen=True)
class Sigmoid:
    """P = sigmoid(a ln c - b ln(1 - c) + m) with a, b >= 0: beta calibration; Platt on the logit where a = b.

    Kull, Silva Filho and Flach 2017, "Beta calibration".
    """

    a: float
    b: float
    m: float

    def __call__(self, log_confidence: npt.ArrayLike) -> FloatArray:
        """The probability of being right for each log score, [n]."""
        logs = clipped(log_confidence)
        z = self.a * logs - self.b * log_complement(logs) + self.m
        return np.asarray(np.exp(-np.logaddexp(0.0, -z)))

    def problem(self) -> str | None:
        """Why the parameters cannot be used; None if they can."""
        if not np.isfinite([self.a, self.b, self.m]).all():
            return "a parameter is not finite"
        return None if self.a >= 0 and self.b >= 0 else f"the slopes {self.a} and {self.b} must not be negative"


@dataclass(frozen=True)
class VennAbers:
    """Two isotonic fits: the new answer taken as wrong (p0) and as right (p1); P = p1 / (1 - p0 + p1).

    Vovk and Petej 2014, "Venn-Abers predictors". p0 steps at a labeled score, p1 just above one.
    """

    p0_edges: tuple[float, ...]
    p0_values: tuple[float, ...]
    """[k + 1] values of p0, which do not fall: below the first of k edges, then from each edge on."""
    p1_edges: tuple[float, ...]
    p1_values: tuple[float, ...]

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

    def problem(self) -> str | None:
        """Why the parameters cannot be used; None if they can."""
        for edges, values, name in ((self.p0_edges, self.p0_values, "p0"), (self.p1_edges, self.p1_values, "p1")):
            if why := _problem_of_steps(edges, values, name):
                return why
        p0, p1 = self.pair(np.array([*self.p0_edges, *self.p1_edges, LOWEST, HIGHEST]))
        return "p0 is above p1" if (p0 > p1).any() else None


Curve: TypeAlias = Temperature | Sigmoid | VennAbers

_KINDS: dict[str, type[Temperature] | type[Sigmoid] | type[VennAbers]] = {
    "temperature": Temperature,
    "sigmoid": Sigmoid,
    "venn-abers": VennAbers,
}


def to_parameters(curve: Curve) -> dict[str, Any]:
    """The type and parameters of a curve as plain values that JSON can hold."""
    kind = next(name for name, of in _KINDS.items() if isinstance(curve, of))
    return {"kind": kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in asdict(curve).items()}}


def from_parameters(parameters: Any) -> Curve:
    """A curve from the plain values of a file; `ArtifactError` if they are none, out of range, or steps that fall."""
    kind = _KINDS.get(str(parameters.get("kind"))) if isinstance(parameters, Mapping) else None
    if kind is None:
        raise ArtifactError(f"A calibrator holds an unknown kind of curve: {parameters!s:.60}.")
    names = list(kind.__dataclass_fields__)
    try:
        curve = kind(**{name: _numbers(parameters[name]) for name in names})
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"A calibrator's curve {parameters['kind']!r} needs the numbers {', '.join(names)}."
        ) from error
    if problem := curve.problem():
        raise ArtifactError(f"A calibrator's curve {parameters['kind']!r} cannot be used: {problem}.")
    return curve


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_numbers(item) for item in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return float(value)


def _problem_of_steps(edges: Sequence[float], values: Sequence[float], name: str) -> str | None:
    edge, value = np.asarray(edges, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if value.size != edge.size + 1:
        return f"{edge.size} edges need {edge.size + 1} {name}, not {value.size}"
    if not np.isfinite(edge).all() or (np.diff(edge) <= 0).any():
        return f"the edges of {name} must rise"
    if not ((value >= 0) & (value <= 1)).all():
        return f"{name} must lie in [0, 1]"
    return f"{name} must not fall" if (np.diff(value) < 0).any() else None


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
    weights, means = counts.astype(np.float64), np.bincount(where, correct, minlength=scores.size) / counts
    p0 = [0.0, *(_with(means, weights, i, 0.0) for i in range(scores.size))]
    p1 = [*(_with(means, weights, i, 1.0) for i in range(scores.size)), 1.0]
    return VennAbers(*_steps(scores, np.maximum.accumulate(p0)), *_steps(scores, np.maximum.accumulate(p1)))


FITS: dict[str, Callable[[FloatArray, FloatArray], Curve]] = {
    "temperature": fit_temperature,
    "platt": fit_platt,
    "beta": fit_beta,
    "venn-abers": fit_venn_abers,
}


def _logistic(features: FloatArray, target: FloatArray) -> list[float]:
    """Slopes >= 0 and the intercept of the least log loss against soft targets.

    L-BFGS-B finds which slopes are zero; Newton steps on the others bring the last digits.
    """
    scale = np.maximum(features.std(axis=0), 1e-12)
    centre = features.mean(axis=0)
    columns = np.column_stack([(features - centre) / scale, np.ones(target.size)])

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
    return [*map(float, slopes), float(w[-1] - (slopes * centre).sum())]


def _polished(w: FloatArray, columns: FloatArray, target: FloatArray, loss_and_slope: Any) -> FloatArray:
    free = np.append(w[:-1] > 0, True)
    for _ in range(NEWTON_STEPS):
        loss, slope = loss_and_slope(w)
        z = columns @ w
        curvature = np.exp(-np.logaddexp(0.0, -z) - np.logaddexp(0.0, z))
        hessian = (columns[:, free] * curvature[:, None]).T @ columns[:, free]
        step = np.zeros_like(w)
        step[free] = np.linalg.lstsq(hessian, slope[free], rcond=1e-14)[0]
        following = w - step
        if (following[:-1] < 0).any() or loss_and_slope(following)[0] > loss + 1e-12 * abs(loss):
            break
        w = following
        if np.abs(step).max() < 1e-13:
            break
    return w


def _with(means: FloatArray, weights: FloatArray, i: int, label: float) -> float:
    """The isotonic fit at score i with one more answer there."""
    heavier, moved = weights.copy(), means.copy()
    heavier[i] += 1
    moved[i] = (means[i] * weights[i] + label) / heavier[i]
    fitted = require("scipy.optimize", extra="calibrate").isotonic_regression(moved, weights=heavier).x
    return float(np.clip(np.asarray(fitted, dtype=np.float64), 0.0, 1.0)[i])


def _steps(edges: FloatArray, values: FloatArray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Edges and values of a step function, without the edges at which nothing changes."""
    changes = np.flatnonzero(np.diff(values) != 0)
    kept = np.append(0, changes + 1)
    return tuple(map(float, edges[changes])), tuple(map(float, values[kept]))
