"""The garbage collector while a server runs, and afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from semtoken.support.garbage import few_collections


@pytest.fixture(autouse=True)
def _frozen_again() -> Iterator[None]:
    """As tests/conftest.py left it."""
    yield
    gc.freeze()


@pytest.mark.parametrize("before", ["nothing frozen", "some frozen"])
def test_afterwards_it_works_as_before(before: str) -> None:
    gc.unfreeze() if before == "nothing frozen" else gc.freeze()
    frozen, thresholds = gc.get_freeze_count(), gc.get_threshold()
    with pytest.raises(ZeroDivisionError), few_collections(12345):
        assert gc.get_threshold() == (12345, *thresholds[1:]) and gc.get_freeze_count() > frozen
        _ = 1 / 0
    assert gc.get_threshold() == thresholds
    assert (gc.get_freeze_count() > 0) == (frozen > 0)
