"""The memory that there is, the memory that a job needs, and the refusal of a job that needs more."""

from __future__ import annotations

import os
from pathlib import Path

from semtoken.errors import InsufficientMemory
from semtoken.support.inputs import whole
from semtoken.support.installation import physical_memory

DEFAULT_SHARE = 0.7
"""Share of the memory that is free at the start which clustering may take by default."""


def available() -> int:
    """Bytes that this process may still take: what the system calls available, under the control group's limit."""
    limits = [value for value in (_meminfo(), _control_group()) if value is not None]
    return min(limits) if limits else physical_memory() or 4 * 1024**3


def peak_rss() -> int:
    """Highest resident memory of this process so far, in bytes (0 where the system does not say)."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if os.uname().sysname == "Darwin" else peak * 1024


def budget(requested: int | None) -> int:
    """The bytes that clustering may use in addition to the table itself."""
    return int(DEFAULT_SHARE * available()) if requested is None else whole(requested, "memory_budget")


def check(needed: int, allowed: int, *, what: str, alternatives: str) -> None:
    """Refuse work that needs more memory than is allowed: `InsufficientMemory`, with what could be done instead."""
    if needed > allowed:
        raise InsufficientMemory(
            f"{what} needs {gigabytes(needed)} beyond the table, but may take {gigabytes(allowed)} "
            f"({gigabytes(available())} are free now). Instead: {alternatives}"
        )


def gigabytes(size: float) -> str:
    """A number of bytes as text, in GB or MB.

    >>> gigabytes(2_500_000_000), gigabytes(3_000_000)
    ('2.5 GB', '3 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"


def _meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _control_group() -> int | None:
    """The bytes that a container's memory limit leaves (version 2 of control groups)."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    reclaimable = int(stat.get("inactive_file", 0))
    return max(0, int(limit) - int(used) + reclaimable)
