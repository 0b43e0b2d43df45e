"""The collector of garbage in a server: what is loaded stays, and what a request leaves behind is rarely a cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

FRESH_OBJECTS = 50_000
"""New objects after which the collector looks for cycles. A token has a hundred, and none of them is in a cycle."""


@contextmanager
def few_collections() -> Iterator[None]:
    """Let the collector leave alone what is loaded already, and look at the rest less often."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(FRESH_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
