"""Numbers of a report as they are printed: metrics, differences, amounts and shares, and what stands for none."""

from __future__ import annotations

import math

MISSING = "–"
"""The text of an entry without a number."""
NOT_RUN = f"{MISSING} not in this run"


def metric(value: float) -> str:
    """An AUROC, PRR or similar metric as text, with three decimals: `0.768`."""
    return MISSING if math.isnan(value) else f"{value:.3f}"


def estimate(value: float, low: float, high: float) -> str:
    """A metric with its interval, such as `0.768 [0.741, 0.793]`; "undefined" for NaN."""
    if math.isnan(value):
        return "undefined"
    if low == high:  # every resample gave the same: a handful of answers, or a perfect order
        return f"{value:.3f} no interval"
    return f"{value:.3f}" if math.isnan(low) or math.isnan(high) else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def signed(value: float, digits: int = 3) -> str:
    """A difference of two metrics with its sign, such as `+0.012`; what rounds to zero is `0.000`, without one."""
    if math.isnan(value):
        return MISSING
    nothing = f"{0:.{digits}f}"
    return nothing if f"{abs(value):.{digits}f}" == nothing else f"{value:+.{digits}f}"


def signed_interval(low: float, high: float) -> str:
    """An interval with signs, such as `[-0.003, +0.027]`, with as many decimals (six at most) as tell its ends apart.

    Empty if they are undefined or read the same.
    """
    if math.isnan(low) or math.isnan(high) or low == high:
        return ""
    for digits in range(3, 7):
        ends = signed(low, digits), signed(high, digits)
        if ends[0] != ends[1]:
            return f"[{ends[0]}, {ends[1]}]"
    return ""


def difference(value: float, low: float, high: float) -> str:
    """A difference with its interval, such as `+0.012 [-0.003, +0.027]`, or `0.000 no interval`."""
    if math.isnan(value):
        return MISSING
    return f"{signed(value)} {signed_interval(low, high) or 'no interval'}"


def amount(value: float) -> str:
    """Seconds or percentages of any size as text with about three digits: `0.023`, `3.03`, `50.9`, `1,374`."""
    if math.isnan(value):
        return MISSING
    size = abs(value)
    if 0 < size < 0.0005:
        return f"{'-' if value < 0 else ''}<0.001"
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return "0" if size == 0 else f"{value:,.{digits}f}"


def share(value: float) -> str:
    """A share in [0, 1] as a percentage: `81.4%`."""
    return MISSING if math.isnan(value) else f"{100 * value:.1f}%"
