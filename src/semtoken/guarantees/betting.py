"""Tests of "at most alpha of the answers are wrong" that may be looked at after every label.

Each is a bet against a claim about the probability that the next answer is wrong, given all before. If the claim is
true, the bet wins nothing on average, so its wealth exceeds 1/level with probability at most `level` over all times
together (Ville's inequality): looking every day costs nothing, and nobody has to say beforehand when to stop.

A bet on a claim "at most m" multiplies the wealth by 1 + c (X - m) / m at an answer that is wrong (X = 1) or right
(X = 0), with c in (0, 1); on "at least m" by 1 - c (X - m) / (1 - m). Bets of several sizes c are averaged.

- Interval: Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting", JRSS B 86(1).
- Change: new bets begin at all times, with shares of the wealth that sum to one (`_start_shares`); their sum is again a
  bet, which stays worth 1 on average. Shin, Ramdas and Rinaldo 2024, "E-detectors: a nonparametric framework for
  sequential change detection", New England Journal of Statistics in Data Science 2(2), sum such bets without shares,
  which limits how often an alarm comes on average and not whether there is ever one; see also Volkhonskiy et al. 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.guarantees.exact import check_level
from semtoken.support.arrays import FloatArray, real_numbers

SIZES: FloatArray = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9])
"""Sizes c of bets on intervals, from small differences that many labels show to large ones."""
RATIOS: FloatArray = np.array([1.25, 1.5, 2.0, 3.0, 5.0, 8.0])
"""Each bet on a change wins most if the share of wrong answers becomes this many times alpha, or (1 + alpha) / 2 where
that is less.
"""
LEVEL = 0.05
"""The largest probability that an interval ever misses the truth, or that a kept guarantee is ever called broken."""
BLOCK = 10
"""New bets begin each time so many labels more have come."""
_BISECTIONS = 50


def wrong_share(wrong: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Bounds on the probability of a wrong answer, averaged over the answers so far: a confidence sequence.

    Over all n together it misses the truth with probability at most `level`, in (0, 1), a half of it for each end. It
    holds where the probability changes from answer to answer, too: the lower end is then no larger than the largest of
    them, the upper no smaller than the smallest.
    """
    if not 0 <= wrong <= n:
        raise InvalidInputError(f"There cannot be {wrong} wrong answers among {n}.")
    # Half of the level for each end: a wealth of 2 / level.
    limit = math.log(2 / check_level(level, "level"))
    low = _largest(lambda m: _log_wealth_above(wrong, n, m) >= limit)
    high = 1 - _largest(lambda m: _log_wealth_above(n - wrong, n, m) >= limit)
    return low, high


def _largest(rejected: Callable[[float], bool]) -> float:
    """The largest m in [0, 1] that is rejected; those below are, too. 0 if none is."""
    # Bisection: more wrong answers than m allows are evidence against every smaller m, too.
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def _log_wealth_above(wrong: int, n: int, m: float) -> float:
    """Log of the mean wealth of bets against "the probability is at most m" after `wrong` of n."""
    logs = wrong * np.log1p(SIZES * (1 - m) / m) + (n - wrong) * np.log1p(-SIZES)
    return float(np.logaddexp.reduce(logs) - math.log(SIZES.size))


def change_evidence(wrong: npt.ArrayLike, alpha: float) -> FloatArray:
    """Log wealth of the bet that the share of wrong answers is, or has become, larger than alpha, [..., n].

    If every answer is wrong with a probability of at most alpha, given those before, the wealth ever exceeds 1/level
    with probability at most `level`. `wrong`, [..., n] of true and false, labels accepted answers in the order in which
    they came; leading dimensions are other streams of them.
    """
    labels = _labels(wrong)
    gains, losses = _log_factors(alpha)
    wealth = np.full((*labels.shape[:-1], gains.size), -np.inf)  # of the bets that have begun
    evidence = np.empty(labels.shape)
    shares = _start_shares(labels.shape[-1])
    left = 0.0  # log of the share of those that have not, which is worth what it was
    for t in range(labels.shape[-1]):
        if t % BLOCK == 0:
            wealth = np.logaddexp(wealth, math.log(shares[t // BLOCK]))
            left = math.log(1.0 - shares[: t // BLOCK + 1].sum())
        wealth = wealth + np.where(labels[..., t, None], gains, losses)
        mean = np.logaddexp.reduce(wealth, axis=-1) - math.log(gains.size)
        evidence[..., t] = np.logaddexp(mean, left)
    return evidence


def _start_shares(n: int) -> FloatArray:
    """Shares of the wealth for bets that begin at block 0, 1, 2 ...: half at once, the rest as 1 / (j log(j)^2), whose
    sum over all j from 3 on is below 1.1: late changes cost little.
    """
    blocks = np.arange(n // BLOCK + 1, dtype=np.float64) + 2
    shares: FloatArray = 0.5 / 1.1 / (blocks * np.log(blocks) ** 2)
    shares[0] = 0.5
    return shares


def _log_factors(alpha: float) -> tuple[FloatArray, FloatArray]:
    """Log factors of the wealth at a wrong and at a right answer, [bets] each: likelihood ratios of larger shares of
    wrong answers against alpha, that is bets of the sizes (share - alpha) / (1 - alpha).
    """
    check_level(alpha, "alpha")
    # A share of wrong answers cannot be larger than one, so large ratios meet halfway between alpha and it.
    larger = np.unique(np.minimum(RATIOS * alpha, (1 + alpha) / 2))
    return np.log(larger / alpha), np.log((1 - larger) / (1 - alpha))


@dataclass(frozen=True)
class Change:
    """The answer at which a guarantee was found broken, and the one since which it has been broken."""

    noticed: int
    """Position of the label at which it was noticed."""
    since: int
    """Position of the first answer after the change, as the labels up to then suggest; 0: from the beginning."""


def find_change(wrong: npt.ArrayLike, alpha: float, level: float = LEVEL) -> Change | None:
    """When the guarantee was found to be broken, and since when it may be; None where it was not.

    The rest is as for `change_evidence`. `InvalidInputError` if these are not labels of one stream, each true or false,
    or alpha or level is outside (0, 1).
    """
    labels = _labels(wrong)
    if labels.ndim != 1:
        raise InvalidInputError("Give the labels of one stream of answers.")
    passed = np.flatnonzero(change_evidence(labels, alpha) >= -math.log(check_level(level, "level")))
    if not passed.size:
        return None
    noticed = int(passed[0])
    # The start at which the labels up to now favor a larger share most, over all bets: as in CUSUM.
    factors = np.where(labels[noticed::-1, None], *_log_factors(alpha))
    sums = np.cumsum(factors, axis=0)[::-1]
    return Change(noticed, int(np.unravel_index(int(sums.argmax()), sums.shape)[0]))


def _labels(wrong: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    values = real_numbers(wrong, "wrong", booleans=True).astype(np.float64)
    if values.ndim < 1 or not np.isin(values, (0, 1)).all():
        raise InvalidInputError("Labels must be true (wrong) or false (right), one for each accepted answer.")
    labels: npt.NDArray[np.bool_] = values.astype(bool)
    return labels
