"""Controls: their clusters, their place in a run, and what a report says of them."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken import metrics
from semtoken.bench.controls import (
    CONTROLS,
    artifact_names,
    control_clusters,
    control_of,
    frequency_bins,
    row_means_log_score,
)
from semtoken.bench.read_results import collect
from semtoken.bench.report.comparison import comparison, controls, parts_in_words
from semtoken.bench.report.measure import Measured
from semtoken.bench.report.overview import main_result
from semtoken.bench.results import answers_table, read_answers
from semtoken.bench.settings import check_settings
from semtoken.errors import InvalidInputError
from semtoken.support.almanac import almanac_clusters_path
from tests import tiny
from tests.bench.report_runs import cell, figure, measured, paired, texts
from tests.bench.runs import start, tiny_settings


@pytest.fixture(scope="module")
def clusters() -> st.TokenClusters:
    return st.TokenClusters.from_pretrained(almanac_clusters_path())


def sizes(one: st.TokenClusters) -> list[int]:
    return sorted(np.bincount(one.labels)[np.bincount(one.labels) > 0].tolist())


@pytest.mark.parametrize("name", ["shuffled", "shuffled_by_frequency", "shuffled_largest_kept"])
def test_shuffled_clusters_keep_their_sizes_and_little_else(name: str, clusters: st.TokenClusters) -> None:
    first, second = (control_clusters(clusters, f"control:{name}.{number}") for number in (0, 1))
    again = control_clusters(clusters, f"control:{name}.0")
    assert sizes(first) == sizes(second) == sizes(clusters)
    assert np.array_equal(first.labels, again.labels)
    assert (first.labels != second.labels).mean() > 0.5
    assert (control_clusters(clusters, f"control:{name}.0", seed=1).labels != first.labels).mean() > 0.5
    largest = clusters.labels == np.bincount(clusters.labels).argmax()
    kept = name == "shuffled_largest_kept"
    assert bool((first.labels[largest] == clusters.labels[largest]).all()) == kept


def test_a_shuffle_within_bins_keeps_the_labels_of_every_bin(clusters: st.TokenClusters) -> None:
    counts = np.random.default_rng(0).integers(0, 1000, clusters.vocabulary.size)
    for given in (None, counts):
        shuffled = control_clusters(clusters, "control:shuffled_by_frequency.0", n_bins=7, token_counts=given)
        bins = frequency_bins(clusters.vocabulary.size, 7, given)
        assert np.bincount(bins).max() - np.bincount(bins).min() <= 1
        for one in range(7):
            assert sorted(shuffled.labels[bins == one]) == sorted(clusters.labels[bins == one])
    assert counts[bins == 0].min() >= counts[bins == 6].max()
    with pytest.raises(InvalidInputError, match=r"counts of shape \(3,\)"):
        frequency_bins(10, 2, [1, 2, 3])


def test_clusters_of_the_spelling_are_those_of_equal_folded_texts(clusters: st.TokenClusters) -> None:
    vocabulary = clusters.vocabulary
    folded = control_clusters(clusters, "control:folded").labels
    texts_ = np.array([text.strip().lower() for text in vocabulary.texts], dtype=object)
    for i in np.random.default_rng(1).integers(0, vocabulary.size, 300):
        text = texts_[i]
        same = np.flatnonzero(texts_ == text).tolist()
        expected = same if text and "\ufffd" not in text else [i]
        assert np.flatnonzero(folded == folded[i]).tolist() == expected


def test_parts_are_those_of_scores_by_hand() -> None:
    """Rules and clusters of every control that has no shuffle, against masses summed over a row."""
    vocabulary = st.Vocabulary.from_tokenizer(tiny.byte_level_bpe())
    rng = np.random.default_rng(2)
    main = st.TokenClusters(rng.integers(0, 60, vocabulary.size).astype(np.int32), vocabulary)
    token = next(i for i, text in enumerate(vocabulary.texts) if text.strip().isalpha() and not vocabulary.neutral[i])
    row = rng.normal(size=vocabulary.size)
    p = np.exp(row) / np.exp(row).sum()
    text = vocabulary.normalized[token]
    cluster = main.labels == main.labels[token]
    prefix = np.array([bool(other) and text.startswith(other) for other in vocabulary.normalized])
    words = vocabulary.neutral.copy()
    alone = np.arange(vocabulary.size) == token
    folded = np.array([other == text for other in vocabulary.normalized])
    expected = {
        "no_clusters": alone | prefix | words,
        "no_prefixes": cluster | words,
        "no_function_words": cluster | prefix,
        "clusters_only": cluster,
        "prefixes_only": alone | prefix,
        "function_words_only": alone | words,
        "folded": folded | prefix | words,
    }
    for name, counted in expected.items():
        rules = st.ScoringRules("paper", **CONTROLS[name].rules)
        found = st.score_logits(row[None], [token], control_clusters(main, f"control:{name}"), rules)
        assert math.exp(found.log_confidence) == pytest.approx(p[counted].sum(), rel=1e-5), name
    drawn = [p[token] + p[rng.permutation(np.flatnonzero(~alone))[: cluster.sum() - 1]].sum() for _ in range(20_000)]
    mean = math.exp(row_means_log_score(main, [token], [math.log(p[token])]))
    assert mean == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / len(drawn) ** 0.5)


def test_an_empty_answer_is_uncertain_and_a_numeral_alone(clusters: st.TokenClusters) -> None:
    assert row_means_log_score(clusters, [], []) == -math.inf
    numeral = int(np.flatnonzero(clusters.vocabulary.numeral)[0])
    assert row_means_log_score(clusters, [numeral], [-2.0]) == pytest.approx(-2.0)


def test_a_run_has_every_control_from_one_pass(tmp_path: Path) -> None:
    parts = {"no_clusters": "stc_no_clustering", "no_prefixes": "stc_no_prefix"}
    methods = ["perplexity", *parts.values()]
    content = tiny_settings(tmp_path) | {"controls": {"repeats": 2}, "methods": methods, "sensitivity": {}}
    assert set(check_settings(content, "the test").methods) == {"stc", "sequence_probability", *methods}
    assert start(content, tmp_path / "run") == []
    results = collect(tmp_path / "run")
    (found,) = results.cells
    (tmp_path / "answers.parquet").write_bytes(answers_table(results))
    np.testing.assert_equal(read_answers(tmp_path / "answers.parquet").cells[0].controls, found.controls)
    assert {name: len(values) for name, values in found.controls.items()} == {
        name: 2 if control.random else 1 for name, control in CONTROLS.items()
    }
    assert [control_of(name)[0].name for name in artifact_names(1)] == list(CONTROLS)
    for control, method in parts.items():
        np.testing.assert_array_equal(found.controls[control], [found.uncertainty[method]])
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "stages").rglob("*.parquet")}
    assert start({**content, "controls": {"repeats": 2, "seed": 1}}, tmp_path / "run") == []
    made = {path for path in (tmp_path / "run" / "stages").rglob("*.parquet") if path not in before}
    shards = len({path.name for path in made})
    assert len(made) == 2 * shards * sum(control.random for control in CONTROLS.values())
    # A control that lacks one of its repetitions is left out: the mean of the others would not be its own.
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())["cells"][0]
    key = plan["steps"]["control:shuffled.1"]["key"]
    shutil.rmtree(tmp_path / "run" / "stages" / f"control-{key[:16]}")
    assert collect(tmp_path / "run").cells[0].controls.keys() == CONTROLS.keys() - {"shuffled"}


def test_counts_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    content = tiny_settings(tmp_path) | {"controls": {"token_counts": str(tmp_path / "none.npy")}}
    with pytest.raises(InvalidInputError, match=r"token counts cannot be read from .*none\.npy"):
        start(content, tmp_path / "run")


NAMES = ("stc", "sequence_probability", "perplexity")


def controlled(n: int = 400, **gains: float) -> Measured:
    """A cell whose controls are STC less well separated by some distance."""
    one = cell(methods=NAMES, n=n)
    correct, rng = one.judgments["exact"], np.random.default_rng(5)
    stc = one.uncertainty["stc"]
    values: dict[str, Any] = {
        name: np.stack([stc + gains.get(name, 0.0) * (correct + 0.2 * rng.normal(size=n)) for _ in range(count)])
        for name, count in (("no_clusters", 1), ("no_prefixes", 1), ("shuffled_by_frequency", 3))
    }
    return measured(cell(methods=NAMES, n=n, controls=values), n_resamples=500)


def test_the_report_says_which_part_earns_its_place() -> None:
    found = controlled(no_clusters=1.0, no_prefixes=-1.0)
    (line,) = parts_in_words(found)
    assert "Clusters earn their place (without them -0." in line
    assert "Prefixes do harm (without them +0." in line
    assert "cannot be told from shuffled ones" in line
    (rows,) = texts(controls(found)).values()
    assert list(rows)[:2] == ["STC", "Sequence probability"]
    assert rows["Shuffled within frequency bins"][1].startswith("0.000")
    (cell_,) = found.cells
    test = found.test(cell_, "STC without clusters", "Sequence probability")
    (control,) = found.of(cell_, setting="STC without clusters").value
    assert test.difference == pytest.approx(control - figure(found, "sequence_probability").value)


@pytest.mark.parametrize("repeats", [3, 4])
def test_of_several_repetitions_the_mean_is_reported_and_the_middle_one_tested(repeats: int) -> None:
    """Where two are in the middle, the lower one."""
    one = cell(methods=NAMES, n=400)
    correct, stc = one.judgments["exact"], one.uncertainty["stc"]
    drawn = list(stc + 0.15 * np.random.default_rng(5).normal(size=(repeats, 400)))
    found = measured(replace(one, controls={"shuffled_by_frequency": np.stack(drawn)}), n_resamples=500)
    drawn.sort(key=lambda values: metrics.auroc(values, correct))
    (value,) = found.of(found.cells[0], setting="Shuffled within frequency bins").value
    assert value == pytest.approx(np.mean([metrics.auroc(values, correct) for values in drawn]))
    p = [metrics.permutation_test("auroc", values, stc, correct, n_permutations=500, seed=0) for values in drawn]
    test = found.test(found.cells[0], "Shuffled within frequency bins", "STC")
    assert test.p == p[1] and p.count(p[1]) == 1


def test_with_few_right_answers_there_is_no_verdict_and_a_warning() -> None:
    correct = np.zeros(400)
    for right, verdict in ((25, True), (12, False)):
        correct[:right] = 1.0
        correct[right:] = 0.0
        stc = np.random.default_rng(0).normal(size=400) - 3 * correct
        one = cell(
            methods=(),
            n=400,
            judgments={"exact": correct},
            uncertainty={"stc": stc, "sequence_probability": np.random.default_rng(1).normal(size=400)},
            controls={"no_clusters": -stc[None]},
        )
        found = measured(one, n_resamples=300)
        test = paired(found, "sequence_probability")
        assert test.p_adjusted < 0.01 and test.high < 0
        assert test.verdict == ("lower" if verdict else "too few answers")
        said = " ".join(main_result(found))
        assert f"only {right} of 400 answers are right" in said
        assert ("no verdict" in said) is not verdict
        beside = controls(found)
        assert beside is not None
        notes = comparison(found, "AUROC").note + beside.note
        assert notes.count(f"Beware: fewer than 30 right or wrong answers in Qwen2.5-7B on NQ ({right})") == 2
        assert ("too few answers" in set(found.tests.verdict)) is not verdict


@pytest.mark.parametrize("right", [29, 30])
def test_a_warning_ends_where_thirty_answers_are_right(right: int) -> None:
    correct = (np.arange(120) < right).astype(float)
    found = measured(cell(methods=NAMES, judgments={"exact": correct}))
    assert ("Beware" in comparison(found, "AUROC").note) is (right == 29)
    assert any("Beware" in line for line in main_result(found)) is (right == 29)
