"""What the proxy learns of its upstream, remembered for a while and never without end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

REMEMBERED_SECONDS = 300.0
MOST_REMEMBERED = 1000

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """A mapping that forgets each entry after five minutes. Clients choose the keys, so that it takes a thousand."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[Key, tuple[Value, float]] = {}

    def __len__(self) -> int:
        now = self._clock()
        return sum(now < until for _, until in self._known.values())

    def get(self, key: Key) -> Value | None:
        """The value of a key; None for one that is not known, or no longer."""
        value, until = self._known.get(key, (None, 0.0))
        return value if self._clock() < until else None

    def put(self, key: Key, value: Value) -> None:
        """Remember a value from now on, unless there are too many others."""
        now = self._clock()
        if len(self._known) >= MOST_REMEMBERED:
            self._known = {known: entry for known, entry in self._known.items() if now < entry[1]}
        if len(self._known) < MOST_REMEMBERED or key in self._known:
            self._known[key] = (value, now + REMEMBERED_SECONDS)
