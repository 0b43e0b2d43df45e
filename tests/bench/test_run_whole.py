"""Whole runs of small models: the numbers are those of the library, and only what is missing is made."""

from __future__ import annotations

import json
import re
import shutil
import sys
import unicodedata
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

import semtoken
from semtoken.bench.read_results import collect
from semtoken.bench.report.measure import PERCENT, measure
from semtoken.bench.statistics import AnswerSettings, record
from semtoken.bench.statistics.steps import steps_for
from semtoken.core.results.generation import Generation
from semtoken.errors import InvalidInputError
from semtoken.methods import METHODS, score
from semtoken.methods.table import withdraw
from semtoken.models.transformers import TransformersBackend
from semtoken.support.files.temporary import WORKING
from tests.bench.report_runs import figure
from tests.bench.runs import TINY_QUESTIONS, same, shards, start
from tests.bench.unreliable import Unreliable, running

FURTHER = ("entropy", "attention", "words")
OF_A_RUN = {name: one for name, one in METHODS.items() if one.family not in FURTHER or name == "confidence"}
"""The methods of a run that names none."""


@pytest.fixture
def copy(made: tuple[dict[str, Any], Path], tmp_path: Path) -> tuple[dict[str, Any], Path]:
    """The same, to be changed."""
    shutil.copytree(made[1], tmp_path / "run")
    return deepcopy(made[0]), tmp_path / "run"


def prompts() -> list[str]:
    """In the normal form that the paper's prompts have."""
    return [unicodedata.normalize("NFKD", f"Q: {question}\nA:") for question, _ in TINY_QUESTIONS]


@pytest.fixture(scope="module")
def generations(made: tuple[dict[str, Any], Path]) -> list[Generation]:
    """The records of `semtoken.bench.statistics.record` of the same answers, in one go and in memory."""
    settings, run = made
    clusters = next((run / "clusterings").iterdir())
    vocabulary_only = semtoken.TokenClusters.from_pretrained(clusters)
    model = settings["models"][0]["name"]
    main = semtoken.TokenClusters.from_model(model, vocabulary_only.vocabulary, n_clusters=60)
    stc = semtoken.ScoredModel.from_pretrained(model, clusters=main, preset="paper", device="cpu")
    questions = [question for question, _ in TINY_QUESTIONS]
    return record(
        stc,
        questions,
        prompts=prompts(),
        decoding=AnswerSettings(max_new_tokens=6, n_samples=3, batch_size=2),
        nli="almanac",
        similarity="almanac",
    )


def test_every_uncertainty_is_that_of_the_library(made: Any, generations: list[Generation]) -> None:
    (cell,) = collect(made[1]).cells
    assert (cell.model, cell.dataset, cell.question_ids[0]) == ("tiny", "questions", "q0")
    assert set(cell.uncertainty) == set(OF_A_RUN)
    for name, found in cell.uncertainty.items():
        expected = [score(name, generation) for generation in generations]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=name)
        assert len(set(np.round(found, 9))) > 1 or name in ("ecc", "eigv", "deg", "conu"), name


def test_variants_are_scores_with_other_clusters(made: Any, generations: list[Generation]) -> None:
    settings, run = made
    found = collect(run)
    (cell,) = found.cells
    assert set(cell.variants) == {"n_clusters=20", "n_clusters=60", "linkage=average"}
    np.testing.assert_array_equal(cell.variants["n_clusters=60"], cell.uncertainty["stc"])
    by_name = {record.variant: record for record in found.clusterings}
    assert by_name["linkage=average"].settings["linkage"] == "average" and by_name["main"].seconds is not None
    assert by_name["n_clusters=20"].settings["n_clusters"] == 20 and by_name["main"].n_tokens > 300
    model = settings["models"][0]["name"]
    clusters = semtoken.TokenClusters.from_model(model, n_clusters=20)
    stc = semtoken.ScoredModel.from_pretrained(model, clusters=clusters, preset="paper", device="cpu")
    scored = stc.score(prompts(), [list(generation.token_ids) for generation in generations])
    expected = [one.sequence_uncertainty for one in scored]
    np.testing.assert_allclose(cell.variants["n_clusters=20"], expected, atol=1e-5)


