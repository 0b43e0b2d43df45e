"""Figures of the report: against scikit-learn, `semtoken.methods.metrics` and sums by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from semtoken import metrics
from semtoken.bench.report.comparison import method_tests
from semtoken.bench.report.content import build_report
from semtoken.bench.report.measure import ABLATIONS, METRICS, Measured, chosen_judge, measure, select, title_of
from semtoken.bench.report.numbers import signed
from semtoken.bench.report.overview import main_result, notes, overview
from semtoken.bench.results import Cell
from semtoken.errors import InvalidInputError
from semtoken.methods import METHODS
from tests.bench.report_runs import (
    cell,
    clustering,
    equals,
    figure,
    measured,
    paired,
    results,
    rows_of,
    tables_of,
    texts,
)

RIVALS = ("sequence_probability", "perplexity", "sar", "ccp")
NAMES = ("stc", "stc_no_prefix", *RIVALS)


@cache
def usual() -> tuple[Cell, Measured]:
    """A cell that nothing changes, and its figures."""
    one = cell(methods=NAMES)
    return one, measured(one, n_resamples=200)


def difference(one: Cell, name: str, against: str = "stc", metric: str = "auroc") -> Any:
    """The difference of two methods as the metrics of the library have it."""
    scores = {**one.uncertainty, **one.variants}
    return metrics.paired_difference(metric, scores[name], scores[against], one.judgments["exact"], n_resamples=200)


def assert_a_family(found: Measured, one: Cell, names: Sequence[str], against: str, metric: str) -> None:
    """The tests of these methods are paired, and corrected together."""
    differences = [difference(one, name, against, metric.lower()) for name in names]
    adjusted = metrics.holm([one.p_value for one in differences])
    for name, expected, p in zip(names, differences, adjusted, strict=True):
        row = paired(found, name, against, metric)
        assert equals(row, expected) and row.p_adjusted == p


def test_values_are_those_of_scikit_learn_and_of_the_metrics() -> None:
    one, found = usual()
    wrong = 1 - one.judgments["exact"]
    assert list(found.cells[0].seconds) == list(NAMES)
    for name in NAMES:
        assert figure(found, name).value == pytest.approx(roc_auc_score(wrong, one.uncertainty[name]))
        expected = metrics.bootstrap("prr", one.uncertainty[name], one.judgments["exact"], n_resamples=200)
        row = figure(found, name, "PRR")
        assert (row.value, row.low, row.high) == (expected.value, expected.low, expected.high)


def test_differences_are_paired_and_corrected_within_their_family() -> None:
    one, found = usual()
    for family in (RIVALS, ("stc_no_prefix",)):
        assert_a_family(found, one, family, "stc", "AUROC")
    assert paired(found, "stc") is None


def test_studies_and_controls_are_families_of_their_own_and_tables_stand_together() -> None:
    both = ("stc", "sequence_probability", "stc_no_prefix")
    noise = np.random.default_rng(3).normal(size=(2, 1, 120))
    variants = ("metric=euclidean", "linkage=single")
    one = cell(methods=both, controls={"no_clusters": noise[0], "folded": noise[1]}, variants=variants)
    found = measured(one, replace(one, dataset="TQA"), clusterings=[clustering()], n_resamples=100)
    tests = select(found.tests, against="STC", dataset="NQ", metric="AUROC")
    for tables in (["distance", "linkage"], ["control"]):
        family = select(tests, table=tables)
        assert len(family) == 2 and list(family.p_adjusted) == list(metrics.holm(list(family.p)))
    order = [table for table, _ in itertools.groupby(found.figures.table) if table not in ("distance", "linkage")]
    assert order == ["comparison", "ablation", "control", "pre-computation"]


@pytest.mark.parametrize("reference", ["stc", "sequence_probability"])
def test_of_methods_that_are_equally_good_the_reference_is_the_best(reference: str) -> None:
    one = cell(methods=("stc",))
    same = dict.fromkeys(("sequence_probability", "stc"), one.uncertainty["stc"])
    found = measured(replace(one, uncertainty=same), reference=reference)
    best = {name for name in found.tests.against if name.startswith("best: ")}
    assert best == {f"best: {title_of(reference)}"}


def test_any_method_can_be_what_the_others_are_set_against() -> None:
    one = cell(methods=NAMES)
    found = measured(one, n_resamples=200, reference="sar")
    others = ("stc", "sequence_probability", "perplexity", "ccp")
    assert_a_family(found, one, others, "sar", "PRR")
    (rows,) = texts(method_tests(found, "PRR", "sar")).values()
    assert list(rows) == list(found.ranked(found.cells[0], "PRR").setting)
    against = found.tests[found.tests.against == "SAR"]
    assert set(zip(against.setting, against.metric, strict=True)) == {
        (title_of(name), metric) for name in others for metric in METRICS.values()
    }
    words = r"no scores of 'sra' \(did you mean 'sar'\?\); there are those of stc, stc_no_prefix"
    with pytest.raises(InvalidInputError, match=words):
        measured(one, reference="sra")


def test_sequence_probability_competes_and_ablations_do_not() -> None:
    one = cell(methods=NAMES)
    one.uncertainty["sequence_probability"][:] = 1 - one.judgments["exact"]
    one.uncertainty["stc_no_prefix"][:] = 1 - one.judgments["exact"]  # perfect, but an ablation
    found = measured(one)
    assert found.ranked(found.cells[0]).setting.iloc[0] == "Sequence probability"
    beside_the_best = found.tests[found.tests.against == "best: Sequence probability"]
    assert set(beside_the_best.setting) == {"STC", "Perplexity", "SAR", "CCP"}
    assert "best other method, Sequence probability, 1.000" in " ".join(main_result(found))
    compared = set(found.figures.setting[found.figures.table == "comparison"])
    assert compared.isdisjoint(map(title_of, ABLATIONS))


def test_what_is_undefined_or_unjudged_is_counted_and_never_a_number() -> None:
    one = cell(methods=("stc", "sar"))
    one.uncertainty["sar"][:4] = [np.nan, np.inf, -np.inf, np.nan]
    found = measured(one, judge="llm")
    (counted,) = found.cells
    assert counted.undefined == {"stc": 0, "sar": 3}
    assert (counted.n, counted.counts.missing) == (120, 12)
    judged = ~np.isnan(one.judgments["llm"])
    expected = roc_auc_score(1 - one.judgments["llm"][judged], one.uncertainty["stc"][judged])
    assert figure(found, "stc").value == pytest.approx(expected)


def test_overhead_is_in_percent_of_the_greedy_generation() -> None:
    percent = "percent of generation time"
    found = measured(cell(methods=NAMES, greedy_seconds=50.0, seconds={"stc": 0.25, "sar": 125.0}))
    assert (figure(found, "stc", percent).value, figure(found, "sar", percent).value) == (0.5, 250.0)
    assert np.isnan(figure(found, "ccp", "seconds").value)
    assert np.isnan(figure(measured(cell(greedy_seconds=0.0, methods=NAMES)), "stc", percent).value)


def test_clusterings_of_the_study_are_tested_against_the_main_one() -> None:
    one = cell(methods=("stc",), variants=("metric=euclidean", "linkage=single", "linkage=complete"))
    found = measured(one, clusterings=[clustering()], n_resamples=200)
    assert equals(found.test(found.cells[0], "single", "STC"), difference(one, "linkage=single"))
    places = {(row.table, row.setting, row.metric): row.value for row in found.figures.itertuples()}
    assert places["linkage", "complete", "AUROC"] == places["distance", "cosine", "AUROC"]  # what the methods use
    assert places["distance", "cosine", "AUROC"] == places["comparison", "STC", "AUROC"]
    wrong = 1 - one.judgments["exact"]
    euclidean = roc_auc_score(wrong, one.variants["metric=euclidean"])
    assert places["distance", "euclidean", "AUROC"] == pytest.approx(euclidean)
    assert places["pre-computation", "agglomerative clustering", "seconds"] == 80.0
    tests = set(zip(found.tests.table, found.tests.setting, strict=True))
    assert tests == {("distance", "euclidean"), ("linkage", "single")}


def test_the_judge_is_the_primary_one_unless_another_is_asked_for() -> None:
    run = results(cell(methods=("stc",)))
    assert chosen_judge(run, None) == "exact"
    assert chosen_judge(run, "llm") == "llm"
    with pytest.raises(InvalidInputError, match="judge 'people'; there are those of exact, llm"):
        chosen_judge(run, "people")
    with pytest.raises(InvalidInputError, match=r"'rouge'.*--judge.*resume"):
        chosen_judge(replace(run, primary_judge="rouge"), None)


@pytest.mark.parametrize(
    "cells", [(), (cell(methods=()),), (cell(judgments={}),)], ids=["none", "no method", "no judge"]
)
def test_a_run_with_nothing_complete_says_what_to_do(cells: tuple[Cell, ...]) -> None:
    run = results(*cells)
    with pytest.raises(InvalidInputError, match=r"nothing complete.*semtoken bench run"):
        measure(run, chosen_judge(run, None))


def test_notes_name_what_is_missing_and_how_many_were_asked() -> None:
    """A cell without verdicts of the judge is left out, and so is a method that one cell lacks."""
    run = results(
        cell(methods=NAMES),
        cell(dataset="TQA", judgments={"llm": np.ones(120)}),
        cell(dataset="WQ", methods=NAMES[:-1]),
        notes=("Beware.",),
        settings={"limit": 120},
    )
    found = measure(run, "exact", n_resamples=20)
    assert [one.dataset for one in found.cells] == ["NQ", "WQ"]
    assert {
        "Beware.",
        "Qwen2.5-7B on TQA is left out: no verdicts of exact.",
        "Qwen2.5-7B on WQ: not there are ccp.",
        "Of each data set a random part was asked, 120 questions at most.",
    } <= set(notes(run, found, "exact", 20))


def test_one_class_has_no_auroc_and_the_main_result_says_so() -> None:
    found = measured(cell(methods=NAMES, judgments={"exact": np.ones(120)}))
    assert found.ranked(found.cells[0]).empty
    assert list(main_result(found)) == [
        "Qwen2.5-7B on NQ: AUROC and PRR are undefined, no answer is wrong.",
        "There is no AUROC of STC to compare the other methods with.",
    ]
    assert method_tests(found, "AUROC").groups == []


def test_the_main_result_counts_what_the_tables_show() -> None:
    cells = (cell(methods=NAMES, n=400), cell(dataset="TQA", methods=NAMES, n=400, seed=1))
    found = measured(*cells, n_resamples=200)
    lines = list(main_result(found))
    assert lines[0] == "STC has the highest AUROC on 2 of 2 pairs of a model and a data set."
    tests = select(found.tests, metric="AUROC", against="STC", table="comparison")
    lower = int((tests.high < 0).sum())
    assert 0 < lower < len(tests) == 8
    verb = "is" if lower == 1 else "are"
    assert lines[1].startswith(
        f"Of {len(tests)} differences to STC, {lower} {verb} lower, 0 higher and {len(tests) - lower} not shown"
    )
    means = {name: np.mean([figure(found, name, cell=one).value for one in found.cells]) for name in ("stc", *RIVALS)}
    best = max(RIVALS, key=means.__getitem__)
    assert f"STC {means['stc']:.3f}, the best other method, {METHODS[best].title}, {means[best]:.3f}" in lines[2]
    assert lines[-1] == "STC adds 0.250% to the time of the greedy generation (median)."  # 0.5 of 200 seconds
    *_, alone = main_result(measured(cells[0]))
    assert alone == "STC adds 0.250% to the time of the greedy generation."


def test_one_rule_and_one_sign_in_sentences_tables_and_files() -> None:
    """A difference above 0 is called higher wherever it is said."""
    one = cell(methods=NAMES[:3], n=400)
    run = results(replace(one, uncertainty={**one.uncertainty, "confidence": one.uncertainty["stc"]}))
    report = build_report(run, n_resamples=200)
    found = report.measured
    expected = difference(one, "sequence_probability")
    rule = "higher" if expected.low > 0 else "lower" if expected.high < 0 else "not shown"
    said = list(main_result(found))
    [line] = [one for one in said if "sequence probability minus the confidence" in one]
    assert f"is {signed(expected.value)} [" in line and line.endswith(f", {rule}.")
    (rows,) = texts(tables_of(report)["tests_auroc"]).values()
    row = rows["Sequence probability"]
    assert (row[1].split(" [")[0], row[2]) == (signed(expected.value), rule)
    for written in rows_of(report, "tests"):
        low, high = float(written["low"] or "nan"), float(written["high"] or "nan")
        assert written["verdict"] == ("higher" if low > 0 else "lower" if high < 0 else "not shown")
    [kept] = [
        one
        for one in rows_of(report, "tests")
        if (one["setting"], one["against"], one["metric"]) == ("Sequence probability", "STC", "AUROC")
    ]
    assert float(kept["difference"]) == pytest.approx(expected.value)
    assert found.reference == "confidence"
    first = overview(found, "exact")
    assert first.header.index("AUROC of the confidence") + 1 == first.header.index("AUROC of STC")
    assert said[0] == "The confidence has the highest AUROC on 1 of 1 pair of a model and a data set."  # as STC has
    assert said[1].endswith("On 1 of 1 it ranks as STC does.") and "minus the confidence" in said[3]


@pytest.mark.parametrize(("name", "title"), [("stc", "STC"), (None, "the confidence")])
def test_any_method_can_be_what_the_report_is_about(name: str | None, title: str) -> None:
    run = results(cell(methods=("confidence", "stc"), n=60, texts=tuple((f"q{i}", f"a{i}") for i in range(60))))
    made = build_report(run, n_resamples=20, reference=name)
    assert f"{title} calls the wrong one more uncertain" in made.opening
    tables = tables_of(made)
    assert f"AUROC of {title}" in tables["overview"].header
    assert f"minus {title}" in tables["risk_coverage"].header
    assert f"By the uncertainty of {title}." in tables["surest_wrong"].note
    assert ("reference_auroc" in tables) == (name != "stc")
    assert paired(made.measured, name or "confidence", name or "confidence") is None
    assert (paired(made.measured, name or "confidence") is None) == (name == "stc")


def test_a_run_without_the_confidence_is_about_stc_and_without_that_about_its_first_method() -> None:
    cells = (cell(methods=(*NAMES, "confidence")), cell(dataset="TQA", methods=NAMES))
    assert measured(*cells).reference == "stc"  # one of whose cells has the confidence
    made = build_report(results(cell(methods=("perplexity", "sar"), n=40)), n_resamples=20)
    assert made.measured.reference == "perplexity"
    header = tables_of(made)["overview"].header
    assert [name for name in header if name.startswith("AUROC of")] == ["AUROC of Perplexity"]


def test_methods_of_ones_own_are_compared_too_beside_the_titles_that_they_are_named_like() -> None:
    one = cell(methods=("stc",))
    for name, title in (("mine", "mine"), ("STC", "STC (own)")):
        found = measured(replace(one, uncertainty={**one.uncertainty, name: -one.uncertainty["stc"]}))
        values = found.of(found.cells[0], metric="AUROC").set_index("setting").value
        assert values["STC"] + values[title] == pytest.approx(1.0)
        assert list(texts(method_tests(found, "AUROC"))["Qwen2.5-7B on NQ"]) == ["STC", title]
