"""A model's message, as a host keeps it: made into a reply in OpenAI's form, and scored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from semtoken.core.results import ScoredAnswer
from semtoken.replies import score_reply
from semtoken.replies.formats.fields import arguments_as_json

ENDED_BY_TOKEN = {"stop": None}
"""A request without stop strings: a token ended its answer, and counts."""


def score_message(
    text: str, logprobs: Any, calls: Iterable[tuple[str, Any]] = (), *, end: str | None, **options: Any
) -> ScoredAnswer:
    """Score a message; `options` are those of `semtoken.score_reply`, the other arguments those of `reply_of`.

    Hosts do not keep what ended a message. A line break behind its text may be the token that ended it, which counts,
    or a stop string, which does not: then the interval holds the number of both. Anything else behind it is what
    `semtoken.score_reply` takes it for.

    Raises
    ------
    InvalidInputError, BackendError, VocabularyMismatch
        As `reply_of` and `semtoken.score_reply`.
    """
    calls = list(calls)
    [answer] = score_reply(reply_of(text, logprobs, calls, end=end), **options)
    [ended] = score_reply(reply_of(text, logprobs, calls, end=end or "stop"), request=ENDED_BY_TOKEN, **options)
    if ended.n_tokens <= answer.n_tokens:  # as mostly; records of all tokens take longer than scores
        return answer
    behind = "".join(token.text for token in ended.tokens[answer.n_tokens :])
    if not behind or behind.strip():
        return answer
    ends = [one.log_confidence_interval or (one.log_confidence,) for one in (answer, ended)]
    return answer.with_fields(log_confidence_interval=(min(map(min, ends)), max(map(max, ends))))


def reply_of(text: str, logprobs: Any, calls: Iterable[tuple[str, Any]] = (), *, end: str | None) -> dict[str, Any]:
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
        The reason of its end, as OpenAI names it: `length` if it was cut off. None: it is not known.

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
