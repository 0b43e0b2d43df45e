"""Figures of runs that take too long for `make bench`: from files under `results/`, each with its date and load."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class KeptFigure:
    """One figure of a kept run."""

    what: str
    figure: str
    budget: str
    run: str
    """When it was measured, at which load, and by which file."""

    def cells(self) -> list[str]:
        """A line of the table."""
        return [self.what, self.figure, self.budget, self.run]


HEAD = ("what", "figure", "budget", "kept run")


def kept_figures() -> list[KeptFigure]:
    """All kept figures, in the order of the table."""
    return [*clusterings(), *workers(), *journal_delays()]


def clusterings() -> Iterator[KeptFigure]:
    """Clusterings of whole tables of tokens: processor time, and the largest memory of the process."""
    for name, method in (
        ("large_152064x1024_medium_kmeans", "k-means"),
        ("large_151936x3072_qwen", "exact complete linkage"),
    ):
        run = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        what = f"{method}, {run['rows']:,} x {run['columns']:,}, {run['clusters']:,} clusters"
        figure = f"{run['cpu_s']:,.0f} s of processor time, {run['peak_gb']:.1f} GB"
        yield KeptFigure(what, figure, "it ends", f"{run['date']}, load {run['load']:.1f}, {name}.json")


def workers() -> Iterator[KeptFigure]:
    """Files of lines through Ray: what is not the model's time, and what becomes of the lines of a killed worker."""
    file = RESULTS / "machines.json"
    runs = json.loads(file.read_text(encoding="utf-8"))["runs"]
    for command in dict.fromkeys(run["command"] for run in runs):
        own = [run for run in runs if run["command"] == command]
        by_workers = {run["workers"]: run for run in own if not run["killed"]}
        figures = ", ".join(f"{by_workers[n]['cpu_ms']:.1f}" for n in (1, 2, 4))
        shares = ", ".join(f"{1 - by_workers[n]['model']:.0%}" for n in (1, 2, 4)).replace("%", " %")
        [killed] = [run for run in own if run["killed"]]
        lost = "none" if killed["same"] else "SOME"
        figure = f"{figures} ms of processor time a line; {shares} not in the model; lost with a worker: {lost}"
        loads = [run["load"] for run in own]
        load = f"load {min(loads):.1f} to {max(loads):.1f}"
        yield KeptFigure(
            f"{command}, 1, 2 and 4 workers of Ray", figure, "none lost", f"{own[0]['day']}, {load}, {file.name}"
        )


def journal_delays() -> Iterator[KeptFigure]:
    """How much later replies of the proxy come with a journal, for 200 clients."""
    file = RESULTS / "journal_delay.csv"
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        if row["quantile"] == "p99":
            figure = f"{row['difference']} ms [{row['95 % interval']}]"
            yield KeptFigure(f"p99 of a proxied reply, journal: {row['journal']}", figure, "+1 ms", row["run"])


def kept_table() -> Table:
    """The table that `make bench` prints below its own."""
    table = Table(*HEAD, title="From kept runs")
    for one in kept_figures():
        table.add_row(*one.cells())
    return table
