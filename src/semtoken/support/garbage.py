"""Python's garbage collector, kept from looking through many objects of which none is in a cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rare_collections(fresh_objects: int) -> Iterator[None]:
    """Look for cycles only after so many new objects while the block runs, in all threads; no oftener than before."""
    before = gc.get_threshold()
    first = max(fresh_objects, before[0]) if before[0] else 0  # with 0, somebody has switched it off
    rare = first, *before[1:]
    gc.set_threshold(*rare)
    try:
        yield
    finally:
        # A block that began in another thread meanwhile took `rare` for what was before, and may end later.
        if gc.get_threshold() == rare:
            gc.set_threshold(*before)


@contextmanager
def few_collections(fresh_objects: int) -> Iterator[None]:
    """Look for cycles rarely while the block runs, and from now on not among what is loaded.

    What is loaded stays frozen afterwards, too: modules and models are there until the program ends, and to count what
    is frozen, so that it could be undone, takes 40 ms at a million objects.
    """
    gc.collect()
    gc.freeze()
    with rare_collections(fresh_objects):
        yield
