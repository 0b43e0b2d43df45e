"""Replies inside of what tracing tools, harnesses and clients save: found by one rule, and never the wrong one."""

from __future__ import annotations

import copy
import csv
import gzip
import io
import json
import math
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken import score_reply
from semtoken.errors import SemtokenError
from semtoken.replies.checking import rank_replies
from semtoken.replies.formats.within import DEEPEST, branches, replies_within
from tests.replies.made import chat_reply, events
from tests.replies.test_ends_of_answers import item, streamed

ITEMS = [item("Os", 0.8), item("lo", 0.9)]
BARE: list[dict[str, Any]] = [{"text": "Os", "logprob": math.log(0.8)}, {"text": "lo", "logprob": math.log(0.9)}]
RECORDS = [
    {
        str(5 + i): {"logprob": bare["logprob"], "rank": 1, "decoded_token": bare["text"]},
        "9": {"logprob": -9.0, "rank": 2},
    }
    for i, bare in enumerate(BARE)
]
TOKENS, LOGS = ["Os", "lo"], [bare["logprob"] for bare in BARE]
NUMBER = math.log(0.72)
REPLY = chat_reply("Oslo", ITEMS)
OTHER = chat_reply("Bergen", [item("Ber", 0.5), item("gen", 0.9)])
ASKED = {"messages": [{"role": "user", "content": "Capital of Norway?"}]}
MESSAGE = {
    "content": "Oslo",
    "type": "ai",
    "response_metadata": {"logprobs": {"content": ITEMS}, "finish_reason": "stop"},
}
HUMAN = {"content": "Capital of Norway?", "type": "human", "response_metadata": {}}


def completion(**logprobs: Any) -> dict[str, Any]:
    """A completion with these lists."""
    return {"choices": [{"text": "Oslo", "logprobs": logprobs}]}


def har(**content: str) -> dict[str, Any]:
    """A browser's log of one response."""
    return {"log": {"entries": [{"response": {"content": content}}]}}


