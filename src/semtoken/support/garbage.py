"""Python's garbage collector, kept from looking through many objects of which none is in a cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def few_collections(fresh_objects: int) -> Iterator[None]:
    """Look for cycles only after so many new objects, and not among what is loaded, while the block runs.

    What the program had frozen before stays frozen afterwards, with what was loaded until then.
    """
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    gc.set_threshold(fresh_objects, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()
