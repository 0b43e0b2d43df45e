"""The same recorded items give the same answer, or the same error, through every way in."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from semtoken import score_logprobs, score_reply
from semtoken.core.engine_tokens import TopStep
from semtoken.core.results import ScoredAnswer
from semtoken.errors import SemtokenError
from semtoken.replies import ReplyStream, read_reply
from tests.replies.made import chat_chunk, chat_reply, events, item
from tests.replies.recorded import NAMES, clusters, recording
from tests.rows import each


def chats() -> list[str]:
    """Recorded chats whose one list of items is that of an answer alone."""
    found = []
    for name in NAMES:
        reply = recording(name).reply
        choices = reply.get("choices", []) if isinstance(reply, dict) else []
        if len(choices) != 1 or not isinstance(choices[0].get("logprobs"), dict):
            continue
        if choices[0]["logprobs"].get("content") and [s.kind for s in read_reply(reply).choices[0].segments] == [
            "answer"
        ]:
            found.append(name)
    return found


CHATS = chats()


def as_objects(item: Any) -> Any:
    """An item as clients show it."""
    if not isinstance(item, dict):
        return item
    top = [as_objects(entry) for entry in item.get("top_logprobs") or ()]
    return SimpleNamespace(**(item | {"top_logprobs": top}))


def streamed(reply: Any) -> str:
    """The reply in two chunks of a stream: all of it, and the end."""
    whole = copy.deepcopy(reply)
    [choice] = whole["choices"]
    message, finish = choice.pop("message"), choice.pop("finish_reason", "stop")
    first = whole | {"choices": [choice | {"delta": message, "finish_reason": None}]}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    return events(first, last)


def records(reply: Any) -> list[TopStep]:
    stream = ReplyStream()
    events = stream.feed(streamed(reply))
    return [step for event in events for step in event.steps]


WAYS: dict[str, Callable[[Any], ScoredAnswer]] = {
    "reply": lambda reply: score_reply(reply, clusters())[0],
    "text of the reply": lambda reply: score_reply(json.dumps(reply), clusters())[0],
    "stream": lambda reply: score_reply(streamed(reply), clusters())[0],
    "items": lambda reply: score_logprobs(items(reply), clusters(), token_ids=ids(reply)),
    "logprobs": lambda reply: score_logprobs(reply["choices"][0]["logprobs"], clusters(), token_ids=ids(reply)),
    "objects": lambda reply: score_logprobs([*map(as_objects, items(reply))], clusters(), token_ids=ids(reply)),
    "records": lambda reply: score_logprobs(records(reply), clusters(), token_ids=ids(reply)),
}


def items(reply: Any) -> list[Any]:
    return list(reply["choices"][0]["logprobs"]["content"])


def ids(reply: Any) -> list[int] | None:
    found = reply["choices"][0].get("token_ids")
    return found if found and len(found) == len(items(reply)) else None


def outcome(way: str, reply: Any) -> Any:
    """Numbers of the score, or the kind of the error and what it says about the tokens, wherever they stood."""
    try:
        result = WAYS[way](reply)
    except SemtokenError as error:
        said = str(error).removeprefix("Choice 0: ").replace("choices[0].logprobs.content", "steps")
        return type(error), said
    return result.token_ids, result.sequence_uncertainty, result.sequence_uncertainty_interval


def test_there_are_answers_and_errors_among_the_recordings() -> None:
    kinds = {type(outcome("reply", recording(name).reply)[0]) for name in CHATS}
    assert kinds == {list, type}
    assert len(CHATS) >= 6


@each("name", CHATS)
@each("way", [way for way in WAYS if way != "reply"])
def test_every_way_in_gives_the_same(name: str, way: str) -> None:
    reply = recording(name).reply
    assert outcome(way, reply) == outcome("reply", reply)


BROKEN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a logit": lambda item: item.update(logprob=3.5),
    "not a number": lambda item: item.update(logprob=float("nan")),
    "a text": lambda item: item.update(logprob="much"),
    "none": lambda item: item.update(logprob=None),
    "no field": lambda item: item.pop("logprob"),
    "bytes": lambda item: item.update(bytes=[1, 256]),
    "another token": lambda item: item.update(token="Zyzzyva", bytes=list(b"Zyzzyva")),
    "no name": lambda item: item.update(token="", bytes=None),
    "a piece": lambda item: item.update(token="\ufffd", bytes=None),
}


@each("way", [way for way in WAYS if way not in ("reply", "text of the reply", "records")])
@each("fault", BROKEN)
def test_every_way_in_fails_with_the_same_error(fault: str, way: str) -> None:
    reply = copy.deepcopy(recording("vllm-chat").reply)
    reply["choices"][0].pop("token_ids", None)
    BROKEN[fault](reply["choices"][0]["logprobs"]["content"][0])
    kind, said = outcome("reply", reply)
    assert isinstance(kind, type), said
    found = outcome(way, reply)
    if "do not spell the message" in said:  # only a reply has a message
        assert isinstance(found[0], type) or way in ("items", "logprobs", "objects")
    else:
        assert found == (kind, said)


WHOLE = chat_reply("Oslo", [item("Os"), item("lo")])
STREAM = events(chat_chunk(item("Os")), chat_chunk(item("lo")), chat_chunk(finish_reason="stop"), done=True)


@each("given", [[WHOLE], [json.dumps(WHOLE)], [[WHOLE]], {"runs": [WHOLE]}, STREAM.splitlines(keepends=True), [STREAM]])
def test_a_list_may_hold_one_reply_in_any_form_or_the_parts_of_a_stream(given: Any) -> None:
    assert [(answer.text, answer.log_confidence) for answer in score_reply(given)] == [("Oslo", -0.5)]


def test_replies_of_two_formats_in_one_value_are_refused() -> None:
    candidates = [{"token": "Oslo", "logProbability": -0.5}]
    gemini = {"content": {"parts": [{"text": "Oslo"}]}, "logprobsResult": {"chosenCandidates": candidates}}
    with pytest.raises(SemtokenError, match="replies of several formats"):
        score_reply({"runs": [{"output": WHOLE}, {"output": {"candidates": [gemini]}}]})
