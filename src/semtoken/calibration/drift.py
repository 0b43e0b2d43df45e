"""How far recent scores are from those of the labelled answers: a distance with an interval, and no alarm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semtoken.calibration.labels import FloatArray
from semtoken.errors import InvalidInput

RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Drift:
    """Kolmogorov-Smirnov distance between two sets of scores: the largest gap between their distribution functions."""

    distance: float
    """In [0, 1]; 0 for equal sets. Two samples of one distribution differ too: read the interval."""
    low: float
    """Lower end of the 95 % interval of the distance between the distributions that the scores are samples of."""
    high: float
    """Its upper end."""
    n_fitted: int
    n_recent: int


def drift(fitted: FloatArray, recent: FloatArray, *, seed: int = 0) -> Drift:
    """Compare two sets of scores.

    The interval is the distance plus and minus the 95 % quantile of how far resampled distribution functions lie from
    the given ones (a bootstrap band, valid whether or not the distributions are equal; cautious where they differ).

    Raises
    ------
    InvalidInput
        There are no recent scores.
    """
    if recent.size == 0:
        raise InvalidInput("There are no recent scores to compare: all answers are blank, or there are none.")
    places = np.union1d(fitted, recent)
    first, second = np.searchsorted(places, fitted), np.searchsorted(places, recent)
    gap = _distribution(first, places.size) - _distribution(second, places.size)
    generator = np.random.default_rng(seed)
    moved = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        drawn, other = generator.choice(first, first.size), generator.choice(second, second.size)
        moved[i] = np.abs(_distribution(drawn, places.size) - _distribution(other, places.size) - gap).max()
    distance, margin = float(np.abs(gap).max()), float(np.quantile(moved, CONFIDENCE))
    return Drift(distance, max(0.0, distance - margin), min(1.0, distance + margin), fitted.size, recent.size)


def _distribution(where: npt.NDArray[np.intp], size: int) -> FloatArray:
    """Share of scores at or below each place, [size]."""
    return np.cumsum(np.bincount(where, minlength=size)) / where.size
