"""lm-evaluation-harness itself, on a task that is defined here: there is no hub to fetch one from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lm_eval.api.instance import Instance

from semtoken import ScoredModel, metrics
from semtoken.errors import InvalidInputError
from semtoken.integrations.lm_eval import SemtokenLM, evaluate
from semtoken.support.almanac import PROMPT, Question

TASK = """
task: facts
dataset_path: json
dataset_kwargs:
  data_files: {{test: {path}}}
test_split: test
output_type: generate_until
doc_to_text: {prompt}
doc_to_target: "{{{{answers}}}}"
generation_kwargs: {{until: ["\\n", ","], do_sample: false, max_gen_toks: 24}}
filter_list:
  - name: remove_whitespace
    filter: [{{function: remove_whitespace}}, {{function: take_first}}]
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true, ignore_case: true, ignore_punctuation: true}}
metadata: {{version: 1.0}}
"""
CHOICES = """
task: choices
dataset_path: json
dataset_kwargs:
  data_files: {{test: {path}}}
test_split: test
output_type: multiple_choice
doc_to_text: {prompt}
doc_to_choice: ["Paris", "Tokyo"]
doc_to_target: 0
metadata: {{version: 1.0}}
"""


@pytest.fixture
def folder(questions: list[Question], tmp_path: Path) -> Path:
    data = tmp_path / "facts.jsonl"
    rows = [json.dumps({"question": q.question, "answers": list(q.answers)}) for q in questions]
    data.write_text("\n".join(rows) + "\n", encoding="utf-8")
    prompt = json.dumps(PROMPT.format(question="{{question}}").removesuffix("\n") + "\n")
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "facts.yaml").write_text(TASK.format(path=data, prompt=prompt), encoding="utf-8")
    (tasks / "choices.yaml").write_text(CHOICES.format(path=data, prompt=prompt), encoding="utf-8")
    return tasks


def test_figures_are_those_of_stc_on_the_same_answers(
    stc: ScoredModel, questions: list[Question], folder: Path, record: Callable[[str, Any], None]
) -> None:
    results, [figures] = evaluate(SemtokenLM(stc), ["facts"], include_path=folder)
    samples = sorted(results["samples"]["facts"], key=lambda one: one["doc_id"])
    answers = stc.generate([sample["arguments"][0][0] for sample in samples], 24, stop_strings=("\n", ","))
    right = [float(sample["exact_match"]) for sample in samples]
    uncertainty = [answer.sequence_uncertainty for answer in answers]
    assert 0 < sum(right) < len(right) == 40
    assert figures.accuracy == pytest.approx(results["results"]["facts"]["exact_match,remove_whitespace"])
    assert figures.figures["auroc"] == pytest.approx(metrics.auroc(uncertainty, right), abs=1e-6)
    assert figures.figures["prr"] == pytest.approx(metrics.prr(uncertainty, right), abs=1e-6)
    confidence = 1 - np.array(uncertainty)
    assert figures.figures["ece"] == pytest.approx(metrics.expected_calibration_error(confidence, right), abs=1e-5)
    record(
        "lm_eval",
        {
            "task": "facts",
            "questions": [q.id for q in questions],
            "samples": [
                {
                    name: sample[name]
                    for name in ("arguments", "resps", "filtered_resps", "filter", "metrics", "exact_match")
                }
                for sample in samples
            ],
            "figures": dict(figures.figures),
        },
    )


def test_choices_are_compared_by_their_log_probabilities(stc: ScoredModel, folder: Path) -> None:
    """Against a plain forward pass."""
    model = SemtokenLM(stc)
    results, figures = evaluate(model, ["choices"], include_path=folder, limit=5)
    assert figures == []
    for sample in results["samples"]["choices"]:
        for (context, continuation), (value, greedy) in zip(
            sample["arguments"], (one[0] for one in sample["resps"]), strict=True
        ):
            before = stc.tokenizer(context)["input_ids"]
            whole = stc.tokenizer(context + continuation)["input_ids"]
            with torch.no_grad():
                logits = stc.model(torch.tensor([whole])).logits[0, :-1].log_softmax(-1)[len(before) - 1 :]
            ids = torch.tensor(whole[len(before) :])
            assert float(value) == pytest.approx(logits.gather(1, ids[:, None]).sum().item(), abs=1e-4)
            assert str(greedy) == str(bool((logits.argmax(-1) == ids).all()))


def test_an_empty_context_and_whole_texts(stc: ScoredModel) -> None:
    model = SemtokenLM(stc)
    [(value, _)] = model.loglikelihood([Instance("loglikelihood", {}, ("", "Paris"), 0)])
    assert value < 0
    with pytest.raises(InvalidInputError, match="Choose tasks that generate"):
        model.loglikelihood_rolling([])


def test_choices_of_a_model_in_bfloat16() -> None:
    """NumPy has no such numbers, and the engine gives rows in the model's own precision."""
    model = SemtokenLM(ScoredModel.from_pretrained("almanac", device="cpu", dtype="bfloat16"))
    [(value, greedy)] = model.loglikelihood([Instance("loglikelihood", {}, ("The capital of France is", " Paris"), 0)])
    assert value < 0 and isinstance(greedy, bool)


def test_an_unknown_task_is_refused_before_anything_runs(stc: ScoredModel) -> None:
    with pytest.raises(InvalidInputError, match="no task 'no_such_task'"):
        evaluate(SemtokenLM(stc), ["no_such_task"])
