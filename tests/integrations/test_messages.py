"""Messages of hosts as replies: the same numbers as from the server's own reply, its calls of tools apart."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from semtoken import score_logprobs, score_reply
from semtoken.errors import InvalidInputError
from semtoken.integrations.messages import reply_of, score_message
from tests.rows import each

REPLY: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "replies" / "data" / "vllm-chat-tool.json").read_text("utf-8")
)["reply"]
"""vLLM's reply with a text and a call: "Wait.", then `weather({})`."""
[CHOICE] = REPLY["choices"]


@pytest.mark.parametrize("arguments", [{}, "{}"])
def test_the_tokens_of_a_call_are_no_part_of_the_text(arguments: Any) -> None:
    [expected] = score_reply(REPLY)
    made = reply_of("Wait.", CHOICE["logprobs"], [("weather", arguments)], end="tool_calls")
    [found] = score_reply(made)
    assert (found.text, found.log_confidence, found.n_tokens) == ("Wait.", expected.log_confidence, 5)
    assert [flag.code for flag in found.flags] == [flag.code for flag in expected.flags]
    [of_calls], [expected] = score_reply(made, segment="tool_call"), score_reply(REPLY, segment="tool_call")
    assert (of_calls.text, of_calls.log_confidence) == (expected.text, expected.log_confidence)


def test_a_message_that_only_calls_a_tool_has_no_answer() -> None:
    """Without the call its tokens passed for reasoning."""
    only = {"content": CHOICE["logprobs"]["content"][5:]}
    with pytest.raises(InvalidInputError, match=r"no answer to score: it holds tool_call.*segment='tool_call'"):
        score_reply(reply_of("", only, [("weather", {})], end=None))


def test_arguments_that_are_no_json_are_named() -> None:
    with pytest.raises(InvalidInputError, match="The arguments of weather cannot be written as JSON"):
        reply_of("", CHOICE["logprobs"], [("weather", {"at": object()})], end=None)


@each(("end", "truncated"), [("stop", False), ("length", True), (None, None)])
def test_a_message_says_whether_it_was_cut_off(end: str | None, truncated: bool | None) -> None:
    assert score_reply(reply_of("Wait.", CHOICE["logprobs"], end=end))[0].truncated is truncated


@each("end", ["stop", None])
def test_a_line_break_behind_a_message_may_have_ended_it_or_not(end: str | None) -> None:
    steps = [{"token": "Lima", "logprob": math.log(0.7)}, {"token": "\n", "logprob": math.log(0.6)}]
    listed = [step | {"top_logprobs": [step]} for step in steps]
    stopped, ended = score_logprobs(listed[:1], None), score_logprobs(listed, None)
    found = score_message("Lima", {"content": listed}, end=end, question="Where?")
    low, high = found.sequence_uncertainty_interval
    assert low == pytest.approx(stopped.sequence_uncertainty_interval[0])
    assert high == pytest.approx(ended.sequence_uncertainty_interval[1])
    assert found.sequence_uncertainty == pytest.approx(0.3) and high == pytest.approx(1 - 0.7 * 0.6, abs=1e-5)
    assert found.confidence_interval == pytest.approx((1 - high, 1 - low))
    cut = score_message("Lima", {"content": listed}, end="length")
    alone = score_message("Lima", {"content": listed[:1]}, end=end)
    for plain in (cut, alone):
        assert plain.sequence_uncertainty_interval == pytest.approx(stopped.sequence_uncertainty_interval)


@each("end", ["stop", None])
@each("tail", [" Q:", "\nQ", "."])
def test_other_text_behind_a_message_widens_nothing(end: str | None, tail: str) -> None:
    steps = [{"token": "Rome", "logprob": math.log(0.74)}, {"token": tail, "logprob": math.log(0.6)}]
    logprobs = {"content": [step | {"top_logprobs": [step]} for step in steps]}
    [expected] = score_reply(reply_of("Rome", logprobs, end=end))
    found = score_message("Rome", logprobs, end=end)
    assert found.log_confidence_interval == expected.log_confidence_interval
    assert [flag.message for flag in found.flags] == [flag.message for flag in expected.flags]
