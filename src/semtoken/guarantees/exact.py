"""The arithmetic of the guarantees: exact counts and p-values, no objects.

Every function takes `uncertainty` = -log_confidence, [n], higher is riskier, and `correct`, [n], 1 right and 0 wrong.
The assumption of all: labeled and future answers are exchangeable (same model, prompt, kind of question, judge), and
the labels are right.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semtoken.errors import InvalidInputError
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require
from semtoken.support.inputs import real

GRID_POINTS = 31
"""The number of thresholds in a fixed sequence from its last start on."""
EARLY_POINTS = 8
"""The number of thresholds from each earlier start to the next."""
EARLY_STARTS = ((0.05, 0.15), (0.1, 0.55))
"""Shares of answers that the earlier starts accept, each with the part of delta that it may spend. The last start has
the rest. `research/experiments/calibration/judge.py` compares them with other choices.
"""
START_SHARE = 0.3
"""The last start is chosen for at most this share of the labels."""
START_MARGIN = 1.1
"""The last start is a little looser than that, as the share that it accepts varies."""
ROUNDING = 1e-9
"""Added to alpha * n, which is meant as a decimal: 0.29 * 100 is 29."""


@dataclass(frozen=True)
class Test:
    """The test of one threshold in a fixed sequence, with its p-value."""

    threshold: float
    """The threshold in units of -log_confidence."""
    accepted: int
    """The number of labeled answers that it accepts."""
    wrong: int
    """The number of wrong answers among the accepted."""
    p_value: float
    """p-value of the hypothesis that more than alpha of the accepted answers are wrong."""


SMALLEST_LEVEL = 1e-12  # what is smaller no number of labels could support


def check_level(value: float, name: str) -> float:
    """Return a level as a float; raise `InvalidInputError` if it is not strictly between 0 and 1."""
    level = real(value, name)
    if not SMALLEST_LEVEL <= level < 1:
        raise InvalidInputError(f"{name} must lie between 0 and 1, both excluded. Got {value!r} instead.")
    return level


def binomial_p_value(wrong: int, accepted: int, alpha: float) -> float:
    """P(Bin(accepted, alpha) <= wrong): how likely so few wrong answers are if alpha of the accepted are wrong."""
    if wrong >= accepted:
        return 1.0
    # The binomial sum as an incomplete beta function: scipy.stats takes a hundred times as long for the same number.
    return float(require("scipy.special", extra="calibrate").betaincc(wrong + 1, accepted - wrong, alpha))


@functools.cache
def labels_needed(wrong: int, alpha: float, delta: float) -> int:
    """The smallest number of accepted answers at which this many wrong ones still pass the test.

    For `wrong` = 0 it is the floor below which no threshold can ever pass: 22 at (0.1, 0.1).
    """
    share, level = check_level(alpha, "alpha"), check_level(delta, "delta")

    def passes(n: int) -> bool:
        return binomial_p_value(wrong, n, share) <= level

    most = 2 * (wrong + 1)
    while not passes(most):
        most *= 2
    return bisect_left(range(most), True, lo=wrong + 1, key=passes)


@functools.cache
def starting_share(n: int, alpha: float, delta: float) -> float:
    """Share of answers that the last start accepts, from n, alpha and delta alone: the guarantee stays exact."""
    most = int(START_SHARE * n)
    # Of `most` accepted answers so many counts of wrong ones pass the test: 0, 1, ..., `allowed` - 1.
    allowed = bisect_right(range(most + 1), delta, key=lambda wrong: binomial_p_value(wrong, most, alpha))
    return min(1.0, START_MARGIN * labels_needed(max(allowed - 1, 0), alpha, delta) / n)


@dataclass(frozen=True)
class FixedSequences:
    """The thresholds that are tried, by the share of answers that each accepts, and the part of delta that each brings.

    Both are fixed before anybody looks at a label.
    """

    shares: tuple[float, ...]
    """Shares of answers in (0, 1], strict to loose."""
    parts: tuple[float, ...]
    """Parts of delta, which sum to one: above 0 at a start, 0 at the thresholds that a start leads to."""

    @classmethod
    def of(cls, n: int, alpha: float, delta: float, start: float | None = None) -> FixedSequences:
        """The plan for n labels; with `start` it has one start, at that share of answers.

        A start that accepts too few labels to pass leaves its part of delta to the next one.
        """
        if start is not None:
            shares = shares_of_coverage(min(1.0, max(start, labels_needed(0, alpha, delta) / max(n, 1))))
            return cls(tuple(shares.tolist()), (1.0,) + (0.0,) * (shares.size - 1))
        last = starting_share(n, alpha, delta)
        starts: list[tuple[float, float]] = []
        left, waiting = 1.0, 0.0
        for share, part in EARLY_STARTS:
            waiting += part
            if share < last and share * n >= labels_needed(0, alpha, waiting * delta):
                starts.append((share, waiting))
                left, waiting = left - waiting, 0.0
        plan: list[tuple[float, float]] = []
        for place, (share, part) in enumerate(starts, 1):
            end = starts[place][0] if place < len(starts) else last
            between = np.linspace(share, end, EARLY_POINTS, endpoint=False).tolist()
            plan += [(share, part), *((other, 0.0) for other in between[1:])]
        plan += zip(shares_of_coverage(last).tolist(), [left, *[0.0] * (GRID_POINTS - 1)], strict=True)
        return cls(*map(tuple, zip(*plan, strict=True)))

    @property
    def starts(self) -> FixedSequences:
        """The thresholds that bring a part of delta, without those that they lead to."""
        starts = ((share, part) for share, part in zip(self.shares, self.parts, strict=True) if part)
        return FixedSequences(*map(tuple, zip(*starts, strict=True)))

    def placed(self, thresholds: Sequence[float]) -> tuple[list[float], list[float]]:
        """The different ones of the thresholds at the shares, with the parts of delta; equal ones have both parts."""
        parts = dict.fromkeys(thresholds, 0.0)
        for threshold, part in zip(thresholds, self.parts, strict=True):
            parts[threshold] += part
        return list(parts), list(parts.values())


def shares_of_coverage(start: float) -> FloatArray:
    """The shares of answers that the thresholds of a fixed sequence accept from one start on, strict to loose."""
    share = real(start, "start")
    if not 0 < share <= 1:
        raise InvalidInputError(f"start must be a share of answers in (0, 1]. Got {start!r} instead.")
    return np.linspace(share, 1.0, GRID_POINTS)


def own_thresholds(uncertainty: FloatArray, shares: Sequence[float]) -> list[float]:
    """Thresholds at the m-th smallest of the labeled answers' own scores, m fixed beforehand for each share; the last
    one, infinite, accepts everything.

    Answers of the m-th score are accepted together, so that a threshold accepts m labeled answers or more. Where surer
    answers are not more often wrong, the number of wrong ones among them is at least as large as a sample of what the
    threshold accepts would have: fewer than m are surer than the m-th score. So the test is exact, or cautious.
    """
    ascending, n = np.sort(uncertainty), uncertainty.size
    places = [min(max(round(share * n), 1), n) for share in shares]
    return [math.inf if m == n else float(ascending[m - 1]) for m in places]


def fixed_sequence(
    uncertainty: FloatArray,
    correct: FloatArray,
    grid: Sequence[float],
    alpha: float,
    delta: float,
    parts: Sequence[float] | None = None,
) -> tuple[float | None, tuple[Test, ...]]:
    """Learn-then-test with a fixed sequence (Angelopoulos et al. 2021): with probability at least 1 - delta over the
    labeled answers, at most alpha of the answers accepted by the threshold that is kept (up to and including it) are
    wrong. The grid ascends and is fixed without looking at the labels.

    `parts` of delta, one for each threshold, sum to at most 1; default: all of it at the first. A test that passes
    hands what it was allowed to spend to the next threshold, one that fails does not, and what has nothing to spend is
    not tested. This is the fallback procedure (Wiens 2003, Pharmaceutical Statistics 2(3)), which keeps all the tests
    together at delta. Returns the loosest threshold that passed, None if there is none, and the tests in order.
    """
    kept: float | None = None
    tests: list[Test] = []
    level = 0.0
    for threshold, part in zip(grid, parts or (1.0,) + (0.0,) * (len(grid) - 1), strict=True):
        level += part * delta
        if not level:
            continue
        inside = uncertainty <= threshold
        accepted = int(inside.sum())
        wrong = accepted - int(correct[inside].sum())
        tests.append(Test(float(threshold), accepted, wrong, binomial_p_value(wrong, accepted, alpha)))
        # The parts of delta were added up, so the last digits of the level may be off.
        if tests[-1].p_value <= level * (1 + ROUNDING):
            kept = float(threshold)
        else:
            level = 0.0
    return kept, tuple(tests)


def most_wrong(n: int, alpha: float, delta: float | None) -> int:
    """The most wrong answers of n that a threshold may let through if at most alpha of all may be, -1 if none may be.

    With confidence 1 - delta over the labels: the largest k with P(Bin(n, alpha) <= k) <= delta. The share of all
    answers below the (k + 1)-th smallest of n uncertainties is then above alpha with probability at most delta,
    whatever their distribution (an order statistic as a tolerance limit: Wilks 1941). With `delta` None on average over
    labels: floor(alpha (n + 1)) - 1, as in split conformal prediction.
    """
    if delta is None:
        return math.floor(alpha * (n + 1) + ROUNDING) - 1
    binom = require("scipy.stats", extra="calibrate").binom
    reached = int(binom.ppf(delta, n, alpha))  # the smallest k at which the sum is delta or more
    return reached if binom.cdf(reached, n, alpha) <= delta else reached - 1


def wrong_answers_caught(
    uncertainty: FloatArray, correct: FloatArray, alpha: float, delta: float | None = None
) -> tuple[float | None, int, int]:
    """The threshold below which at most alpha of the wrong answers are, by an order statistic of the wrong ones.

    With `delta` this holds with confidence 1 - delta over the labels, without on average (split conformal prediction,
    P(accepted | wrong) <= rank / (n_wrong + 1) <= alpha). Returns threshold, n_wrong and rank: accept strictly below
    the rank-th smallest uncertainty of the wrong answers; None: nothing.
    """
    wrong = np.sort(uncertainty[correct == 0])
    rank = most_wrong(wrong.size, alpha, delta) + 1
    if rank == 0:
        return None, wrong.size, 0
    threshold = float(wrong[rank - 1]) if rank <= wrong.size else math.inf
    return threshold, wrong.size, rank


def joint_risk(uncertainty: FloatArray, correct: FloatArray, alpha: float, delta: float | None = None) -> float | None:
    """The largest uncertainty to accept, so that at most alpha of all answers are accepted and wrong; None: nothing.

    It is the loosest threshold with at most `most_wrong` wrong answers among the accepted, itself included: with
    confidence 1 - delta over the labels, or on average without `delta` (conformal risk control).
    """
    order = np.argsort(uncertainty, kind="stable")
    ascending, wrong = uncertainty[order], np.cumsum(1 - correct[order])
    # Answers of equal uncertainty are accepted together or not at all.
    last_of_tie = np.append(ascending[1:] != ascending[:-1], True)
    holds = last_of_tie & (wrong <= most_wrong(uncertainty.size, alpha, delta)) & np.isfinite(ascending)
    return float(ascending[holds][-1]) if holds.any() else None


def batch_selection(
    uncertainty: FloatArray, correct: FloatArray, new_uncertainty: FloatArray, alpha: float
) -> tuple[FloatArray, list[int]]:
    """Conformal selection: p-values of new answers, and the answers that Benjamini and Hochberg's procedure selects.

    The expected share of wrong answers among the selected is at most alpha (Jin and Candes 2023).
    """
    wrong = np.sort(uncertainty[correct == 0])
    # The new answer itself is the one that is added: it may be wrong.
    p_values = (1 + np.searchsorted(wrong, new_uncertainty, side="right")) / (uncertainty.size + 1)
    adjusted = np.atleast_1d(require("scipy.stats", extra="calibrate").false_discovery_control(p_values))
    return p_values, np.flatnonzero(adjusted <= alpha + ROUNDING).tolist()


def shortage(n: int, alpha: float, delta: float) -> str:
    """A sentence on how many labels are missing for any guarantee at alpha; empty where n could be enough."""
    least = labels_needed(0, alpha, delta)
    if n >= least:
        return ""
    return (
        f"A guarantee of at most {percent(alpha)} wrong answers (with confidence {percent(1 - delta)}) takes at least "
        f"{least} labeled answers; you have {n}: nothing can be guaranteed."
    )


SETS = 100
"""The number of sets of labels that are drawn for each number of them in a forecast."""
TIMES = (1, 2, 4, 10)
"""A forecast is for so many times the labels at hand."""


def forecast(
    uncertainty: FloatArray, correct: FloatArray, alpha: float, delta: float, start: float | None = None, seed: int = 0
) -> str:
    """A sentence on how often a guarantee at alpha would come from more labels like these, by drawing sets from
    them.
    """
    generator, counts = np.random.default_rng(seed), []
    for n in (times * uncertainty.size for times in TIMES):
        sets = (generator.integers(uncertainty.size, size=n) for _ in range(SETS))
        came = sum(comes(uncertainty[drawn], correct[drawn], alpha, delta, start) for drawn in sets)
        counts.append(f"{came} with {n:,}")
    return (
        f"Of {SETS} sets of labels drawn from these, a guarantee of at most {percent(alpha)} wrong came from "
        f"{', '.join(counts)} labels."
    )


def comes(uncertainty: FloatArray, correct: FloatArray, alpha: float, delta: float, start: float | None = None) -> bool:
    """Return True if these labels give a guarantee by `fixed_sequence`: it comes where one of the starts passes."""
    n = uncertainty.size
    if n < labels_needed(0, alpha, delta):
        return False
    starts = FixedSequences.of(n, alpha, delta, start).starts
    # Equal scores can put two starts at one threshold, which then has the parts of both.
    for threshold, part in zip(*starts.placed(own_thresholds(uncertainty, starts.shares)), strict=True):
        if fixed_sequence(uncertainty, correct, [threshold], alpha, part * delta)[0] is not None:
            return True
    return False


def percent(share: float) -> str:
    """A share as percent: 0.1 becomes `10%`. Less than all is never called `100%`: 0.99999 becomes `99.999%`."""
    written = (f"{100 * share:.{digits}g}" for digits in range(4, 17))
    return next((text for text in written if text != "100" or share >= 1), "100") + "%"
