"""The time that each recording step took, so that a method can be charged for what it needs and for nothing else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

IN_MODEL = "in_model"
"""The name under which the seconds of passes of the model are kept; the steps that these are part of are charged with
them, too."""


class Timings:
    """Seconds of wall clock by step. The time of a step inside another one counts for the inner one only.

    >>> timings = Timings()
    >>> with timings.measure("greedy"):
    ...     with timings.measure("likelihoods"):
    ...         pass
    >>> sorted(timings.seconds)
    ['greedy', 'likelihoods']
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._running: list[str] = []
        self._mark = 0.0

    @property
    def seconds(self) -> dict[str, float]:
        """Step -> seconds, in the order in which the steps first began."""
        return dict(self._seconds)

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        """Charge the time inside the block to `step`; may be entered any number of times."""
        self._charge()
        self._running.append(step)
        self._seconds.setdefault(step, 0.0)
        try:
            yield
        finally:
            self._charge()
            self._running.pop()

    @contextmanager
    def measure_too(self, step: str) -> Iterator[None]:
        """Charge the time inside the block to `step` as well as to the step that it is part of."""
        _wait_for_device()
        start = time.perf_counter()
        yield
        _wait_for_device()
        self._seconds[step] = self._seconds.get(step, 0.0) + time.perf_counter() - start

    def _charge(self) -> None:
        _wait_for_device()
        now = time.perf_counter()
        if self._running:
            self._seconds[self._running[-1]] += now - self._mark
        self._mark = now


def _wait_for_device() -> None:
    """Work on a GPU is queued: the clock must not be read before it is done."""
    # Not imported: whoever has not loaded torch has nothing to wait for.
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
