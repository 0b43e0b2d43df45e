"""Mappings that keep findings about the upstream for a while, and never without end."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping
from typing import Any

from cachetools import TTLCache

REMEMBERED_SECONDS = 300.0
MOST_REMEMBERED = 1000


def new_memory(clock: Callable[[], float] = time.monotonic) -> MutableMapping[Any, Any]:
    """An empty mapping that forgets each entry after five minutes, by a clock in seconds.

    Clients choose the keys, so that it holds a thousand of them: the least recently used one makes room.
    """
    cache: MutableMapping[Any, Any] = TTLCache(MOST_REMEMBERED, REMEMBERED_SECONDS, clock)
    return cache