ENDS: dict[str, dict[str, Any]] = {
    "output_text.done": {"text": "Oslo", "logprobs": ITEMS},
    "content_part.done": {"part": {"text": "Oslo", "logprobs": ITEMS}},
    "output_item.done": {"item": {"type": "message", "content": [{"text": "Oslo", "logprobs": ITEMS}]}},
}
"""Ends of parts of a stream of Responses, which repeat the part."""
EXPORTS: dict[str, Any] = {
    "OpenInference": {"attributes": {"input.value": json.dumps(ASKED), "output.value": json.dumps(REPLY)}},
    "LangSmith": {"inputs": ASKED, "outputs": {"generations": [[{"text": "Oslo", "message": {"kwargs": MESSAGE}}]]}},
    "LangGraph": {"messages": [HUMAN, MESSAGE]},
    "Braintrust": {"input": ASKED["messages"], "output": REPLY["choices"]},
    "inspect_ai": {
        "samples": [{"id": 1, "input": "Capital of Norway?", "output": REPLY, "events": [{"output": REPLY}]}]
    },
    "pydantic-ai": {"parts": [{"content": "Oslo"}], "provider_details": {"logprobs": ITEMS}, "kind": "response"},
    "Spring AI": {"results": [{"output": {"text": "Oslo"}, "metadata": {"logprobs": {"content": ITEMS}}}]},
    "Haystack": {"role": "assistant", "content": [{"text": "Oslo"}], "meta": {"logprobs": {"content": ITEMS}}},
    "HELM": {"completions": [{"text": "Oslo", "logprob": NUMBER, "tokens": BARE}], "cached": False},
    "blocks": {"content": [{"type": "text", "text": "Oslo", "logprobs": ITEMS}], "response_metadata": {"id": "r"}},
    "HAR": har(text=json.dumps(REPLY)),
    "HAR of a stream": har(text=streamed(REPLY)),
    "Vertex": {"request": ASKED, "response": {"choices": REPLY["choices"]}, "status": ""},
    "encoded twice": json.dumps(json.dumps(REPLY)),
    "lm-eval": {"doc": {"q": "?", "choices": ["Oslo", "Rome"]}, "resps": [[REPLY]]},
    "LiteLLM": {"request_id": "r", "messages": json.dumps(ASKED["messages"]), "response": json.dumps(REPLY)},
    "MLflow": {
        "attributes": {"mlflow.spanInputs": json.dumps(ASKED), "mlflow.spanOutputs": json.dumps(REPLY)},
    },
    "OCI": completion(tokens=TOKENS, tokenLogprobs=LOGS, topLogprobs=[{"Os": LOGS[0]}, {"lo": LOGS[1]}]),
    "OCI without best tokens": completion(tokens=TOKENS, tokenLogprobs=LOGS, topLogprobs=[]),
    "llm, issue 284": {
        "content": "Oslo",
        "logprobs": [{"text": b["text"], "top_logprobs": [{b["text"]: b["logprob"], "x": -9.0}]} for b in BARE],
    },
    "DSPy, pull request 999": [{"text": "Oslo", "logprobs": {"tokens": TOKENS, "token_logprobs": LOGS}}],
    "vLLM's RequestOutput": {
        "prompt": "Capital of Norway?",
        "outputs": [{"index": 0, "text": "Oslo", "token_ids": [5, 6], "logprobs": RECORDS, "finish_reason": "stop"}],
    },
    "Triton's vLLM backend, pull request 75": {
        "model_name": "vllm",
        "text_output": "Oslo",
        "logprobs": json.dumps([{key: step[key]} for key, step in zip("56", RECORDS, strict=True)]),
    },
    "Agents SDK, pull request 2134": {
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "Oslo", "logprobs": []}]}],
        "logprobs": ITEMS,
    },
    "Cohere": {
        "finish_reason": "COMPLETE",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "Oslo"}]},
        "logprobs": [{"token_ids": [i], "text": b["text"], "logprobs": [b["logprob"]]} for i, b in enumerate(BARE)],
    },
    "Oracle's chat": {
        "chatResponse": {
            "message": {"content": [{"type": "TEXT", "text": "Oslo"}]},
            "logProbabilities": [
                {"tokenIds": [i], "text": b["text"], "logProbabilities": [b["logprob"]]} for i, b in enumerate(BARE)
            ],
        }
    },
    "numbers as texts, as Oracle documents": chat_reply(
        "Oslo", [one | {"logprob": str(one["logprob"]), "top_logprobs": []} for one in ITEMS]
    ),
    "bytes as go-openai writes them": chat_reply(
        "Oslo", [one | {"bytes": b64encode(one["token"].encode()).decode()} for one in ITEMS]
    ),
    "llama.cpp's server, issue 6423": {
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Oslo"}}],
        "completion_probabilities": [
            {"content": b["text"], "probs": [{"tok_str": b["text"], "prob": math.exp(b["logprob"])}]} for b in BARE
        ],
    },
    "AI21's Jurassic in Bedrock": {
        "prompt": {
            "text": "Rome",
            "tokens": [{"generatedToken": {"token": "Rome", "logprob": -9.0}, "topTokens": None}],
        },
        "completions": [
            {
                "data": {
                    "text": "Oslo",
                    "tokens": [
                        {"generatedToken": {"token": name, "logprob": b["logprob"]}, "topTokens": None}
                        for name, b in zip(("\u2581Os", "lo"), BARE, strict=True)
                    ],
                }
            }
        ],
    },
    "columns beside an answer": {
        "question": "Capital of Norway?",
        "answer": "Oslo",
        "tokens": TOKENS,
        "logprobs": LOGS,
    },
    "lists of items in those of completions": completion(
        tokens=TOKENS, token_logprobs=LOGS, top_logprobs=[[{"token": b["text"], "logprob": b["logprob"]}] for b in BARE]
    ),
    "HAR in base64": har(encoding="base64", text=b64encode(json.dumps(REPLY).encode()).decode()),
    "notebook": {
        "nbformat": 4,
        "cells": [{"outputs": [{"text": [f"{line}\n" for line in json.dumps(REPLY, indent=1).splitlines()]}]}],
    },
    "OpenAI for .NET": {
        "Content": [{"Kind": 0, "Text": "Oslo"}],
        "ContentTokenLogProbabilities": [{"Token": bare["text"], "LogProbability": bare["logprob"]} for bare in BARE],
    },
    "SGLang's own numbers in the choices of a chat": {
        "choices": [
            {
                "message": {"content": "Oslo"},
                "meta_info": {"output_token_logprobs": [[b["logprob"], i, b["text"]] for i, b in enumerate(BARE)]},
            }
        ]
    },
    "llama.cpp's in them": {"choices": [{"message": {"content": "Oslo"}, "completion_probabilities": ITEMS}]},
    "llama.rn": {"text": "Oslo", "completion_probabilities": ITEMS, "stopped_eos": True, "stopped_limit": False},
    "a completion whose text is null": {"choices": [{"text": None, "logprobs": {"content": ITEMS}}]},
    "Oracle's older texts": {
        "inferenceResponse": {
            "generatedTexts": [
                {
                    "text": "Oslo",
                    "likelihood": -0.2,
                    "finishReason": "COMPLETE",
                    "tokenLikelihoods": [{"token": b["text"], "likelihood": b["logprob"]} for b in BARE],
                }
            ]
        }
    },
    "numbers in camel case": {
        "response": "Oslo",
        "logprobs": [{"token": b["text"], "logProb": b["logprob"]} for b in BARE],
    },
    "Cohere's thinking": {
        "finish_reason": "COMPLETE",
        "message": {"content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Oslo"}]},
        "logprobs": [
            {"token_ids": [i], "text": b["text"], "logprobs": [b["logprob"]]}
            for i, b in enumerate([{"text": "Hm.", "logprob": -0.5}, *BARE])
        ],
    },
    "lines of a stream": streamed(REPLY).splitlines(),
    "Vertex's older batches": {"instance": ASKED, "prediction": {"choices": REPLY["choices"]}},
    "Bedrock's log": {"input": {"inputBodyJson": ASKED}, "output": {"outputBodyJson": REPLY}},
    "Postman": {"request": {"body": {"raw": json.dumps(ASKED)}}, "response": [{"body": json.dumps(REPLY)}]},
    "the AI SDK's span": {
        "attributes": {
            "ai.response.text": "Oslo",
            "ai.prompt.messages": json.dumps(ASKED["messages"]),
            "ai.response.providerMetadata": json.dumps({"openai": {"logprobs": ITEMS}}),
        }
    },
    **{
        f"Responses with numbers in {end} alone": events(
            *({"type": "response.output_text.delta", "delta": one["token"], "logprobs": []} for one in ITEMS),
            {"type": f"response.{end}"} | held,
            {"type": f"response.{end}"} | held,
            {"type": "response.completed", "response": {"output": [], "status": "completed"}},
        )
        for end, held in ENDS.items()
    },
}
"""Forms as these tools save them, each with one answer."""


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_is_read_wherever_its_reply_stands(name: str, tmp_path: Path) -> None:
    [found] = score_reply(copy.deepcopy(EXPORTS[name]))
    assert found.text.strip() == "Oslo" and found.log_confidence == pytest.approx(NUMBER, abs=1e-6)
    path = tmp_path / "export.json"
    path.write_text(EXPORTS[name] if isinstance(EXPORTS[name], str) else json.dumps(EXPORTS[name]), encoding="utf-8")
    [answer] = rank_replies([str(path)]).answers
    assert answer.response.log_confidence == pytest.approx(NUMBER, abs=1e-6)
    assert answer.question == ("Capital of Norway?" if "Capital" in json.dumps(EXPORTS[name]) else None)


