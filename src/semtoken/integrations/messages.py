"""A model's message, as a host keeps it, made into a reply in OpenAI's form, which can be scored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from semtoken.replies.formats.fields import arguments_as_json


def reply_of(text: str, logprobs: Any, calls: Iterable[tuple[str, Any]] = (), *, end: str = "stop") -> dict[str, Any]:
    """A reply in OpenAI's form that holds one message with its log-probabilities.

    Parameters
    ----------
    text
        The text of the message.
    logprobs
        The log-probabilities of its tokens, as OpenAI's `choices[].logprobs`.
    calls
        The function's name and the arguments of each call of a tool: values, or JSON. The log-probabilities are of
        their tokens, too, which without them would pass for tokens of the answer, or for reasoning.
    end
        The reason of its end, as OpenAI names it: `length` if it was cut off.

    Raises
    ------
    InvalidInputError
        Arguments that JSON cannot hold.
    """
    message: dict[str, Any] = {"role": "assistant", "content": text}
    written = [
        (name, arguments if isinstance(arguments, str) else arguments_as_json(arguments, f"The arguments of {name}"))
        for name, arguments in calls
    ]
    if written:
        functions = ({"name": name, "arguments": arguments} for name, arguments in written)
        message["tool_calls"] = [{"type": "function", "function": function} for function in functions]
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": end}
    return {"object": "chat.completion", "choices": [choice]}
