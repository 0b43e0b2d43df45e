"""Messages of hosts as replies: the same numbers as from the server's own reply, its calls of tools apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from semtoken import score_reply
from semtoken.errors import InvalidInputError
from semtoken.integrations.messages import reply_of

REPLY: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "replies" / "data" / "vllm-chat-tool.json").read_text("utf-8")
)["reply"]
"""vLLM's reply with a text and a call: "Wait.", then `weather({})`."""
[CHOICE] = REPLY["choices"]


@pytest.mark.parametrize("arguments", [{}, "{}"])
def test_the_tokens_of_a_call_are_no_part_of_the_text(arguments: Any) -> None:
    [expected] = score_reply(REPLY)
    made = reply_of("Wait.", CHOICE["logprobs"], [("weather", arguments)])
    [found] = score_reply(made)
    assert (found.text, found.log_confidence, found.n_tokens) == ("Wait.", expected.log_confidence, 5)
    assert [flag.code for flag in found.flags] == [flag.code for flag in expected.flags]
    [of_calls], [expected] = score_reply(made, segment="tool_call"), score_reply(REPLY, segment="tool_call")
    assert (of_calls.text, of_calls.log_confidence) == (expected.text, expected.log_confidence)


def test_a_message_that_only_calls_a_tool_has_no_answer() -> None:
    """Without the call its tokens passed for reasoning."""
    only = {"content": CHOICE["logprobs"]["content"][5:]}
    with pytest.raises(InvalidInputError, match=r"no answer to score: it holds tool_call.*segment='tool_call'"):
        score_reply(reply_of("", only, [("weather", {})]))


def test_arguments_that_are_no_json_are_named() -> None:
    with pytest.raises(InvalidInputError, match="The arguments of weather cannot be written as JSON"):
        reply_of("", CHOICE["logprobs"], [("weather", {"at": object()})])


def test_a_message_that_was_cut_off_is_said_to_be() -> None:
    assert [score_reply(reply_of("Wait.", CHOICE["logprobs"], end=end))[0].truncated for end in ("stop", "length")] == [
        False,
        True,
    ]
