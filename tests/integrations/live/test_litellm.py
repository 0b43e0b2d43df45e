"""LiteLLM's own client in front of the real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import litellm
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from semtoken import ScoredModel
from semtoken.core.results.blocks import block_of, final_block
from semtoken.integrations.litellm import NOT_SURE, ScoreLog, UncertaintyGate
from semtoken.support.almanac import Question
from tests.integrations.live.serving import served
from tests.replies.recorded import recording
from tests.web.servers import commanded, running

HELD = [
    ("vllm-chat-tool", ["Wait", "weather"]),
    ("vllm-chat-two", ["IND", "BRA"]),
    ("vllm-chat-reasoning", ["Delhi", "India"]),
    ("openai-chat-refusal", ["Delhi"]),
    ("openai-chat-tool", ["weather"]),
    ("vllm-completions", ["India"]),
    ("vllm-responses", ["India"]),
]
"""Replies of engines, and words that the answer of each holds."""


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


def engine(request: Request) -> JSONResponse:
    """A server that answers with what an engine said, by the name of the model."""
    [name] = [name for name, _ in HELD if name in request.headers["authorization"]]
    return JSONResponse(recording(name).reply)


@pytest.mark.parametrize(("name", "words"), HELD)
@pytest.mark.parametrize("more", [{}, {"extra_body": {"semtoken": {"tokens": True}}}])
def test_nothing_of_an_answer_that_is_held_back_is_left(
    name: str, words: list[str], more: dict[str, Any], record: Callable[[str, Any], None]
) -> None:
    """Its text was replaced, and an agent ran the call that stood beside it; the block quoted it."""
    app = Starlette(routes=[Route("/{path:path}", engine, methods=["POST"])])

    async def ask(url: str) -> Any:
        given = {"api_base": f"{url}/v1", "api_key": name, **more}
        if "responses" in name:
            return await litellm.aresponses(model="openai/m", input="x", **given)
        if "completions" in name:
            return await litellm.atext_completion(model="text-completion-openai/m", prompt="x", **given)
        return await litellm.acompletion(model="openai/m", messages=[{"role": "user", "content": "x"}], **given)

    with running(app, strict=False) as behind, commanded("proxy", "--base-url", behind) as (url, _):
        shown = asyncio.run(ask(url)).model_dump(mode="json")
        litellm.callbacks = [UncertaintyGate(0.0, unscored="hold")]
        held = asyncio.run(ask(url)).model_dump(mode="json")
    litellm.callbacks = []
    assert all(word in json.dumps(shown) for word in words)
    assert NOT_SURE in json.dumps(held) and not any(word in json.dumps(held) for word in words)
    if "extra_body" in more:
        record(f"litellm_held/{name}", {"version": version("litellm"), "words": words, "shown": shown, "held": held})