def test_judgments_are_there_for_every_judge(made: Any) -> None:
    found = collect(made[1])
    (cell,) = found.cells
    assert found.primary_judge == "exact" and set(cell.judgments) == {"exact", "contains"}
    assert all(len(values) == len(TINY_QUESTIONS) for values in cell.judgments.values())


def test_a_method_is_charged_for_all_shards_of_what_it_needs(made: Any) -> None:
    (cell,) = collect(made[1]).cells
    assert cell.greedy_seconds == cell.steps["greedy"] > 0
    for name, method in OF_A_RUN.items():
        recording = sum(cell.steps[step] for step in steps_for(method.needs))
        assert recording < cell.seconds[name] < recording + 1.0, name
    assert set(cell.steps) == {"greedy"}.union(*(steps_for(method.needs) for method in OF_A_RUN.values()))


def test_the_manifest_says_where_it_comes_from(made: Any) -> None:
    manifest = collect(made[1]).manifest
    assert manifest["status"] == "complete" and manifest["finished"] >= manifest["started"]
    assert {"python", "torch", "transformers", "semtoken", "numpy"} <= set(manifest["versions"])
    assert manifest["hardware"]["cores"] >= 1 and manifest["hardware"]["memory"] > 2**28
    assert manifest["seeds"] == {"questions": 0, "samples": 0}
    assert manifest["sessions"][0]["command"][0] == Path(sys.argv[0]).name


def test_nothing_big_is_stored(made: Any) -> None:
    run = made[1]
    files = [path for path in run.rglob("*.parquet") if "samples-" in str(path)]
    assert files and all("hidden" not in name for path in files for name in shards_columns(path))
    assert all(path.stat().st_size < 30_000 for path in run.rglob("*.parquet"))


def shards_columns(path: Path) -> list[str]:
    return list(pyarrow.parquet.read_schema(path).names)


# ---- what is made again -----------------------------------------------------------------------------------------


def times(run: Path) -> dict[str, int]:
    return {str(path.relative_to(run)): path.stat().st_mtime_ns for path in (run / "stages").rglob("*.parquet")}


def test_only_what_depends_on_changes_is_made(copy: Any) -> None:
    """The settings on which each step depends are in test_run_plan.py."""
    settings, run = copy
    before = times(run)
    settings["models"][0] |= {"label": "x", "batch_size": 5}  # these change nothing
    settings["models"][0]["clusters"] = {"n_clusters": 40}
    settings["judges"].append({"kind": "rouge", "threshold": 0.9, "name": "strict"})
    settings["sensitivity"]["n_clusters"].append(30)
    settings["p_true_spelling"] = "both"
    assert start(settings, run) == []
    after = times(run)
    assert {name: time for name, time in after.items() if name in before} == before
    kinds = {re.sub(r"-[0-9a-f]{16}$", "", Path(name).parent.name) for name in after if name not in before}
    own = {"stc", "stc_no_prefix", "p_true"}
    assert kinds == own | {f"score-{name}" for name in own} | {"judge"}
    (cell,) = collect(run).cells
    assert cell.uncertainty.keys() == OF_A_RUN.keys() and cell.model == "x"
    assert "n_clusters=30" in cell.variants and "strict" in cell.judgments
    assert len(collect(run).manifest["sessions"]) == 2
    assert start(settings, run) == []
    assert times(run) == after


@pytest.mark.slow
def test_a_method_added_later_needs_only_its_own_steps(made: Any, tmp_path: Path) -> None:
    settings, whole = deepcopy(made[0]), made[1]
    settings["sensitivity"] = {}
    start({**settings, "methods": ["ln_entropy"]}, tmp_path / "run")
    few = times(tmp_path / "run")
    start({**settings, "methods": ["ln_entropy", "conu"]}, tmp_path / "run")
    added = {name.split("/")[1].rpartition("-")[0] for name in set(times(tmp_path / "run")) - set(few)}
    assert added == {"similarity", "score-conu"}
    expected = collect(whole).cells[0].uncertainty["conu"]
    np.testing.assert_array_equal(collect(tmp_path / "run").cells[0].uncertainty["conu"], expected)


