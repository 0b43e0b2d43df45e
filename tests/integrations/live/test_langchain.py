"""LangChain's own client in front of the real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI

from semtoken import ScoredModel, TokenClusters, score_reply
from semtoken.errors import InvalidInputError
from semtoken.integrations.langchain import score, with_uncertainty
from semtoken.support.almanac import Question
from tests.integrations.live.serving import served
from tests.integrations.test_messages import CHOICE, REPLY


@pytest.fixture(scope="module")
def address(stc: ScoredModel) -> Iterator[str]:
    with served(stc) as url:
        yield url


def model(address: str, **fields: Any) -> ChatOpenAI:
    return ChatOpenAI(base_url=f"{address}/v1", api_key="none", model="almanac", max_tokens=24, **fields)


def test_intervals_hold_the_score_of_stc(
    address: str, stc: ScoredModel, clusters: TokenClusters, questions: list[Question]
) -> None:
    chain = model(address, logprobs=True, top_logprobs=20) | with_uncertainty(clusters)
    answers = stc.generate([q.prompt() for q in questions[:6]], 24, stop_at_newline=True)
    for question, answer in zip(questions[:6], answers, strict=True):
        block = chain.invoke(question.question).response_metadata["semtoken"]
        assert (
            block["sequence_uncertainty_interval"][0] - 1e-5
            <= answer.sequence_uncertainty
            <= block["sequence_uncertainty_interval"][1] + 1e-5
        )
        assert block["sequence_uncertainty_interval"][1] - block["sequence_uncertainty_interval"][0] < 0.5


def test_without_log_probabilities_there_is_a_reason(address: str, clusters: TokenClusters) -> None:
    chain = model(address) | with_uncertainty(clusters)
    block = chain.invoke("What is the capital of Japan?").response_metadata["semtoken"]
    assert "logprobs=True" in block["reason"] and "sequence_uncertainty" not in block
    with pytest.raises(InvalidInputError, match="logprobs=True"):
        score(AIMessage("Tokyo"), clusters)


def test_the_tokens_of_a_call_are_no_part_of_the_answer() -> None:
    metadata = {"logprobs": CHOICE["logprobs"], "finish_reason": "tool_calls"}
    call = {"name": "weather", "args": {}, "id": "1"}
    message = AIMessage("Wait.", tool_calls=[call], response_metadata=metadata)
    [expected], [of_calls] = score_reply(REPLY), score_reply(REPLY, segment="tool_call")
    assert score(message).log_confidence == expected.log_confidence
    assert score(message, segment="tool_call").log_confidence == of_calls.log_confidence
    bad = {"name": "weather", "args": "{}", "id": "1", "error": "no JSON"}
    kept_apart = AIMessage("Wait.", invalid_tool_calls=[bad], response_metadata=metadata)
    assert score(kept_apart).log_confidence == expected.log_confidence
