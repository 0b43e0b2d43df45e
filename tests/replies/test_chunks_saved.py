"""Chunks of a stream as clients keep them: in arrays, below members, one a line, and each inside of something else.

A chunk that is taken for a reply has a number of its own, which is that of a few tokens and says nothing of the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semtoken import score_reply
from semtoken.errors import SemtokenError
from semtoken.replies.checking import rank_replies
from tests.replies.made import chat_chunk, chat_reply, entry, events, item, lines

TEXTS, LOGS = ("Os", "lo", "."), (-0.105361, -0.223144, -0.051293)
NUMBER = sum(LOGS)
ITEMS = [item(text, log) for text, log in zip(TEXTS, LOGS, strict=True)]
BARE = [entry(text, log) for text, log in zip(TEXTS, LOGS, strict=True)]
GEMINI = [{"token": text, "logProbability": log} for text, log in zip(TEXTS, LOGS, strict=True)]
MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "Oslo.", "logprobs": ITEMS}]}


def responses(output: list[Any]) -> list[dict[str, Any]]:
    """The events of OpenAI's Responses; `output` is what the last one repeats."""
    begun = {"id": "r", "object": "response", "status": "in_progress", "output": []}
    return [
        {"type": "response.created", "response": begun},
        *({"type": "response.output_text.delta", "delta": one["token"], "logprobs": [one]} for one in ITEMS),
        {"type": "response.completed", "response": {**begun, "status": "completed", "output": output}},
    ]


def legacy(number: int) -> dict[str, Any]:
    lists = {"tokens": [TEXTS[number]], "token_logprobs": [LOGS[number]]}
    end = "stop" if number == 2 else None
    return {
        "id": "cmpl",
        "object": "text_completion",
        "choices": [{"text": TEXTS[number], "logprobs": lists, "finish_reason": end}],
    }


def tgi(number: int) -> dict[str, Any]:
    token = {"id": number, "text": TEXTS[number], "logprob": LOGS[number], "special": False}
    ended = {"generated_text": "Oslo.", "details": {"finish_reason": "length"}} if number == 2 else {}
    return {"index": number, "token": token, "generated_text": None, **ended}


def sglang(number: int) -> dict[str, Any]:
    listed = [[log, i, text] for i, (text, log) in enumerate(zip(TEXTS, LOGS, strict=True))]
    end = {"type": "stop"} if number == 2 else None
    meta = {"id": "s", "finish_reason": end, "output_token_logprobs": listed[: number + 1]}
    return {"text": "".join(TEXTS[: number + 1]), "meta_info": meta}


def gemini(number: int) -> dict[str, Any]:
    chosen = {"chosenCandidates": [GEMINI[number]]}
    candidate = {"content": {"parts": [{"text": TEXTS[number]}]}, "logprobsResult": chosen}
    return {"candidates": [{**candidate, **({"finishReason": "STOP"} if number == 2 else {})}], "responseId": "g"}


HEARD = "conversation.item.input_audio_transcription"
STREAMS: dict[str, list[dict[str, Any]]] = {
    "chat": [*({**chat_chunk(one), "id": "c"} for one in ITEMS), {**chat_chunk(finish_reason="stop"), "id": "c"}],
    "completions": [legacy(i) for i in range(3)],
    "Responses": responses([MESSAGE]),
    "Responses, the end without output": responses([]),
    "transcription": [
        *({"type": "transcript.text.delta", "delta": one["token"], "logprobs": [one]} for one in BARE),
        {"type": "transcript.text.done", "text": "Oslo.", "logprobs": BARE},
    ],
    "Realtime": [
        *({"type": f"{HEARD}.delta", "delta": one["token"], "logprobs": [one]} for one in BARE),
        {"type": f"{HEARD}.completed", "transcript": "Oslo.", "logprobs": None},
    ],
    "Ollama": [
        *({"model": "m", "message": {"content": one["token"]}, "done": False, "logprobs": [one]} for one in ITEMS),
        {"model": "m", "message": {"content": ""}, "done": True, "done_reason": "stop"},
    ],
    "llama.cpp": [
        *({"content": one["token"], "stop": False, "completion_probabilities": [one]} for one in ITEMS),
        {"content": "", "stop": True, "stop_type": "eos"},
    ],
    "TGI": [tgi(i) for i in range(3)],
    "SGLang": [sglang(i) for i in range(3)],
    "Gemini": [gemini(i) for i in range(3)],
    "LangChain": [
        *(
            {
                "content": one["token"],
                "type": "AIMessageChunk",
                "id": "l",
                "response_metadata": {"logprobs": {"content": [one]}},
            }
            for one in ITEMS
        ),
        {"content": "", "type": "AIMessageChunk", "id": "l", "response_metadata": {"finish_reason": "stop"}},
    ],
}
"""The chunks of one answer in each shape, the last one with its end."""
WAYS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "an array": lambda chunks: chunks,
    "below a member": lambda chunks: {"id": "q", "chunks": chunks},
    "below a member of replies": lambda chunks: {"id": "q", "output": chunks},
    "below a member as texts": lambda chunks: {"events": [{"event": "message", "data": json.dumps(c)} for c in chunks]},
    "an array in an array": lambda chunks: [chunks],
    "each in an element": lambda chunks: [{"time": i, "data": chunk} for i, chunk in enumerate(chunks)],
}


