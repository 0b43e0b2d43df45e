"""The program that sets the paper's figures beside those of a report."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest
from research.experiments.published.against import (
    MODELS,
    QUESTIONS,
    beside,
    main,
    missing,
    paper_dataset,
    paper_model,
    plain,
    published,
    set_up,
    summary,
)

from semtoken.bench.report.content import build_report
from semtoken.bench.report.writing import write_report
from semtoken.methods import METHODS
from tests.bench.report_runs import cell, clustering, results

VARIANTS = ("n_clusters=8000", "metric=euclidean", "embedding=input", "linkage=single", "algorithm=kmeans")


def report(folder: Path, *cells: Any, **changes: Any) -> pandas.DataFrame:
    """The figures of a report, as its file has them."""
    write_report(build_report(results(*cells, **changes), n_resamples=20), folder)
    return pandas.read_csv(folder / "csv/figures.csv", dtype={"setting": str}).fillna({"dataset": ""})


def test_all_published_figures_are_there_and_have_a_method_here() -> None:
    rows = published()
    assert len(rows) == 1392 and set(rows.model) == set(MODELS) and set(rows.dataset) - {""} == set(QUESTIONS)
    value = rows.set_index(["table", "dataset", "setting", "model", "metric"]).value
    assert value["comparison", "NQ", "lnentropy", "Qwen2.5-7B", "AUROC"] == 0.755
    assert value["pre-computation", "", "agglomerativeclustering", "Llama-3-8B", "seconds"] == 1104
    titles = [plain(method.title) for method in METHODS.values()]
    for setting in rows[rows.table.isin(["comparison", "ablation"])].setting.unique():
        assert titles.count(setting) == 1


@pytest.mark.parametrize(
    ("label", "name", "expected"),
    [
        ("Qwen2.5-7B", "Qwen/Qwen2.5-7B", "Qwen2.5-7B"),
        ("my model", "Qwen/Qwen2.5-7B", "Qwen2.5-7B"),
        ("Llama-2-7b-hf", "/models/Llama-2-7b-hf/", "Llama-2-7B"),
        ("Mistral-7B-v0.1", "mistralai/Mistral-7B-v0.1", ""),
        ("Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct", ""),  # the label says another model than the name
        ("almanac", "almanac", ""),
    ],
)
def test_models_and_data_sets_are_known_by_what_is_behind_their_label(label: str, name: str, expected: str) -> None:
    assert paper_model(label, {"models": [{"name": "other", "label": "x"}, {"name": name, "label": label}]}) == expected
    assert paper_dataset("web", {"datasets": [{"name": "wq", "label": "web"}]}) == "WQ"
    assert (paper_dataset("TQA", {}), paper_dataset("sports", {})) == ("TQA", "")


def test_figures_meet_their_counterparts(tmp_path: Path) -> None:
    methods = ("stc", "stc_no_prefix", "sequence_probability", "ccp")
    cells = cell(methods=methods, variants=VARIANTS), cell(dataset="sports", methods=("stc",))
    figures = report(tmp_path / "r", *cells, clusterings=[clustering()])
    compared = beside(figures, {})
    assert compared[figures.columns].equals(figures)
    mine = compared[compared.dataset.isin(["NQ", ""])].set_index(["table", "setting", "metric"])
    for place, value in {
        ("comparison", "STC", "AUROC"): 0.827,
        ("comparison", "CCP", "PRR"): 0.647,
        ("ablation", "STC without prefix matching", "AUROC"): 0.826,
        ("pre-computation", "agglomerative clustering", "seconds"): 1685,
    }.items():
        assert mine.paper[place] == value
        assert mine.difference[place] == pytest.approx(mine.value[place] - value)
    assert math.isnan(mine.paper["ablation", "STC", "PRR"])  # the paper has AUROC only
    assert mine.loc[["number of clusters", "distance", "embedding", "linkage"]].paper.notna().all()
    assert compared[compared.dataset == "sports"].paper.isna().all()
    seen = {(row.metric, row.value, row.paper): row.low <= row.paper <= row.high for row in compared.itertuples()
            if not math.isnan(row.paper) and not math.isnan(row.low)}  # fmt: skip
    assert f"{sum(seen.values())} of {len(seen)} published AUROC and PRR figures" in list(summary(compared))[1]
    said = " ".join(missing(compared, {}))
    assert "no figures for the dataset sports" in said and "number of clusters: 12000" in said
    assert "comparison: SAR" in said and "comparison: CCP" not in said


def test_the_program_says_where_the_set_up_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"decoding": {"temperature": 1.0, "n_samples": 5}, "preset": "default", "judges": [{"kind": "exact"}]}
    report(tmp_path / "r", cell(methods=("stc",)), clusterings=[clustering(n_clusters=8000)], settings=settings)
    monkeypatch.setattr(sys, "argv", ["against.py", str(tmp_path / "r"), "--out", str(tmp_path / "out.csv")])
    main()
    said = capsys.readouterr().out
    for part in (
        "NQ: 120 questions, the paper asked 3,610",
        "n_clusters is 8000, the paper's is 16000",
        "temperature is 1.0, the paper's is 0.5",
        "preset is default",
        "by exact; the paper's judge is gpt-4.1-2025-04-14",
        "In the paper but not in this run (Qwen2.5-7B on NQ): ",
    ):
        assert part in said
    assert "n_samples" not in said
    assert set(pandas.read_csv(tmp_path / "out.csv").setting) >= {"STC", "agglomerative clustering"}
    settings = {"judges": [{"kind": "llm", "model": "gpt-4.1-2025-04-14"}]}
    assert len(list(set_up(results(cell(n=3610, methods=("stc",)), settings=settings)))) == 1  # the hardware
