"""Compiled loops: their work shared among threads, and their machine code, which numba keeps for the next process."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any


def usable_threads() -> int:
    """How many processors this process may use, or fewer if OMP_NUM_THREADS says so."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(count, int(wanted)) if wanted.isdigit() and int(wanted) > 0 else count


def in_threads(work: Callable[[slice], None], count: int, least: int) -> None:
    """Call `work` for ranges of equal pieces, in as many threads as there are; each gets at least `least` pieces."""
    parts = min(usable_threads(), count // least)
    if parts <= 1:
        work(slice(0, count))
        return
    bounds = [count * part // parts for part in range(parts + 1)]
    others = [_pool(os.getpid()).submit(work, slice(*bounds[part : part + 2])) for part in range(1, parts)]
    work(slice(*bounds[:2]))
    for other in others:
        other.result()


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads beside the calling one, which wait for work; a forked process has none of its parent's."""
    return ThreadPoolExecutor(max(usable_threads() - 1, 1), "semtoken")


def kept_safely(dispatcher: Any) -> Any:
    """A compiled function whose kept machine code is made anew where numba cannot read it.

    numba keeps, beside the code, the types that a function was compiled for, and names their classes by their modules.
    It reads these before it looks whether the source is newer. Where a class has moved since, every call would raise
    `ModuleNotFoundError` or `AttributeError` until somebody deletes the files.

    Parameters
    ----------
    dispatcher
        What `numba.njit(cache=True)` gives.
    """
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    read = getattr(file, "_load_index", None)
    if file is None or read is None:  # another release of numba, or one that keeps nothing here
        return dispatcher

    def read_index() -> dict[Any, Any]:
        try:
            found: dict[Any, Any] = read()
        except Exception:  # whatever reading names that are gone, or half a file, raises
            return {}
        return found

    file._load_index = read_index
    return dispatcher
