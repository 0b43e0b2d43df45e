"""The garbage collector while a server runs, and afterwards."""

from __future__ import annotations

import gc

import pytest

from semtoken.support.garbage import few_collections


def test_collections_are_few_and_their_thresholds_come_back() -> None:
    frozen, thresholds, loaded = gc.get_freeze_count(), gc.get_threshold(), [[0] for _ in range(1000)]
    with pytest.raises(ZeroDivisionError), few_collections(12345):
        assert gc.get_threshold() == (12345, *thresholds[1:]) and gc.get_freeze_count() >= frozen + len(loaded)
        _ = 1 / 0
    assert gc.get_threshold() == thresholds
