"""The quality of probabilities: Brier score, log loss and reliability, against always giving the base rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semtoken.methods.metrics.resampling import multiplicities
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require
from semtoken.support.html_elements import card, folded, heading, note, table
from semtoken.support.text import number

RESAMPLES = 2000
BINS, PER_BIN = 10, 10


@dataclass(frozen=True)
class Interval:
    """A figure with its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class Bin:
    """A group of answers with similar probabilities: their mean probability and the share that is right."""

    n: int
    probability_correct: float
    """Mean probability of the answers in the bin."""
    right: float
    """Share of them that is right."""
    low: float
    """Lower end of the Wilson 95% interval of that share."""
    high: float
    """Upper end of that interval."""


@dataclass(frozen=True, repr=False)
class Report:
    """The quality of probabilities on labeled answers. Losses: lower is better. Gain: negative is better than the base
    rate.
    """

    n: int
    """The number of answers that were measured."""
    cross_validated: bool
    """True if the probabilities come from calibrators that did not see the answers they are for."""
    base_rate: float
    """Share of right answers."""
    brier: Interval
    """Mean squared distance between probability and outcome, in [0, 1], with its interval."""
    log_loss: Interval
    """Mean of -log of the probability that was given to what came true, in nats, with its interval."""
    calibration_error: float
    """Mean distance between probability and share of right answers over bins of equal count (ECE)."""
    brier_gain: Interval
    """Brier score minus that of always giving the base rate; paired bootstrap."""
    log_loss_gain: Interval
    """Log loss minus that of always giving the base rate; paired bootstrap."""
    bins: tuple[Bin, ...]
    """Reliability: bins of equal count, ascending probability."""

    @property
    def sentence(self) -> str:
        """The log loss, what it gains on the base rate and whether that is shown, and the calibration error."""
        gain = self.log_loss_gain
        verdict = "better than" if gain.high < 0 else "worse than" if gain.low > 0 else "not shown to be better than"
        return (
            f"Log loss {self.log_loss.value:.3f}, {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] against always "
            f"giving {self.base_rate:.1%}: {verdict} the base rate. ECE {self.calibration_error:.3f}."
        )

    def __repr__(self) -> str:
        gain = self.brier_gain
        return (
            f"Report(n={self.n}, base_rate={self.base_rate:.3f}, brier={self.brier.value:.3f}, "
            f"brier_gain={gain.value:+.3f} ({gain.low:+.3f} to {gain.high:+.3f}), "
            f"calibration_error={self.calibration_error:.3f}, {len(self.bins)} bins)"
        )

    def _repr_html_(self) -> str:
        answers = "that the calibrator did not see (cross-validation)" if self.cross_validated else "given"
        losses = [
            ("Brier score", str(self.brier), str(self.brier_gain)),
            ("log loss", str(self.log_loss), str(self.log_loss_gain)),
        ]
        bins = [
            (f"{b.n:,}", number(b.probability_correct), f"{number(b.right)} ({number(b.low)} to {number(b.high)})")
            for b in self.bins
        ]
        return card(
            heading(f"How good the probabilities are on {self.n:,} answers {answers}"),
            note(
                f"{number(self.base_rate)} of them are right; probability and share of right answers are "
                f"{number(self.calibration_error)} apart on average. Lower losses are better; a difference below 0 is "
                "better than the base rate."
            ),
            table(["loss", "value (95% interval)", "minus that of the base rate"], losses, numbers=[1, 2]),
            folded(
                f"Reliability in {len(bins)} bins",
                table(["answers", "mean probability", "share right (95% interval)"], bins, numbers=[0, 1, 2]),
            ),
        )


def brier_scores(probabilities: FloatArray, correct: FloatArray) -> FloatArray:
    """The squared difference of each probability from 1 (right) or 0 (wrong), [n] in [0, 1]."""
    return np.asarray(np.square(probabilities - correct))


