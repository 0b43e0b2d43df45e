"""A rehearsal of months in minutes: journal, labels, a calibrator, its guarantee, and the day on which questions
change.

    python examples/rehearsal.py [--questions 3000] [--sample 0.05] [--folder build/rehearsal]

Nothing is downloaded. `semtoken serve` answers with the embedded model, behind `semtoken proxy --journal`. Three fifths
of the questions are asked first; the known answers label the random sample as people would, and `semtoken calibrate
journal.db` fits a calibrator. The proxy decides by it from then on. In the last quarter the questions are about facts
that the model's training contradicted, of which it is sure and often wrong; before, they were of the others. `semtoken
watch` is asked after every fiftieth. The table and the picture are in the folder.

Which answers are in the random sample differs from run to run, and with 90 labels or so a guarantee can sometimes not
be made: then the program says so, and ends.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np

from semtoken.guarantees.journal.labels import add_label, queue
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.watch import GuaranteeReport, watch
from semtoken.support.almanac import Question, is_correct, load_questions

ALPHA = 0.2
AT_ONCE, CLIENTS = 50, 16
SEMTOKEN = (sys.executable, "-c", "from semtoken.cli import main; main()")


@contextmanager
def listening(*command: str) -> Iterator[str]:
    """A command that listens on a free port; its address."""
    started = [*SEMTOKEN, *command, "--port", "0"]
    process = subprocess.Popen(started, stderr=subprocess.PIPE, text=True)  # noqa: S603 - our own command
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"at (http://[\d.:]+)/v1", line):
                yield found.group(1)
                return
        raise SystemExit(f"semtoken {command[0]} did not start.")
    finally:
        process.terminate()
        process.wait(30)


def ask(url: str, questions: Sequence[Question]) -> None:
    """Ask questions through the proxy, a few at one time."""

    def one(question: Question) -> None:
        body = {"model": "almanac", "messages": [{"role": "user", "content": question.question}], "max_tokens": 12}
        client.post("/v1/chat/completions", json=body).raise_for_status()

    with httpx.Client(base_url=url, timeout=120) as client, ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(one, questions))


def label(journal: Journal, known: dict[str, Question], entries: int) -> None:
    """Label what is new in the random sample by the known answers, once the journal has so many entries."""
    while journal.size().entries < entries:
        time.sleep(0.1)
    while rows := queue(journal, "known answers", limit=100):
        for row in rows:
            add_label(journal, row["id"], "known answers", is_correct(row["answer"], known[row["question"]]))


def rehearse(n: int, sample: float, folder: Path) -> list[tuple[int, GuaranteeReport]]:
    """All of it; what the watch said, by the number of questions asked."""
    asked = load_questions("test") + load_questions("dev")
    asked = [asked[i] for i in np.random.default_rng(0).permutation(len(asked))]
    known = {question.question: question for question in asked}
    usual = [question for question in asked if not question.contradicted]
    other = [question for question in asked if question.contradicted]
    at_fit, at_change = 3 * n // 5, 3 * n // 4
    stream = [(usual if i < at_change else other)[i % len(usual if i < at_change else other)] for i in range(n)]
    database, calibrator = str(folder / "journal.db"), str(folder / "calibrator")
    with listening("serve", "--model", "almanac") as upstream:
        keep = ["--journal", database, "--journal.texts=true", "--journal.sample", str(sample), "--journal.seed", "0"]
        proxy = ["proxy", "--base-url", upstream, "--tokenizer", "almanac", *keep]
        with listening(*proxy) as url:
            ask(url, stream[:at_fit])
        journal = Journal.open(database)
        label(journal, known, at_fit)
        fit = ["calibrate", database, "-o", calibrator, "--alpha", str(ALPHA), "--force"]
        if subprocess.run([*SEMTOKEN, *fit], check=False).returncode:  # noqa: S603 - our own command
            raise SystemExit("No calibrator could be made of these labels. Another run draws another random sample.")
        found = []
        with listening(*proxy, "--calibrator", calibrator) as url:
            for first in range(at_fit, n, AT_ONCE):
                ask(url, stream[first : first + AT_ONCE])
                done = min(first + AT_ONCE, n)
                label(journal, known, done)
                found.append((done, report := watch(journal)))
                print(f"{done:5d} questions. {report.sentence}", flush=True)
    return found


def write(found: Sequence[tuple[int, GuaranteeReport]], changed: int, folder: Path) -> None:
    """The table, and its picture."""
    rows = [(done, one.state, one.n, one.wrong, one.low, one.high) for done, one in found]
    with (folder / "rehearsal.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("questions", "state", "labels", "wrong", "low", "high"), *rows]
        )
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    at = [row[0] for row in rows]
    axes.fill_between(at, [row[4] for row in rows], [row[5] for row in rows], alpha=0.25, label="bounds on the share")
    axes.plot(at, [row[3] / max(1, row[2]) for row in rows], label="wrong among labeled accepted answers")
    axes.axhline(ALPHA, color="black", linestyle="--", label="guaranteed: at most")
    axes.axvline(changed, color="gray", linestyle=":", label="questions change kind")
    if broken := [row[0] for row in rows if row[1] == "broken"]:
        axes.axvline(broken[0], color="red", label="the watch says: broken")
    axes.set(xlabel="questions asked", ylabel="share of wrong answers", ylim=(0, 1))
    axes.legend(fontsize="small", loc="upper left")
    figure.savefig(folder / "rehearsal.svg", metadata={"Date": None})


def main() -> None:
    """Rehearse, and write down what the watch said."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=3000)
    parser.add_argument("--sample", type=float, default=0.05)
    parser.add_argument("--folder", type=Path, default=Path("build/rehearsal"))
    options = parser.parse_args()
    if (options.folder / "journal.db").exists():
        raise SystemExit(f"{options.folder} holds the journal of another rehearsal. Name another folder, or remove it.")
    options.folder.mkdir(parents=True, exist_ok=True)
    found = rehearse(options.questions, options.sample, options.folder)
    write(found, 3 * options.questions // 4, options.folder)
    print(f"The table and the picture are in {options.folder}.")


if __name__ == "__main__":
    main()
