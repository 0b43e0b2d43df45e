"""The example that plays months in minutes, small: what it asks, labels and says hangs together."""

from __future__ import annotations

import csv
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_a_small_rehearsal_ends_with_a_broken_guarantee(tmp_path: Path) -> None:
    """All answers are labeled, so that chance draws none: 120 for the fit, 30 like them, 50 of the other kind."""
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "rehearsal.py"))
    found = example["rehearse"](200, 1.0, tmp_path)
    example["write"](found, 150, tmp_path)
    assert [done for done, _ in found] == [170, 200]
    reports = [report for _, report in found]
    assert all(report.alpha == example["ALPHA"] and report.wrong <= report.n for report in reports)
    assert reports[-1].state == "broken" and reports[-1].n > reports[0].n
    with (tmp_path / "rehearsal.csv").open(newline="") as file:
        assert [row["state"] for row in csv.DictReader(file)] == [report.state for report in reports]
    assert "<svg" in (tmp_path / "rehearsal.svg").read_text()
