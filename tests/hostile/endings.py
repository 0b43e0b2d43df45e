"""Ends of some work: within its time, with an answer or with an error of ours that gives a reason."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

from semtoken.errors import SemtokenError

SECONDS = 5.0
"""The time of the processor that one call has: a busy machine makes nothing slow."""
WAITING = 24
"""As many times as long may it take, waiting included."""


class Overdue(BaseException):
    """Work took too long."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Work that ends after `SECONDS` with `Overdue`."""

    def ring(*_: Any) -> None:
        raise Overdue

    timers = (
        (signal.ITIMER_PROF, signal.SIGPROF, SECONDS),
        (signal.ITIMER_REAL, signal.SIGALRM, WAITING * SECONDS),
    )
    before = [signal.signal(sent, ring) for _, sent, _ in timers]
    for timer, _, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (timer, sent, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(sent, handler)


def fault_of(work: Callable[[], str | None]) -> str | None:
    """The fault of some work: the one that it returns, an error that is not ours, or no end; None: there is none."""
    try:
        with limited():
            return work()
    except SemtokenError as error:
        return None if str(error).strip() else "refused without a reason"
    except Overdue:
        return "took too long"
    except Exception as error:
        return f"{type(error).__name__}: {error!s:.100}"
