"""The costs in the docs follow from the kept figures of `make bench`."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RATIOS = {
    line["what"]: line["ratio"]
    for line in json.loads((ROOT / "benchmarks" / "results" / "budgets.json").read_text())["measured"]
}


def claimed(line: str) -> tuple[float, float]:
    """The range of numbers in a row of the table "What it costs", by its first cell."""
    page = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| {re.escape(line)} \| ([\d.]+) to ([\d.]+)[ %]", page, re.MULTILINE)
    assert found, f"docs/choosing.md has no row {line!r} with a range"
    return float(found[1]), float(found[2])


def test_a_generation_costs_what_was_measured() -> None:
    low, high = claimed("scoring a generation in transformers")
    shares = [100 * (RATIOS[f"generation, batch of {batch}"] - 1) for batch in (1, 32)]
    assert [low <= round(share, 1) <= high for share in shares] == [True, True], shares
    assert high - low <= 0.3


def test_a_reply_costs_what_was_measured() -> None:
    low, high = claimed("scoring a reply that lists 20 log-probabilities")
    spent = [0.1 * ratio for what, ratio in RATIOS.items() if what.startswith("score_reply")]
    assert len(spent) == 3 and all(low <= round(one, 2) <= high for one in spent), spent


def test_workers_of_ray_cost_what_was_measured_and_lose_nothing() -> None:
    runs = json.loads((ROOT / "benchmarks" / "results" / "machines.json").read_text())["runs"]
    assert {(one["command"], one["workers"], one["killed"]) for one in runs} >= {
        (command, *how)
        for command in ("score", "check", "decide", "bench")
        for how in ((0, False), (1, False), (2, False), (4, False), (2, True))
    }
    assert all(one["same"] and one["load"] > 0 for one in runs)
    cost = {one["command"]: one["cpu_ms"] for one in runs if one["workers"] == 1}
    page = (ROOT / "docs" / "cluster-of-machines.md").read_text(encoding="utf-8")
    for command in ("check", "score"):
        said = re.search(rf"`semtoken {command} --executor.kind ray`\) \| ([\d.]+) ms of processor time", page)
        assert said and float(said[1]) == round(cost[command]), (command, cost[command])


def test_the_table_of_kept_runs_is_that_of_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from kept_results import kept_figures

    lines = (ROOT / "benchmarks" / "results" / "budgets.md").read_text(encoding="utf-8").splitlines()
    below = lines[lines.index("From runs that take longer, kept:") + 4 :]
    assert below == [f"| {' | '.join(one.cells())} |" for one in kept_figures()]
    assert len(below) >= 8 and not any("SOME" in line for line in below)


def test_the_delay_by_a_journal_is_what_was_measured() -> None:
    with (ROOT / "benchmarks" / "results" / "journal_delay.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["quantile"] == "p99"]
    page = (ROOT / "benchmarks" / "journal.md").read_text(encoding="utf-8")
    for row in rows:
        low, _, high = row["95 % interval"].partition(" to ")
        name = {"none, again": "none, once more"}.get(row["journal"], row["journal"])
        told = f"{float(row['difference']):+.1f} ms [{float(low):+.1f}, {float(high):+.1f}]"
        [line] = [line for line in page.splitlines() if line.startswith(f"| 100 | {name} |")]
        assert line.split(" | ")[4] == told
