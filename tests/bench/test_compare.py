"""The comparison of all methods: figures, files, and the whole of it on a tiny model."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from rich.console import Console
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

from semtoken.almanac import Question
from semtoken.bench.compare import (
    Comparison,
    compare_methods,
    needed_fields,
    run_comparison,
    selected_methods,
)
from semtoken.bench.tables import HEADER, csv_table, json_text, markdown_table, rich_table, text_rows
from semtoken.cli.compare import compare
from semtoken.errors import InvalidInput
from semtoken.generation import Generation
from semtoken.methods import METHODS, score
from semtoken.statistics import Decoding, Timings

SELECTED = ("perplexity", "sequence_probability")


def generations(count: int = 30) -> list[Generation]:
    generator = np.random.default_rng(0)
    return [
        Generation(
            text="x",
            token_ids=[1, 2],
            log_probs=-generator.exponential(size=2),
            stc_log_score=float(-generator.exponential()),
        )
        for _ in range(count)
    ]


def correct(count: int = 30) -> list[float]:
    return np.random.default_rng(1).integers(0, 2, count).astype(float).tolist()


def small(**changes: Any) -> Comparison:
    arguments: dict[str, Any] = {"generations": generations(), "correct": correct()} | changes
    return compare_methods(methods=selected_methods(SELECTED), timings=Timings(), n_resamples=50, **arguments)


def test_figures_are_those_of_the_metrics_on_the_scores() -> None:
    comparison = small()
    assert [result.method.name for result in comparison.results] == ["stc", "sequence_probability", "perplexity"]
    wrong = 1 - np.array(correct())
    expected = {
        name: roc_auc_score(wrong, [score(name, generation) for generation in generations()])
        for name in ("stc", *SELECTED)
    }
    for result in comparison.results:
        assert result.auroc.value == pytest.approx(expected[result.method.name])
        assert result.auroc.low <= result.auroc.value <= result.auroc.high
        if result.auroc_difference is None:
            assert result.method.name == "stc"
        else:
            assert result.auroc_difference.value == pytest.approx(expected[result.method.name] - expected["stc"])
    assert comparison.accuracy == pytest.approx(np.mean(correct()))


def test_values_that_are_not_finite_are_counted() -> None:
    records = generations()
    records[3] = Generation(text="x", token_ids=[1], log_probs=np.array([-math.inf]), stc_log_score=-math.inf)
    undefined = {result.method.name: result.undefined for result in small(generations=records).results}
    assert undefined == {"stc": 0, "sequence_probability": 0, "perplexity": 1}


def test_one_class_has_no_auroc_and_says_why() -> None:
    comparison = small(correct=[1.0] * 30)
    row = dict(zip(HEADER, text_rows(comparison)[0], strict=False))
    assert row["AUROC"].startswith("undefined: ")
    assert json.loads(json_text(comparison))["figures"]["stc"]["auroc"]["value"] is None


def test_shared_steps_are_charged_to_each_method_that_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    timings = Timings()
    for step, seconds in {"greedy": 100.0, "likelihoods": 10.0, "stc": 3.0}.items():
        with timings.measure(step):
            now[0] += seconds
    comparison = compare_methods(generations(), correct(), selected_methods(SELECTED), timings, n_resamples=5)
    seconds_of = {result.method.name: result.seconds for result in comparison.results}
    assert seconds_of == {"stc": 3.0, "perplexity": 10.0, "sequence_probability": 10.0}
    assert comparison.greedy_seconds == 100.0


def test_methods_are_chosen_by_name_and_stc_is_always_there() -> None:
    assert [method.name for method in selected_methods()] == list(METHODS)
    assert [method.name for method in selected_methods(["sar"])] == ["stc", "sar"]
    assert needed_fields(selected_methods(["conu"])) == {"stc_log_score", "similarity"}
    with pytest.raises(InvalidInput, match="There is no method nonsense; there are stc"):
        selected_methods(["sar", "nonsense"])


def test_answers_without_judgements_are_refused() -> None:
    with pytest.raises(InvalidInput, match="30 answers and 2 judgements"):
        small(correct=[1.0, 0.0])


def test_tables_say_the_same_in_every_form() -> None:
    comparison = small()
    rows = list(csv.DictReader(csv_table(comparison).splitlines()))
    figures = json.loads(json_text(comparison))["figures"]
    markdown = markdown_table(comparison).splitlines()
    assert len({line.count("|") for line in markdown if line.startswith("|")}) == 1
    for result, row, line in zip(comparison.results, rows, markdown[2:], strict=False):
        name = result.method.name
        assert row["method"] == name and float(row["auroc"]) == result.auroc.value == figures[name]["auroc"]["value"]
        assert line.startswith(f"| {result.method.title} | {result.auroc.value:.3f} [")
    assert [column.header for column in rich_table(comparison, 300).columns] == list(HEADER)


def test_the_table_is_legible_on_eighty_columns() -> None:
    comparison = small()
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(rich_table(comparison, console.width))
    text = console.export_text()
    assert "…" not in text
    for result in comparison.results:
        assert f"{result.auroc.value:.3f}" in text
        assert f"[{result.auroc.low:.3f}, {result.auroc.high:.3f}]" in text
        assert f"{result.seconds:.2f}" in text


@pytest.fixture(scope="module")
def end_to_end(tmp_path_factory: pytest.TempPathFactory) -> list[Comparison]:
    """Two runs of everything on tiny models; every second answer is made a right one."""
    pytest.importorskip("sentence_transformers")
    from tests.statistics import models

    folder = tmp_path_factory.mktemp("models")
    stc = models.answering()
    answers = [answer.text for answer in stc.generate(models.QUESTIONS, 6, stop_at_newline=True)]
    questions = [
        Question(str(i), question, (answers[i] if i % 2 else "something else",))
        for i, question in enumerate(models.QUESTIONS)
    ]
    return [
        run_comparison(
            stc,
            questions,
            models.QUESTIONS,
            selected_methods(),
            decoding=Decoding(max_new_tokens=6, n_samples=3),
            nli=models.saved_encoder(folder / "nli", models.LABELS),
            similarity=models.saved_encoder(folder / "sts"),
            n_resamples=20,
            settings={"model": "tiny"},
        )
        for _ in range(2)
    ]


def test_all_methods_on_a_tiny_model(end_to_end: list[Comparison]) -> None:
    comparison = end_to_end[0]
    assert [result.method.name for result in comparison.results] == list(METHODS)
    assert 0 < comparison.n_correct < comparison.n == 5
    for result in comparison.results:
        assert 0 <= result.auroc.value <= 1 and result.undefined == 0 and result.seconds > 0
    seconds = {result.method.name: result.seconds for result in comparison.results}
    assert seconds["sar"] > seconds["predictive_entropy"] > comparison.steps["sampling"]
    assert comparison.settings["model"] == "tiny" and comparison.settings["n_samples"] == 3


def test_a_second_run_gives_the_same_figures(end_to_end: list[Comparison]) -> None:
    first, second = (json.loads(json_text(comparison)) for comparison in end_to_end)
    assert first.keys() == second.keys() == {"settings", "n", "n_correct", "figures", "seconds"}
    for part in ("settings", "n", "n_correct", "figures"):
        assert first[part] == second[part]


def command(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(compare)
    return CliRunner().invoke(app, list(arguments))


def test_the_command_writes_the_same_figures_twice(tmp_path: Path) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    table = tmp_path / "table.csv"
    for path in files:
        result = command("--limit", "12", "--methods", "perplexity, p_true", "--json", str(path), "--csv", str(table))
        assert result.exit_code == 0, result.output
    assert "12 questions" in " ".join(result.stdout.split())
    first, second = (json.loads(path.read_text(encoding="utf-8")) for path in files)
    assert list(first["figures"]) == ["stc", "perplexity", "p_true"]
    assert first["settings"]["questions"] == first["settings"]["model"] == "almanac"
    assert {key: first[key] for key in first if key != "seconds"} == {
        key: second[key] for key in second if key != "seconds"
    }
    assert len(table.read_text(encoding="utf-8").splitlines()) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "perplexty"], "There is no method perplexty"),
        (["--csv", "nowhere/table.csv"], "there is no directory"),
        (["nowhere.jsonl"], "There is no question set 'nowhere.jsonl'"),
    ],
)
def test_the_command_refuses_before_it_begins(
    arguments: list[str], message: str, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    result = command(*arguments)
    assert isinstance(result.exception, InvalidInput) and message in str(result.exception)
