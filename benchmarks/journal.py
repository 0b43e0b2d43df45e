"""What a large journal of made-up entries costs: time and memory of what people and servers ask of it.

    python benchmarks/journal.py                                  # 1,000,000 entries in SQLite, in a temporary folder
    python benchmarks/journal.py --entries 10_000_000 --folder DIR   # DIR keeps the journal
    python benchmarks/journal.py --url postgresql://me@/empty     # in PostgreSQL, in a database without a journal
    python benchmarks/journal.py --server                         # the same, with a server of its own for the while

Each step runs in a process of its own; its largest memory is told beside its time (a server's is not in it: PostgreSQL
has a fixed `shared_buffers`). The first 50,000 entries are written as servers write them; the others are copies that
the database makes. 400 answers of the random sample have labels.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import sqlalchemy as sa

import semtoken as st
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.journal.database import UtcTime, entries
from semtoken.guarantees.journal.entries import JournalEntry, SamplingRule
from semtoken.guarantees.journal.export import export
from semtoken.guarantees.journal.labels import add_label, queue
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.watch import watch

RULE = SamplingRule("seed", 0.05)
FIRST = 1_700_000_000.0
WRITTEN, TOGETHER, LABELED = 50_000, 2_000, 400
FIELDS = ("database", "entries", "step", "seconds", "processor_seconds", "peak_mebibytes", "note")


def decider() -> CalibratorInUse:
    """A calibrator of made-up labels: the same in every process."""
    generator = np.random.default_rng(0)
    scores = -generator.exponential(0.5, 400)
    correct = generator.random(400) < np.exp(scores)
    fitted = st.Calibrator.fit(scores, correct)
    threshold = st.Threshold.fit(scores, correct, alpha=0.2)
    return CalibratorInUse(replace(fitted, threshold=threshold, created="2026-01-01T00:00:00+00:00"))


def made_up(number: int, checksum: str) -> JournalEntry:
    """An entry as the proxy writes them, one a second."""
    name = f"made-up-{number}"
    score = -0.01 * (number % 300)
    sampled = RULE.takes(name)
    return JournalEntry(
        id=name, at=FIRST + number, source="proxy", sampled=sampled, seen_twice=sampled and RULE.takes_twice(name),
        model="a-model", engine="transformers", prompt=f"{number % 1000:016x}", person=f"person-{number % 5000}",
        log_confidence=score, log_confidence_lower=score, log_confidence_upper=score, method="exact", preset="default",
        signature="preset:default", distribution="raw", confidence=0.9, confidence_lower=0.9, confidence_upper=0.9,
        confidence_method="stc", sequence_uncertainty=0.1, sequence_uncertainty_lower=0.1,
        sequence_uncertainty_upper=0.1,
        numbers={"perplexity": [1.5, 1.0, 2.0]}, n_tokens=20, truncated=False, probability_correct=0.85,
        probability_correct_lower=0.8, probability_correct_upper=0.9,
        decision="answer" if score > -1 else "abstain", calibrator=checksum,
        doubts=({"start": 0, "end": 6, "confidence": 0.25, "text": "Answer"},),
        question=f"Question {number}?", answer=f"Answer {number}, and some words more, as answers have them.",
    )  # fmt: skip


# ---- the steps ------------------------------------------------------------------------------------------------------


def write(journal: Journal, n: int, folder: Path) -> str:
    """The first entries, as `JournalWriter` writes them."""
    applied = decider()
    journal.use(applied.file, applied.checksum)
    rows = [json.loads(made_up(i, applied.checksum).line()) for i in range(min(n, WRITTEN))]
    begun = time.perf_counter()
    for first in range(0, len(rows), TOGETHER):
        journal.add(rows[first : first + TOGETHER])
    return f"{len(rows) / (time.perf_counter() - begun):,.0f} entries a second, without making them up"


def copy(journal: Journal, n: int, folder: Path) -> str:
    """The others, by the database."""
    there = min(n, WRITTEN)
    with journal.engine.connect() as connection:
        for before in range(there, n, there):
            connection.execute(copied(journal, before, min(there, n - before)))
            connection.commit()
    return f"{n - there:,} copies"


def copied(journal: Journal, by: int, number: int) -> sa.Insert:
    """Insert copies of the first entries, each so many seconds later."""
    later: sa.ColumnElement[Any]
    if journal.engine.dialect.name == "sqlite":
        later = sa.func.strftime("%Y-%m-%d %H:%M:%f000", entries.c.at, f"+{by} seconds", type_=UtcTime)
    else:
        later = entries.c.at + sa.func.make_interval(0, 0, 0, 0, 0, 0, float(by))
    name = sa.literal("made-up-") + sa.cast(entries.c.n - 1 + by, sa.Text)
    columns = [column for column in entries.c if column.name != "n"]
    values: dict[str, sa.ColumnElement[Any]] = {"id": name, "at": later}
    copies: list[sa.ColumnElement[Any]] = [values.get(column.name, column) for column in columns]
    chosen = sa.select(*copies).where(entries.c.n <= number)
    return sa.insert(entries).from_select([column.name for column in columns], chosen)


def label(journal: Journal, n: int, folder: Path) -> str:
    """One person labels answers of the random sample, as the page asks: twenty at a time."""
    done = 0
    while done < LABELED and (rows := queue(journal, "made-up reviewer")):
        for row in rows:
            add_label(journal, row["id"], "made-up reviewer", done % 20 != 0)
            done += 1
    return f"{done} labels"


def show(journal: Journal, n: int, folder: Path) -> str:
    """The newest twenty."""
    assert len(list(journal.entries(newest_first=True, limit=20))) == min(20, n)
    return "newest 20"


def ask_next(journal: Journal, n: int, folder: Path) -> str:
    """What the page asks for a person: the queue, and how far all are."""
    return f"{len(queue(journal, 'made-up reviewer'))} answers of {journal.size().sampled:,}"


def doubtful(journal: Journal, n: int, folder: Path) -> str:
    """The queue of doubtful answers."""
    return f"{len(queue(journal, 'made-up reviewer', 'doubtful'))} answers"


def look(journal: Journal, n: int, folder: Path) -> str:
    """What `semtoken audit` does."""
    report = watch(journal)
    return f"{report.state}, {report.n} labels"


def draw(journal: Journal, n: int, folder: Path) -> str:
    """All of the random sample."""
    pages = journal.pages([entries.c.n, entries.c.id], entries.c.sampled)
    return f"{sum(map(len, pages)):,} answers"


def lines(journal: Journal, n: int, folder: Path) -> str:
    """All entries as JSON lines."""
    return exported(journal, folder / "export.jsonl")


def parquet(journal: Journal, n: int, folder: Path) -> str:
    """All entries as Parquet."""
    return exported(journal, folder / "export.parquet")


def exported(journal: Journal, target: Path) -> str:
    """Export all entries, and say how large the file was."""
    export(journal, target)
    size = target.stat().st_size
    target.unlink()
    return f"{size / 2**20:,.0f} MiB"


def size(journal: Journal, n: int, folder: Path) -> str:
    """How much it holds."""
    found = journal.size()
    assert found.entries == n
    return f"{found.bytes / 2**20:,.0f} MiB"


def delete_old(journal: Journal, n: int, folder: Path) -> str:
    """The oldest tenth."""
    return f"{journal.delete(before=FIRST + n // 10):,} entries"


def delete_person(journal: Journal, n: int, folder: Path) -> str:
    """The entries of one person."""
    return f"{journal.delete(person='person-7'):,} entries"


STEPS: dict[str, Callable[[Journal, int, Path], str]] = {
    "write": write,
    "copy": copy,
    "label": label,
    "show": show,
    "review: next": ask_next,
    "review: doubtful": doubtful,
    "watch": look,
    "draw the sample": draw,
    "size": size,
    "export JSON lines": lines,
    "export Parquet": parquet,
    "delete a person": delete_person,
    "delete the oldest tenth": delete_old,
}


def step(name: str, url: str, n: int, folder: Path) -> None:
    """One step in this process; its row on standard output."""
    journal = Journal.open(url)
    begun, used = time.perf_counter(), time.process_time()
    note = STEPS[name](journal, n, folder)
    seconds, used = time.perf_counter() - begun, time.process_time() - used
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = [journal.engine.dialect.name, n, name, round(seconds, 2), round(used, 2), round(mebibytes), note]
    csv.writer(sys.stdout, lineterminator="\n").writerow(row)


def main() -> None:
    """Run the steps, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--url", help="a database without a journal")
    parser.add_argument("--server", action="store_true", help="start PostgreSQL for the while (Debian's package)")
    parser.add_argument("--folder", type=Path, help="for the journal and what is exported; default: a temporary one")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        step(options.step, options.url, options.entries, options.folder)
        return
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(TemporaryDirectory()))
        url = options.url or str(folder / "journal.db")
        if options.server:
            sys.path.insert(0, str(Path(__file__).parents[1]))
            from tests.guarantees.databases import postgres

            url = stack.enter_context(postgres(lasting=True)).database()
        print(",".join(FIELDS), flush=True)
        same = ["--entries", str(options.entries), "--url", url, "--folder", str(folder)]
        for name in STEPS:
            subprocess.run([sys.executable, __file__, *same, "--step", name], check=True)
        print(f"# load of the last minutes: {json.dumps(os.getloadavg())}", file=sys.stderr)


if __name__ == "__main__":
    main()
