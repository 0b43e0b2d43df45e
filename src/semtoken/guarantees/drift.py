"""The distance of recent scores from those that a calibrator was fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.support.arrays import FloatArray
from semtoken.support.inputs import whole

DRIFT_RESAMPLES = 1000
FEWEST_RECENT = 30
"""With fewer recent scores a distance says nothing: its interval is all of [0, 1], and no limit applies to it."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Drift:
    """Kolmogorov-Smirnov distance between two sets of scores: the largest gap between their distribution functions."""

    distance: float
    """The distance in [0, 1]; 0 for equal sets. Two samples of one distribution differ too: read the interval."""
    low: float
    """Lower end of the 95% interval of the distance between the distributions that the scores are samples of.

    It is 0 with fewer than 30 recent scores, which show nothing.
    """
    high: float
    """The upper end of the 95% interval; 1 with fewer than 30 recent scores."""
    n_fitted: int
    """The number of labeled answers that were compared."""
    n_recent: int
    """The number of recent answers that were compared."""

    def is_beyond(self, limit: float | None) -> bool:
        """Return True if the distance is shown to exceed a limit; never without one, or from too few recent scores."""
        return limit is not None and self.n_recent >= FEWEST_RECENT and self.low > limit


def drift(fitted: FloatArray, recent: FloatArray, *, seed: int = 0) -> Drift:
    """Compare two sets of scores, [n] and [m] of any range; `InvalidInputError` if there are no recent ones.

    The interval is the distance plus and minus the 95% quantile of how far resampled distribution functions lie from
    the given ones (a bootstrap band, valid whether or not the distributions are equal; cautious where they differ).
    It is all of [0, 1] for fewer than `FEWEST_RECENT` recent scores: resampled, a single one stays where it is, and its
    band does not hold the distance of equal distributions.
    """
    if recent.size == 0:
        raise InvalidInputError("There are no recent scores to compare: all answers are empty, or there are none.")
    seed = whole(seed, "seed", low=0)
    # Scores become the numbers of their places, so that a resampled distribution is one count and one sum.
    places = np.union1d(fitted, recent)
    first, second = np.searchsorted(places, fitted), np.searchsorted(places, recent)
    gap = _distribution(first, places.size) - _distribution(second, places.size)
    generator = np.random.default_rng(seed)
    moved = np.empty(DRIFT_RESAMPLES)
    for i in range(DRIFT_RESAMPLES):
        # What `generator.choice` draws, without its checks, which take as long.
        drawn, other = (own[generator.integers(0, own.size, own.size)] for own in (first, second))
        moved[i] = np.abs(_distribution(drawn, places.size) - _distribution(other, places.size) - gap).max()
    distance, margin = float(np.abs(gap).max()), float(np.quantile(moved, CONFIDENCE))
    margin = margin if recent.size >= FEWEST_RECENT else 1.0
    return Drift(distance, max(0.0, distance - margin), min(1.0, distance + margin), fitted.size, recent.size)


def _distribution(where: npt.NDArray[np.intp], size: int) -> FloatArray:
    """Share of scores at or below each place, [size]."""
    return np.cumsum(np.bincount(where, minlength=size)) / where.size
