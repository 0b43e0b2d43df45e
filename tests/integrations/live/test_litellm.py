"""LiteLLM's own client in front of the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import litellm
import pytest

from semtoken import ScoredModel
from semtoken.core.results.blocks import block_of, final_block
from semtoken.errors import InvalidInputError
from semtoken.integrations.litellm import NOT_SURE, ScoreLog, UncertaintyGate
from semtoken.support.almanac import Question
from tests.integrations.live.serving import served


@pytest.fixture(scope="module")
def address(stc: ScoredModel) -> Iterator[str]:
    with served(stc) as url:
        yield url


@pytest.fixture
def asking(address: str) -> Iterator[Any]:
    async def ask(question: str, **fields: Any) -> Any:
        found = await litellm.acompletion(
            model="openai/almanac",
            api_base=f"{address}/v1",
            api_key="none",
            messages=[{"role": "user", "content": question}],
            max_tokens=24,
            **fields,
        )
        return [chunk async for chunk in found] if fields.get("stream") else found

    yield ask
    litellm.callbacks = []


def exact(stc: ScoredModel, questions: list[Question]) -> list[Any]:
    return stc.generate([q.prompt() for q in questions], 24, stop_at_newline=True)


def test_whole_replies_and_streams_bring_the_final_score(
    asking: Any, stc: ScoredModel, questions: list[Question]
) -> None:
    async def both(question: str) -> tuple[Any, Any]:
        return block_of((await asking(question)).choices[0]), final_block(await asking(question, stream=True))

    for question, answer in zip(questions[:6], exact(stc, questions[:6]), strict=True):
        whole, streamed = asyncio.run(both(question.question))
        assert whole is not None and streamed is not None
        assert whole["sequence_uncertainty"] == pytest.approx(answer.sequence_uncertainty, abs=1e-5)
        assert streamed["sequence_uncertainty"] == pytest.approx(answer.sequence_uncertainty, abs=1e-5)


def test_the_gate_holds_back_what_is_above_the_threshold(
    asking: Any, stc: ScoredModel, questions: list[Question]
) -> None:
    answers = exact(stc, questions[:10])
    threshold = sorted(answer.sequence_uncertainty for answer in answers)[5] - 1e-3
    litellm.callbacks = [UncertaintyGate(threshold)]
    held = 0
    for question, answer in zip(questions[:10], answers, strict=True):
        reply = asyncio.run(asking(question.question, logprobs=True, top_logprobs=2))
        if answer.sequence_uncertainty > threshold:
            held += 1
            assert reply.choices[0].message.content == NOT_SURE and reply.choices[0].logprobs is None
        else:
            assert reply.choices[0].message.content.strip() == answer.text.strip()
    assert held == 5


def test_every_score_is_told_of(asking: Any, stc: ScoredModel, questions: list[Question]) -> None:
    told: list[Any] = []

    async def ask() -> None:
        await asking(questions[0].question)
        for _ in range(100):
            if told:
                return
            await asyncio.sleep(0.05)

    litellm.callbacks = [ScoreLog(lambda block, call: told.append((block, call["model"])))]
    asyncio.run(ask())
    [answer] = exact(stc, questions[:1])
    assert told[0][0]["sequence_uncertainty"] == pytest.approx(answer.sequence_uncertainty, abs=1e-5)
    assert "almanac" in told[0][1]


def test_decisions_and_answers_without_a_score() -> None:
    assert UncertaintyGate().holds_back({"confidence": 0.9, "decision": "abstain"})
    assert not UncertaintyGate().holds_back({"confidence": 0.1})
    sentence = {"sequence_uncertainty": 1.0, "confidence": 0.6, "interval": [0.6, 0.6]}
    assert not UncertaintyGate(0.5).holds_back(sentence) and UncertaintyGate(0.3).holds_back(sentence)
    sentence["interval"] = [0.4, 0.7]
    assert UncertaintyGate(0.5).holds_back(sentence)
    assert not UncertaintyGate(0.5).holds_back(None)
    assert UncertaintyGate(0.5, unscored="hold").holds_back({"reason": "no log-probabilities"})
    with pytest.raises(InvalidInputError, match="from 0 to 1"):
        UncertaintyGate(50)


def test_an_answer_that_is_held_back_calls_no_tool() -> None:
    """Its text was replaced, and an agent ran the call that stood beside it."""
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}

    def held(gate: UncertaintyGate) -> Any:
        message = litellm.Message(content="I pay.", role="assistant", tool_calls=[call])
        reply = litellm.ModelResponse(choices=[litellm.Choices(message=message, finish_reason="tool_calls")])
        return asyncio.run(gate.async_post_call_success_deployment_hook({}, reply, None)).choices[0]

    choice = held(UncertaintyGate(0.5, unscored="hold"))
    assert choice.message.content == NOT_SURE and choice.message.tool_calls is None and choice.finish_reason == "stop"
    passed = held(UncertaintyGate(0.5))
    assert passed.message.tool_calls[0].function.name == "pay" and passed.finish_reason == "tool_calls"
