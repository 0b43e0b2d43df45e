"""The table of the watch's level and delay: its intervals are SciPy's, and the level is kept in every world."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from scipy.stats import binomtest

TABLE = Path(__file__).parents[2] / "research" / "experiments" / "watch" / "level.csv"


def test_the_level_is_kept_in_every_world_and_the_intervals_are_wilsons() -> None:
    with TABLE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["test"] for row in rows} == {"watch", "once", "daily z-test"}
    for row in rows:
        early, streams = int(row["alarms_before"]), int(row["streams"])
        interval = binomtest(early, streams).proportion_ci(method="wilson")
        assert float(row["low"]) == pytest.approx(interval.low, abs=1e-4)
        assert float(row["high"]) == pytest.approx(interval.high, abs=1e-4)
        if row["test"] == "watch":
            assert early <= 0.05 * streams
            assert not row["noticed"] or int(row["noticed"]) + early <= streams
