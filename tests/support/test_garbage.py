"""The garbage collector while a server runs, and afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from semtoken.support.garbage import few_collections, rare_collections


def test_collections_are_few_and_their_thresholds_come_back() -> None:
    frozen, thresholds, loaded = gc.get_freeze_count(), gc.get_threshold(), [[0] for _ in range(1000)]
    with pytest.raises(ZeroDivisionError), few_collections(12345):
        assert gc.get_threshold() == (12345, *thresholds[1:]) and gc.get_freeze_count() >= frozen + len(loaded)
        _ = 1 / 0
    assert gc.get_threshold() == thresholds


RARE = """
import gc, sys
from semtoken.support.garbage import rare_collections
own, then = map(int, sys.argv[1:])
thresholds = gc.get_threshold()
gc.set_threshold(own, *thresholds[1:])
frozen = gc.get_freeze_count()
with rare_collections(10_000):
    assert gc.get_threshold() == (then, *thresholds[1:]) and gc.get_freeze_count() == frozen
assert gc.get_threshold() == (own, *thresholds[1:])
"""


@pytest.mark.parametrize(("own", "then"), [(700, 10_000), (20_000, 20_000), (0, 0)])
def test_collections_are_rare_and_never_oftener_than_somebody_wants(own: int, then: int) -> None:
    """In a process of its own: here, threads of other tests free what was frozen, and the count falls meanwhile."""
    subprocess.run([sys.executable, "-c", RARE, str(own), str(then)], check=True)


def test_blocks_of_two_threads_that_end_in_the_order_in_which_they_began_leave_nothing() -> None:
    thresholds = gc.get_threshold()
    first, second = rare_collections(10_000), rare_collections(10_000)
    first.__enter__()
    second.__enter__()
    try:
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        assert gc.get_threshold() == thresholds
    finally:
        gc.set_threshold(*thresholds)
