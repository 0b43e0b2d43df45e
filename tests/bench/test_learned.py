"""The method `learned` of a run: cross-fitted on the run's own labels, or a note that says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semtoken.bench.further_scores import with_learned
from semtoken.bench.report.content import build_report
from semtoken.bench.results import answers_table, read_answers
from semtoken.calibration.learned_number import Readings
from semtoken.calibration.learning import cross_fitted
from semtoken.errors import InvalidInput
from semtoken.metrics import auroc
from tests.bench.report_runs import cell, results

pytest.importorskip("sklearn")


def test_two_numbers_that_know_more_together_become_one() -> None:
    generator = np.random.default_rng(0)
    product, peak = generator.gamma(1.0, 1.0, 400), generator.gamma(2.0, 1.0, 400)
    correct = (generator.random(400) < 1 / (1 + np.exp(2 * (product - peak)))).astype(float)
    correct[:3] = np.nan
    scores = {"sequence_probability": -np.expm1(-product), "max_token_entropy": peak}
    made = cell(
        question_ids=tuple(map(str, range(400))), uncertainty=scores, judgements={"exact": correct}, variants={}
    )
    with_column = with_learned(results(made))
    [found] = with_column.cells
    judged = ~np.isnan(correct)
    assert np.isnan(found.uncertainty["learned"][:3]).all()
    assert auroc(found.uncertainty["learned"][judged], correct[judged]) > auroc(product[judged], correct[judged]) + 0.05
    assert "uses the learned number" in with_column.notes[-1]
    with pytest.raises(InvalidInput, match="leave --learn out"):
        with_learned(with_column)


def test_too_few_labels_give_a_note_and_no_column() -> None:
    found = with_learned(results(cell(n=120, methods=["perplexity"])))
    assert "learned" not in found.cells[0].uncertainty
    assert "learning takes at least 150 labels" in found.notes[-1]


def test_a_report_has_it_beside_the_other_methods() -> None:
    made = with_learned(results(cell(n=200, methods=["stc", "sequence_probability", "perplexity"])))
    report = build_report(made, n_resamples=20)
    assert "learned" in report._repr_html_() and any("learned" in text for text in report.csv.values())


def test_states_that_a_run_kept_are_read_and_equal_what_the_library_learns() -> None:
    generator = np.random.default_rng(1)
    states = generator.normal(size=(400, 12))
    headline = generator.gamma(1.0, 1.0, 400)
    correct = (generator.random(400) < 1 / (1 + np.exp(headline - 2 * states[:, 3]))).astype(float)
    states[7] = np.nan  # an answer without tokens
    made = cell(
        question_ids=tuple(map(str, range(400))),
        uncertainty={"headline": headline, "perplexity": headline},
        judgements={"exact": correct},
        variants={},
        states=states,
    )
    with_column = with_learned(results(made))
    risk = with_column.cells[0].uncertainty["learned"]
    kept = np.arange(400) != 7
    assert np.isnan(risk[7])
    assert (risk[kept] == cross_fitted(Readings(headline[kept, None], states[kept]), correct[kept]).risk).all()
    assert auroc(risk[kept], correct[kept]) > auroc(headline[kept], correct[kept]) + 0.1
    assert "the headline and 12 dimensions of hidden state" in with_column.notes[-1]


def test_why_no_states_are_read_is_said(tmp_path: Path) -> None:
    """Of a run that kept none, of one whose states are not complete, and of the table of answers, which has none."""
    made = cell(n=200, methods=["sequence_probability", "perplexity"])

    def note(**of_run: Any) -> str:
        return with_learned(results(made, **of_run)).notes[-1]

    assert "bench run --states" in note()
    kept = {"states": True}
    assert "not complete" in note(settings=kept, path=tmp_path)
    table = tmp_path / "answers.parquet"
    table.write_bytes(answers_table(results(made, settings=kept), texts=False))
    assert "name the run itself" in with_learned(read_answers(table)).notes[-1]
