"""`semtoken bench report` on the folder of a real run, whole and in parts."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet
import pytest
from sklearn.metrics import roc_auc_score

from semtoken.bench.read_results import collect
from semtoken.bench.report.content import build_report
from semtoken.bench.report.writing import markdown_text, write_report
from semtoken.bench.results import METADATA_KEY, answers_table
from semtoken.bench.storage import read_json
from semtoken.errors import InvalidInputError
from tests.bench.report_runs import cell, clustering, results
from tests.bench.runs import TINY_QUESTIONS, same, start, tiny_settings
from tests.bench.test_report_writing import contents
from tests.cli.run import Result, invoke

METHODS = ["stc", "stc_no_clustering", "sequence_probability", "perplexity"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a random model, judged by two files: each calls every other answer right, and not the same ones."""
    folder = tmp_path_factory.mktemp("run")
    judges: list[dict[str, str]] = []
    for odd, name in enumerate(("others", "people")):
        verdicts = folder / f"{name}.csv"
        rows = [f"q{i},{int(i % 2 == odd)}\n" for i in range(len(TINY_QUESTIONS))]
        verdicts.write_text("".join(["id,correct\n", *rows]))
        judges.insert(0, {"kind": "imported", "name": name, "path": str(verdicts)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEMTOKEN_CACHE", str(folder / "cache"))
        settings = tiny_settings(folder) | {
            "methods": METHODS,
            "judges": judges,
            "sensitivity": {"linkage": ["average"]},
        }
        assert start(settings, folder / "example") == []
    return folder / "example"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "example"))


def command(*arguments: object) -> Result:
    return invoke(["bench", "report", *map(str, arguments)])


def test_a_whole_run_by_another_judge(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    before = contents(run)
    result = command(run, "--n-resamples", 50, "--judge", "others")
    assert result.exit_code == 0, result.output
    assert f"The report is in {run.resolve() / 'report'}" in " ".join(result.stderr.split())
    header, row = (re.split(" {2,}", line.rsplit(maxsplit=1)[0]) for line in result.stdout.splitlines()[-2:])
    assert header[:5] == ["Model", "Data set", "Questions", "Accuracy", "Best AUROC"]
    assert row == ["tiny", "questions", "7", "57.1%", "Sequence probability 0.750", "0.250"]  # and seconds
    (cell,) = collect(run).cells
    with (run / "report/csv/figures.csv").open() as file:
        rows = {(r["table"], r["setting"], r["metric"]): r["value"] for r in csv.DictReader(file)}
    expected = roc_auc_score(1 - cell.judgments["others"], cell.uncertainty["perplexity"])
    assert float(rows["comparison", "Perplexity", "AUROC"]) == pytest.approx(expected)
    assert ("linkage", "average", "AUROC") in rows
    assert {name: content for name, content in contents(run).items() if not name.startswith("report/")} == before
    assert "judged by others" in (run / "report/report.md").read_text()
    unknown = command(run, "--judge", "nobody")
    assert (unknown.exit_code, "there are those of people, others" in " ".join(unknown.stderr.split())) == (1, True)


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(run: Path, tmp_path: Path) -> None:
    command(run, "--n-resamples", 50)
    code = "from semtoken.cli import main; main()"
    arguments = ["bench", "report", str(run), "--n-resamples", "50", "--output", str(tmp_path / "again")]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, env=environment)
    assert contents(tmp_path / "again") == contents(run / "report")


def test_a_run_that_was_cut_off_says_what_is_missing(run: Path) -> None:
    (victim,) = [path for path in run.rglob("00001.parquet") if "score-perplexity-" in str(path)]
    victim.unlink()
    text = markdown_text(build_report(collect(run), n_resamples=20))
    assert "score:perplexity is there for 4 of 7 questions" in text
    assert "not there are perplexity" in text
    assert "| Perplexity" not in text


