"""Numbers as tables of the benchmark print them: as many digits as they deserve, one form for each kind."""

from __future__ import annotations

import math

from semtoken.metrics import Difference

MISSING = "–"
"""What stands in a table where there is no number."""


def metric(value: float) -> str:
    """AUROC, PRR and the like: `0.768`."""
    return MISSING if math.isnan(value) else f"{value:.3f}"


def interval(low: float, high: float) -> str:
    """`[0.741, 0.793]`, empty if the ends are undefined."""
    return "" if math.isnan(low) or math.isnan(high) else f"[{low:.3f}, {high:.3f}]"


def signed(value: float, digits: int = 3) -> str:
    """A difference of two metrics with its sign, such as `+0.012`; what rounds to zero is `0.000`, without one."""
    if math.isnan(value):
        return MISSING
    nothing = f"{0:.{digits}f}"
    return nothing if f"{abs(value):.{digits}f}" == nothing else f"{value:+.{digits}f}"


def signed_interval(low: float, high: float) -> str:
    """`[-0.003, +0.027]`; empty if the ends are undefined, or equal: all resamples gave the same.

    Ends that would read the same get as many digits as tell them apart.
    """
    if math.isnan(low) or math.isnan(high) or low == high:
        return ""
    for digits in range(3, 7):
        ends = signed(low, digits), signed(high, digits)
        if ends[0] != ends[1]:
            return f"[{ends[0]}, {ends[1]}]"
    return ""


def difference(found: Difference | None) -> str:
    """`+0.012 [-0.003, +0.027]`, empty if there is none."""
    if found is None or math.isnan(found.value):
        return ""
    return f"{signed(found.value)} {signed_interval(found.low, found.high)}".strip()


def amount(value: float) -> str:
    """Seconds and percentages of any size to three digits or so: `0.023`, `3.03`, `50.9`, `1,374`."""
    if math.isnan(value):
        return MISSING
    size = abs(value)
    if 0 < size < 0.0005:
        return f"{'-' if value < 0 else ''}<0.001"
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return "0" if size == 0 else f"{value:,.{digits}f}"


def signed_amount(value: float) -> str:
    """The same for differences: `+1.03`, `-374`."""
    return f"+{amount(value)}" if value > 0 else amount(value)


def share(value: float) -> str:
    """A share in [0, 1] as a percentage: `81.4 %`."""
    return MISSING if math.isnan(value) else f"{100 * value:.1f} %"
