"""The recipe of PROTOCOL.md: a number learned from labels, its cross-fitted values, and the gate.

It is the log-odds that an answer is wrong, linear in numbers of the answer and in the hidden state at the position that
chose its last token. The states are standardized, rotated to at most 64 principal components (an eighth of the labels),
standardized again, and a logistic regression with C = 0.01 makes one number of them; its out-of-fold values (5 folds)
and the answer's own numbers go into another one with C = 1. examples/learn_a_number.py is the same in short.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from semtoken import ScoredAnswer
from semtoken.guarantees.labels import chosen_method, log_confidences
from semtoken.methods.metrics.resampling import Difference, resample

FEWEST_TO_LEARN, FEWEST_OF_EITHER_TO_LEARN = 150, 30
"""Fewest labels, and fewest right and wrong ones among them, from which a number is learned."""
FOLDS = 5
MOST_COMPONENTS, LABELS_A_COMPONENT = 64, 8
PROBE_C, STACK_C = 0.01, 1.0
ONE_SIDED = 0.9
"""The gain must be above 0 with a one-sided interval of this confidence."""
LEAST_VARIANCE = 1e-8
"""A component with less than this share of the largest one's variance is taken for rounding error."""

FloatArray = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Readings:
    """The numbers and hidden states of n answers that a number is learned from."""

    numbers: FloatArray
    """[n, numbers] numbers of the answers."""
    states: FloatArray | None = None
    """[n, H] hidden state at the position that chose the last token; None where no states are read."""

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, places: Any) -> Readings:
        """The numbers and states of the answers at these places."""
        return Readings(self.numbers[places], None if self.states is None else self.states[places])


@dataclass(frozen=True, eq=False)
class LearnedNumber:
    """The log-odds that an answer is wrong, with weights fitted to labels."""

    weights: FloatArray
    """[numbers] the weight of each number."""
    intercept: float
    state_weights: FloatArray
    """[H] the weight of each dimension of the hidden state; [0] where no states are read."""
    center: FloatArray
    """[H] mean of the labeled states."""
    spread: FloatArray
    """[H] standard deviation of the labeled states; 1 in dimensions in which they do not differ."""
    distances: FloatArray
    """[n] distances of the labeled states, ascending; [0] where no states are read."""
    expected: FloatArray = field(default_factory=lambda: np.empty(0))
    """[n] risks of new answers like the labeled ones, ascending: what recent ones are compared with."""

    def risk(self, readings: Readings) -> FloatArray:
        """Log-odds that each answer is wrong, [n]; higher is riskier."""
        log_odds = readings.numbers @ self.weights + self.intercept
        if readings.states is not None:
            log_odds = log_odds + readings.states @ self.state_weights
        return np.asarray(log_odds, dtype=np.float64)

    def distance(self, readings: Readings) -> FloatArray:
        """How far each state is from the center of the labeled ones, [n], at least 0; about 1 for states like those."""
        return distances(np.asarray(readings.states), self.center, self.spread)


def distances(states: FloatArray, center: FloatArray, spread: FloatArray) -> FloatArray:
    """How far states [n, H] are from a center: the mean over H of the squared distance in standard deviations, [n]."""
    return np.asarray(np.square((states - center) / spread).mean(axis=1))


@dataclass(frozen=True, eq=False)
class Learning:
    """The result of learning from labels: the number, whether it passed the gate, and the figures that decided it."""

    learned: LearnedNumber | None
    """The number, fitted on all labels; None where the headline is kept."""
    risk: FloatArray
    """[n] log-odds of being wrong of each labeled answer, by a fit that did not see it; [0] with too few labels."""
    gain: Difference | None
    """AUROC of `risk` minus that of the headline, with the two-sided 80 % interval whose lower end is the one-sided
    90 % bound; None with too few labels."""
    statement: str
    """What came of it, as a clause: "kept the headline: ..." or "uses the learned number: ..."."""


