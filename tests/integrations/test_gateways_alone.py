"""LangChain's runnable and LiteLLM's callbacks where neither is installed, on what they handed on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

from semtoken import TokenClusters, score_reply
from semtoken.core.results.blocks import numbers_of
from semtoken.errors import InvalidInputError
from tests.integrations.recordings import gateway
from tests.integrations.test_messages import CHOICE, REPLY
from tests.rows import each
from tests.stand_ins import Fields, imported


@pytest.fixture(scope="module")
def clusters() -> TokenClusters:
    return TokenClusters.from_pretrained("almanac")


@pytest.fixture(scope="module")
def langchain() -> Iterator[ModuleType]:
    runnable = {"RunnableLambda": lambda function, name: function}
    messages = {"AIMessage": Fields}
    with imported(
        "semtoken.integrations.langchain", langchain_core__messages=messages, langchain_core__runnables=runnable
    ) as module:
        yield module


def test_langchain_keeps_the_score_beside_the_message(langchain: ModuleType, clusters: TokenClusters) -> None:
    kept, sent = gateway("langchain")["whole"], gateway("serve")["whole"]["choices"][0]
    reply = {
        "choices": [
            {"message": sent["message"], "logprobs": kept["response_metadata"]["logprobs"], "finish_reason": "length"}
        ]
    }
    metadata = kept["response_metadata"] | {"finish_reason": "length"}
    message = Fields(text=kept["content"], tool_calls=[], invalid_tool_calls=[], response_metadata=metadata)
    choices: list[dict[str, Any]] = [{}, {"equality": "exact"}, {"preset": "paper"}]
    for options in choices:
        [expected] = score_reply(reply, clusters, **options)
        found = langchain.with_uncertainty(clusters, **options)(message).response_metadata
        assert found == metadata | {"semtoken": numbers_of(expected)}
        [asked] = score_reply(reply, clusters, **options, question="What is the capital of Mexico?")
        scored = langchain.score(message, clusters, question="What is the capital of Mexico?", **options)
        assert numbers_of(scored) == numbers_of(asked) and scored.truncated
    bare = langchain.with_uncertainty()(Fields(response_metadata={})).response_metadata
    assert "logprobs=True" in bare["semtoken"]["reason"]


@each("kind", ["tool_calls", "invalid_tool_calls"])
def test_langchain_leaves_the_tokens_of_calls_out(langchain: ModuleType, kind: str) -> None:
    calls: dict[str, Any] = {"tool_calls": [], "invalid_tool_calls": []}
    calls[kind] = [{"name": "weather", "args": {} if kind == "tool_calls" else "{}"}]
    message = Fields(text="Wait.", response_metadata={"logprobs": CHOICE["logprobs"]}, **calls)
    for segment in ("answer", "tool_call"):
        [expected] = score_reply(REPLY, segment=segment)
        assert langchain.score(message, segment=segment).log_confidence == expected.log_confidence


@pytest.fixture(scope="module")
def litellm() -> Iterator[ModuleType]:
    with imported(
        "semtoken.integrations.litellm", litellm__integrations__custom_logger={"CustomLogger": object}
    ) as module:
        yield module


@each(
    ("threshold", "block", "held"),
    [
        (None, {"confidence": 0.9, "decision": "abstain"}, True),
        (None, {"confidence": 0.1, "decision": "answer"}, False),
        (0.5, {"confidence": 0.6, "interval": [0.5, 0.7]}, False),
        (0.5, {"confidence": 0.6, "interval": [0.49, 0.7]}, True),
        (0.0, {"confidence": 1.0, "interval": [1.0, 1.0]}, False),
        (1.0, {"confidence": 0.0, "interval": [0.0, 0.0]}, False),
        (0.5, {"reason": "none"}, False),
        (0.5, None, False),
    ],
)
def test_the_gate_of_litellm_holds_uncertain_answers_back(
    litellm: ModuleType, threshold: float | None, block: Any, held: bool
) -> None:
    assert litellm.UncertaintyGate(threshold).holds_back(block) is held
    unscored = block is None or "confidence" not in block
    assert litellm.UncertaintyGate(threshold, unscored="hold").holds_back(block) is (held or unscored)

    def choice(content: str, reason: str) -> Any:
        spelled = {"tool_calls": [1], "function_call": {}, "reasoning_content": "Hm", "thinking_blocks": []}
        return Fields(message=Fields(content=content, **spelled), logprobs={}, finish_reason=reason, semtoken=block)

    for reason, after in (("tool_calls", "stop"), ("function_call", "stop"), ("length", "length")):
        reply = Fields(choices=[choice("Peru", reason)])
        hook = litellm.UncertaintyGate(threshold, "Nothing.").async_post_call_success_deployment_hook
        with patch.object(litellm, "block_of", lambda choice: choice.semtoken):
            [shown] = asyncio.run(hook({}, reply, None)).choices
        if held:
            assert vars(shown.message) == {"content": "Nothing."} | dict.fromkeys(litellm._FURTHER)
            assert (shown.logprobs, shown.finish_reason) == (None, after)
        else:
            assert (shown.message.content, shown.logprobs, shown.finish_reason) == ("Peru", {}, reason)


def test_litellm_is_refused_what_is_no_threshold_and_logs_every_score(litellm: ModuleType) -> None:
    for odd in ({"threshold": 1.01}, {"threshold": -0.01}, {"unscored": "drop"}):
        with pytest.raises(InvalidInputError):
            litellm.UncertaintyGate(**odd)
    gate = litellm.UncertaintyGate()
    assert (gate.threshold, gate.instead, gate.unscored) == (None, "I am not sure.", "pass")
    said: list[Any] = []
    log = litellm.ScoreLog(lambda block, call: said.append((block["confidence"], call)))
    reply = Fields(choices=[{"semtoken": {"confidence": 0.5}}, {}])
    asyncio.run(log.async_log_success_event({"model": 1}, reply, None, None))
    log.log_success_event({"model": 2}, reply, None, None)
    log.log_success_event({"model": 3}, None, None, None)
    assert said == [(0.5, {"model": 1}), (0.5, {"model": 2})]
