"""The driver: what is needed is recorded, once, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semtoken.bench.statistics import AnswerSettings, EntailmentModel, Timings, record, recording
from semtoken.bench.statistics.steps import EVERYTHING, steps_for
from semtoken.errors import InvalidInputError
from semtoken.methods import METHODS, score
from tests import tiny
from tests.bench import statistics_models as models
from tests.bench.runs import same
from tests.known import known
from tests.rows import each

DECODING = AnswerSettings(max_new_tokens=6, batch_size=3, n_samples=3)


@pytest.fixture(scope="module")
def helpers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    pytest.importorskip("sentence_transformers")
    folder = tmp_path_factory.mktemp("helpers")
    return {
        "nli": models.saved_encoder(folder / "nli", models.LABELS),
        "similarity": models.saved_encoder(folder / "sts"),
        "decoding": DECODING,
    }


def test_everything_is_recorded_and_every_method_has_a_value(helpers: dict[str, Any]) -> None:
    timings = Timings()
    told: list[tuple[str, int, int]] = []
    prompts = [f"{question} :" for question in models.QUESTIONS]
    generations = record(
        models.answering(),
        models.QUESTIONS,
        prompts=prompts,
        timings=timings,
        progress=lambda *event: told.append(event),
        **helpers,
    )
    for question, prompt, generation in zip(models.QUESTIONS, prompts, generations, strict=True):
        assert (generation.question, generation.prompt, generation.distribution) == (question, prompt, "raw")
        assert generation.recorded >= EVERYTHING
        for name, method in METHODS.items():
            low, high = method.range
            assert low <= score(name, generation) <= high, name
    assert timings.seconds.keys() == steps_for(EVERYTHING) | {"greedy", "loading"}
    assert all(seconds > 0 for seconds in timings.seconds.values())
    ends = {step: (done, total) for step, done, total in told}
    assert set(ends.values()) == {(len(prompts), len(prompts))}


def test_a_second_run_records_the_same(helpers: dict[str, Any]) -> None:
    stc = models.answering()
    questions = models.QUESTIONS[:2]
    runs = [record(stc, questions, **helpers) for _ in range(2)]
    for one, two in zip(*runs, strict=True):
        assert one.recorded == two.recorded
        assert all(same(getattr(one, name), getattr(two, name)) for name in one.recorded)


def test_questions_may_be_put_to_the_other_models_in_parts(
    helpers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stc, needs = models.answering(), METHODS["deg"].needs
    whole = record(stc, models.QUESTIONS, needs=needs, **helpers)
    monkeypatch.setattr(recording, "QUESTIONS_AT_ONCE", 2)
    parts = record(stc, models.QUESTIONS, needs=needs, **helpers)
    assert len(parts) == len(whole) > 2
    for one, two in zip(parts, whole, strict=True):
        assert one.question == two.question
        np.testing.assert_allclose(known(one.nli_logits), known(two.nli_logits), atol=1e-5)


@each("name", {METHODS[name].needs: name for name in METHODS}.values())  # some methods need the same
def test_a_method_alone_gets_what_it_needs_and_only_that(name: str, helpers: dict[str, Any]) -> None:
    timings = Timings()
    method = METHODS[name]
    given = helpers | {"decoding": AnswerSettings(max_new_tokens=3, n_samples=2)}
    if method.external_model_free:  # must not be loaded
        given |= {"nli": "/nowhere", "similarity": "/nowhere"}
    (generation,) = record(models.answering(), models.QUESTIONS[:1], needs=method.needs, timings=timings, **given)
    assert np.isfinite(score(name, generation))
    extra = (
        timings.seconds.keys() - steps_for(method.needs) - {"greedy", "loading", "likelihoods", "sample_likelihoods"}
    )
    assert not extra


def test_models_can_be_given_loaded() -> None:
    nli = EntailmentModel(models.encoder(models.LABELS), tiny.wordpiece())
    (generation,) = record(
        models.answering(), models.QUESTIONS[:1], needs=METHODS["deg"].needs, nli=nli, decoding=DECODING
    )
    assert 0 <= score("deg", generation) <= 1


def test_bad_questions_are_refused(tmp_path: Path) -> None:
    stc = models.answering()
    with pytest.raises(InvalidInputError, match="2 questions and 1 prompts"):
        record(stc, ["a", "b"], prompts=["a"], needs=())
    with pytest.raises(InvalidInputError, match="0 questions"):
        record(stc, [], needs=())
    with pytest.raises(InvalidInputError, match="Prompt 1 is empty"):
        record(stc, ["who", " "], needs=())
    with pytest.raises(InvalidInputError, match="needs holds perplexity; it can hold text"):
        record(stc, ["who"], needs=["perplexity"])