def test_an_error_beside_a_reply_is_said(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    # The last of those that are no error of a server is promptfoo's.
    errors = (
        {"message": "partial"},
        [{"message": "partial"}],
        None,
        False,
        True,
        0.31,
        "Expected output to contain 'B'",
    )
    lines = [{"error": error, "data": REPLY} for error in errors]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = rank_replies([str(path)])
    assert len(found.answers) == 5 and all("partial" in refused.reason for refused in found.refused)
    assert all(score_reply(line)[0].text == "Oslo" for line in lines[2:])
    for line in lines[:2]:
        with pytest.raises(SemtokenError, match="partial"):
            score_reply(line)


@pytest.mark.parametrize("lines", [streamed(REPLY).splitlines(), streamed(REPLY).encode().splitlines()])
def test_lines_of_a_stream_are_read_from_any_iterable(lines: list[Any]) -> None:
    """Pieces that are no lines stay as they are, even where the first of them could be one."""
    whole = streamed(REPLY)
    for chunks in (lines, tuple(lines), iter(lines), ["", whole[:30], whole[30:]], iter([whole[:30], whole[30:]])):
        [found] = score_reply(chunks)
        assert found.text == "Oslo" and found.log_confidence == pytest.approx(NUMBER, abs=1e-6)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_replies_in_the_cells_of_a_table_are_read_with_their_questions(ending: str, tmp_path: Path) -> None:
    rows = [
        {"id": "a", "question": "Capital of Norway?", "answer": json.dumps(REPLY)},
        {"id": "b", "question": "Second city?", "answer": json.dumps(OTHER)},
    ]
    path = tmp_path / f"table.{ending}"
    if ending == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    found = {answer.id: answer for answer in rank_replies([str(path)])}
    assert found["a"].response.log_confidence == pytest.approx(NUMBER, abs=1e-6)
    assert found["a"].question == "Capital of Norway?" and found["b"].response.text == "Bergen"


def test_a_table_from_standard_input_or_in_gzip_is_to_be_saved_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "table.parquet.gz"
    packed.write_bytes(gzip.compress(b"PAR1"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"PAR1")))
    for source in (str(packed), "-"):
        with pytest.raises(SemtokenError, match="save it as a file of its own"):
            rank_replies([source])


