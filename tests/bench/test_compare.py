"""`bench compare` is the benchmark: the figures of a run with a folder, and no conclusion from four questions."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from semtoken.bench.read_results import collect
from semtoken.bench.report.content import build_report
from semtoken.bench.report.table import Table, frame
from semtoken.cli.bench_compare import rich_table
from semtoken.cli.run_progress import RunProgress, duration
from semtoken.methods.table import withdraw
from tests.bench.runs import start
from tests.cli.run import Result, invoke

METHODS = "sequence_probability,perplexity"


def command(*arguments: str) -> Result:
    return invoke(["bench", "compare", *arguments])


@pytest.mark.slow
def test_the_figures_are_those_of_a_run_and_a_report(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"it.{name}" for name in ("json", "csv", "md")}
    options = [text for path in paths.values() for text in ("--output", str(path))]
    done = command("--limit", "60", "--methods", METHODS, *options)
    assert done.exit_code == 0, done.output
    settings = {
        "models": ["almanac"],
        "datasets": ["almanac"],
        "methods": ["confidence", "stc", *METHODS.split(",")],
        "limit": 60,
    }
    assert start(settings, tmp_path / "run") == []
    report = build_report(collect(tmp_path / "run"))

    def untimed(text: str) -> list[dict[str, str]]:
        return [row for row in csv.DictReader(text.splitlines()) if row["metric"] in ("AUROC", "PRR")]

    assert untimed(paths["csv"].read_text()) == untimed(report.csv["figures"])
    content = json.loads(paths["json"].read_text())
    assert content["n"] == 60 and content["settings"]["judges"][0]["kind"] == "exact"
    assert content["settings"]["preset"] == "paper"
    assert len(content["tests"]) == len(report.measured.tests)
    assert {row["metric"] for row in content["figures"]} == {"AUROC", "PRR"}, "times differ from run to run"
    told = paths["md"].read_text()
    assert "| STC " in told and "minus the confidence" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "perplexity,guess"], "there is no method guess"),
        (["--methods", " ,"], "--methods ' ,' names no method"),
        (["--output", f"{__file__}/it.csv"], "it.csv cannot be written: Not a directory"),
        (["none.jsonl"], "none.jsonl"),
        (["--scores", "none.csv"], "There is no file of scores none.csv"),
    ],
)
def test_it_refuses_before_it_begins(arguments: list[str], words: str) -> None:
    done = command(*arguments)
    assert done.exit_code == 1
    assert words in done.output


def test_a_cross_encoder_that_cannot_be_loaded_is_told_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.setattr("semtoken.cli.bench_compare.kept_run", None)  # nothing is begun
    done = command("--methods", "perplexity,token_sar")
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
    assert "pip install 'semtoken[similarity]'" in done.output and "--methods perplexity\n" in done.output


STOPPING = """
from pathlib import Path

def spread(log_probs):
    here = Path(__file__).parent
    if (here / "cache" / "compare").exists() and not (here / "go").exists():  # not when it is tried before the run
        raise KeyboardInterrupt
    return float(-min(log_probs))
"""


def test_what_is_done_is_kept_when_it_is_stopped_and_four_questions_carry_no_conclusion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text(STOPPING)
    figures = tmp_path / "figures.json"
    method = f"{tmp_path / 'mine.py'}:spread"
    arguments = ["--limit", "4", "--methods", method, "--preset", "default", "--output", str(figures)]
    stopped = command(*arguments)
    assert stopped.exit_code == 130, stopped.output
    (kept,) = (tmp_path / "cache" / "compare").iterdir()
    assert kept.name in stopped.output and "greedy: 4 of 4 questions" in stopped.output
    assert json.loads((kept / "manifest.json").read_text())["status"] == "interrupted"
    (tmp_path / "go").touch()
    done = command(*arguments)
    assert done.exit_code == 0 and "4 questions" in done.output, done.output
    withdraw("spread")  # other tests list the methods
    assert "greedy: 4" not in done.output  # not asked again
    assert not kept.exists()
    assert json.loads(figures.read_text())["settings"]["preset"] == "default"
    assert "cannot carry a conclusion" in done.output
    assert "No table is shown for so few answers" in done.output
    assert "1.000" not in done.output and "has the highest" not in done.output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_report_that_cannot_be_written_leaves_the_run_and_the_former_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from semtoken.support.files.temporary import make_locked

    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "it.json").write_text("the former report")

    def full_here(working: Path, make: Any, kept: Any) -> Any:
        full = working.parent == tmp_path
        return os.open("/dev/full", os.O_WRONLY) if full else make_locked(working, make, kept)

    with monkeypatch.context() as patch:
        patch.setattr("semtoken.support.files.safe_files.make_locked", full_here)
        full = command("--limit", "2", "--methods", "perplexity", "--output", str(tmp_path / "it.json"), "--force")
    assert full.exit_code == 1, full.output
    assert "it.json cannot be written: No space left on device." in full.output
    assert (tmp_path / "it.json").read_text() == "the former report"
    (kept,) = (tmp_path / "cache" / "compare").iterdir()
    assert "the same command goes on from there" in full.output and (kept / "manifest.json").exists()


def test_progress_is_plain_lines_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    lines = RunProgress(Progress(disable=True, get_time=lambda: now))
    lines.begin(400)
    lines.work("m on d: greedy", 200)
    for _ in range(8):
        now += 10.0
        lines.advance(25)
    said = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in said] == [
        "m on d: greedy: 75 of 200 questions",
        "m on d: greedy: 150 of 200 questions",
        "m on d: greedy: 200 of 200 questions",
    ]
    assert said[-1].endswith("2.5 a second; whole run 50%, about 80 s left")
    times = {7.4: "7 s", 89: "89 s", 90: "2 min", 600: "10 min", 5369: "89 min", 5371: "1 h 30 min", 12e3: "3 h 20 min"}
    assert {seconds: duration(seconds) for seconds in times} == times


@pytest.mark.parametrize("methods", [1, 2, 5])
def test_intervals_stand_under_their_values_only_where_the_terminal_is_too_narrow(methods: int) -> None:
    names = [f"Area {number}" for number in range(methods)]
    made = Table("t", "T", frame([["STC", *["0.75 [0.50, 1.00]"] * methods]], ["Method", *names]))

    def lines(width: int) -> list[list[str]]:
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(rich_table(made, width))
        return [re.split(" {2,}", line.strip()) for line in console.export_text().splitlines() if line.strip(" ─")]

    least = len("Method") + methods * len("[0.50, 1.00]") + 3 * (methods + 1) - 1
    shown = {width: lines(width) for width in range(least, 120)}
    for width, (header, first, *more) in shown.items():
        wide = first == ["STC", *["0.75 [0.50, 1.00]"] * methods]
        assert wide or (header[0], first[0], len(more)) == ("Method", "STC", 1), (
            width
        )  # never broken inside an interval
    assert [len(one) for one in shown.values()] == sorted((len(one) for one in shown.values()), reverse=True)
    assert (len(shown[least]), len(shown[119])) == (3, 2)
