"""Many comparisons at once: p-values adjusted for their number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from semtoken.errors import InvalidInput
from semtoken.support.arrays import real_numbers


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted so that one false finding in the whole family is as rare as they say.

    Parameters
    ----------
    p_values : sequence of float in [0, 1], length m
        Of one family of comparisons. NaN: a comparison without a value; it stays NaN and does not count.

    Returns
    -------
    list of float
        In the same order. The k-th smallest becomes the largest of (m - i + 1) p_i over i <= k, at most 1.

    Raises
    ------
    InvalidInput
        A value outside [0, 1].

    References
    ----------
    Holm 1979, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6.
    """
    adjusted = real_numbers(p_values, "p_values").astype(np.float64)
    if adjusted.ndim != 1:
        raise InvalidInput(f"'p_values' must have one dimension, got the shape {adjusted.shape}.")
    outside = adjusted[(adjusted < 0) | (adjusted > 1)]
    if outside.size:
        raise InvalidInput(f"'p_values' must lie in [0, 1], got {outside[0]:g}.")
    defined = np.flatnonzero(~np.isnan(adjusted))
    order = defined[np.argsort(adjusted[defined], kind="stable")]
    scaled = adjusted[order] * np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in adjusted]
