"""What the harness calls in our model and in our figures, where the harness is not installed.

Its live test runs whole tasks. Here its base class, which gives nothing to what is tried, is a plain class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from semtoken import ScoredModel, metrics
from semtoken.errors import InvalidInputError
from semtoken.support.almanac import PROMPT
from tests.stand_ins import imported, same

PROMPTS = [PROMPT.format(question=f"What is the capital of {name}?") for name in ("France", "Peru", "Norway")]
"""Three prompts in the form that the embedded model knows."""
SETTINGS: list[dict[str, Any]] = [
    {"until": ["\n", ","], "max_gen_toks": 24},
    {"until": "a", "do_sample": False, "temperature": 0.7},
    {"until": ["\n", ","], "max_gen_toks": 24},
]


class Tasks(SimpleNamespace):
    """The harness's list of tasks, which knows all but "none"."""

    def match_tasks(self, names: list[str]) -> list[str]:
        return [name for name in names if name != "none"]


@pytest.fixture(scope="module")
def harness() -> Iterator[ModuleType]:
    """Our module for the harness, imported over a base class that does nothing."""
    with imported(
        "semtoken.integrations.lm_eval",
        lm_eval__api__model={"TemplateLM": object},
        lm_eval__api__registry={"register_model": same},
        lm_eval__evaluator={"simple_evaluate": lambda model, **given: {"samples": {}, "given": given}},
        lm_eval__tasks={"TaskManager": Tasks},
    ) as module:
        yield module


def test_each_request_is_answered_by_its_own_settings(harness: ModuleType, almanac: ScoredModel) -> None:
    said: list[tuple[int, int]] = []
    model = harness.SemtokenLM(almanac, on_progress=lambda done, of: said.append((done, of)))
    requests = [SimpleNamespace(args=pair) for pair in zip(PROMPTS, SETTINGS, strict=True)]
    answers = model.generate_until(requests)
    for prompt, settings, text in zip(PROMPTS, SETTINGS, answers, strict=True):
        [alone] = almanac.generate([prompt], settings.get("max_gen_toks", 256), stop_strings=tuple(settings["until"]))
        assert text == min((alone.text.partition(stop)[0] for stop in settings["until"]), key=len)
        assert model.scored[prompt, text].log_confidence == pytest.approx(alone.log_confidence, abs=1e-6)
    assert said == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({"max_gen_toks": 1}, 1),
        ({"max_new_tokens": 3}, 3),
        ({"max_gen_toks": 1, "max_new_tokens": 3}, 1),
        ({"max_completion_tokens": 1, "max_tokens": 3}, 3),
        ({}, 2),
    ],
)
def test_an_answer_is_as_long_as_its_task_says(
    harness: ModuleType, almanac: ScoredModel, given: dict[str, Any], most: int
) -> None:
    model = harness.SemtokenLM(almanac, max_gen_toks=2)
    model.generate_until([SimpleNamespace(args=(PROMPT.format(question="Who wrote Emma?"), given))])
    [answer] = model.scored.values()
    assert len(answer.tokens) == most
    assert harness.SemtokenLM(almanac).max_gen_toks == 256


def test_the_model_answers_with_all_that_the_task_sets(harness: ModuleType, almanac: ScoredModel) -> None:
    chosen = {"temperature": 0.7, "top_p": 0.9, "top_k": None}
    assert harness._options({"do_sample": True, **chosen}) == {"do_sample": True, "temperature": 0.7, "top_p": 0.9}
    assert harness._options(chosen) == harness._options({"do_sample": True, "temperature": 0.0}) == {}
    [plain] = almanac.generate(PROMPTS[:1], 24)
    settings = {"until": ["\n"], "max_gen_toks": 24, "suppress_tokens": plain.token_ids[:1]}
    model = harness.SemtokenLM(almanac)
    model.generate_until([SimpleNamespace(args=(PROMPTS[0], settings))])
    [answer] = model.scored.values()
    assert answer.token_ids[0] != plain.token_ids[0]


