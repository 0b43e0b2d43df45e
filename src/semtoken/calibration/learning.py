"""Learning a number from labels: the fit, what it gives for answers it did not see, and whether it may be used.

The recipe was chosen on one model and one question set and is fixed: the states are standardised, rotated to at most 64
principal components (an eighth of the labels), standardised again, and a logistic regression with C = 0.01 makes one
number of them; its out-of-fold values (5 folds) and the answer's own numbers go into another one with C = 1. Fitting
needs scikit-learn.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.calibration.labels import FloatArray
from semtoken.calibration.learned import Learned, LearnedFrom, Readings, distances
from semtoken.metrics.resampling import Difference, resample
from semtoken.support.extras import require

FEWEST_TO_LEARN, FEWEST_OF_EITHER_TO_LEARN = 150, 30
"""Labels below which nothing is learned."""
FOLDS = 5
MOST_COMPONENTS, LABELS_A_COMPONENT = 64, 8
PROBE_C, STACK_C = 0.01, 1.0
ONE_SIDED = 0.9
"""The gain must be above 0 with a one-sided interval of this confidence."""
LEAST_VARIANCE = 1e-8
"""Share of the largest component's variance below which a component is rounding."""

Places = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Learning:
    """What came of learning from labels."""

    learned: Learned | None
    """The number, fitted on all labels; None where the headline is kept."""
    risk: FloatArray
    """[n] log-odds of being wrong of each labelled answer, by a fit that did not see it; [0] with too few labels."""
    gain: Difference | None
    """AUROC of `risk` minus that of the headline, with the two-sided 80 % interval whose lower end is the one-sided
    90 % bound; None with too few labels."""
    statement: str
    """What came of it, in one sentence."""


def learn(
    names: Sequence[str],
    readings: Readings,
    headline: FloatArray,
    correct: FloatArray,
    origin: LearnedFrom = LearnedFrom(),  # noqa: B008  (it is frozen)
    *,
    seed: int = 0,
) -> Learning:
    """Learn a number from labelled answers, and keep it only if it ranks answers it did not see better.

    Parameters
    ----------
    names
        Of the numbers that are read.
    readings
        Of n answers of different questions.
    headline : [n]
        The number in place; higher is riskier.
    correct : [n] of 1 and 0
        Whether each answer is right.
    origin
        Where the answers come from.
    seed
        Of the folds and of the bootstrap.
    """
    n, right = correct.size, int(correct.sum())
    either = min(right, n - right)
    if n < FEWEST_TO_LEARN or either < FEWEST_OF_EITHER_TO_LEARN:
        return Learning(
            None,
            np.empty(0),
            None,
            f"kept the headline: learning takes at least {FEWEST_TO_LEARN} labels, {FEWEST_OF_EITHER_TO_LEARN} of them "
            f"right and {FEWEST_OF_EITHER_TO_LEARN} wrong; you have {n}, {right} right and {n - right} wrong",
        )
    risk = cross_fitted(readings, correct, seed=seed)
    gain = gain_over(headline, risk, correct, seed=seed)
    told = f"{gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
    if not gain.low > 0:
        return Learning(None, risk, gain, f"kept the headline: your labels do not show a gain ({told})")
    return Learning(
        fit(names, readings, correct, origin, seed=seed),
        risk,
        gain,
        f"uses the learned number: it ranks labelled answers that it did not see better than the headline ({told})",
    )


def gain_over(headline: FloatArray, risk: FloatArray, correct: FloatArray, *, seed: int = 0) -> Difference:
    """AUROC of a risk minus that of the headline, with the two-sided interval whose lower end is one-sided 90 %."""
    other = resample("auroc", headline, correct, seed=seed)
    level = 1 - 2 * (1 - ONE_SIDED)
    return resample("auroc", risk, correct, seed=seed).minus(other, level)


def fit(
    names: Sequence[str],
    readings: Readings,
    correct: FloatArray,
    origin: LearnedFrom = LearnedFrom(),  # noqa: B008  (it is frozen)
    *,
    seed: int = 0,
) -> Learned:
    """The number fitted on all labels, without a look at whether it is any good."""
    weights, intercept, state_weights = _fitted(readings, correct, seed)
    centre = spread = np.empty(0)
    far = np.empty(0)
    if readings.states is not None:
        n = len(readings)
        centre, spread = readings.states.mean(axis=0), readings.states.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        # Each from the centre of the others: its own share in the centre makes it look nearer than new ones are.
        far = np.sort(distances(readings.states, centre, spread) * (n / (n - 1)) ** 2)
    return Learned(tuple(names), weights, intercept, state_weights, centre, spread, far, origin)