HEADS = {
    "-i": "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
    "-v": "* Connected to localhost\n> POST /v1/chat/completions HTTP/1.1\n>\n< HTTP/1.1 200 OK\n<\n",
}


@pytest.mark.parametrize("option", HEADS)
@pytest.mark.parametrize("body", [json.dumps(REPLY), json.dumps(REPLY, indent=1), streamed(REPLY)])
def test_what_curl_prints_around_a_reply_says_nothing(option: str, body: str, tmp_path: Path) -> None:
    printed = HEADS[option] + body + ("\n* Connection #0 to host localhost left intact\n" if option == "-v" else "")
    path = tmp_path / "printed.txt"
    path.write_text(printed, encoding="utf-8", newline="")
    [answer] = rank_replies([str(path)])
    for found in (answer.response, *score_reply(printed), *score_reply(printed.encode())):
        assert found.log_confidence == pytest.approx(NUMBER, abs=1e-6)


@pytest.mark.parametrize("body", [json.dumps(REPLY), streamed(chat_reply("It's", [item("It", 0.8), item("'s", 0.9)]))])
def test_lines_that_python_prints_as_bytes_are_what_they_say(body: str, tmp_path: Path) -> None:
    printed = "".join(f"{line.encode()!r}\n" for line in body.split("\n"))
    path = tmp_path / "printed.txt"
    path.write_text(printed, encoding="utf-8", newline="")
    [answer] = rank_replies([str(path)])
    for found in (answer.response, *score_reply(printed), *score_reply(printed.encode())):
        assert found.log_confidence == pytest.approx(NUMBER, abs=1e-6)
    with pytest.raises(SemtokenError, match="not JSON"):
        score_reply(printed.replace("b'", "b'\\x", 1))


WRAPPED = st.recursive(
    st.just("HERE"),
    lambda inner: st.one_of(
        st.dictionaries(
            st.sampled_from(["id", "note", "n"]), st.sampled_from(["x", 1, None, [], {"choices": ["A", "B"]}])
        ).flatmap(
            lambda beside: st.tuples(st.sampled_from(["data", "output", "kwargs"]), inner).map(
                lambda kept: beside | {kept[0]: kept[1]}
            )
        ),
        inner.map(lambda value: [value]),
        inner.filter(lambda value: value != "HERE").map(json.dumps),
    ),
    max_leaves=6,
)


def put(value: Any, reply: Any) -> Any:
    """The value with a reply in its place, also in texts of JSON."""
    if value == "HERE":
        return reply
    if isinstance(value, dict):
        return {name: put(inner, reply) for name, inner in value.items()}
    if isinstance(value, list):
        return [put(inner, reply) for inner in value]
    if isinstance(value, str) and "HERE" in value:
        return json.dumps(put(json.loads(value), reply))
    return value