def learn(readings: Readings, headline: FloatArray, correct: FloatArray, *, seed: int = 0) -> Learning:
    """Learn a number from labeled answers, and keep it only if it ranks answers it did not see better.

    `readings` are of n answers to different questions; the learned number would replace `headline` [n], where higher is
    riskier; `correct` [n] is 1 or 0.
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
    unseen = cross_fitted(readings, correct, seed=seed)
    risk = unseen.risk
    gain = gain_over(headline, risk, correct, seed=seed)
    told = f"{gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
    if not gain.low > 0:
        return Learning(None, risk, gain, f"kept the headline: your labels do not show a gain ({told})")
    learned = fit(readings, correct, seed=seed)
    return Learning(
        replace(learned, expected=unseen.expected(learned.risk(readings))),
        risk,
        gain,
        f"uses the learned number: it ranks labelled answers that it did not see better than the headline ({told})",
    )


def gain_over(headline: FloatArray, risk: FloatArray, correct: FloatArray, *, seed: int = 0) -> Difference:
    """The AUROC of a risk minus the headline's; the two-sided interval's lower end is a one-sided 90 % bound."""
    other = resample("auroc", headline, correct, seed=seed)
    level = 1 - 2 * (1 - ONE_SIDED)
    return resample("auroc", risk, correct, seed=seed).minus(other, level)


def fit(readings: Readings, correct: FloatArray, *, seed: int = 0) -> LearnedNumber:
    """Fit a number on all labels, without testing whether it ranks answers better."""
    weights, intercept, state_weights = _fitted(readings, correct, seed)
    center = spread = far = np.empty(0)
    if readings.states is not None:
        n = len(readings)
        center, spread = readings.states.mean(axis=0), readings.states.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        # Each from the center of the others: its own share in the center makes it look nearer than new ones are.
        far = np.sort(distances(readings.states, center, spread) * (n / (n - 1)) ** 2)
    return LearnedNumber(weights, intercept, state_weights, center, spread, far)


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """The risks of answers by the whole recipe, each from a fit on the folds that do not contain it."""

    risk: FloatArray
    """[n] log-odds of being wrong."""
    standing: FloatArray
    """[n] the same in standard deviations from the mean of the answers that the fold's fit had seen."""

    def expected(self, seen: FloatArray) -> FloatArray:
        """The risks of new answers like the labeled ones, [n], ascending; `seen` are the risks of the labeled ones.

        The fits on four fifths of the labels spread new answers less than that on all of them does, by 5 % with 400
        labels. Taking `risk` itself for this would call answers of the same world moved two or three times too often.
        """
        return np.sort(seen.mean() + self.standing * seen.std())


def cross_fitted(readings: Readings, correct: FloatArray, *, seed: int = 0) -> CrossFitted:
    """Score every answer by the whole recipe fitted on the folds that do not contain it."""
    risk, standing = np.empty(correct.size), np.empty(correct.size)
    for rest, held in _folds(correct, seed):
        model = fit(readings.part(rest), correct[rest], seed=seed)
        seen, unseen = (model.risk(readings.part(places)) for places in (rest, held))
        risk[held], standing[held] = unseen, (unseen - seen.mean()) / (seen.std() or 1.0)
    return CrossFitted(risk, standing)


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
    mean, spread = states.mean(axis=0), states.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    standard = (states - mean) / spread
    most = min(MOST_COMPONENTS, max(1, wrong.size // LABELS_A_COMPONENT), *standard.shape)
    with np.errstate(invalid="ignore"):  # shares of a variance of 0
        rotation = PCA(most, random_state=seed).fit(standard)
    kept = rotation.explained_variance_ > LEAST_VARIANCE * rotation.explained_variance_[0]
    if not kept.any():  # all answers have the same state
        return np.zeros(states.shape[1]), 0.0
    axes = rotation.components_[kept]
    rotated = standard @ axes.T
    center, deviation = rotated.mean(axis=0), rotated.std(axis=0)
    slopes, intercept = _logistic((rotated - center) / deviation, wrong, PROBE_C)
    slopes = slopes / deviation
    weights = (slopes @ axes) / spread
    return weights, intercept - float(slopes @ center) - float(weights @ mean)


def _logistic(columns: FloatArray, outcome: FloatArray, strength: float) -> tuple[FloatArray, float]:
    """Slopes and intercept of an L2-regularised logistic regression (scikit-learn's, `strength` is its C)."""
    model = LogisticRegression(C=strength, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=RuntimeWarning)
        model.fit(columns, outcome)
    return np.asarray(model.coef_[0], dtype=np.float64), float(model.intercept_[0])


def _folds(correct: FloatArray, seed: int) -> Iterator[tuple[Places, Places]]:
    """Places of the answers to fit on and of those held back, each fold with its share of right ones."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    yield from folds.split(np.zeros((correct.size, 1)), correct)


LARGEST = 1000.0

NUMBERS: dict[str, Callable[[ScoredAnswer], float]] = {
    "headline": lambda answer: min(-float(log_confidences([answer], chosen_method([answer], None))[0]), LARGEST),
    "probability": lambda answer: min(-answer.log_probability, LARGEST),
    "perplexity": lambda answer: min(-answer.log_probability / len(answer.tokens), LARGEST),
    "max_token_entropy": lambda answer: float(answer.scores["max_token_entropy"]),
    "first_token": lambda answer: min(-answer.tokens[0].log_probability, LARGEST),
    "log_length": lambda answer: math.log(len(answer.tokens)),
}
"""The numbers that are read of an answer, in nats; higher is riskier, but for the length."""
WITH_STATES = ("headline",)
CHEAP = tuple(name for name in NUMBERS if name != "headline")


def readings_of(answers: Sequence[ScoredAnswer], names: Sequence[str], *, states: bool) -> Readings:
    """The numbers and states of answers, row by row; none of them is blank."""
    numbers = np.array([[NUMBERS[name](answer) for name in names] for answer in answers], dtype=np.float64)
    rows = [answer.state.values for answer in answers if answer.state is not None] if states else []
    return Readings(numbers, np.stack(rows).astype(np.float64) if states else None)
