"""The paper's figures beside those of a run: which match, and what is said of the others."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import pytest

from semtoken.bench.report.against import (
    MODELS,
    QUESTIONS,
    ComparedFigure,
    against_paper,
    paper_dataset,
    paper_model,
    plain,
    published,
)
from semtoken.bench.report.cell_figures import measure
from semtoken.bench.report.figure_list import PAPER_TABLES, Figure, csv_text, measured_figures
from semtoken.methods import METHODS
from tests.bench.report_runs import MAIN, cell, clustering, results

VARIANTS = ("n_clusters=8000", "metric=euclidean", "embedding=input", "linkage=single", "algorithm=kmeans")


def beside(*cells, clusterings=(), **changes: Any):
    run = results(*cells, clusterings=clusterings, **changes)
    found = measure(run, "exact", n_resamples=50)
    return against_paper(run, "exact", found, measured_figures(found, run.clusterings))


def test_all_published_figures_are_there() -> None:
    assert len(published()) == 1392
    value = published()["comparison", "NQ", plain("LN-Entropy"), "Qwen2.5-7B", "AUROC"].value
    assert value == 0.755
    assert published()["pre-computation", "", plain("agglomerative clustering"), "Llama-3-8B", "seconds"].value == 1104
    percent = ("comparison", "NQ", "stc", "Llama-2-7B", "percent of generation time")
    assert published()[percent].value == 0.529
    assert {key[3] for key in published()} == set(MODELS)
    assert {key[1] for key in published()} - {""} == set(QUESTIONS)


def test_every_setting_of_the_paper_has_one_method_or_value_here() -> None:
    titles = [plain(method.title) for method in METHODS.values()]
    for table, _, setting, _, _ in published():
        if table in ("comparison", "ablation"):
            assert titles.count(setting) == 1
    assert {key[0] for key in published()} == {"comparison", "ablation", "pre-computation", *PAPER_TABLES.values()}
    for setting, table in PAPER_TABLES.items():
        assert plain(str(MAIN[setting])) in {key[2] for key in published() if key[0] == table}


@pytest.mark.parametrize(
    ("label", "name", "expected"),
    [
        ("Qwen2.5-7B", "Qwen/Qwen2.5-7B", "Qwen2.5-7B"),
        ("my model", "Qwen/Qwen2.5-7B", "Qwen2.5-7B"),
        ("Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B", "Llama-3-8B"),
        ("Llama-2-7b-hf", "/models/Llama-2-7b-hf/", "Llama-2-7B"),
        ("Mistral-7B-v0.3", "mistralai/Mistral-7B-v0.3", "Mistral-7B"),
        ("Mistral-7B-v0.1", "mistralai/Mistral-7B-v0.1", None),
        ("Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct", None),
        ("almanac", "almanac", None),
    ],
)
def test_models_are_known_by_hub_id_and_label(label: str, name: str, expected: str | None) -> None:
    found = paper_model(label, {"models": [{"name": "other", "label": "x"}, {"name": name, "label": label}]})
    assert (None if found is None else found.label) == expected
    assert found is None or found.doubt == ""


def test_a_label_alone_is_believed_and_doubted() -> None:
    found = paper_model("Qwen2.5-7B", {"models": [{"name": "Qwen/Qwen2.5-7B-Instruct", "label": "Qwen2.5-7B"}]})
    assert found is not None
    assert (found.label, "Qwen/Qwen2.5-7B-Instruct" in found.doubt) == ("Qwen2.5-7B", True)
    assert paper_model("Qwen/Qwen2.5-7B", {}).label == "Qwen2.5-7B"
    dataset = paper_dataset("NQ", {"datasets": [{"name": "my.jsonl", "label": "NQ"}]})
    assert dataset is not None
    assert "my.jsonl" in dataset.doubt


@pytest.mark.parametrize(
    ("choice", "label", "expected"),
    [
        ({"name": "nq", "path": "nq.jsonl.gz"}, "NQ", "NQ"),
        ({"name": "triviaqa", "label": None}, "TQA", "TQA"),
        ({"name": "wq", "label": "web"}, "web", "WQ"),
        ({"name": "almanac"}, "almanac", None),
        ({"name": "data/sports.jsonl.gz"}, "sports", None),
    ],
)
def test_data_sets_are_known_by_name(choice: dict[str, Any], label: str, expected: str | None) -> None:
    found = paper_dataset(label, {"datasets": [choice]})
    assert (None if found is None else found.label) == expected


def test_figures_meet_their_counterparts() -> None:
    made = [clustering(seconds=2000.0)]
    found = beside(cell("Qwen2.5-7B", "NQ", variants=VARIANTS), clusterings=made)
    by_place = {
        (one.figure.table, one.figure.setting, one.figure.metric): one.published
        for one in found.compared
        if one.figure.dataset in ("NQ", "")
    }
    expected = {
        ("comparison", "STC", "AUROC"): 0.827,
        ("comparison", "LN entropy", "AUROC"): 0.755,
        ("comparison", "CCP", "PRR"): 0.647,
        ("ablation", "STC without prefix matching", "AUROC"): 0.826,
        ("ablation", "Sequence probability", "AUROC"): 0.77,
        ("pre-computation", "agglomerative clustering", "seconds"): 1685,
    }
    for place, value in expected.items():
        assert by_place[place] == value, place
    assert math.isnan(by_place["ablation", "STC", "PRR"])  # the paper has AUROC only
    for setting in VARIANTS:
        name, _, value = setting.partition("=")
        assert not math.isnan(by_place[PAPER_TABLES[name], value, "AUROC"]), setting
    (row,) = [row for row in found.tables[0].groups[0].rows if row[0].text == "CCP"]
    assert [entry.text for entry in row[1:4]][1] == "0.830"
    ablation = next(group for group in found.tables[0].groups if "ablation" in group.title)
    assert ablation.rows[0][5].detail == "not in the paper"


def test_the_difference_and_the_interval_are_told() -> None:
    figure = Figure("comparison", "NQ", "STC", "m", "AUROC", 0.80, 0.75, 0.83)
    assert ComparedFigure(figure, 0.827).difference == pytest.approx(-0.027)
    assert ComparedFigure(figure, 0.827).within is True
    assert ComparedFigure(figure, 0.7499).within is False
    assert ComparedFigure(figure, math.nan).within is None
    seconds = Figure("comparison", "NQ", "STC", "m", "seconds", 2.0)
    assert ComparedFigure(seconds, 3.0).within is None


def test_published_figures_in_the_interval_are_counted_once() -> None:
    found = beside(cell("Qwen2.5-7B", "NQ", variants=VARIANTS), clusterings=[clustering()])
    seen = {
        (one.figure.setting if one.figure.table == "comparison" else one.figure.table, one.figure.value): one.within
        for one in found.compared
        if one.within is not None and one.figure.value != _stc(found).figure.value
    }
    seen["STC", 0.0] = _stc(found).within
    inside = sum(within is True for within in seen.values())
    assert f"{inside} of {len(seen)} published AUROC and PRR figures" in found.summary[1]


def _stc(found):
    return next(one for one in found.compared if one.figure.setting == "STC" and one.figure.metric == "AUROC")


def test_what_has_no_counterpart_is_said() -> None:
    found = beside(cell("tiny", "NQ"), cell("Qwen2.5-7B", "sports"), cell("Qwen2.5-7B", "NQ", methods=("stc", "sar")))
    said = " ".join(found.summary)
    assert "no figures for the model tiny" in said
    assert "no figures for the data set sports; it has NQ, TQA, WQ" in said
    assert "not in this run (Qwen2.5-7B on NQ)" in said
    assert "CCP" in said
    assert [group.title for group in found.tables[0].groups] == ["Qwen2.5-7B on NQ"]
    rows = list(csv.DictReader(io.StringIO(csv_text(one.row for one in found.compared))))
    assert len(rows) == len(found.compared)
    assert {row["paper"] for row in rows if row["model"] == "tiny"} == {""}


def test_a_set_up_unlike_the_papers_is_told() -> None:
    settings = {
        "decoding": {"temperature": 1.0, "n_samples": 5},
        "preset": "default",
        "judges": [{"kind": "exact"}, {"kind": "llm", "model": "gpt-4.1-2025-04-14"}],
    }
    said = " ".join(beside(cell(), clusterings=[clustering(n_clusters=8000)], settings=settings).caveats)
    for part in (
        "NQ: 120 questions, the paper asked 3,610",
        "n_clusters 8000, unlike the paper's",
        "temperature is 1.0, the paper's is 0.5",
        "preset is default",
        "judge exact; the paper's is gpt-4.1-2025-04-14",
    ):
        assert part in said
    assert "n samples" not in said
    alike = beside(
        cell(n=3610, methods=("stc",)),
        settings={"judges": [{"kind": "llm", "name": "exact", "model": "gpt-4.1-2025-04-14"}]},
    )
    assert len(alike.caveats) == 1  # the hardware
