"""Watching a run: seconds per phase, time left, the share of matrix products, and stopping on request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering.merges import Merges

Progress: TypeAlias = Callable[[str, float, float | None], None]
"""Called as progress(phase, fraction done, seconds left or None), a few times a second, in the calling thread."""
SETTLED, ENOUGH = 5.0, 0.05
"""The seconds that a phase must have run, and the share of its work that it must have done, before we estimate the time
left: any earlier, it would be a guess."""

Did: TypeAlias = Callable[[float], None]
Job: TypeAlias = tuple[float, Callable[[Did], None]]

INTERVAL = 0.2
"""Seconds between two calls of the progress function."""


class Monitor:
    """Measures the time of a run, and calls the user's progress function, if there is one."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self.gemm_seconds = 0.0
        self.gemm_flops = 0.0
        self._progress = progress
        self._lock = threading.Lock()
        self._phase = ""
        self._began = 0.0
        self._reported = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside the block as this phase; a phase may occur several times."""
        self._phase, self._began = name, time.perf_counter()
        self._report(0.0)
        try:
            yield
        finally:
            spent = time.perf_counter() - self._began
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
        self._report(1.0)

    def advance(self, fraction: float) -> None:
        """Report that this fraction of the current phase is done."""
        if time.perf_counter() - self._reported >= INTERVAL:
            self._report(fraction)

    def add_gemm(self, seconds: float, flops: float) -> None:
        """Add the time and operations of a matrix product to the report; any thread may call this."""
        with self._lock:
            self.gemm_seconds += seconds
            self.gemm_flops += flops

    def _report(self, fraction: float) -> None:
        self._reported = time.perf_counter()
        if self._progress is None:
            return
        spent = self._reported - self._began
        left = spent * (1 - fraction) / fraction if spent >= SETTLED and fraction >= ENOUGH else None
        self._progress(self._phase, fraction, left)


def run_all(jobs: Iterable[Job], threads: int, report: Callable[[float], None]) -> None:
    """Run jobs in threads; on Ctrl-C or an error in one of them, stop the others and pass it on.

    A job is a pair (amount of work, function). The function is called with `did`, and calls that after each piece
    of its work with the amount of it; `did` raises `RunStopped` when the run is to end. `report` is called with the
    share of the work that is done.
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
            raise RunStopped

    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(function, did) for _, function in jobs]
        try:
            pending = set(futures)
            while pending:
                finished, pending = wait(pending, timeout=INTERVAL, return_when=FIRST_EXCEPTION)
                for future in finished:
                    future.result()
                report(done / total if total else 1.0)
        except BaseException:  # KeyboardInterrupt too: leave no thread at work
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class RunStopped(Exception):
    """Raised inside a worker whose run was stopped."""


@dataclass(frozen=True)
class CutReport:
    """Sizes and heights of the clusters at one cut of the tree."""

    n_clusters: int
    last_height: float | None
    """Distance at which the last merge of this cut happened; None where nothing merged or no tree was made."""
    next_height: float | None
    """Distance of the first merge above the cut, where the run went that far."""
    singletons: float
    """Share of the clusters that hold one row."""
    largest: int
    """The number of rows in the largest cluster."""
    sizes: Mapping[str, int]
    """Number of clusters by size: '1', '2', '3-4', '5-8', ... rows."""


@dataclass(frozen=True)
class ClusteringReport:
    """The settings, course and result of one run of `cluster_table`."""

    settings: Mapping[str, Any]
    """Algorithm, linkage, metric, seed, numbers of clusters, rows, columns, dtype, number of threads."""
    engine: str
    """The way of computing that was used, for example 'sparse chain on cpu'."""
    fallback: str | None = None
    """Why the first choice of engine was left, if it was. Results are exact either way."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall seconds per phase, and 'total'."""
    peak_memory: int = 0
    """Highest resident memory of the whole process until the end of the run, in bytes."""
    memory_budget: int = 0
    """Bytes that the run was allowed to take beyond the table."""
    passes: tuple[Mapping[str, float | None], ...] = ()
    """Each pass of the sparse chain over the distances: clusters before, threshold (a distance; None: all pairs), pairs
    kept, merges found."""
    gemm_seconds: float = 0.0
    """Processor seconds spent in matrix products, summed over threads (on a device: seconds waited for them)."""
    gemm_share: float = 0.0
    """Share of the processor time of the run that went into matrix products."""
    gemm_flops: float = 0.0
    """Floating-point operations of those products."""
    cuts: tuple[CutReport, ...] = ()
    """The sizes and heights of the clusters at each number of clusters that was asked for."""

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values that JSON can hold."""
        return asdict(self)


def describe_cut(labels: NDArray[np.int32], n_clusters: int, merges: Merges | None) -> CutReport:
    """The sizes of the clusters of one cut, and the heights of the merges below and above it."""
    sizes = np.bincount(labels)
    applied = len(labels) - n_clusters
    heights = merges.height if merges is not None else np.empty(0, np.float32)
    return CutReport(
        n_clusters=n_clusters,
        last_height=float(heights[applied - 1]) if 0 < applied <= len(heights) else None,
        next_height=float(heights[applied]) if applied < len(heights) else None,
        singletons=float(np.mean(sizes == 1)),
        largest=int(sizes.max()),
        sizes=size_histogram(sizes),
    )


def size_histogram(sizes: NDArray[np.int64]) -> dict[str, int]:
    """Number of clusters by their sizes, in ranges that double: 1, 2, 3-4, 5-8, ..."""
    exponents, counts = np.unique(np.ceil(np.log2(sizes)).astype(int), return_counts=True)
    names = [str(2**e) if e < 2 else f"{2 ** (e - 1) + 1}-{2**e}" for e in exponents.tolist()]
    return dict(zip(names, counts.tolist(), strict=True))
