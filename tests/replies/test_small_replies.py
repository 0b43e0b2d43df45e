"""Small replies and streams, and what they say: their parts, ends and counts, each told by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from semtoken.errors import InvalidInputError
from semtoken.replies import Reply, ReplyChoice, ReplyStream, read_reply, score_reply
from tests.replies.made import events, item
from tests.replies.recorded import clusters
from tests.rows import each


def chat(message: dict[str, Any], logprobs: Any = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"message": message, "logprobs": logprobs, "finish_reason": "stop"}], **fields}


def chunk(delta: dict[str, Any], *texts: str, end: str | None = None, **fields: Any) -> dict[str, Any]:
    logprobs = {"content": [item(text) for text in texts]} if texts else None
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": end}
    return {"object": "chat.completion.chunk", "choices": [choice], **fields}


def completion(text: str, tokens: list[str], numbers: list[float | None], **fields: Any) -> dict[str, Any]:
    logprobs = {"tokens": tokens, "token_logprobs": numbers, "top_logprobs": None}
    return {"choices": [{"index": 0, "text": text, "logprobs": logprobs, "finish_reason": "stop"}], **fields}


def said(parsed_reply: Reply) -> list[tuple[str, str, list[str | None]]]:
    """The kind, the text and the tokens of each part of the only choice, which is whole."""
    [choice] = parsed_reply.choices
    assert choice.index == 0 and choice.broken is None
    return [(part.kind, part.text, [step.chosen.text for step in part.steps]) for part in choice.segments]


class TestToolCalls:
    def test_pieces_are_joined_by_call(self) -> None:
        pieces = [
            [{"index": 0, "function": {"name": "weather", "arguments": ""}}],
            [{"index": 0, "function": {"arguments": '{"city":'}}, {"index": 0, "function": {"arguments": '"Os'}}],
            [
                {"index": 1, "function": {"name": "now", "arguments": "{"}},
                {"index": 0, "function": {"arguments": "lo"}},
            ],
            [{"index": 0, "function": {"arguments": '"}'}}, {"index": 1, "function": {"arguments": "}"}}],
        ]
        chunks = [*(chunk({"tool_calls": calls}) for calls in pieces), chunk({}, end="tool_calls")]
        assert said(read_reply(chunks)) == [("tool_call", 'weather({"city":"Oslo"})\nnow({})', [])]

    def test_a_function_of_the_older_form_stands_beside_tools(self) -> None:
        tools = [{"function": {"name": name, "arguments": "{}"}} for name in ("a", "b")]
        message = {"content": None, "function_call": {"name": "f", "arguments": "{}"}, "tool_calls": tools}
        assert said(read_reply(chat(message))) == [("tool_call", "f({})\na({})\nb({})", [])]

    def test_of_langchain(self) -> None:
        calls = [{"name": "weather", "args": {"city": "Oslo"}}, {"name": "now"}]
        message = {"content": "", "tool_calls": calls, "response_metadata": {"finish_reason": "tool_calls"}}
        assert said(read_reply(message)) == [("tool_call", 'weather({"city": "Oslo"})\nnow({})', [])]

    @pytest.mark.parametrize(
        ("message", "said_of_it"),
        [
            ({"tool_calls": 5}, "tool_calls must be a list. Got 5"),
            ({"tool_calls": ["now"]}, r"tool_calls\[0\] must be an object. Got 'now'"),
            (
                {"tool_calls": [{"name": "f", "args": {"x": math.nan}}]},
                r"tool_calls\[0\].args cannot be written as JSON",
            ),
        ],
    )
    def test_of_langchain_that_are_none_are_refused(self, message: dict[str, Any], said_of_it: str) -> None:
        with pytest.raises(InvalidInputError, match=said_of_it):
            read_reply({"content": "Oslo", "response_metadata": {"finish_reason": "stop"}, **message})

    def test_of_ollama_with_arguments_that_json_cannot_hold_are_refused(self) -> None:
        call = {"function": {"name": "f", "arguments": {"x": math.inf}}}
        message = {"role": "assistant", "content": "Oslo", "tool_calls": [call]}
        with pytest.raises(InvalidInputError, match=r"tool_calls\[0\].function.arguments cannot be written as JSON"):
            read_reply({"model": "m", "message": message, "done": True})

    def test_a_message_of_langchain_beside_odd_fields_is_read(self) -> None:
        assert said(read_reply({"content": "Oslo", "response_metadata": {"finish_reason": "stop"}, "kwargs": 5})) == [
            ("answer", "Oslo", [])
        ]

    def test_of_a_response(self) -> None:
        called = {"type": "function_call", "name": "weather", "arguments": '{"city":"Oslo"}'}
        custom = {"type": "custom_tool_call", "name": "note", "input": "Oslo"}
        parsed_reply = read_reply({**RESPONSE, "output": [called, custom]})
        assert said(parsed_reply) == [("tool_call", 'weather({"city":"Oslo"})\nnote(Oslo)', [])]

    def test_arguments_of_a_response_are_those_of_its_one_choice(self) -> None:
        pieces = [{"type": "response.function_call_arguments.delta", "delta": text} for text in ('{"a":', "1}")]
        parsed_reply = read_reply([*pieces, {"type": "response.completed", "response": {"status": "completed"}}])
        assert [choice.index for choice in parsed_reply.choices] == [0]
        assert said(parsed_reply) == [("tool_call", '({"a":1})', [])]


@pytest.mark.parametrize(
    ("format", "reply"),
    [
        ("openai-completions", completion("Oslo", ["<x>", "Oslo"], [-0.1, -0.2])),
        ("koboldcpp", {"results": [{"text": "Oslo", "logprobs": {"content": [item("<x>"), item("Oslo")]}}]}),
        ("llama-cpp", {"content": "Oslo", "stop": True, "completion_probabilities": [item("<x>"), item("Oslo")]}),
        (
            "sglang",
            {"text": "Oslo", "meta_info": {"output_token_logprobs": [[-0.1, 1, "<x>"], [-0.2, 2, "Oslo"]]}},
        ),
        (
            "tgi",
            {"generated_text": "Oslo"}
            | {"details": {"tokens": [{"text": text, "logprob": -0.1} for text in ("<x>", "Oslo")]}},
        ),
    ],
)
def test_engines_that_divide_nothing_have_one_part(format: str, reply: dict[str, Any]) -> None:
    """Even where the text lacks what the model wrote first; a chunk of a stream says the same."""
    whole = read_reply(reply)
    assert whole.format == format and said(whole) == [("answer", "Oslo", ["<x>", "Oslo"])]
    if format not in ("koboldcpp", "tgi"):
        stream = ReplyStream(format)
        assert [(event.kind, len(event.steps)) for event in stream.feed(reply)] == [("answer", 2)]


def test_thinking_in_the_text_of_a_completion_is_its_reasoning() -> None:
    tokens = ["<think>", "Hm", "</think>", "Oslo"]
    parsed_reply = read_reply(completion("".join(tokens), tokens, [-0.1, -0.2, -0.3, -0.4]))
    assert said(parsed_reply) == [("reasoning", "<think>Hm</think>", tokens[:3]), ("answer", "Oslo", tokens[3:])]


HIDDEN = ["<x>", "Oslo"]
ITEMS = [item(text) for text in HIDDEN]
RESPONSE = {
    "object": "response",
    "status": "completed",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "Oslo", "logprobs": ITEMS}]}],
}


@each(
    ("format", "reply"),
    [
        ("openai-chat", chat({"content": "Oslo"}, {"content": ITEMS})),
        ("openai-chat", [chunk({"content": "Oslo"}, *HIDDEN), chunk({}, end="stop")]),
        ("openai-responses", RESPONSE),
        (
            "openai-responses",
            [
                {"type": "response.output_text.delta", "delta": "Oslo", "logprobs": ITEMS},
                {"type": "response.completed", "response": RESPONSE},
            ],
        ),
        ("ollama-generate", {"response": "Oslo", "done": True, "done_reason": "stop", "logprobs": ITEMS}),
        ("ollama-chat", {"message": {"content": "Oslo"}, "done": True, "done_reason": "stop", "logprobs": ITEMS}),
        ("langchain-message", {"content": "Oslo", "response_metadata": {"logprobs": {"content": ITEMS}}}),
        ("ai-sdk", {"text": "Oslo", "finishReason": "stop", "logprobs": ITEMS}),
        ("ai-sdk", {"text": "Oslo", "finishReason": "stop", "logprobs": {"content": ITEMS}}),
        (
            "gemini",
            {
                "candidates": [
                    {
                        "content": {"parts": [{"text": "Oslo"}]},
                        "logprobsResult": {
                            "chosenCandidates": [{"token": text, "logProbability": -0.2} for text in HIDDEN]
                        },
                    }
                ]
            },
        ),
    ],
)
def test_what_a_message_lacks_is_the_reasoning_of_engines_that_divide_it(format: str, reply: Any) -> None:
    whole = read_reply(reply)
    assert whole.format == format
    assert said(whole) == [("reasoning", "", ["<x>"]), ("answer", "Oslo", ["Oslo"])]
    assert "The first 1 tokens are not in the message: they are taken as reasoning." in whole.choices[0].flags
    chunk_of = reply[0] if isinstance(reply, list) else reply
    if "output" not in chunk_of and "message" not in chunk_of.get("choices", [{}])[0]:
        found = ReplyStream(format).feed(chunk_of)
        assert [(event.kind, len(event.steps)) for event in found] == [("reasoning", 1), ("answer", 1)]


@each(
    ("message", "tokens", "parts"),
    [
        ({"content": "Oslo"}, ["\n", "Oslo"], [("answer", "Oslo", 2)]),
        ({"content": "\nOslo"}, ["<x>", "\n", "Oslo"], [("reasoning", "", 1), ("answer", "\nOslo", 2)]),
        ({"content": "\nOslo"}, ["<x>", "\n", "\n", "Oslo"], [("reasoning", "", 2), ("answer", "\nOslo", 2)]),
        ({"content": "\n\nOslo"}, ["<x>", "\n", "\n", "Oslo"], [("reasoning", "", 1), ("answer", "\n\nOslo", 3)]),
        ({"content": "Oslo"}, ["<x>", "\n", "Oslo"], [("reasoning", "", 2), ("answer", "Oslo", 1)]),
        (
            {"content": "Oslo", "reasoning": "Hm"},
            ["Hm", "</think>", "Oslo", "<e>"],
            [("reasoning", "Hm", 2), ("answer", "Oslo", 2)],
        ),
        ({"content": "Oslo", "reasoning": "Hm"}, ["Oslo"], [("reasoning", "Hm", 0), ("answer", "Oslo", 1)]),
        ({"content": None, "reasoning": "Hm"}, ["Hm", "</think>"], [("reasoning", "Hm", 2)]),
        (
            {"content": None, "reasoning": "Hm", "refusal": "No"},
            ["Hm", "No"],
            [("reasoning", "Hm", 1), ("refusal", "No", 1)],
        ),
        ({"content": ""}, ["<e>"], [("answer", "", 1)]),
        ({"content": ""}, ["\n", "\n"], [("answer", "", 2)]),
        ({"content": ""}, ["Hm", "<e>"], [("reasoning", "", 2)]),
        ({"content": ""}, [], [("answer", "", 0)]),
    ],
)
def test_each_step_belongs_to_one_part(message: dict[str, Any], tokens: list[str], parts: list[Any]) -> None:
    found = said(read_reply(chat(message, {"content": [item(text) for text in tokens]})))
    assert [(kind, text, len(steps)) for kind, text, steps in found] == parts
    assert [step for *_, steps in found for step in steps] == tokens


def test_parts_without_numbers_say_so() -> None:
    message = {"content": "Oslo", "reasoning": "Hm", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    [choice] = read_reply(chat(message, {"content": [item("Oslo")]})).choices
    assert [(part.kind, part.problem) for part in choice.segments] == [
        ("reasoning", "The engine gives no log-probabilities for this part (reasoning)."),
        ("answer", None),
        ("tool_call", "The engine gives no log-probabilities for this part (tool call)."),
    ]
    [silent] = read_reply(chat({"content": "Oslo"})).choices[0].segments
    assert (silent.problem or "").startswith('The reply holds no log-probabilities. Ask for them ("logprobs": true')
    [empty] = read_reply(chat({"content": ""})).choices[0].segments
    assert (empty.problem or "").startswith("The answer is empty (its end: stop)")


def test_a_chunk_of_two_parts_adds_to_both() -> None:
    both = chunk({"reasoning": "Hm", "content": "Oslo"}, "Hm", "</think>", "Oslo")
    refusal = chunk({"refusal": "No"})
    refusal["choices"][0]["logprobs"] = {"refusal": [item("No")]}
    stream = ReplyStream()
    for sent_chunk, parts in (
        (both, [("reasoning", "Hm", 2), ("answer", "Oslo", 1)]),
        (chunk({"content": "."}, "."), [("answer", ".", 1)]),
        (chunk({"reasoning": "So", "content": "!"}, "!"), [("reasoning", "So", 0), ("answer", "!", 1)]),
        (refusal, [("refusal", "No", 1)]),
    ):
        assert [(event.kind, event.text, len(event.steps)) for event in stream.feed(sent_chunk)] == parts


class TestResponses:
    def test_a_summary_of_a_reasoning_that_is_there_is_left_out(self) -> None:
        summary = {"type": "summary_text", "text": "In short"}
        item_of = {"type": "reasoning", "summary": [summary]}
        full = item_of | {"content": [{"type": "reasoning_text", "text": "Hm"}]}
        for reasoning, text in ((full, "Hm"), (item_of, "In short"), (item_of | {"content": []}, "In short")):
            parsed_reply = read_reply({**RESPONSE, "output": [reasoning, *RESPONSE["output"]]})
            assert said(parsed_reply)[0][:2] == ("reasoning", text)

    @pytest.mark.parametrize(
        ("more", "end"),
        [
            ({}, "completed"),
            ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "max_output_tokens"),
            ({"status": "incomplete", "incomplete_details": None}, "incomplete"),
        ],
    )
    def test_the_reason_of_the_end(self, more: dict[str, Any], end: str) -> None:
        whole = {**RESPONSE, **more}
        stream = [{"type": "response.incomplete", "response": whole}]
        assert read_reply(whole).choices[0].finish_reason == read_reply(stream).choices[0].finish_reason == end

    def test_a_list_of_typed_items_is_one_by_itself(self) -> None:
        first, [second] = {"type": "reasoning", "summary": []}, RESPONSE["output"]
        assert read_reply({"output": [first, second]}).format == "openai-responses"
        assert read_reply({"output": [first, {"content": []}]}).format == "openai-responses"


@pytest.mark.parametrize("name", ["output", "outputs", "logprobs", "content", "segments", "results"])
def test_empty_lists_are_no_reply(name: str) -> None:
    with pytest.raises(InvalidInputError, match="no reply that semtoken understands"):
        read_reply({name: []})


@pytest.mark.parametrize(
    ("names", "mixed"),
    [("aaaa", False), ("abcd", False), ("aabb", True), ("aab", True), ("abb", True), ("ab", False)],
)
def test_chunks_of_two_replies_are_told_unless_each_has_a_name_of_its_own(names: str, mixed: bool) -> None:
    chunks = [chunk({"content": f"w{i} "}, f"w{i} ", id=name) for i, name in enumerate(names)]
    chunks[-1]["choices"][0]["finish_reason"] = "stop"
    [choice] = read_reply(chunks).choices
    assert any("may be mixed" in flag for flag in choice.flags) is mixed


def test_a_chunk_without_choices_may_come_first() -> None:
    assert said(read_reply([{"choices": []}, chunk({"content": "Oslo"}, "Oslo", end="stop")]))[0][1] == "Oslo"
    legacy = completion("Oslo", ["Oslo"], [-0.25])
    assert read_reply([{"choices": []}, legacy, {"choices": []}]).format == "openai-completions"


@pytest.mark.parametrize(
    ("number", "told"), [(-0.25, r"number -0\.25: an average"), (-1, "an average"), (True, "must be an object")]
)
def test_a_number_of_the_whole_answer_is_called_an_average(number: float, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        read_reply(chat({"content": "Oslo"}, number))


class TestCounts:
    @pytest.mark.parametrize(("counted", "told"), [(4, ""), (5, "the terminator"), (6, "steps are missing")])
    def test_tokens_of_a_refusal_are_counted(self, counted: int, told: str) -> None:
        logprobs = {"content": [item("In"), item("dia")], "refusal": [item("No"), item(".")]}
        reply = chat({"content": "India", "refusal": "No."}, logprobs, usage={"completion_tokens": counted})
        flags = [flag for flag in read_reply(reply).choices[0].flags if flag.startswith("The reply counts")]
        assert len(flags) == bool(told)
        assert all(f"counts {counted} tokens and lists 4" in flag and told in flag for flag in flags)

    def test_a_reasoning_that_is_not_listed_is_not_missed(self) -> None:
        for tokens, told in ((["Oslo"], 0), (["Hm", "Oslo"], 1)):
            logprobs = {"content": [item(text) for text in tokens]}
            reply = chat({"content": "Oslo", "reasoning": "Hm"}, logprobs, usage={"completion_tokens": 9})
            flags = [flag for flag in read_reply(reply).choices[0].flags if "The reply counts 9" in flag]
            assert len(flags) == told

    def test_llama_server_counts_beside_its_seconds(self) -> None:
        for counted, told in ((1, 0), (9, 1)):
            reply = chat({"content": "Oslo"}, {"content": [item("Oslo")]}, timings={"predicted_n": counted})
            flags = [flag for flag in read_reply(reply).choices[0].flags if "counts 9 tokens and lists 1" in flag]
            assert len(flags) == told

    @pytest.mark.parametrize(
        ("chosen", "entry", "told"),
        [
            ({"token": "\ufffd"}, {"token": "\ufffd"}, True),
            ({"token": "\ufffd", "id": 7}, {"token": "\ufffd"}, True),
            ({"token": "\ufffd"}, {"token": "b", "id": 8}, True),
            ({"token": "a"}, {"token": "\ufffd"}, False),
        ],
    )
    def test_pieces_of_characters_without_a_vocabulary_are_told(
        self, chosen: dict[str, Any], entry: dict[str, Any], told: bool
    ) -> None:
        steps = [{**chosen, "logprob": -0.5, "top_logprobs": [{**entry, "logprob": -1.5}]} for _ in range(2)]
        [scored] = score_reply(chat({"content": "a" + 2 * chosen["token"]}, {"content": [item("a"), *steps]}))
        pieces = [flag.message for flag in scored.flags if flag.code == "unnamed_pieces"]
        assert [message.split(" chose")[0] for message in pieces] == ["2 of 3 steps (the first is step 1)"] * told

    def test_more_tokens_of_a_reasoning_than_of_all_count_nothing(self) -> None:
        """The count is no number of tokens then, so that the message does not name it."""
        whole, last = "é", [0xA9]
        step = {"token": whole, "id": 7, "logprob": -0.5, "bytes": list(whole.encode())}
        step["top_logprobs"] = [{"token": "\ufffd", "id": 7, "logprob": -0.5, "bytes": last}]
        usage = {"completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 5}}
        [segment] = read_reply(chat({"content": whole}, {"content": [step]}, usage=usage)).choices[0].segments
        assert segment.problem is not None and "the model wrote more, so" in segment.problem


def test_tokens_that_an_engine_forbade_are_told_by_a_name_of_their_own() -> None:
    forbidden = item("Oslo", top_logprobs=[item("Oslo"), item("Rome", -9999.0)])
    [found] = score_reply(chat({"content": "Oslo"}, {"content": [forbidden]}))
    assert [flag.code for flag in found.flags if "forbade tokens" in flag.message] == ["constrained"]
    for chosen, entries, told in (
        (-0.25, [item("Rome", -9999.0)], True),
        (-9999.0, [], False),
        (-9999.0, [item("Rome", -0.5)], False),
    ):
        [choice] = read_reply(
            chat({"content": "Oslo"}, {"content": [item("Oslo", chosen, top_logprobs=entries)]})
        ).choices
        assert any("forbade tokens" in flag for flag in choice.flags) is told
    [found] = score_reply(chat({"content": "Oslo"}, {"content": [item("Oslo")]}, usage={"completion_tokens": 2}))
    assert [flag.code for flag in found.flags if "terminator" in flag.message] == ["reply"]


def test_the_alternatives_do_not_spell_an_answer() -> None:
    other = item("Bergen", top_logprobs=[item("Bergen"), item("Oslo", -1.5)])
    [segment] = read_reply(chat({"content": "Oslo"}, {"content": [other]})).choices[0].segments
    assert segment.problem is not None and "do not spell" in segment.problem


class TestIds:
    """vLLM lists ids beside the steps."""

    def reply(self, ids: list[int], *numbers: float) -> ReplyChoice:
        items = [item(text, number) for text, number in zip(["In", "dia"], numbers, strict=True)]
        one = {"message": {"content": "India"}, "logprobs": {"content": items}, "token_ids": ids}
        [choice] = read_reply({"choices": [one]}).choices
        return choice

    def test_each_step_gets_its_own(self) -> None:
        choice = self.reply([5, 7], -0.25, -0.5)
        [segment] = choice.segments
        assert [(step.chosen.id, step.chosen.log_prob) for step in segment.steps] == [(5, -0.25), (7, -0.5)]
        assert choice.flags == () and segment.problem is None

    def test_none_gets_one_where_they_do_not_fit(self) -> None:
        choice = self.reply([5, 6, 7], -0.25, -0.5)
        assert [step.chosen.id for step in choice.segments[0].steps] == [None, None]
        assert "3 token ids do not fit 2 steps; they are not used." in choice.flags

    def test_a_step_without_a_number_has_none_with_an_id(self) -> None:
        [segment] = self.reply([5, 7], -0.25, -9999.0).segments
        assert (segment.problem or "").startswith("1 of 2 steps have no log-probability")

    def test_ids_are_checked_in_each_event(self) -> None:
        event = chunk({"content": "a"}, "a")
        event["choices"][0]["logprobs"]["content"] = [item("a", top_logprobs=[item("a")])]
        stream = ReplyStream()
        for ids in ([7], [0]):
            stream.feed(events({"choices": [{**event["choices"][0], "token_ids": ids}]}))
        with pytest.raises(InvalidInputError, match="token_ids"):
            stream.feed(events({"choices": [{**event["choices"][0], "token_ids": [-1]}]}))

    def test_ids_alone_say_how_many_tokens_there_were(self) -> None:
        choice = self.reply([5, 7, 8, 9], -0.25, -0.5)
        assert any("counts 4 tokens and lists 2" in flag for flag in choice.flags)


class TestEcho:
    @pytest.mark.parametrize(
        ("text", "tokens", "written", "answer", "kept"),
        [
            ("Q: Oslo.", ["Q:", " Oslo", "."], 2, " Oslo.", [" Oslo", "."]),
            ("Q:A", ["Q:", "A"], 1, "A", ["A"]),
            ("Q:A", ["Q:", "A", "</s>"], 2, "A", ["A", "</s>"]),
            ("Q:A", ["Q:", "A", "<e>"], 2, "A", ["A", "<e>"]),
            ("Why Q: Oslo", ["Why", " Q:", " Oslo"], 1, " Oslo", [" Oslo"]),
        ],
    )
    def test_the_answer_is_what_was_written_last(
        self, text: str, tokens: list[str], written: int, answer: str, kept: list[str]
    ) -> None:
        numbers = [None, *(-0.25 for _ in tokens[1:])]
        usage = {"prompt_tokens": len(tokens) - written, "completion_tokens": written}
        parsed_reply = read_reply(completion(text, tokens, numbers, usage=usage))
        assert said(parsed_reply) == [("answer", answer, kept)] and parsed_reply.choices[0].segments[0].problem is None

    @pytest.mark.parametrize("lacking", [1, 2])
    def test_a_number_that_the_answer_lacks_is_told(self, lacking: int) -> None:
        numbers: list[float | None] = [None, -0.25, -0.5, -0.75]
        numbers[1 + lacking] = None
        reply = completion("Q: is Oslo.", ["Q:", " is", " Oslo", "."], numbers, usage={"completion_tokens": 2})
        [segment] = read_reply(reply).choices[0].segments
        assert segment.text == " Oslo." and (segment.problem or "").startswith("1 of 2 steps have no log-probability")


@pytest.mark.parametrize(
    ("given", "end"),
    [(0, None), (1, "STOP"), (2, "MAX_TOKENS"), (4, "RECITATION"), (5, "5"), (-1, "-1"), (True, "True")],
)
def test_ends_of_gemini_by_their_numbers(given: int, end: str | None) -> None:
    candidate = {"content": {"parts": [{"text": "Oslo"}]}, "finish_reason": given}
    assert read_reply({"candidates": [candidate]}).choices[0].finish_reason == end


def test_candidates_without_an_index_are_counted() -> None:
    candidates = [{"content": {"parts": [{"text": text}]}} for text in ("Oslo", "Rome", "Lima")]
    found = read_reply({"candidates": candidates}).choices
    assert [(choice.index, choice.segments[0].text) for choice in found] == [(0, "Oslo"), (1, "Rome"), (2, "Lima")]


def test_lists_of_sglang_as_they_were_called_before() -> None:
    meta = {
        "decode_token_logprobs": [[-0.2, 1, "Oslo"]],
        "decode_top_logprobs": [[[-0.2, 1, "Oslo"], [-2.0, 2, " Oslo"]]],
    }
    [found] = score_reply({"text": "Oslo", "meta_info": meta})
    assert found.log_confidence == pytest.approx(math.log(math.exp(-0.2) + math.exp(-2.0)), abs=1e-6)


def test_chunks_of_sglang_repeat_or_add() -> None:
    def chunk_of(text: str, *tokens: str) -> dict[str, Any]:
        chosen = [[-0.25, i, token] for i, token in enumerate(tokens)]
        return {"text": text, "meta_info": {"id": "1", "output_token_logprobs": chosen, "finish_reason": None}}

    end = {"finish_reason": {"type": "stop"}}
    for chunks in (
        [chunk_of("Os", "Os"), chunk_of("Oslo", "Os", "lo")],
        [chunk_of("Os", "Os"), chunk_of("lo", "lo")],
        [chunk_of("", "Os"), chunk_of("Oslo", "Os", "lo")],
    ):
        chunks[-1]["meta_info"] |= end
        assert said(read_reply(chunks)) == [("answer", "Oslo", ["Os", "lo"])]


def test_the_best_tokens_of_tgi_stand_beside_the_chosen_ones() -> None:
    one = {"text": "Oslo", "logprob": -0.25}
    best = [[one, {"text": "Rome", "logprob": -1.5}]]
    details = {"tokens": [one], "top_tokens": best, "finish_reason": "eos_token"}
    [whole] = read_reply({"generated_text": "Oslo", "details": details}).choices
    event = {"token": one, "top_tokens": best[0], "generated_text": "Oslo", "details": {"finish_reason": "eos_token"}}
    [streamed] = read_reply(events(event)).choices
    for choice in (whole, streamed):
        assert [token.text for token in choice.segments[0].steps[0].top] == ["Oslo", "Rome"]
        assert choice.finish_reason == "eos_token" and choice.broken is None


@pytest.mark.parametrize("as_bytes", [False, True])
def test_lines_of_ollama_are_a_stream_if_the_first_goes_on(as_bytes: bool) -> None:
    lines = [{"response": "Oslo", "done": False, "logprobs": [item("Oslo")]}, {"response": "", "done": True}]
    text = "\n".join(map(json.dumps, lines))
    for one in (text, "\ufeff" + events(*lines), json.dumps(lines[0] | {"done": True})):
        assert said(read_reply(one.encode() if as_bytes else one)) == [("answer", "Oslo", ["Oslo"])]


def llama(text: str, **more: Any) -> dict[str, Any]:
    return {"content": text, "stop": True, "completion_probabilities": [item(text)], **more}


def test_a_list_of_replies_of_llama_cpp_is_one_of_answers() -> None:
    parsed_reply = read_reply([llama("Oslo"), llama("Rome")])
    assert [(choice.index, choice.segments[0].text) for choice in parsed_reply.choices] == [(0, "Oslo"), (1, "Rome")]
    joined = read_reply([llama("Os", stop=False), llama("lo")])
    assert said(joined) == [("answer", "Oslo", ["Os", "lo"])]


def test_content_in_parts_is_joined() -> None:
    parts = ["Os", {"type": "text", "text": "lo"}, {"type": "image", "text": None}]
    assert said(read_reply(chat({"content": parts}, {"content": [item("Oslo")]}))) == [("answer", "Oslo", ["Oslo"])]


@pytest.mark.parametrize(
    ("given", "end"),
    [({"type": "length", "length": 9}, "length"), ({"matched": 7}, "unknown"), ("stop", "stop"), (None, None)],
)
def test_the_end_of_sglang_is_named_in_an_object(given: Any, end: str | None) -> None:
    meta = {"output_token_logprobs": [[-0.2, 1, "Oslo"]], "finish_reason": given}
    assert read_reply({"text": "Oslo", "meta_info": meta}).choices[0].finish_reason == end


PROBABILITIES = [{"content": "Oslo", "probs": [{"tok_str": "Oslo", "prob": 0.5}, {"tok_str": "Rome", "prob": 0.25}]}]
FORBIDDEN = [item("Oslo", top_logprobs=[item("Oslo"), item("Rome", -9999.0)])]


@each(
    ("format", "reply", "distribution"),
    [
        ("llama-cpp", llama("Oslo"), "raw"),
        ("llama-cpp", llama("Oslo", completion_probabilities=PROBABILITIES), "processed"),
        ("llama-cpp", llama("Oslo", completion_probabilities=FORBIDDEN), "processed"),
        ("llama-cpp-chat", chat({"content": "Oslo"}, {"content": [item("Oslo", id=5)]}), "raw"),
        ("vllm-chat", chat({"content": "Oslo"}, {"content": [item("Oslo")]}, prompt_logprobs=None), "raw"),
        ("vllm-chat", chat({"content": "Oslo"}, {"content": FORBIDDEN}, prompt_logprobs=None), "processed"),
        ("openai-chat", chat({"content": "Oslo"}, {"content": [item("Oslo")]}), "unknown"),
        ("vllm-responses", {**RESPONSE, "kv_transfer_params": None}, "raw"),
        ("openai-responses", RESPONSE, "unknown"),
        ("ollama-generate", {"response": "Oslo", "done": True, "logprobs": [item("Oslo")]}, "unknown"),
    ],
)
def test_what_the_numbers_are_is_known_of_some_engines(format: str, reply: dict[str, Any], distribution: str) -> None:
    parsed_reply = read_reply(reply)
    assert (parsed_reply.format, parsed_reply.distribution) == (format, distribution)


@pytest.mark.parametrize(
    ("told", "distribution"),
    [
        ({}, "processed"),
        ({"temperature": 1.0}, "raw"),
        ({"temperature": 0.0}, "raw"),
        ({"temperature": 0.5}, "processed"),
        ({"request": {"text": "x", "sampling_params": {"temperature": 1}}}, "raw"),
        ({"request": {"text": "x", "sampling_params": {"temperature": 0.5}}}, "processed"),
        ({"temperature": 1.0, "request": {"text": "x", "sampling_params": {"temperature": 0.5}}}, "raw"),
    ],
)
def test_numbers_of_sglang_follow_the_temperature_that_is_known(told: dict[str, Any], distribution: str) -> None:
    reply = {"text": "Oslo", "meta_info": {"id": "1", "output_token_logprobs": [[-0.2, 1, "Oslo"]]}}
    for given, format in ((reply, None), (reply, "sglang"), ([reply, reply], None)):
        assert read_reply(given, format, **told).distribution == distribution
    stream = ReplyStream("sglang", **told)
    stream.feed(reply)
    assert stream.finish().distribution == stream.choice(0)[1] == distribution


@pytest.mark.parametrize("content", ["Oslo", "Oslo</b>"])
def test_markup_at_the_end_is_text_where_the_message_has_it(content: str) -> None:
    [found] = score_reply(chat({"content": content}, {"content": [item("Oslo"), item("</b>")]}))
    assert found.text == content and [token.text for token in found.tokens] == ["Oslo", content.removeprefix("Oslo")]


def test_what_the_numbers_are_may_be_said() -> None:
    reply = chat({"content": "Oslo"}, {"content": [item("Oslo")]})
    assert score_reply(reply)[0].distribution == "unknown"
    assert score_reply(reply, distribution="raw")[0].distribution == "raw"
    with pytest.raises(InvalidInputError, match="'distribution' must be one of"):
        score_reply(reply, distribution="cooked")  # type: ignore[arg-type]


def test_the_model_of_a_proxy_is_named_by_a_text() -> None:
    reply = chat({"content": "Oslo"}, {"content": [item("Oslo")]})
    for name in (7, ["m"]):
        with pytest.raises(InvalidInputError, match=r"'proxy_for' must be a text"):
            score_reply(reply, clusters(), proxy_for=name)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [-0.5, math.nan, "hot"])
def test_a_temperature_is_a_number_from_zero(temperature: Any) -> None:
    with pytest.raises(InvalidInputError, match="temperature"):
        read_reply(chat({"content": "Oslo"}), temperature=temperature)