@given(WRAPPED)
def test_members_lists_and_texts_of_json_hide_no_reply(wrapped: Any) -> None:
    value = {"id": "7", "kept": put(wrapped, REPLY)}
    [found] = score_reply(value)
    assert found.log_confidence == pytest.approx(NUMBER, abs=1e-6)


@pytest.mark.parametrize(("depth", "read"), [(DEEPEST, True), (DEEPEST + 1, False)])
def test_replies_are_looked_for_down_to_a_stated_depth(depth: int, read: bool) -> None:
    value: Any = REPLY
    for _ in range(depth):
        value = {"in": value}
    if read:
        assert score_reply(value)[0].log_confidence == pytest.approx(NUMBER, abs=1e-6)
    else:
        with pytest.raises(SemtokenError, match="no reply that semtoken understands"):
            score_reply(value)


def test_two_different_replies_are_refused_with_their_paths_and_forms() -> None:
    gemini = {
        "candidates": [
            {
                "content": {"parts": [{"text": "Rome"}]},
                "logprobsResult": {"chosenCandidates": [{"token": "Rome", "logProbability": -0.1}]},
            }
        ]
    }
    with pytest.raises(SemtokenError, match=r"'chat' at a\.b, 'gemini' at c, and nothing says which is meant"):
        score_reply({"a": {"b": REPLY}, "c": gemini})
    with pytest.raises(SemtokenError, match=r"'chat' at reply, 'chat' at judge"):
        score_reply({"id": 1, "reply": REPLY, "judge": OTHER})


def test_replies_side_by_side_are_all_read(tmp_path: Path) -> None:
    by_id = {"q1": REPLY, "q2": OTHER, "q3": REPLY}
    samples = [{"id": name, "output": one} for name, one in by_id.items()]
    path = tmp_path / "all.json"
    for value in (by_id, {"version": 2, "samples": samples}, {"runs": [json.dumps(line) for line in samples]}):
        path.write_text(json.dumps(value), encoding="utf-8")
        found = rank_replies([str(path)])
        assert {answer.id: answer.text for answer in found.answers} == {"q1": "Oslo", "q2": "Bergen", "q3": "Oslo"}
        assert [answer.text for answer in score_reply(value)] == ["Oslo", "Bergen", "Oslo"]


def test_several_answers_to_one_question_have_it(tmp_path: Path) -> None:
    """Whether their record is a file or a line, unless they have questions of their own."""
    path = tmp_path / "all.json"
    for replies, asked in (([REPLY, OTHER], "Why?"), ([{**ASKED, "reply": REPLY}] * 2, "Capital of Norway?")):
        path.write_text(json.dumps({"question": "Why?", "replies": replies}))
        path.with_suffix(".jsonl").write_text(json.dumps({"question": "Why?", "replies": replies}) + "\n")
        assert {answer.question for answer in rank_replies([str(path)])} == {asked}
        assert {answer.question for answer in rank_replies([str(path.with_suffix(".jsonl"))])} == {asked}


def test_replies_side_by_side_in_each_of_several_runs_keep_their_questions() -> None:
    runs = [{"turns": [{"question": f"{run}{turn}?", "reply": REPLY} for turn in "xy"]} for run in "ab"]
    for value in ({"runs": runs}, {"runs": json.dumps(runs)}):
        assert [answer.question for answer in score_reply(value)] == ["ax?", "ay?", "bx?", "by?"]


@pytest.mark.parametrize("as_text", [False, True])
def test_many_streams_in_one_value_take_time_in_proportion_to_their_number(as_text: bool) -> None:
    def seconds(streams: int) -> float:
        entries = [
            {"event": {"id": f"s{i}", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}}]}}
            for i in range(streams)
            for _ in range(2)
        ]
        value = {"log": json.dumps(entries) if as_text else entries}
        start = time.process_time()
        assert len(found := replies_within(value)) == len(branches(value, found)) == streams
        return time.process_time() - start

    assert min(seconds(2_000) for _ in range(2)) < 30 * max(min(seconds(200) for _ in range(3)), 0.005)


@pytest.mark.parametrize("number", ["-1_0", " -0.5", "0x1", "1" * 100_000 + "x"])
def test_a_text_that_is_no_number_of_json_is_no_log_probability(number: str) -> None:
    start = time.process_time()
    with pytest.raises(SemtokenError, match="must be a number"):
        score_reply(chat_reply("Oslo", [one | {"logprob": number} for one in ITEMS]))
    assert time.process_time() - start < 10