def test_a_step_that_is_cut_off_leaves_no_overhead_of_the_methods_that_need_it(run: Path) -> None:
    """It was that of the formula alone: a hundredth of a percent for what had taken half of the generation."""
    [whole] = collect(run).cells
    key = json.loads((run / "plan.json").read_text())["cells"][0]["steps"]["stc"]["key"]
    [victim] = run.glob(f"stages/stc-{key[:16]}/00001.parquet")
    victim.write_bytes(victim.read_bytes()[:100])
    [cut] = collect(run).cells
    assert whole.seconds["stc"] > 0 and math.isnan(cut.seconds["stc"])
    assert cut.seconds["perplexity"] == whole.seconds["perplexity"]
    text = markdown_text(build_report(collect(run), n_resamples=20))
    assert "stc is there for 4 of 7 questions" in text and "not measured" in text


def test_a_run_with_nothing_complete_is_an_error_and_leaves_a_former_report(run: Path) -> None:
    former = results(cell(methods=("stc",), n=9, seconds={}, judgments={"exact": np.ones(9)}))  # it has no figures
    write_report(build_report(former, n_resamples=5), run / "report")
    before = contents(run / "report")
    shutil.rmtree(run / "stages")
    result = command(run)
    assert result.exit_code == 1
    assert "nothing complete" in result.stderr
    assert "semtoken bench run" in " ".join(result.stderr.split())
    assert contents(run / "report") == before


def test_a_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    result = command(tmp_path)
    assert result.exit_code == 1
    assert "holds no benchmark run" in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b'{"sessions": 5}'])
def test_facts_that_are_damaged_block_neither_the_report_nor_the_run(run: Path, content: bytes) -> None:
    before = collect(run)
    (run / "manifest.json").write_bytes(content)
    after = collect(run)
    assert after.cells[0].uncertainty.keys() == before.cells[0].uncertainty.keys()
    assert (b"sessions" in content) or any("are unknown" in note for note in after.notes)
    assert start(read_json(run / "settings.json"), run) == []
    assert read_json(run / "manifest.json")["status"] == "complete"


@pytest.mark.parametrize("content", [None, b"{}"])
def test_a_plan_that_is_lost_is_made_again(run: Path, content: bytes | None) -> None:
    before = {name: numbers.tolist() for name, numbers in collect(run).cells[0].uncertainty.items()}
    plan = read_json(run / "plan.json")
    if content is None:
        (run / "plan.json").unlink()
    else:
        (run / "plan.json").write_bytes(content)
    assert {name: numbers.tolist() for name, numbers in collect(run).cells[0].uncertainty.items()} == before
    assert start(read_json(run / "settings.json"), run) == []
    assert read_json(run / "plan.json") == plan


def test_settings_that_changed_are_not_read(run: Path) -> None:
    path = run / "settings.json"
    path.write_text(path.read_text().replace('"primary_judge": "people"', '"primary_judge": "others"'))
    result = command(run)
    assert result.exit_code == 1
    assert "settings.json is damaged: its content does not match its checksum" in " ".join(result.stderr.split())
    path.write_text("{}")
    with pytest.raises(InvalidInputError, match=r"settings\.json is damaged: it holds no settings of a run"):
        collect(run)


@pytest.mark.parametrize(("first", "place"), [(0, 0.3), (1, 0.999)])
def test_a_damaged_table_is_left_out(run: Path, first: int, place: float) -> None:
    """Every fifth table has its pages damaged, the next ones their footers."""
    before = collect(run)
    for path in sorted(run.rglob("*.parquet"))[first::5]:
        whole = path.read_bytes()
        i = int(len(whole) * place)
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0x55]) + whole[i + 1 :])
        found = collect(run)
        for one in found.cells:
            for name, numbers in one.uncertainty.items():
                assert same(numbers.tolist(), before.cells[0].uncertainty[name].tolist()), (path, name)
        path.write_bytes(whole)


