"""How long a journal of made-up entries takes to be shown, sampled and exported, and in how much memory.

    python benchmarks/journal.py [--entries 1000000] [--url FOLDER/journal.db] > benchmarks/results/journal.csv

Each step runs in a process of its own, whose largest memory is told beside its time. Without --url the journal is an
SQLite file in a temporary folder.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from semtoken.journal.entries import JournalEntry, SamplingRule
from semtoken.journal.export import records
from semtoken.journal.labels import queue
from semtoken.journal.store import Journal, rows_of

RULE = SamplingRule("seed", 0.05)


def made_up(number: int) -> JournalEntry:
    """An entry as the proxy writes them."""
    name = f"{number:032x}"
    score = -0.01 * (number % 300)
    return JournalEntry(
        id=name, at=1.7e9 + number, source="proxy", sampled=RULE.takes(name), seen_twice=False, model="m",
        prompt=f"{number % 1000:016x}", log_score=score, log_score_low=score, log_score_high=score, method="exact",
        headline="stc", confidence=0.9, uncertainty=0.1, numbers={"perplexity": [1.5, 1.0, 2.0]}, n_tokens=20,
        question=f"Question {number}?", answer=f"Answer {number}, and some words more, as answers have them.",
    )  # fmt: skip


def fill(journal: Journal, n: int, folder: Path) -> None:
    """Write the entries."""
    for first in range(0, n, 10_000):
        journal.add(rows_of(made_up(i) for i in range(first, min(first + 10_000, n))))


def show(journal: Journal, n: int, folder: Path) -> None:
    """The newest twenty."""
    assert len(list(journal.entries(newest_first=True, limit=20))) == min(20, n)


def sample(journal: Journal, n: int, folder: Path) -> None:
    """What a person is asked next, and all of the random sample."""
    from semtoken.journal.tables import entries

    assert queue(journal, "me")
    assert sum(1 for _ in journal.entries(entries.c.sampled, columns=["id"])) == journal.size().sampled


def export(journal: Journal, n: int, folder: Path) -> None:
    """All entries as JSON lines."""
    with (folder / "export.jsonl").open("w") as file:
        assert sum(file.write(json.dumps(one) + "\n") > 0 for one in records(journal)) == n


STEPS: dict[str, Callable[[Journal, int, Path], None]] = {
    "fill": fill,
    "show": show,
    "sample": sample,
    "export": export,
}


def step(name: str, url: str, n: int, folder: Path) -> None:
    """One step in this process; its row on standard output."""
    journal = Journal.open(url)
    begun = time.perf_counter()
    STEPS[name](journal, n, folder)
    seconds = time.perf_counter() - begun
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    csv.writer(sys.stdout, lineterminator="\n").writerow([name, n, round(seconds, 2), round(mebibytes)])


def main() -> None:
    """Run the steps, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--url")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        step(options.step, options.url, options.entries, options.folder)
        return
    print("step,entries,seconds,peak_mebibytes", flush=True)
    with TemporaryDirectory() as folder:
        url = options.url or f"{folder}/journal.db"
        same = ["--entries", str(options.entries), "--url", url, "--folder", folder]
        for name in STEPS:
            subprocess.run([sys.executable, __file__, *same, "--step", name], check=True)


if __name__ == "__main__":
    main()