@pytest.mark.parametrize("lost", [None, "{}", []])
def test_a_list_of_wrapped_tokens_of_which_one_is_none_is_no_answer(lost: Any) -> None:
    value = copy.deepcopy(EXPORTS["AI21's Jurassic in Bedrock"])
    value["completions"][0]["data"]["tokens"][0]["generatedToken"] = lost
    with pytest.raises(SemtokenError, match="no reply that semtoken understands"):
        score_reply(value)


@pytest.mark.parametrize(
    "tokens",
    [
        {"tokens": ["lo"], "logprobs": [-0.1]},
        {"tokens": [{"token": "lo", "logprob": -0.1}]},
        {"tokens": [{"generatedToken": {"token": "lo", "logprob": -0.1}, "topTokens": None}]},
    ],
)
def test_the_text_of_a_token_is_no_text_beside_it(tokens: Any) -> None:
    [answer] = score_reply({"answer": "lo", **tokens})
    assert answer.log_confidence == pytest.approx(-0.1)
    with pytest.raises(SemtokenError, match=r"no reply that semtoken understands|do not name their tokens"):
        score_reply({"answer": "Oslo", **tokens})


def test_bytes_that_repeat_the_text_of_their_token_are_not_base64() -> None:
    with pytest.raises(SemtokenError, match="bytes must be a list of numbers"):
        score_reply(chat_reply("that", [item("that", 0.8) | {"bytes": "that"}]))


def test_a_reply_without_numbers_beside_others_is_not_lost(tmp_path: Path) -> None:
    silent = copy.deepcopy(OTHER)
    silent["choices"][0]["logprobs"] = None
    path = tmp_path / "all.json"
    path.write_text(json.dumps({"samples": [{"id": "a", "output": REPLY}, {"id": "b", "output": silent}]}))
    found = rank_replies([str(path)])
    assert [answer.id for answer in found.answers] == ["a"] and "no log-prob" in found.refused[0].reason
    both = {"choices": [*REPLY["choices"], silent["choices"][0] | {"index": 1}]}
    path.write_text(json.dumps({"custom_id": "q", "response": {"body": both}}))
    found = rank_replies([str(path)])
    assert [answer.id for answer in found.answers] == ["q/0"]
    assert found.refused[0].id == "q/1" and "no log-prob" in found.refused[0].reason


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"doc_id": 0, "doc": {"choices": ["A", "B"]}, "resps": [[["-0.35", "True"]]]}, "lm-eval"),
        (
            {
                "name": "gen_ai.choice",
                "attributes": {"gen_ai.system": "openai"},
                "body": {"message": {"content": "Oslo"}},
            },
            "OpenTelemetry",
        ),
        (
            {"completion_message": {"content": "Oslo"}, "logprobs": [{"logprobs_by_token": {"Oslo": -0.1}}]},
            "Llama Stack",
        ),
        ({"answer": "Oslo", "logprobs": [-0.1, -0.2]}, "do not name their tokens"),
        ({"results": {"results": [{"response": {"output": "Oslo", "logProbs": [-0.1]}}]}}, "promptfoo"),
        ({"object": "list", "data": [{"object": "embedding", "embedding": [-0.1]}]}, "embeddings"),
        ({"id": "m", "results": [{"flagged": False, "category_scores": {"hate": 0.1}}]}, "moderation"),
        ({"object": "batch", "status": "completed", "output_file_id": "f"}, "state of a batch"),
        ({"output": {"message": {"content": [{"text": "Oslo"}]}}, "stopReason": "end_turn"}, "Converse"),
        ({"nbformat": 4, "cells": [{"outputs": [{"text": ["ChatCompletion(id='c')"]}]}]}, "notebook"),
        ({"content": "Rome", "meta": {"logprobs": {"content": ITEMS}}}, "no reply that semtoken understands"),
    ],
)
def test_what_holds_no_reply_is_called_by_its_own_name(value: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(SemtokenError, match=told):
        score_reply(value)
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(value))
    with pytest.raises(SemtokenError, match=told):
        rank_replies([str(path)])
