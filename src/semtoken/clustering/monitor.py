"""Watching a run: seconds per phase, time left, the share of matrix products, and stopping on request."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, float, float | None], None]
"""Called as progress(phase, fraction done, seconds left or None), a few times a second, in the calling thread."""

Did: TypeAlias = Callable[[float], None]
Job: TypeAlias = tuple[float, Callable[[Did], None]]

INTERVAL = 0.2
"""Seconds between two calls of the progress function."""


class Monitor:
    """Keeps the time of a run and tells a progress function about it.

    Parameters
    ----------
    progress : callable, optional
        See `Progress`.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self.gemm_seconds = 0.0
        self.gemm_flops = 0.0
        self._progress = progress
        self._lock = threading.Lock()
        self._phase = ""
        self._began = 0.0
        self._told = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Everything inside counts as this phase; a phase may come back, its seconds add up."""
        self._phase, self._began = name, time.perf_counter()
        self._tell(0.0)
        try:
            yield
        finally:
            spent = time.perf_counter() - self._began
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
        self._tell(1.0)

    def advance(self, fraction: float) -> None:
        """Say how much of the present phase is done."""
        if time.perf_counter() - self._told >= INTERVAL:
            self._tell(fraction)

    def add_gemm(self, seconds: float, flops: float) -> None:
        """Count a matrix product (from any thread)."""
        with self._lock:
            self.gemm_seconds += seconds
            self.gemm_flops += flops

    def _tell(self, fraction: float) -> None:
        self._told = time.perf_counter()
        if self._progress is None:
            return
        spent = self._told - self._began
        left = spent * (1 - fraction) / fraction if fraction > 0.01 or (spent > 5 and fraction > 0) else None
        self._progress(self._phase, fraction, left)


def run_all(jobs: Iterable[Job], threads: int, tell: Callable[[float], None]) -> None:
    """Run jobs in threads; on Ctrl-C or an error in one of them, stop the others and pass it on.

    A job is a pair (amount of work, function). The function is called with `did`, and calls that after each piece
    of its work with the amount of it; `did` raises `Stopped` when the run is to end. `tell` hears of the share done.
    """
    jobs = list(jobs)
    total = sum(amount for amount, _ in jobs)
    done = 0.0
    lock = threading.Lock()
    stop = threading.Event()

    def did(amount: float) -> None:
        nonlocal done
        with lock:
            done += amount
        if stop.is_set():
            raise Stopped

    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(function, did) for _, function in jobs]
        try:
            pending = set(futures)
            while pending:
                finished, pending = wait(pending, timeout=INTERVAL, return_when=FIRST_EXCEPTION)
                for future in finished:
                    future.result()
                tell(done / total if total else 1.0)
        except BaseException:  # KeyboardInterrupt too: leave no thread at work
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class Stopped(Exception):
    """Raised inside a worker whose run was stopped."""


def usable_threads() -> int:
    """Processors this process may use, or fewer where OMP_NUM_THREADS says so."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(count, int(wanted)) if wanted.isdigit() and int(wanted) > 0 else count
