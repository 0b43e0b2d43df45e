"""Every recorded reply against another reading of it: its own texts, the tokenizer, sums of probabilities."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from semtoken.core.engine_tokens import TopToken
from semtoken.replies import Reply, Segment, known_formats, read_reply
from tests.known import known
from tests.replies.recorded import NAMES, clusters, recording
from tests.rows import each

SILENT = [name for name in NAMES if not recording(name).expected.steps]
"""Log-probabilities were not asked for, or were dropped."""
PIECES_WITHOUT_NAMES = ("vllm-chat-awkward", "vllm-chat-cut", "vllm-completions-awkward", "llama-cpp-python-")
"""A piece of a character is called by nothing, or by the character."""


def read(name: str) -> Reply:
    return read_reply(recording(name).reply)


def segments(name: str) -> list[Segment]:
    return [segment for choice in read(name).choices for segment in choice.segments]


def tokens(name: str) -> list[TopToken]:
    return [t for segment in segments(name) for step in segment.steps for t in (step.chosen, *step.top)]


@each("name", NAMES)
def test_the_format_is_told_from_the_fields(name: str) -> None:
    assert read(name).format == recording(name).expected.format
    assert read(name).format in known_formats()


@each("name", NAMES)
def test_no_step_is_lost_and_every_list_is_one_of_probabilities(name: str) -> None:
    steps = [step for segment in segments(name) for step in segment.steps]
    for step in steps:
        if step.top:
            total = sum(math.exp(token.log_prob) for token in step.top)
            assert 0 < total <= 1 + 1e-5
            assert max(t.log_prob for t in step.top) >= step.chosen.log_prob
    assert len(steps) == recording(name).expected.steps


@each("name", [name for name in NAMES if name not in SILENT])
def test_chosen_tokens_spell_the_part_they_belong_to(name: str) -> None:
    vocabulary = clusters().vocabulary
    for segment in segments(name):
        assert segment.problem is None
        if segment.kind == "tool_call":
            continue
        pieces = [
            t.bytes if t.bytes is not None else vocabulary.pieces[t.id] if t.id is not None else known(t.text).encode()
            for t in (step.chosen for step in segment.steps)
        ]
        spelled = b"".join(pieces).decode("utf-8", "replace")
        if name.startswith(PIECES_WITHOUT_NAMES) and "ids" not in name:
            assert spelled.startswith(segment.text[:4])
        elif segment.text:
            assert spelled.startswith(segment.text)


@each("name", NAMES)
def test_ids_are_those_of_the_names(name: str) -> None:
    vocabulary = clusters().vocabulary
    named = [token for token in tokens(name) if token.id is not None]
    assert bool(named) == recording(name).expected.ids
    for token in named:
        assert token.id is not None and token.id < vocabulary.size
        if token.bytes is not None:
            assert token.bytes == vocabulary.pieces[token.id]


@each("name", NAMES)
def test_a_whole_character_is_no_name_of_its_last_piece(name: str) -> None:
    """vLLM calls the token b"\\xa9" after b"\\xc3" "é", which is a token of its own."""
    vocabulary = clusters().vocabulary
    for token in tokens(name):
        if token.bytes is not None and token.id is None:
            assert token.bytes in vocabulary.pieces or token.bytes.startswith((b"<", b"\n\n"))
        if token.text is not None and not token.text.isascii() and token.id is None:
            assert token.text.startswith("\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize("name", SILENT)
def test_dropped_log_probabilities_are_told(name: str) -> None:
    [segment] = segments(name)
    assert segment.steps == ()
    assert segment.problem is not None and "holds no log-probabilities" in segment.problem
    assert '"logprobs"' in segment.problem


@each(
    ("name", "kinds"),
    [
        ("vllm-chat-reasoning", {"reasoning": "India is", "answer": " is Delhi is is is"}),
        ("vllm-chat-only-reasoning", {"reasoning": "India"}),
        ("vllm-chat-tool", {"answer": "Wait.", "tool_call": "weather({})"}),
        ("openai-chat-refusal", {"refusal": "The capital is Delhi"}),
        ("openai-chat-tool", {"tool_call": "weather({})"}),
        ("deepseek-chat", {"reasoning": "The capital is Delhi", "answer": "India"}),
        ("hidden-reasoning-chat", {"reasoning": "", "answer": "India"}),
        ("sglang-chat-reasoning", {"reasoning": "The capital is Delhi", "answer": "India"}),
    ],
)
def test_parts(name: str, kinds: dict[str, str]) -> None:
    assert {segment.kind: segment.text for segment in segments(name)} == kinds


def test_hidden_reasoning_is_flagged() -> None:
    [choice] = read("hidden-reasoning-chat").choices
    assert any("first 6 tokens are not in the message" in flag for flag in choice.flags)
    answer = choice.segment("answer")
    assert answer is not None
    assert [step.chosen.text for step in answer.steps] == ["India", "<|im_end|>"]


@each(
    ("name", "temperature", "expected"),
    [
        ("vllm-chat", None, "raw"),
        ("vllm-chat-awkward", None, "processed"),  # a grammar left few tokens
        ("openai-chat", 1.0, "unknown"),
        ("sglang", None, "processed"),
        ("sglang", 0.7, "processed"),
        ("sglang", 1.0, "raw"),
        ("sglang", 0.0, "raw"),
        ("sglang-chat-reasoning", None, "processed"),
        ("llama-cpp", None, "raw"),
        ("llama-cpp-chat", 0.7, "raw"),
        ("llama-cpp-post-sampling", None, "processed"),
    ],
)
def test_distribution(name: str, temperature: float | None, expected: str) -> None:
    assert read_reply(recording(name).reply, temperature=temperature).distribution == expected


def test_prompt_log_probabilities_are_no_steps() -> None:
    reply = recording("vllm-completions-prompt").reply
    assert reply["choices"][0]["prompt_logprobs"]
    [segment] = segments("vllm-completions-prompt")
    assert [step.chosen.text for step in segment.steps] == ["China", "\n"]


def test_an_echoed_prompt_is_no_answer() -> None:
    assert recording("vllm-completions-echo").choices[0]["text"] == "Answer:\nChina"
    [segment] = segments("vllm-completions-echo")
    assert (segment.text, [step.chosen.text for step in segment.steps]) == ("China", ["China", "\n"])
    without_usage = {k: v for k, v in recording("vllm-completions-echo").reply.items() if k != "usage"}
    [segment] = read_reply(without_usage).choices[0].segments
    assert segment.problem is not None and "repeats the prompt" in segment.problem
    other = json.loads(
        json.dumps(recording("vllm-completions-echo").reply).replace("Answer:\\nChina", "Answer:\\nFrance")
    )
    [segment] = read_reply(other).choices[0].segments
    assert segment.text == "Answer:\nFrance", "a text that the tokens do not spell is kept whole, to be refused"


def test_token_ids_apart_name_the_chosen_tokens() -> None:
    whole = recording("vllm-completions-ids").reply
    assert [s.chosen.id for segment in segments("vllm-completions-ids") for s in segment.steps] == [391, 201]
    plain = json.loads(json.dumps(whole).replace('"token_id:', '"x'))
    assert [s.chosen.id for s in read_reply(plain).choices[0].segments[0].steps] == [391, 201]
    plain["choices"][0]["token_ids"] = [391]
    [choice] = read_reply(plain).choices
    assert choice.segments[0].steps[0].chosen.id is None
    assert any("1 token ids do not fit 2 steps" in flag for flag in choice.flags)


def test_bytes_that_spell_the_name_of_an_id_are_dropped() -> None:
    raw = recording("vllm-chat-ids").choices[0]["logprobs"]["content"][0]["top_logprobs"][1]
    assert bytes(raw["bytes"]).startswith(b"token_id:")
    [segment] = segments("vllm-chat-ids")
    assert segment.steps[0].top[1].bytes is None
    assert segment.steps[0].top[1].id == int(raw["token"].removeprefix("token_id:"))
    assert segment.steps[0].chosen.bytes == b"India"


def test_numbers_of_numpy_tell_llama_cpp_in_process() -> None:
    def with_numpy(value: object) -> object:
        if isinstance(value, float):
            return np.float32(value)
        if isinstance(value, dict):
            return {key: with_numpy(item) for key, item in value.items()}
        return [with_numpy(item) for item in value] if isinstance(value, list) else value

    for shape in ("chat", "completions"):
        reply = recording(f"llama-cpp-python-{shape}").reply
        parsed_reply = read_reply(with_numpy(reply))
        assert parsed_reply.format == f"llama-cpp-python-{shape}"
        assert parsed_reply.distribution == "raw"
        for mine, theirs in zip(
            parsed_reply.choices[0].segments[0].steps, segments(f"llama-cpp-python-{shape}")[0].steps, strict=True
        ):
            assert type(mine.chosen.log_prob) is float
            assert mine.chosen.log_prob == pytest.approx(theirs.chosen.log_prob, abs=1e-5)


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith(("openai", "vllm-c", "llama-cpp-python", "deep"))])
def test_objects_of_the_official_client_read_as_their_json(name: str) -> None:
    chat = pytest.importorskip("openai.types.chat")
    types = pytest.importorskip("openai.types")
    responses = pytest.importorskip("openai.types.responses")
    kinds = {
        "chat.completion": chat.ChatCompletion,
        "text_completion": types.Completion,
        "response": responses.Response,
    }
    reply = recording(name).reply
    parsed = kinds[reply["object"]].construct(**reply)
    assert read_reply(parsed) == read_reply(reply)


@each("name", NAMES)
def test_text_bytes_and_dicts_read_alike(name: str) -> None:
    reply = recording(name).reply
    text = json.dumps(reply)
    assert read_reply(text) == read_reply(text.encode()) == read_reply(reply)
    assert read_reply(text, read_reply(reply).format) == read_reply(reply)
