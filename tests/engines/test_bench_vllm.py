"""A run's answers from vLLM against those from transformers."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from semtoken import ScoredModel, TokenClusters
from semtoken.bench.models import require_raw
from semtoken.bench.statistics import AnswerSettings, Timings, record_greedy, record_samples
from semtoken.bench.statistics.decoding import clustered_scores
from semtoken.bench.storage import columns_of
from semtoken.core import scorer_for
from semtoken.core.results.generation import Generation
from semtoken.core.rules import ScoringRules
from semtoken.errors import BackendError
from semtoken.models.base import Backend
from semtoken.models.probing import p_true_log_probs
from semtoken.models.vllm import load_vllm
from semtoken.support.almanac import almanac_path, load_questions
from tests.engines.twins import TOLERANCE
from tests.known import known

DECODING = AnswerSettings(max_new_tokens=16, n_samples=3, temperature=1.5, seed=4, top_k=5)
QUESTIONS = load_questions("test")[:12]
PROMPTS = [question.prompt() for question in QUESTIONS]


@pytest.fixture(scope="module")
def backend() -> Backend:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    options: dict[str, Any] = {"max_model_len": 400, "enforce_eager": True, "distributed_executor_backend": "uni"}
    return load_vllm(str(almanac_path()), dtype="float32", **options)


@pytest.fixture(scope="module")
def twin(stc: ScoredModel) -> Backend:
    return stc.backend


def greedy(backend: Backend) -> list[Generation]:
    return record_greedy(backend, PROMPTS, columns_of("greedy"), DECODING, Timings())


def samples(backend: Backend, prompts: list[str], decoding: AnswerSettings = DECODING) -> list[Generation]:
    empty = [Generation(text="", token_ids=()) for _ in prompts]
    needs = {"hidden_states"} if "states" in backend.gives else set()
    return record_samples(backend, prompts, empty, needs, decoding, Timings())


def test_greedy_answers_and_their_alternatives(backend: Backend, twin: Backend) -> None:
    mine, theirs = (greedy(one) for one in (backend, twin))
    for a, b in zip(mine, theirs, strict=True):
        assert (a.text, list(a.token_ids), a.token_texts) == (b.text, list(b.token_ids), b.token_texts)
        assert a.recorded == b.recorded
        np.testing.assert_allclose(known(a.log_probs), known(b.log_probs), atol=TOLERANCE)
        np.testing.assert_array_equal(a.top_ids, b.top_ids)
        assert a.top_texts == b.top_texts
        np.testing.assert_allclose(known(a.top_log_probs), known(b.top_log_probs), atol=TOLERANCE)


def test_samples_depend_on_seed_and_prompt_only(backend: Backend, twin: Backend, stc: ScoredModel) -> None:
    all_at_once = samples(backend, PROMPTS)
    alone = samples(backend, PROMPTS[5:6])
    assert all_at_once[5].sample_texts == alone[0].sample_texts
    assert all_at_once[0].recorded == samples(twin, PROMPTS[:1])[0].recorded - {"hidden_states"}
    assert len({text for one in all_at_once for text in one.sample_texts or ()}) > len(PROMPTS)
    other = samples(backend, PROMPTS, replace(DECODING, seed=5))
    assert [one.sample_texts for one in other] != [one.sample_texts for one in all_at_once]
    for prompt, one in zip(PROMPTS, all_at_once, strict=True):
        scored = stc.score([prompt] * 3, list(one.sample_token_ids or ()))
        for log_probs, answer in zip(one.sample_log_probs or (), scored, strict=True):
            np.testing.assert_allclose(log_probs, [t.log_probability for t in answer.tokens], atol=TOLERANCE)


def test_clustered_scores_and_p_true(backend: Backend, twin: Backend, clusters: TokenClusters) -> None:
    rules = {"stc": ScoringRules(), "prefix off": ScoringRules(prefix_matching=False), "paper": ScoringRules("paper")}
    scorers = {name: scorer_for(clusters, one) for name, one in rules.items()}
    answers = [one.token_ids for one in greedy(twin)]
    mine, theirs = (
        clustered_scores(one, PROMPTS, answers, scorers, Timings(), batch_size=4) for one in (backend, twin)
    )
    assert mine.keys() == theirs.keys()
    for name in mine:
        here, there = ([one.log_confidence for one in found[name]] for found in (mine, theirs))
        np.testing.assert_allclose(here, there, atol=TOLERANCE)
    questions, texts = [question.question for question in QUESTIONS], ["Paris", "no idea"] * 6
    for spelling in ("bare", "both"):
        ours, others = (
            p_true_log_probs(one, questions, texts, spelling=spelling, batch_size=4) for one in (backend, twin)
        )
        np.testing.assert_allclose(ours, others, atol=TOLERANCE)


def test_processed_log_probabilities_are_refused(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend.model.model_config, "logprobs_mode", "processed_logprobs")
    with pytest.raises(BackendError, match="needs raw log-probabilities"):
        require_raw(backend)


def test_a_run_with_either_backend_gives_the_same_table(tmp_path: Path) -> None:
    """One process for each run, as a user starts it; scores of greedy answers do not depend on the backend."""
    settings = tmp_path / "run.yaml"
    settings.write_text(SETTINGS, encoding="utf-8")
    found = {}
    for backend in ("transformers", "vllm"):
        folder = tmp_path / backend
        command = [sys.executable, "-c", "from semtoken.cli import main; main()", "bench", "run", str(settings)]
        command += ["--model.backend", backend, "--output", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        found[backend] = scores_of(folder)
    assert found["vllm"].keys() == found["transformers"].keys() and len(found["vllm"]) == 4
    for method, expected in found["transformers"].items():
        np.testing.assert_allclose(found["vllm"][method], expected, atol=TOLERANCE, err_msg=method)


SETTINGS = """
models:
  - name: almanac
    dtype: float32
    engine: {enforce_eager: true, max_model_len: 400, distributed_executor_backend: uni}
datasets: [almanac-dev]
methods: [stc, stc_no_prefix, perplexity, p_true]
judges: [exact]
limit: 10
"""


def scores_of(run: Path) -> dict[str, list[float]]:
    """Method -> its column of scores."""
    tables = {
        path.parent.name.split("-")[1]: pandas.read_parquet(path) for path in run.glob("stages/score-*/*.parquet")
    }
    return {method: table.iloc[:, -1].tolist() for method, table in tables.items()}
