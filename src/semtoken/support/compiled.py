"""Compiled loops: how numba compiles them and keeps their machine code, and their work shared among threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

RECENT = "+avx512_vbmi2", "+avx512vbmi2"
"""Features of processors with AVX-512 that do not slow down for it, as releases of LLVM spell them."""
WHOLE_WIDTH = "-prefer-256-bit"


def usable_threads() -> int:
    """The number of processors that this process may use, or fewer if OMP_NUM_THREADS says so."""
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


def compile_and_keep(function: Callable[..., Any], **options: Any) -> Any:
    """Have numba compile a function at its first call, without the interpreter's lock, and keep the machine code."""
    import numba

    use_whole_registers()
    return kept_safely(numba.njit(nogil=True, cache=True, **options)(function))


def use_whole_registers() -> None:
    """Have numba use registers of 512 bits where the processor has them: a row of logits is read in 70% of the time.

    LLVM takes half of each on Intel's processors, whose first ones with AVX-512 lowered their clock for more. Set for
    all of a process, before it compiles for the first time, unless a user set `NUMBA_CPU_NAME` or `NUMBA_CPU_FEATURES`.
    """
    from numba.core import config
    from numba.core.codegen import get_host_cpu_features

    if config.CPU_NAME is None and config.CPU_FEATURES is None:
        features: str = get_host_cpu_features()
        if set(RECENT) & set(features.split(",")):
            config.CPU_FEATURES = f"{features},{WHOLE_WIDTH}"


def kept_safely(dispatcher: Any) -> Any:
    """Compile as `numba.njit(cache=True)` does; machine code on disk that numba cannot read is replaced.
    numba keeps the types that a function was compiled for, by their modules, and reads these before it looks whether
    the source is newer: where a class has moved since, every call would raise until somebody deletes the files.
    """
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    read = getattr(file, "_load_index", None)
    if file is None or read is None:  # another release of numba, or one that keeps nothing here
        return dispatcher

    def read_index() -> dict[Any, Any]:
        try:
            index: dict[Any, Any] = read()
        except Exception:  # whatever reading names that are gone, or half a file, raises
            return {}
        return index

    file._load_index = read_index
    return dispatcher