def test_log_likelihoods_are_those_of_the_scored_text(harness: ModuleType, almanac: ScoredModel) -> None:
    model = harness.SemtokenLM(almanac)
    [best] = almanac.generate(PROMPTS[:1], 8)
    before = model.tok_encode(PROMPTS[0])
    other = almanac.tokenizer("Tokyo", add_special_tokens=False)["input_ids"]
    found = model._loglikelihood_tokens(
        [(None, before, list(best.token_ids)), (None, before, other), (None, before, [])]
    )
    assert found[0] == (pytest.approx(best.log_probability, abs=1e-5), True)
    [scored] = almanac.score(PROMPTS[:1], ["Tokyo"])
    expected = sum(token.log_probability for token in scored.tokens[: len(other)])
    assert found[1:] == [(pytest.approx(expected, abs=1e-5), False), (0.0, True)]
    with pytest.raises(InvalidInputError, match="Choose tasks that generate"):
        model.loglikelihood_rolling([])


def test_texts_are_encoded_as_prompts_are_and_batches_are_numbers(harness: ModuleType, almanac: ScoredModel) -> None:
    model = harness.SemtokenLM(almanac)
    assert (
        model.tok_encode("Paris", add_special_tokens=False)
        == almanac.tokenizer("Paris", add_special_tokens=False)["input_ids"]
    )
    assert model.eot_token_id == almanac.tokenizer.eos_token_id and "/" not in model.tokenizer_name
    assert [harness.SemtokenLM(almanac, size).batch_size for size in ("auto", "16", 3)] == [8, 16, 3]
    assert model.batch_size == 8 and model.chat_template() == ""


def test_figures_are_of_the_answers_of_one_filter_whose_metric_is_a_share(
    harness: ModuleType, almanac: ScoredModel
) -> None:
    answers = almanac.generate(PROMPTS, 8)
    scored = {(prompt, answer.text): answer for prompt, answer in zip(PROMPTS, answers, strict=True)}
    right = [1.0, 0.0, 1.0]
    samples = [
        {
            "arguments": [[prompt, {}]],
            "resps": [[answer.text] if number else answer.text],
            "filter": name,
            "metrics": ["match", "bleu"],
            "match": value if name == "none" else 1.0 - value,
            "bleu": 40.0,
        }
        for name in ("none", "strict")
        for number, (prompt, answer, value) in enumerate(zip(PROMPTS, answers, right, strict=True))
    ]
    samples.append(samples[0] | {"arguments": [["another prompt", {}]], "match": 0.0})  # which was not scored
    first, second = harness.task_figures("facts", samples, scored)
    assert [(one.task, one.metric, one.filter) for one in (first, second)] == [
        ("facts", "match", "none"),
        ("facts", "match", "strict"),
    ]
    assert (first.accuracy, second.accuracy) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    uncertainty = np.array([answer.sequence_uncertainty for answer in answers])
    assert first.figures["n"] == 3 and "probability_correct_ece" not in first.figures
    assert first.figures["auroc"] == pytest.approx(metrics.auroc(uncertainty, right))
    assert first.figures["ece"] == pytest.approx(metrics.expected_calibration_error(1 - uncertainty, right))
    fitted: Any = SimpleNamespace(calibrator=SimpleNamespace(predict_proba=lambda answer: math.sqrt(answer.confidence)))
    [calibrated, _] = harness.task_figures("facts", samples, scored, fitted)
    expected = metrics.expected_calibration_error(np.sqrt(1 - uncertainty), right)
    assert calibrated.figures["probability_correct_ece"] == pytest.approx(expected)


def test_tasks_run_with_what_is_given_and_unknown_ones_do_not(harness: ModuleType, almanac: ScoredModel) -> None:
    model = harness.SemtokenLM(almanac)
    results, figures = harness.evaluate(model, ["facts"], limit=5, num_fewshot=2, bootstrap_iters=0)
    given = results["given"]
    assert figures == [] and given.pop("task_manager").include_path is None
    assert given == {
        "tasks": ["facts"],
        "limit": 5,
        "num_fewshot": 2,
        "apply_chat_template": False,
        "log_samples": True,
        "bootstrap_iters": 0,
    }
    with pytest.raises(InvalidInputError, match="no task 'none'"):
        harness.evaluate(model, ["facts", "none"])
