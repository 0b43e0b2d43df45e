"""Paired tests between methods on the same answers, and the one rule for what a difference shows.

One rule says what a difference shows, in all sentences, tables and files (`PairedTest.verdict`): whether its 95%
interval lies above 0, below it, or holds it. There is no verdict where fewer than `FEWEST` answers are right, or wrong.
P-values are of `semtoken.methods.metrics.permutation_test`, corrected by Holm's procedure within a family of tests; no
verdict reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from semtoken.bench.judges import tally
from semtoken.methods.metrics import Difference, ResampledMetric, holm, permutation_test
from semtoken.support.arrays import FloatArray

SEED = 0
"""The seed of the bootstrap, so that the same run gives the same intervals."""
NOT_SHOWN = "not shown"
"""The verdict on a difference whose interval holds 0."""
FEWEST, FEW = 20, 30
"""With fewer right (or wrong) answers than the first there is no verdict; with fewer than the second, a warning."""


Verdict: TypeAlias = Literal["higher", "lower", "not shown", "too few answers"]


@dataclass(frozen=True)
class PairedTest:
    """The difference of two methods on the same answers, with its 95% interval, p-value and verdict."""

    difference: float
    """The metric of the one minus that of the other; NaN where one of them is undefined."""
    low: float
    high: float
    p: float
    p_adjusted: float
    """The p-value adjusted by Holm's procedure for the comparisons of its family; NaN without a value."""
    verdict: Verdict
    """The side of 0 on which the interval of the difference lies, or that it holds 0."""


class PairedTests:
    """Paired tests between uncertainties on the same answers, given by their names, each made once."""

    def __init__(self, uncertainty: Mapping[str, FloatArray], correct: FloatArray, n_permutations: int) -> None:
        self._uncertainty, self._correct, self._n = uncertainty, correct, n_permutations
        self._p = cache(self._tested)  # each test takes a thousand exchanges
        counts = tally(correct)
        self._enough = min(counts.correct, counts.incorrect) >= FEWEST

    def against(
        self, metric: str, drawn: Mapping[str, ResampledMetric], family: Sequence[str], reference: str
    ) -> dict[str, PairedTest]:
        """The others of a family against one, with p-values corrected for their number; empty if that one is missing.

        `drawn` has the resampled metric of each.
        """
        if reference not in drawn:
            return {}
        differences = {
            name: drawn[name].minus(drawn[reference], p_value=self._p(metric, *sorted((name, reference))))
            for name in family
            if name != reference
        }
        adjusted = holm([difference.p_value for difference in differences.values()])
        return {
            name: PairedTest(d.value, d.low, d.high, d.p_value, float(p), self._verdict(d))
            for (name, d), p in zip(differences.items(), adjusted, strict=True)
        }

    def _tested(self, metric: str, first: str, second: str) -> float:
        """P-value of the difference between two uncertainties, whose order does not matter to a test of two sides."""
        pair = self._uncertainty[first], self._uncertainty[second]
        return permutation_test(metric, *pair, self._correct, n_permutations=self._n, seed=SEED)

    def _verdict(self, difference: Difference) -> Verdict:
        if not self._enough:
            return "too few answers"
        if difference.low > 0:
            return "higher"
        return "lower" if difference.high < 0 else "not shown"