def cross_fitted(readings: Readings, correct: FloatArray, *, seed: int = 0) -> FloatArray:
    """Log-odds of being wrong of each answer, by the whole recipe fitted on the other folds, [n]."""
    found = np.empty(correct.size)
    for rest, held in _folds(correct, seed):
        weights, intercept, state_weights = _fitted(readings.part(rest), correct[rest], seed)
        found[held] = readings.numbers[held] @ weights + intercept
        if readings.states is not None:
            found[held] += readings.states[held] @ state_weights
    return found


def _fitted(readings: Readings, correct: FloatArray, seed: int) -> tuple[FloatArray, float, FloatArray]:
    """Weights of the numbers, intercept, and weights of the states, for the log-odds of being wrong."""
    wrong = 1 - correct
    if readings.states is None:
        numbers = readings.numbers
        mean, spread = numbers.mean(axis=0), numbers.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        slopes, intercept = _logistic((numbers - mean) / spread, wrong, STACK_C)
        return slopes / spread, intercept - float(slopes @ (mean / spread)), np.empty(0)
    unseen = np.empty(wrong.size)
    for rest, held in _folds(correct, seed + 1):
        weights, intercept = _probe(readings.states[rest], wrong[rest], seed)
        unseen[held] = readings.states[held] @ weights + intercept
    slopes, last = _logistic(np.column_stack([unseen, readings.numbers]), wrong, STACK_C)
    if slopes[0] <= 0:  # out of fold, noise ranks answers the wrong way round
        slopes, last = _logistic(readings.numbers, wrong, STACK_C)
        return slopes, last, np.zeros(readings.states.shape[1])
    weights, intercept = _probe(readings.states, wrong, seed)
    return slopes[1:], last + float(slopes[0]) * intercept, slopes[0] * weights


def _probe(states: FloatArray, wrong: FloatArray, seed: int) -> tuple[FloatArray, float]:
    """Weights of the states and the intercept of a linear probe, [H] and a number."""
    decomposition = require("sklearn.decomposition", extra="calibrate")
    mean, spread = states.mean(axis=0), states.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    standard = (states - mean) / spread
    most = min(MOST_COMPONENTS, max(1, wrong.size // LABELS_A_COMPONENT), *standard.shape)
    with np.errstate(invalid="ignore"):  # shares of a variance of 0
        rotation = decomposition.PCA(most, random_state=seed).fit(standard)
    kept = rotation.explained_variance_ > LEAST_VARIANCE * rotation.explained_variance_[0]
    if not kept.any():  # all answers have the same state
        return np.zeros(states.shape[1]), 0.0
    axes = rotation.components_[kept]
    rotated = standard @ axes.T
    centre, deviation = rotated.mean(axis=0), rotated.std(axis=0)
    slopes, intercept = _logistic((rotated - centre) / deviation, wrong, PROBE_C)
    slopes = slopes / deviation
    weights = (slopes @ axes) / spread
    return weights, intercept - float(slopes @ centre) - float(weights @ mean)


def _logistic(columns: FloatArray, outcome: FloatArray, strength: float) -> tuple[FloatArray, float]:
    """Slopes and intercept of an L2-regularised logistic regression (scikit-learn's, `strength` is its C)."""
    linear = require("sklearn.linear_model", extra="calibrate")
    model = linear.LogisticRegression(C=strength, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=RuntimeWarning)
        model.fit(columns, outcome)
    return np.asarray(model.coef_[0], dtype=np.float64), float(model.intercept_[0])


def _folds(correct: FloatArray, seed: int) -> Iterator[tuple[Places, Places]]:
    """Places of the answers to fit on and of those held back, each fold with its share of right ones."""
    selection: Any = require("sklearn.model_selection", extra="calibrate")
    folds = selection.StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    yield from folds.split(np.zeros((correct.size, 1)), correct)
