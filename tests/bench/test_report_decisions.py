"""Risk and coverage, probabilities, answers and calibrators in a report."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

import semtoken as st
from semtoken.bench.read_results import collect
from semtoken.bench.report.answers import check_cells
from semtoken.bench.report.content import BenchReport, build_report
from semtoken.bench.report.measure import ABLATIONS
from semtoken.bench.report.probabilities import (
    LOSSES,
    Probabilities,
    probabilities_of,
    probability_table,
    ranks,
    risk_table,
    too_few,
)
from semtoken.bench.report.probability_plots import reliability_panels
from semtoken.bench.report.table import as_html
from semtoken.bench.report.writing import html_page, markdown_text
from semtoken.bench.results import METADATA_KEY, Cell
from semtoken.errors import CalibratorMismatchError, InvalidInputError
from semtoken.guarantees import Calibrator, Threshold
from semtoken.guarantees.fingerprint import Fingerprint
from semtoken.methods import METHODS
from tests.bench.report_runs import cell, results, rows_of, tables_of, texts
from tests.known import known

SIGNATURE = "k:4|preset:default|words:off"
HOSTILE = "<script>alert(1)</script> | $x$ \x1b[31m"


def scored(n: int = 200, seed: int = 0, noise: bool = False, **changes: Any) -> Cell:
    """A cell whose STC is a probability of being right, with texts, log scores and, if wanted, a method of noise."""
    rng = np.random.default_rng(seed)
    log_confidence = -rng.exponential(0.7, n)
    correct = (rng.random(n) < np.exp(log_confidence)).astype(float)
    content: dict[str, Any] = {
        "n": n,
        "methods": (),
        "uncertainty": {"stc": -np.expm1(log_confidence)} | ({"perplexity": rng.normal(size=n)} if noise else {}),
        "judgments": {"exact": correct},
        "log_confidence": log_confidence,
        "signature": SIGNATURE,
        "texts": tuple((f"question {i}?", f"answer {i}") for i in range(n)),
    }
    return cell(**(content | changes))


def probabilities(one: Cell, n_resamples: int = 50) -> Probabilities:
    return probabilities_of([one], "exact", n_resamples)


def of(found: Probabilities, name: str = "stc") -> Any:
    """The row of a method of the only cell."""
    return found.methods.set_index("method").loc[name]


def given(one: Cell, name: str = "stc") -> np.ndarray:
    """The probabilities of being right that a method gives to the answers of a cell."""
    return probabilities(one).given[one.model, one.dataset, name]


@cache
def fitted() -> Cell:
    """The answers that calibrators are fitted on."""
    return scored(500)


@cache
def calibrator(**origin: Any) -> Calibrator:
    one = fitted()
    assert one.log_confidence is not None
    fingerprint = Fingerprint(**({"signature": SIGNATURE, "distribution": "raw", "scores": "exact"} | origin))
    made = Calibrator.fit(one.log_confidence, one.judgments["exact"], fingerprint=fingerprint)
    threshold = Threshold.fit(one.log_confidence, one.judgments["exact"], alpha=0.2, fingerprint=fingerprint)
    return replace(made, threshold=threshold)


def lines(made: BenchReport, section: str) -> tuple[str, ...]:
    return next(one.lines for one in made.sections if one.name == section)


def reported(*cells: Cell, **options: Any) -> BenchReport:
    return build_report(results(*cells), n_resamples=20, **options)


# --- figures ---------------------------------------------------------------------------------------------------------


def test_risk_at_a_coverage_counts_the_surest_and_their_ties() -> None:
    uncertainty = np.array([0.1, 0.2, 0.2, 0.2, 0.5, 0.6, np.nan, 0.9, 0.9, np.inf])
    correct = np.array([1.0, 0, 1, 1, 1, 0, 0, 1, np.nan, 0])
    found = probabilities(cell(n=10, methods=(), uncertainty={"stc": uncertainty}, judgments={"exact": correct}))
    stc = of(found)
    assert (stc.answers, stc.correct) == (9, 5)
    assert stc.risk_at_20 == pytest.approx(1 / 4)  # three tied answers enter together
    assert stc.risk_at_50 == pytest.approx(1 / 5)
    shown = risk_table(found)
    assert shown.header[-3:] == ("at 20% coverage", "at 50% coverage", "at 80% coverage")
    assert [entry.text for entry in shown.groups[0][1][0]][-3:-1] == ["25.0%", "20.0%"]
    assert stc.risk_at_80 == pytest.approx(4 / 9)  # seven of nine are fewer, and the undefined two share a place
    curve = found.curves["Qwen2.5-7B", "NQ", "stc"]
    assert (curve.risk[0], curve.risk[-1]) == (0, pytest.approx(4 / 9))
    assert np.isnan(stc.log_loss) and not found.given and found.groups.empty
    assert too_few(9, 5).startswith("9 judged answers are too few")


def test_ranks_are_shares_of_answers_that_are_less_sure() -> None:
    values = np.array([3.0, 1.0, np.nan, 1.0, np.inf, 2.0])
    brute = []
    worst = np.where(np.isfinite(values), values, 99)
    for value in worst:
        brute.append(((worst > value).sum() + 0.5 * (worst == value).sum()) / values.size)
    assert ranks(values).tolist() == pytest.approx(brute)
    assert ((ranks(values) > 0) & (ranks(values) < 1)).all()


def test_no_answer_gets_its_chance_from_its_own_label() -> None:
    one = scored(60)
    before = given(one)
    for i in (0, 17, 59):
        labels = one.judgments["exact"].copy()
        labels[i] = 1 - labels[i]
        after = given(replace(one, judgments={"exact": labels}))
        assert after[i] == before[i]
        assert (after != before).any()


def test_chances_read_the_order_only() -> None:
    one = scored(80)
    own = one.uncertainty["stc"]
    other = replace(one, uncertainty={"stc": np.log(own) - 7.0, "perplexity": own**3})
    first, second = probabilities(one), probabilities(other)
    for name in ("stc", "perplexity"):
        np.testing.assert_allclose(given(other, name), given(one))
        assert of(second, name).log_loss == of(first).log_loss
        assert of(second, name).aurc == pytest.approx(of(first).aurc)


def test_an_order_that_knows_something_beats_the_base_rate_and_noise_does_not() -> None:
    found = probabilities(scored(400, seed=3, noise=True), 200)
    knows, noise = of(found), of(found, "perplexity")
    assert knows.log_loss_gain_high < 0 < noise.log_loss_gain_high
    assert (knows.verdict, noise.verdict) == ("", "higher")


def test_the_table_of_probabilities_has_each_loss_before_its_interval() -> None:
    found = probabilities(scored(200), 200)
    table = probability_table(found)
    assert table is not None
    [row] = table.frame.to_numpy().tolist()
    for shown, loss in zip(row[1:5], LOSSES, strict=True):
        numbers = [float(number) for number in re.findall(r"[+-]?\d+\.\d+", shown)]
        assert numbers == pytest.approx([of(found)[f"{loss}{end}"] for end in ("", "_low", "_high")], abs=6e-4)


def test_a_probability_that_is_off_is_reported_as_such() -> None:
    one = scored(1000, seed=1, noise=True)
    right = probabilities(one)
    shifted = replace(one, uncertainty={"stc": np.clip(one.uncertainty["stc"] - 0.3, 0, 1)})
    wrong = of(probabilities(shifted))
    assert of(right).ece_as_it_stands < 0.06 < 0.1 < wrong.ece_as_it_stands
    assert np.isnan(of(right, "perplexity").ece_as_it_stands)


def test_one_kind_of_answers_gives_no_probabilities() -> None:
    made = reported(scored(40, judgments={"exact": np.ones(40)}))
    (said,) = lines(made, "probabilities")
    assert said.endswith("no probabilities, 0 wrong answers are too few, 5 are needed.")


# --- the report ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_method_has_its_curve_and_its_reliability() -> None:
    made = reported(cell(n=80), cell("B", n=80, seed=1))
    tables = tables_of(made)
    names = [name for name in made.measured.cells[0].seconds if name not in ABLATIONS]
    for name in ("risk_coverage", "probabilities"):
        for rows in texts(tables[name]).values():
            assert set(rows) == {METHODS[own].title for own in names}, name
    drawn = {plot.name for plot in made.plots}
    assert {"risk_coverage_1_NQ", "reliability_1_Qwen2.5-7B-NQ", "reliability_2_B-NQ"} <= drawn
    for file in ("probabilities", "reliability", "risk_coverage"):
        assert {row.split(",")[2] for row in made.csv[file].splitlines()[1:]} == set(names)


def test_a_panel_shows_each_group_with_its_interval_beside_the_diagonal() -> None:
    groups = probabilities(scored()).groups
    (axis,) = reliability_panels(groups, "stc").axes
    assert axis.lines[0].get_xydata().tolist() == [[0, 0], [1, 1]]  # where a probability is what it says
    (bars,) = axis.containers
    points, _, (intervals,) = bars.lines
    assert points.get_xydata().tolist() == groups[["probability_correct", "right"]].to_numpy().tolist()
    ends = np.array([segment[:, 1] for segment in intervals.get_segments()])
    assert ends == pytest.approx(groups[["low", "high"]].to_numpy())


def test_the_answers_furthest_off_are_shown() -> None:
    one = scored(50)
    made = reported(one)
    stc, correct = one.uncertainty["stc"], one.judgments["exact"]
    for name, label, sign in (("surest_wrong", 0, 1), ("doubtful_right", 1, -1)):
        table = tables_of(made)[name]
        wanted = sorted((i for i in range(50) if correct[i] == label), key=lambda i: sign * stc[i])[:5]
        assert list(table.frame["Question"]) == [f"question {i}?" for i in wanted]
        assert list(table.frame["Answer"]) == [f"answer {i}" for i in wanted]
    assert made.csv["extreme_answers"].count("surest_wrong") == 5


def test_files_of_risks_and_probabilities_are_those_by_hand() -> None:
    one = scored(50, noise=True)
    made = reported(one)
    correct = one.judgments["exact"]
    found = {row["method"]: row for row in rows_of(made, "probabilities")}
    for name, uncertainty in one.uncertainty.items():
        row = {
            key: float(value or "nan")
            for key, value in found[name].items()
            if key not in ("model", "dataset", "method")
        }
        drawn = st.metrics.bootstrap("aurc", uncertainty, correct, n_resamples=20)
        assert (row["aurc"], row["aurc_low"], row["aurc_high"]) == pytest.approx((drawn.value, drawn.low, drawn.high))
        surest = correct[np.argsort(uncertainty)]
        for share in (20, 50, 80):
            assert row[f"risk_at_{share}"] == pytest.approx(1 - surest[: share * 50 // 100].mean())
        chances = given(one, name)
        assert row["log_loss"] == pytest.approx(-np.log(np.where(correct == 1, chances, 1 - chances)).mean())
        assert row["brier"] == pytest.approx(np.mean((chances - correct) ** 2))
        assert row["log_loss_gain_low"] <= row["log_loss_gain"] <= row["log_loss_gain_high"]
        own = [row for row in rows_of(made, "reliability") if row["method"] == name]
        assert sum(int(row["n"]) * float(row["right"]) for row in own) == pytest.approx(correct.sum())
        curve = [row for row in rows_of(made, "risk_coverage") if row["method"] == name]
        for i, point in enumerate(curve):
            assert float(point["coverage"]) == pytest.approx((i + 1) / 50)
            assert float(point["risk"]) == pytest.approx(1 - surest[: i + 1].mean())
            assert float(point["uncertainty"]) == pytest.approx(np.sort(uncertainty)[i])


def test_texts_of_others_are_shown_as_they_are_and_only_if_wanted() -> None:
    one = scored(40, texts=((HOSTILE + "q" * 500, HOSTILE),) * 40)
    made = reported(one)
    undrawn = replace(made, sections=tuple(replace(section, plots=()) for section in made.sections))
    for text in (html_page(undrawn), markdown_text(made)):
        assert "<script" not in text.split("</style>")[-1] and "&lt;script" in text and "\x1b" not in text
        assert "q" * 200 not in text
    without = reported(one, texts=False)
    shown = markdown_text(without) + "".join(map(as_html, without.tables)) + "".join(without.csv.values())
    assert "alert" not in shown


# --- a calibrator ----------------------------------------------------------------------------------------------------


def test_a_calibrator_is_held_against_the_answers() -> None:
    applied, fresh = calibrator(), scored(300, seed=5)
    threshold, log_confidence = known(applied.threshold), known(fresh.log_confidence)
    made = reported(fresh, calibrator=applied)
    accepted = log_confidence >= known(threshold.min_log_score)
    wrong = int((1 - fresh.judgments["exact"])[accepted].sum())
    first, second = lines(made, "calibrator")[:2]
    assert first == threshold.statement
    assert (
        f"It accepts {accepted.sum()} of 300 answers. Wrong among the accepted {wrong} of {accepted.sum()} (" in second
    )
    assert not any("Beware" in line for line in lines(made, "calibrator"))
    table = tables_of(made)["surest_wrong"]
    assert table.header[-1] == "Decision" and set(table.frame["Decision"]) <= {"answer", "abstain"}
    best = int(np.argmax(np.where(fresh.judgments["exact"] == 0, log_confidence, -99)))
    assert table.frame["Probability"].iloc[0] == f"{100 * applied.predict_proba(float(log_confidence[best])):.0f}%"


def test_answers_of_the_fit_prove_nothing() -> None:
    [found], _ = check_cells(results(fitted()), "exact", calibrator())
    assert any("500 of the 500 answers that it was fitted on are among these" in line for line in found.lines)


@pytest.mark.parametrize(
    "origin", [{"signature": "k:9|preset:default|words:off"}, {"distribution": "processed"}, {"scores": "top-k"}]
)
def test_a_calibrator_that_does_not_belong_is_refused(origin: dict[str, str]) -> None:
    applied = calibrator(**origin)
    with pytest.raises(CalibratorMismatchError, match=next(iter(origin.values())).split("|")[0]):
        reported(scored(100, seed=2), calibrator=applied)


def test_a_calibrator_of_one_of_two_models_is_shown_there() -> None:
    other = scored(30, seed=2, model="B", signature="k:9|preset:default|words:off")
    made = reported(scored(30, seed=1), other, calibrator=calibrator())
    said = lines(made, "calibrator")
    assert any(line.startswith("Qwen2.5-7B on NQ: Probabilities") for line in said)
    assert any(line.startswith("B on NQ: not shown") and "k:9" in line for line in said)


def test_a_run_without_log_scores_is_told_so() -> None:
    with pytest.raises(InvalidInputError, match="no log scores"):
        reported(scored(100, log_confidence=None), calibrator=calibrator())


def test_the_kept_table_carries_what_a_calibrator_needs(tmp_path: Path) -> None:
    one = scored(100)
    one.log_confidence[3] = -np.inf  # type: ignore[index]
    first = reported(one)
    path = tmp_path / "answers.parquet"
    path.write_bytes(first.answers)
    (back,) = collect(path).cells
    np.testing.assert_array_equal(back.log_confidence, one.log_confidence)
    assert back.signature == SIGNATURE and back.texts == one.texts

    table = pyarrow.parquet.read_table(io.BytesIO(first.answers))
    facts = json.loads((table.schema.metadata or {})[METADATA_KEY]) | {"version": 1}
    pyarrow.parquet.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(facts).encode()}), path)
    with pytest.raises(InvalidInputError, match="version 1 of its format"):
        collect(path)
