"""What the docs say that scoring costs follows from the kept figures of `make bench`."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RATIOS = {
    line["what"]: line["ratio"]
    for line in json.loads((ROOT / "benchmarks" / "results" / "budgets.json").read_text())["measured"]
}


def claimed(line: str) -> tuple[float, float]:
    """The range of numbers in a row of the table "What it costs", by its first cell."""
    page = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| {re.escape(line)} \| ([\d.]+) to ([\d.]+) ", page, re.MULTILINE)
    assert found, f"docs/choosing.md has no row {line!r} with a range"
    return float(found[1]), float(found[2])


def test_a_generation_costs_what_was_measured() -> None:
    low, high = claimed("scoring a generation in transformers")
    shares = [100 * (RATIOS[f"generation, batch of {batch}"] - 1) for batch in (1, 32)]
    assert [low <= round(share, 1) <= high for share in shares] == [True, True], shares
    assert high - low <= 0.3


def test_a_reply_costs_what_was_measured() -> None:
    low, high = claimed("scoring a reply that lists 20 log-probabilities")
    spent = [0.1 * ratio for what, ratio in RATIOS.items() if what.startswith("score_payload")]
    assert len(spent) == 3 and all(low <= round(one, 2) <= high for one in spent), spent


def test_workers_of_ray_cost_what_was_measured_and_lose_nothing() -> None:
    runs = json.loads((ROOT / "benchmarks" / "results" / "machines.json").read_text())["runs"]
    assert {(one["command"], one["workers"], one["killed"]) for one in runs} >= {
        (command, *how)
        for command in ("score", "check", "decide", "bench")
        for how in ((0, False), (1, False), (2, False), (4, False), (2, True))
    }
    assert all(one["same"] for one in runs)
    cost = {one["command"]: one["cpu_ms"] for one in runs if one["workers"] == 1}
    page = (ROOT / "docs" / "cluster-of-machines.md").read_text(encoding="utf-8")
    for command in ("check", "score"):
        said = re.search(rf"`semtoken {command} --executor ray`\) \| ([\d.]+) ms of processor time", page)
        assert said and float(said[1]) == round(cost[command]), (command, cost[command])