def log_losses(probabilities: FloatArray, correct: FloatArray) -> FloatArray:
    """The negative log of the probability that each probability gives to the true label, [n], at least 0."""
    return np.asarray(-np.log(np.where(correct == 1, probabilities, 1 - probabilities)))


def wilson(right: int, n: int) -> tuple[float, float]:
    """95% interval of a share (Wilson 1927)."""
    interval = require("scipy.stats", extra="calibrate").binomtest(right, n).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


def reliability(probabilities: FloatArray, correct: FloatArray) -> tuple[Bin, ...]:
    """Divide answers into bins of about equal size by their probability: ten from a hundred answers on, fewer below.
    Equal probabilities stay together.
    """
    wanted = max(1, min(BINS, probabilities.size // PER_BIN))
    # A cut is one of the probabilities themselves, so that equal ones stay on one side of it.
    cuts = np.unique(np.quantile(probabilities, np.arange(1, wanted) / wanted, method="higher"))
    bins = np.searchsorted(cuts, probabilities, side="right")
    measured = []
    for inside in (bins == b for b in np.unique(bins)):
        n, right = int(inside.sum()), int(correct[inside].sum())
        measured.append(Bin(n, float(probabilities[inside].mean()), right / n, *wilson(right, n)))
    return tuple(measured)


def calibration_error(bins: Sequence[Bin]) -> float:
    """Mean distance between probability and share of right answers over reliability bins (ECE), in [0, 1]."""
    return sum(b.n * abs(b.probability_correct - b.right) for b in bins) / sum(b.n for b in bins)


def report(
    probabilities: FloatArray,
    base: FloatArray,
    correct: FloatArray,
    *,
    cross_validated: bool,
    groups: npt.NDArray[np.intp] | None = None,
    seed: int = 0,
    n_resamples: int = RESAMPLES,
) -> Report:
    """Measure probabilities on labeled answers.

    Parameters
    ----------
    probabilities : array of shape (n,)
        The probability of being right, in (0, 1), of each answer.
    base : array of shape (n,)
        What one would say who knows the base rate only, in (0, 1).
    correct : array of shape (n,)
        1 right, 0 wrong.
    cross_validated : bool
        Whether the probabilities come from calibrators that did not see these answers; it is passed on.
    groups : array of shape (n,), optional
        The numbers of the questions, from 0, which the bootstrap draws with all their answers. Default: each its own.
    seed, n_resamples : int
        Of the bootstrap, whose percentiles are the ends of all intervals.
    """
    bins = reliability(probabilities, correct)
    losses = {
        "brier": brier_scores(probabilities, correct),
        "log_loss": log_losses(probabilities, correct),
        "brier_gain": brier_scores(probabilities, correct) - brier_scores(base, correct),
        "log_loss_gain": log_losses(probabilities, correct) - log_losses(base, correct),
    }
    return Report(
        n=correct.size,
        cross_validated=cross_validated,
        base_rate=float(correct.mean()),
        calibration_error=calibration_error(bins),
        bins=bins,
        **mean_intervals(losses, groups, seed=seed, n_resamples=n_resamples),
    )


def mean_intervals(
    figures: Mapping[str, FloatArray],
    groups: npt.NDArray[np.intp] | None = None,
    *,
    seed: int = 0,
    n_resamples: int = RESAMPLES,
) -> dict[str, Interval]:
    """The means of some figures of n answers, each [n], with percentile bootstrap intervals.

    Every resample draws the same answers for all figures. `groups` [n] are the numbers of the questions, from 0, which
    are drawn with all their answers; default: each answer its own.
    """
    table = np.stack(list(figures.values()), axis=1)
    drawn = multiplicities(np.arange(len(table)) if groups is None else groups, n_resamples, seed)
    means = np.concatenate([counts @ table / counts.sum(axis=1, keepdims=True) for counts in drawn])
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    ends = zip(table.mean(axis=0).tolist(), low.tolist(), high.tolist(), strict=True)
    return {name: Interval(*own) for name, own in zip(figures, ends, strict=True)}