def test_damaged_files_are_made_again_and_those_that_are_whole_are_left(copy: Any) -> None:
    settings, run = copy
    expected, before = shards(run), times(run)
    files = sorted((run / "stages").rglob("*.parquet"))
    victims = [files[len(files) // 3], files[len(files) // 2], files[-1]]
    victims[0].write_bytes(victims[0].read_bytes()[:-9])
    victims[1].write_bytes(b"PAR1 garbage")
    victims[2].unlink()
    (files[0].parent / f"{WORKING}zz-00000.parquet").write_bytes(b"half")
    assert start(settings, run) == []
    after = times(run)
    assert {name for name in after if after[name] != before[name]} == {str(path.relative_to(run)) for path in victims}
    assert same(shards(run), expected)


# ---- failures ---------------------------------------------------------------------------------------------------


@pytest.fixture
def broken(made: Any, tmp_path: Path) -> Path:
    """The model of that run without its weights."""
    folder = Path(shutil.copytree(made[0]["models"][0]["name"], tmp_path / "broken"))
    (folder / "model.safetensors").write_bytes(b"no weights")
    return folder


def test_what_fails_is_reported_and_the_others_go_on(made: Any, broken: Path, tmp_path: Path) -> None:
    settings = deepcopy(made[0])
    settings["models"].insert(0, {"name": str(broken), "clusters": settings["models"][0]["clusters"]})
    settings["models"].append(str(tmp_path / "gone"))
    settings |= {"similarity": str(tmp_path / "no-encoder"), "methods": ["stc", "perplexity", "sar", "conu"]}
    settings["sensitivity"] = {}
    failures = start(settings, tmp_path / "run")
    assert {failure.where.partition(" on ")[0] for failure in failures} == {"broken", "tiny", "gone"}
    assert any("no-encoder" in failure.reason for failure in failures if failure.where.startswith("tiny"))
    (cell,) = collect(tmp_path / "run").cells
    assert cell.model == "tiny"
    assert set(cell.uncertainty) == {"stc", "perplexity"}
    log = (tmp_path / "run" / "run.log").read_text()
    assert "ERROR" in log and "no-encoder" in log
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "incomplete"


def test_what_depends_on_a_failure_is_left_out_and_not_reported_again(made: Any, broken: Path, tmp_path: Path) -> None:
    settings = deepcopy(made[0])
    clusters = next((made[1] / "clusterings").iterdir())  # given, so that the weights are read for the answers alone
    settings |= {"models": [{"name": str(broken), "clusters": str(clusters)}], "sensitivity": {}}
    failures = start(settings, tmp_path / "run")
    assert [failure.what for failure in failures] == ["greedy", "samples"]  # what else there is reads one of these
    (reason,) = {failure.reason for failure in failures}
    assert reason.startswith(f"The model {str(broken)!r} cannot be loaded")


def test_what_a_language_model_took_as_the_judge_is_kept(copy: Any, tmp_path: Path) -> None:
    settings, run = copy
    answers = sorted(path for path in run.rglob("*.parquet") if "greedy-" in str(path))
    replies = {tuple(row) for path in answers for row in zip(*shard_texts(path), strict=True)}
    with running(Unreliable()) as server:
        options = {"base_url": server.url, "model": "judge-1", "cache": str(tmp_path / "replies")}
        settings["judges"].append({"kind": "llm", **options})
        assert start(settings, run) == []
    judged = sorted(path for path in run.rglob("*.parquet") if "judge-" in str(path) and usage(path))
    assert len(judged) == 2 and sum(usage(path)["replies"] for path in judged) == len(replies) == len(TINY_QUESTIONS)
    for path in judged:
        one = usage(path)
        assert (one["prompt_tokens"], one["cached_prompt_tokens"], one["completion_tokens"]) == tuple(
            count * one["replies"] for count in (100, 60, 2)
        )
    told = "judge llm read 700 prompt tokens and wrote 14 in 7 replies, by the endpoint's count."
    assert any(told in note for note in collect(run).notes)
    assert not any("judge exact read" in note for note in collect(run).notes)


def shard_texts(path: Path) -> tuple[list[str], list[str]]:
    columns = pyarrow.parquet.read_table(path).to_pydict()
    return columns["id"], columns["text"]


def usage(path: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads(pyarrow.parquet.read_schema(path).metadata[b"semtoken"]).get("usage", {})
    return found


def test_a_method_of_ones_own_that_raises_fails_alone(made: Any, tmp_path: Path) -> None:
    tried = 3  # tokens of the record that it is tried on
    code = f"def odd(log_probs):\n    return 0.0 if len(log_probs) == {tried} else {{}}['no']\n"
    (tmp_path / "mine.py").write_text(code)
    own = f"{tmp_path / 'mine.py'}:odd"
    settings = {**deepcopy(made[0]), "methods": [own, "perplexity"], "sensitivity": {}}
    try:
        (failure,) = start(settings, tmp_path / "run")
        (cell,) = collect(tmp_path / "run").cells
    finally:
        withdraw("odd")  # other tests list the methods
    assert (failure.what, failure.reason) == ("score:odd", "KeyError: 'no'")
    assert set(cell.uncertainty) == {"perplexity"}
    assert "Traceback" in (tmp_path / "run" / "run.log").read_text()


def test_a_method_without_its_statistic_fails_alone(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        TransformersBackend, "gives", frozenset({"log_probability", "best", "row", "logits"})
    )  # as of an unknown architecture
    settings = {**deepcopy(made[0]), "methods": ["perplexity", "ln_entropy", "eigenscore"], "sensitivity": {}}
    for _ in range(2):  # a second attempt tells it again
        (failure,) = start(settings, tmp_path / "run")
        assert failure.what == "score:eigenscore" and "eigenscore needs hidden_states" in failure.reason
    assert not list((tmp_path / "run").glob("clusterings/*"))  # none of these reads clusters
    found = collect(tmp_path / "run")
    assert set(found.cells[0].uncertainty) == {"perplexity", "ln_entropy"}
    assert any("score:eigenscore is there for 0 of 7 questions" in note for note in found.notes)


def test_a_folder_of_other_files_is_left_alone(made: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InvalidInputError, match=r"holds something else than a run \(thesis.tex\)"):
        start(deepcopy(made[0]), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_sets_with_one_label_are_refused(made: Any, tmp_path: Path) -> None:
    settings = deepcopy(made[0])
    settings["datasets"].append(settings["datasets"][0])
    with pytest.raises(InvalidInputError, match="Two data sets have the label 'questions'"):
        start(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_shared_prefix_changes_no_answer_and_reports_no_overhead(tmp_path: Path) -> None:
    examples = "".join(f"Q: What is the capital of {name}?\nA: {city}\n" for name, city in EXAMPLES)
    settings: dict[str, Any] = {
        "models": [{"name": "almanac", "batch_size": 4, "device": "cpu"}],
        "datasets": [{"name": "almanac", "prompt": examples + "Q: {question}\nA:"}],
        "methods": ["perplexity"],
        "limit": 2,
    }
    assert start(settings, tmp_path / "alone") == []
    assert start(settings | {"decoding": {"share_prefix": True}}, tmp_path / "shared") == []
    (alone,) = (found for found in shards(tmp_path / "alone").values() if "top_log_probs" in found)
    (shared,) = (found for found in shards(tmp_path / "shared").values() if "top_log_probs" in found)
    assert len(alone["token_ids"]) == 2 and alone["token_ids"] == shared["token_ids"]
    for values, others in zip(alone["log_probs"], shared["log_probs"], strict=True):
        np.testing.assert_allclose(others, values, atol=1e-4)
    (before,), (after,) = collect(tmp_path / "alone").cells, collect(tmp_path / "shared").cells
    assert "shared_prefix" not in before.steps and after.steps["shared_prefix"] > 0
    assert any("read once" in note for note in collect(tmp_path / "shared").notes)
    percents = [
        figure(measure(collect(tmp_path / name), "exact", n_resamples=10), "perplexity", PERCENT).value
        for name in ("alone", "shared")
    ]
    assert percents[0] > 0 and np.isnan(percents[1])


EXAMPLES = (("France", "Paris"), ("Italy", "Rome"), ("Spain", "Madrid"), ("Japan", "Tokyo"))