def numbers(path: Path) -> list[float]:
    return [answer.response.log_confidence for answer in rank_replies([str(path)])]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", STREAMS)
def test_chunks_are_one_answer_wherever_they_are_kept(name: str, way: str, tmp_path: Path) -> None:
    value = WAYS[way](STREAMS[name])
    [scored] = score_reply(value)
    path = tmp_path / "kept.json"
    path.write_text(json.dumps(value))
    assert [scored.log_confidence, *numbers(path)] == pytest.approx([NUMBER] * 2, abs=1e-6)
    assert scored.text == "Oslo."
    for answers in ([value] * 2, [{"id": f"q{i}", "stream": value} for i in range(2)]):
        path.with_suffix(".jsonl").write_text(lines(*answers))
        assert numbers(path.with_suffix(".jsonl")) == pytest.approx([NUMBER] * 2, abs=1e-6)


@pytest.mark.parametrize("name", STREAMS)
def test_chunks_on_lines_are_one_answer_each_time(name: str, tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    for n_streams in (1, 2):
        path.write_text(lines(*STREAMS[name]) * n_streams)
        assert numbers(path) == pytest.approx([NUMBER] * n_streams, abs=1e-6)


@pytest.mark.parametrize("name", [name for name in STREAMS if name not in ("completions", "Gemini", "LangChain")])
def test_chunks_inside_of_something_on_lines_are_one_answer_each_time(name: str, tmp_path: Path) -> None:
    """Of the other three a chunk may be a whole reply, and lines that hold one each are read one by one."""
    path = tmp_path / "kept.jsonl"
    held = [{"time": i, "data": chunk} for i, chunk in enumerate(STREAMS[name])]
    for n_streams in (1, 2):
        path.write_text(lines(*held) * n_streams)
        assert numbers(path) == pytest.approx([NUMBER] * n_streams, abs=1e-6)
    path.write_text(lines(*held[:-1]))
    with pytest.raises(SemtokenError, match="ended before"):
        rank_replies([str(path)])
    whole = {"id": "q", "response": chat_reply("Oslo.", ITEMS)}
    path.write_text(lines(*held, whole, *held))
    answers = list(rank_replies([str(path)]))
    assert [one.response.log_confidence for one in answers] == pytest.approx([NUMBER] * 3, abs=1e-6)
    assert [one.id for one in answers].count("q") == 1


@pytest.mark.parametrize("name", STREAMS)
def test_chunks_without_the_last_are_no_whole_answer(name: str, tmp_path: Path) -> None:
    value = {"chunks": STREAMS[name][:-1]}
    path = tmp_path / "kept.json"
    path.write_text(json.dumps(value))
    for read in (lambda: score_reply(value), lambda: rank_replies([str(path)])):
        with pytest.raises(SemtokenError, match="ended before"):
            read()
    path.write_text(lines(*STREAMS[name][:-1]))
    with pytest.raises(SemtokenError, match="ended before"):
        rank_replies([str(path)])


def with_usage(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Chunks with the one behind them that counts tokens, which some servers give another id."""
    return [*chunks, {"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": {"completion_tokens": 3}}]


@pytest.mark.parametrize("way", WAYS)
def test_choices_that_end_one_after_the_other_are_of_one_stream(way: str, tmp_path: Path) -> None:
    second = [{**chunk, "choices": [{**chunk["choices"][0], "index": 1}]} for chunk in STREAMS["chat"]]
    first, last = STREAMS["chat"][:-1], STREAMS["chat"][-1]
    value = WAYS[way](with_usage([*first, *second[:-2], last, *second[-2:]]))
    path = tmp_path / "kept.json"
    path.write_text(json.dumps(value))
    assert [one.log_confidence for one in score_reply(value)] == pytest.approx([NUMBER] * 2, abs=1e-6)
    assert numbers(path) == pytest.approx([NUMBER] * 2, abs=1e-6)


@pytest.mark.parametrize("way", list(WAYS)[:5])
def test_an_error_among_the_chunks_refuses_the_answer(way: str) -> None:
    chunks = [*STREAMS["chat"][:2], {"error": {"message": "out of memory"}}]
    with pytest.raises(SemtokenError, match=r"out of memory|ended before"):
        score_reply(WAYS[way](chunks))


PIECES = st.sampled_from(
    [
        *STREAMS.values(),
        *(chunk for chunks in STREAMS.values() for chunk in chunks),
        events(*STREAMS["chat"]),
        chat_reply("Oslo.", ITEMS),
    ]
)
NESTED = st.recursive(
    PIECES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1),
        inner.map(json.dumps),
    ),
    max_leaves=6,
)


@given(NESTED)
@example({"a": events(*STREAMS["chat"]), "b": chat_reply("Oslo.", ITEMS)})
@example({"a": [*STREAMS["chat"], {"b": chat_reply("Oslo.", ITEMS)}]})
@example([[chat_reply("Oslo.", ITEMS), STREAMS["chat"][0]], {"a": STREAMS["chat"][1]}])
@example({"a": json.dumps(json.dumps({"c": {"a": chat_reply("Oslo.", ITEMS), "b": [chat_reply("lo.", ITEMS[1:])]}}))})
def test_chunks_and_replies_beside_each_other_end_in_numbers_or_in_words(value: Any) -> None:
    try:
        found = score_reply(value)
    except SemtokenError:
        return
    assert found
