"""The logits processor in a real engine: the same scores as from the whole vocabulary, whatever the scheduler does."""

from __future__ import annotations

from typing import Any

import pytest
from vllm import SamplingParams
from vllm.exceptions import VLLMValidationError

from semtoken import ScoredModel
from semtoken.support.almanac import load_questions
from tests.engines.twins import NEWLINE, assert_same


def check(processor: Any, stc: ScoredModel, prompts: list[str], outputs: list[Any], names: list[str]) -> None:
    ids = [list(output.outputs[0].token_ids) for output in outputs]
    for name, tokens, twin in zip(names, ids, stc.score(prompts, ids), strict=True):
        scored = processor.take(name, tokens, twin.question)
        assert_same(scored, twin)


def test_a_mixed_batch(llm: Any, processor: Any, stc: ScoredModel) -> None:
    """Greedy and sampled, short and long, with and without an id, more than fit into one batch."""
    prompts = [question.prompt() for question in load_questions("test")[:40]]
    params = [
        SamplingParams(
            max_tokens=1 + i % 17,
            temperature=0 if i % 2 else 1.2,
            top_p=0.95,
            repetition_penalty=1.0 + (i % 4) / 10,
            ignore_eos=i % 3 == 0,
            stop_token_ids=[] if i % 3 == 0 else [NEWLINE],
            extra_args={"semtoken_id": f"mixed-{i}"} if i % 4 else None,
        )
        for i in range(40)
    ]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    watched = [i for i in range(40) if i % 4]
    names = [f"mixed-{i}" for i in watched]
    check(processor, stc, [prompts[i] for i in watched], [outputs[i] for i in watched], names)
    assert not processor.requests._watched


def test_long_prompts_in_pieces_and_requests_that_give_way(llm: Any, processor: Any, stc: ScoredModel) -> None:
    """Prompts longer than a step's tokens; eight long answers need more cache than there is."""
    questions = [question.prompt() for question in load_questions("test")[:32]]
    prompts = ["".join(questions[4 * i : 4 * i + 4]) for i in range(8)]
    params = [
        SamplingParams(max_tokens=260, temperature=0.9, ignore_eos=True, extra_args={"semtoken_id": f"long-{i}"})
        for i in range(8)
    ]
    preempted = preemptions(llm)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert preemptions(llm) > preempted, "nothing gave way: the test does not test what it says"
    assert all(len(output.prompt_token_ids) > 48 for output in outputs)
    check(processor, stc, prompts, outputs, [f"long-{i}" for i in range(8)])


def preemptions(llm: Any) -> int:
    return int(sum(metric.value for metric in llm.get_metrics() if metric.name == "vllm:num_preemptions"))


def test_what_the_engine_changed_before_is_told(llm: Any, processor: Any, prompts: list[str]) -> None:
    params = SamplingParams(temperature=0, max_tokens=3, logit_bias={300: 1.0}, extra_args={"semtoken_id": "biased"})
    (output,) = llm.generate(prompts[:1], params, use_tqdm=False)
    scored = processor.take("biased", output.outputs[0].token_ids)
    assert scored.distribution == "processed"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra_args": {"semtoken_id": 7}}, "'semtoken_id' must be a text"),
        ({"n": 2}, "needs n=1"),
        ({"stop": ["."]}, "stop_token_ids"),
    ],
)
def test_requests_that_could_not_be_scored_are_refused(
    llm: Any, prompts: list[str], changes: dict[str, Any], message: str
) -> None:
    params = SamplingParams(**({"extra_args": {"semtoken_id": "refused"}} | changes))
    with pytest.raises(VLLMValidationError, match=message):
        llm.generate(prompts[:1], params, use_tqdm=False)
