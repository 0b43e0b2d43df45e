"""Finding the parameters of a curve from labelled answers; scipy does the work.

All take `log_score`, [n], and `correct`, [n] of 0 and 1. The sigmoids are fitted against Platt's smoothed
targets, (n1 + 1) / (n1 + 2) for right answers and 1 / (n0 + 2) for wrong ones, so separated data give finite slopes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from semtoken.calibration.curves import (
    Curve,
    FloatArray,
    Sigmoid,
    Steps,
    Temperature,
    VennAbers,
    clipped,
    log_complement,
)
from semtoken.support.extras import require

HISTOGRAM_BINS = 10
NEWTON_STEPS = 50


def smoothed_targets(correct: FloatArray) -> FloatArray:
    """Platt's targets, [n]."""
    right = correct.sum()
    wrong = correct.size - right
    return np.where(correct == 1, (right + 1) / (right + 2), 1 / (wrong + 2))


def fit_temperature(log_score: FloatArray, correct: FloatArray) -> Temperature:
    """The temperature in [0.02, 50] of the least log loss against the labels as they are."""
    logs = clipped(log_score)

    def loss(log_temperature: float) -> float:
        z = logs / math.exp(log_temperature)
        return float(-np.where(correct == 1, z, log_complement(z)).sum())

    optimize = require("scipy.optimize", extra="calibrate")
    found = optimize.minimize_scalar(
        loss, bounds=(math.log(0.02), math.log(50.0)), method="bounded", options={"xatol": 1e-10}
    )
    return Temperature(float(math.exp(found.x)))


def fit_beta(log_score: FloatArray, correct: FloatArray) -> Sigmoid:
    """Beta calibration with slopes held at zero or above."""
    logs = clipped(log_score)
    a, b, m = _logistic(np.stack([logs, -log_complement(logs)], axis=1), smoothed_targets(correct))
    return Sigmoid(a, b, m)


def fit_platt(log_score: FloatArray, correct: FloatArray) -> Sigmoid:
    """Platt scaling of the logit of c, slope held at zero or above."""
    logs = clipped(log_score)
    a, m = _logistic((logs - log_complement(logs))[:, None], smoothed_targets(correct))
    return Sigmoid(a, a, m)


def fit_isotonic(log_score: FloatArray, correct: FloatArray) -> Steps:
    """Pooled adjacent violators, ties pooled: each block's value from its lowest score on."""
    scores, weights, means = _pooled(log_score, correct)
    return _steps(scores[1:], _isotonic(means, weights))


def fit_histogram(log_score: FloatArray, correct: FloatArray) -> Steps:
    """Ten bins of equal count, ties kept together, (k + 1) / (n + 2) in each. Its steps may fall."""
    logs = clipped(log_score)
    cuts = np.unique(np.quantile(logs, np.arange(1, HISTOGRAM_BINS) / HISTOGRAM_BINS, method="higher"))
    bins = np.searchsorted(cuts, logs, side="right")
    counts, right = np.bincount(bins, minlength=cuts.size + 1), np.bincount(bins, correct, minlength=cuts.size + 1)
    return Steps(tuple(map(float, cuts)), tuple(map(float, (right + 1) / (counts + 2))))


def fit_venn_abers(log_score: FloatArray, correct: FloatArray) -> VennAbers:
    """Both isotonic fits for every place that a new score can take, by isotonic regression.

    A new answer taken as wrong pools with the scores up to its own, one taken as right with those from its own on: so
    p0 can only step at a labelled score and p1 just above one.
    """
    scores, weights, means = _pooled(log_score, correct)
    p0 = [0.0, *(_with(means, weights, i, 0.0) for i in range(scores.size))]
    p1 = [*(_with(means, weights, i, 1.0) for i in range(scores.size)), 1.0]
    low, high = _steps(scores, np.maximum.accumulate(p0)), _steps(scores, np.maximum.accumulate(p1))
    return VennAbers(low.edges, low.values, high.edges, high.values)


FITS: dict[str, Callable[[FloatArray, FloatArray], Curve]] = {
    "temperature": fit_temperature,
    "platt": fit_platt,
    "beta": fit_beta,
    "isotonic": fit_isotonic,
    "histogram": fit_histogram,
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
    found = optimize.minimize(
        loss_and_slope,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-10},
    )
    w = _polished(np.asarray(found.x), columns, target, loss_and_slope)
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


def _pooled(log_score: FloatArray, correct: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Distinct scores, ascending, with how many answers share each and the share of right ones among them."""
    scores, where, counts = np.unique(clipped(log_score), return_inverse=True, return_counts=True)
    right = np.bincount(where, correct, minlength=scores.size)
    return scores, counts.astype(np.float64), right / counts


def _isotonic(means: FloatArray, weights: FloatArray) -> FloatArray:
    fitted = require("scipy.optimize", extra="calibrate").isotonic_regression(means, weights=weights).x
    return np.clip(np.asarray(fitted, dtype=np.float64), 0.0, 1.0)


def _with(means: FloatArray, weights: FloatArray, i: int, label: float) -> float:
    """The isotonic fit at score i with one more answer there."""
    heavier, moved = weights.copy(), means.copy()
    heavier[i] += 1
    moved[i] = (means[i] * weights[i] + label) / heavier[i]
    return float(_isotonic(moved, heavier)[i])


def _steps(edges: FloatArray, values: FloatArray) -> Steps:
    """A step function without the edges at which nothing changes."""
    changes = np.flatnonzero(np.diff(values) != 0)
    kept = np.append(0, changes + 1)
    return Steps(tuple(map(float, edges[changes])), tuple(map(float, values[kept])))
