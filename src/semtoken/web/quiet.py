"""Logs without storms: the same message at most a few times a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

PERIOD = 60.0
PER_PERIOD = 5
MOST_MESSAGES = 1000


class FewOfAKind(logging.Filter):
    """Lets the first few messages of a kind through in every minute, and says how many it left out.

    Parameters
    ----------
    clock
        Seconds that only go up.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message is written."""
        now = self._clock()
        key = (record.name, str(record.msg)[:100])
        since, count = self._seen.get(key, (now, 0))
        if now - since >= PERIOD:
            if count > PER_PERIOD:
                record.msg = f"{record.msg} ({count - PER_PERIOD} more of these were left out)"
            since, count = now, 0
        if len(self._seen) >= MOST_MESSAGES and key not in self._seen:
            self._seen.clear()
        self._seen[key] = (since, count + 1)
        return count < PER_PERIOD


def without_storms() -> None:
    """Keep the loggers of servers from writing the same message again and again."""
    for name in ("asyncio", "uvicorn.error", "semtoken.proxy"):
        logger = logging.getLogger(name)
        if not any(isinstance(known, FewOfAKind) for known in logger.filters):
            logger.addFilter(FewOfAKind())