@pytest.mark.slow
def test_the_table_of_all_answers_gives_the_same_report_again(tmp_path: Path) -> None:
    run = results(
        cell(variants=("metric=euclidean",), controls={"shuffled": np.random.default_rng(0).normal(size=(2, 120))}),
        cell(dataset="TQA", methods=("stc", "sequence_probability"), seed=1),
        clusterings=[clustering()],
        notes=("Beware.",),
        settings={"methods": ["stc"], "limit": 120},
    )
    run.cells[1].uncertainty["stc"][:3] = [np.nan, np.inf, -np.inf]
    first = build_report(run, n_resamples=50)
    (tmp_path / "answers.parquet").write_bytes(first.answers)
    back = collect(tmp_path / "answers.parquet")
    again = build_report(back, n_resamples=50)
    assert again.csv == first.csv
    assert [section.lines for section in again.sections] == [section.lines for section in first.sections]
    assert [one.uncertainty.keys() for one in back.cells] == [one.uncertainty.keys() for one in run.cells]
    np.testing.assert_array_equal(back.cells[1].uncertainty["stc"], run.cells[1].uncertainty["stc"])


def test_seconds_that_are_not_known_are_null_in_the_file(tmp_path: Path) -> None:
    """JSON has no NaN, and other readers of the file refuse it."""
    known = cell(methods=("stc", "perplexity"), n=40)
    run = results(replace(known, seconds={"stc": np.nan, "perplexity": 0.5}, steps={"greedy": 200.0, "words": np.nan}))
    path = tmp_path / "answers.parquet"
    path.write_bytes(answers_table(run))
    [kept] = msgspec.json.decode(pyarrow.parquet.read_metadata(path).metadata[METADATA_KEY])["cells"]
    assert (kept["seconds"], kept["steps"]) == ({"stc": None, "perplexity": 0.5}, {"greedy": 200.0, "words": None})
    [back] = collect(path).cells
    assert (back.seconds["perplexity"], back.steps["greedy"], back.greedy_seconds) == (0.5, 200.0, 200.0)
    assert np.isnan([back.seconds["stc"], back.steps["words"]]).all()


def test_texts_are_kept_unless_asked_not_to() -> None:
    one = results(cell(methods=("stc",), n=40, texts=tuple((f"question {i}?", f"answer {i}") for i in range(40))))
    for texts in (True, False):
        content = answers_table(one, texts=texts)
        names = pyarrow.parquet.read_table(io.BytesIO(content)).column_names
        assert ("question" in names and "answer" in names) is texts


def test_another_table_is_refused(tmp_path: Path) -> None:
    for metadata in ({}, {METADATA_KEY: b"[1]"}, {METADATA_KEY: b"{}"}):
        other = pyarrow.table({"a": [1]}).replace_schema_metadata(metadata)
        pyarrow.parquet.write_table(other, tmp_path / "other.parquet")
        with pytest.raises(InvalidInputError, match="holds no answers of a benchmark run"):
            collect(tmp_path / "other.parquet")


@pytest.mark.parametrize(
    ("changes", "columns", "said"),
    [
        ({"version": 3}, {}, r"of another release of semtoken \(version 3"),
        ({"cells": [{"model": "Qwen2.5-7B", "dataset": "NQ"}]}, {}, "was changed after a report kept it"),
        ({"clusterings": 5}, {}, "was changed after a report kept it"),
        ({}, {"method:stc": ["high"] * 40}, "was changed after a report kept it"),
        ({}, {"jury:exact": [1.0] * 40}, "was changed after a report kept it"),
    ],
)
def test_a_table_of_another_form_is_refused(
    changes: dict[str, Any], columns: dict[str, list[Any]], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "answers.parquet"
    path.write_bytes(answers_table(results(cell(methods=("stc",), n=40))))
    table = pyarrow.parquet.read_table(path)
    facts = msgspec.json.decode(table.schema.metadata[METADATA_KEY]) | changes
    changed = pyarrow.table(dict(zip(table.column_names, table.columns, strict=True)) | columns)
    pyarrow.parquet.write_table(changed.replace_schema_metadata({METADATA_KEY: msgspec.json.encode(facts)}), path)
    with pytest.raises(InvalidInputError, match=said):
        collect(path)
