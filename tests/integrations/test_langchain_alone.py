"""LangChain's runnable where LangChain is not installed, on what it handed on."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from semtoken import TokenClusters, score_reply
from semtoken.core.results.blocks import numbers_of
from tests.integrations.recordings import gateway
from tests.integrations.test_messages import CHOICE, REPLY
from tests.rows import each
from tests.stand_ins import Fields, imported


@pytest.fixture(scope="module")
def langchain() -> Iterator[ModuleType]:
    runnable = {"RunnableLambda": lambda function, name: function}
    messages = {"AIMessage": Fields}
    with imported(
        "semtoken.integrations.langchain", langchain_core__messages=messages, langchain_core__runnables=runnable
    ) as module:
        yield module


@each(("end", "truncated"), [("length", True), ("stop", False), (None, None)])
def test_langchain_keeps_the_score_beside_the_message(
    langchain: ModuleType, almanac_clusters: TokenClusters, end: str | None, truncated: bool | None
) -> None:
    kept, sent = gateway("langchain")["whole"], gateway("serve")["whole"]["choices"][0]
    del kept["response_metadata"]["logprobs"]["content"][-1]  # the line break that may have ended it: test_messages
    reply = {
        "choices": [
            {"message": sent["message"], "logprobs": kept["response_metadata"]["logprobs"], "finish_reason": end}
        ]
    }
    metadata = kept["response_metadata"] | {"finish_reason": end}
    message = Fields(text=kept["content"], tool_calls=[], invalid_tool_calls=[], response_metadata=metadata)
    choices: list[dict[str, Any]] = [{}, {"equality": "exact"}, {"preset": "paper"}]
    for options in choices:
        [expected] = score_reply(reply, almanac_clusters, **options)
        found = langchain.with_uncertainty(almanac_clusters, **options)(message).response_metadata
        assert found == metadata | {"semtoken": numbers_of(expected)}
        [asked] = score_reply(reply, almanac_clusters, **options, question="What is the capital of Mexico?")
        scored = langchain.score(message, almanac_clusters, question="What is the capital of Mexico?", **options)
        assert numbers_of(scored) == numbers_of(asked) and scored.truncated is truncated
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
