"""Steps belong to the part that they spell: replies are put together here so that the truth is known."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.replies import ReplyChoice, read_reply

WORDS = st.text(st.sampled_from("ab é東🙂.\n<>"), min_size=1, max_size=12)


def item(spelled: bytes, *, with_bytes: bool = True) -> dict[str, Any]:
    text = spelled.decode("utf-8", "replace")
    return {"token": text, "logprob": -0.5, "bytes": list(spelled) if with_bytes else None, "top_logprobs": []}


def choice(
    message: dict[str, Any], tokens: list[bytes], *, with_bytes: bool = True, finish: str = "stop"
) -> ReplyChoice:
    logprobs = {"content": [item(token, with_bytes=with_bytes) for token in tokens]}
    raw = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}
    return read_reply({"object": "chat.completion", "choices": [raw]}).choices[0]


def spelled(found: ReplyChoice, kind: Any) -> list[bytes | None] | None:
    segment = found.segment(kind)
    return None if segment is None else [step.chosen.bytes for step in segment.steps]


def cut(data: st.DataObject, text: str) -> list[bytes]:
    """The bytes of a text in tokens, cut anywhere."""
    whole = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(whole) - 1, 1)))))
    parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    return [part for part in parts if part]


@given(data=st.data(), answer=WORDS.filter(str.strip))
def test_an_answer_alone_keeps_all_steps_that_the_message_holds(data: st.DataObject, answer: str) -> None:
    tokens = cut(data, answer)
    stripped = data.draw(st.sampled_from([answer, answer.strip()]))
    found = choice({"content": stripped}, tokens)
    while stripped != answer and not tokens[-1].strip():
        tokens.pop()  # blanks that the message does not hold
    assert spelled(found, "answer") == tokens
    assert found.flags == ()
    assert [segment.problem for segment in found.segments] == [None]


@pytest.mark.parametrize("longest", [3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("cut_off", [(0, None), (1, None), (2, None), (0, -1), (0, -2)])
def test_an_answer_alone_is_told_as_any_other(cut_off: tuple[int, int | None], longest: int) -> None:
    for tokens in itertools.chain(
        *(itertools.product([b"a", b" ", b"bb", b"\xc3", b"\xa9"], repeat=n) for n in range(longest + 1))
    ):
        said = b"".join(tokens).decode("utf-8", "replace")[slice(*cut_off)]
        found = choice({"content": said}, list(tokens))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("semtoken.replies.segments._are_the_answer", lambda steps, texts: False)
            assert found == choice({"content": said}, list(tokens))


@given(data=st.data(), reasoning=WORDS.filter(str.strip), answer=WORDS.filter(str.strip))
def test_reasoning_and_answer_are_told_apart(data: st.DataObject, reasoning: str, answer: str) -> None:
    thought, marker, said = cut(data, reasoning), b"</think>", cut(data, answer)
    end = data.draw(st.sampled_from([[], [b"<|im_end|>"]]))
    message = {"content": answer, "reasoning_content": reasoning}
    found = choice(message, [*thought, marker, *said, *end])
    assert spelled(found, "answer") == [*said, *end]
    assert spelled(found, "reasoning") == [*thought, marker]


@given(data=st.data(), reasoning=WORDS.filter(str.strip), answer=WORDS.filter(str.strip))
def test_reasoning_that_the_message_hides(data: st.DataObject, reasoning: str, answer: str) -> None:
    thought, said = cut(data, reasoning), cut(data, answer)
    found = choice({"content": answer}, [*thought, b"</think>", *said])
    assert spelled(found, "answer") == said
    assert spelled(found, "reasoning") == [*thought, b"</think>"]
    assert any("taken as reasoning" in flag for flag in found.flags)


@given(data=st.data(), answer=WORDS.filter(str.strip), call=WORDS)
def test_a_tool_call_after_the_answer(data: st.DataObject, answer: str, call: str) -> None:
    said, called = cut(data, answer), [b"<tool_call>", *cut(data, call), b"</tool_call>"]
    tools = [{"function": {"name": "f", "arguments": "{}"}}]
    found = choice({"content": answer, "tool_calls": tools}, [*said, *called], finish="tool_calls")
    assert spelled(found, "answer") == said
    assert spelled(found, "tool_call") == called


@given(data=st.data(), answer=WORDS.filter(str.strip))
def test_without_bytes_the_text_is_laid_against_the_message(data: st.DataObject, answer: str) -> None:
    tokens = cut(data, answer)
    found = choice({"content": answer}, tokens, with_bytes=False)
    segment = found.segment("answer")
    assert segment is not None and segment.problem is None
    assert len(segment.steps) == len(tokens)
    assert [s.kind for s in found.segments] == ["answer"]


@given(data=st.data(), answer=st.text("abcdef", min_size=4, max_size=12))
def test_steps_that_are_missing_are_told(data: st.DataObject, answer: str) -> None:
    """Letters all different from their neighbors, so that no gap can be closed by chance."""
    answer = "".join(f"{letter}{i % 10}" for i, letter in enumerate(answer))
    tokens = [letter.encode() for letter in answer]
    gap = data.draw(st.integers(1, len(tokens) - 2))
    found = choice({"content": answer}, tokens[:gap] + tokens[gap + 1 :])
    segment = found.segment("answer")
    assert segment is not None and segment.problem is not None
    assert "do not spell the message" in segment.problem and "Steps are missing or merged" in segment.problem


def test_a_stop_string_cuts_the_last_token() -> None:
    found = choice({"content": "In"}, [b"India"])
    assert spelled(found, "answer") == [b"India"]
    assert found.flags == ()


def test_what_follows_the_answer_does_not_count_and_is_flagged_unless_it_is_known() -> None:
    found = choice({"content": "India"}, [b"India", b"\n"])
    assert (spelled(found, "answer"), found.flags) == ([b"India"], ())
    found = choice({"content": "India"}, [b"India", b".", b"Now"])
    assert spelled(found, "answer") == [b"India"]
    assert "last 2 tokens are not in the message and do not count" in found.flags[0]


def test_text_that_ends_inside_a_character() -> None:
    for content in ("caf", "caf\ufffd"):
        found = choice({"content": content}, [b"caf", b"\xc3"], finish="length")
        assert spelled(found, "answer") == [b"caf", b"\xc3"]
        assert found.segments[0].problem is None and found.flags == ()


def test_an_empty_message() -> None:
    found = choice({"content": ""}, [b"<|im_end|>"])
    assert [segment.kind for segment in found.segments] == ["answer"]
    found = choice({"content": None}, [b"Let", b" me", b" think"], finish="length")
    assert [segment.kind for segment in found.segments] == ["reasoning"]
    assert "message is empty" in found.flags[0]


def test_the_repeated_word_is_found_at_the_end() -> None:
    """The reasoning begins with the very answer."""
    tokens = [b"4", b" is", b" right", b"</think>", b"4"]
    assert spelled(choice({"content": "4"}, tokens), "answer") == [b"4"]


@pytest.mark.parametrize("value", [None, -9999.0])
def test_a_step_without_a_log_probability(value: float | None) -> None:
    first, second = item(b"In"), item(b"dia") | {"logprob": value}
    logprobs = {"content": [first, second]}
    raw = {"index": 0, "message": {"content": "India"}, "logprobs": logprobs}
    [segment] = read_reply({"object": "chat.completion", "choices": [raw]}).choices[0].segments
    assert segment.problem is not None and segment.problem.startswith("1 of 2 steps have no log-probability")


def test_lists_of_different_length() -> None:
    logprobs = {"tokens": ["In", "dia"], "token_logprobs": [-1.0], "top_logprobs": None}
    reply = {"object": "text_completion", "choices": [{"index": 0, "text": "India", "logprobs": logprobs}]}
    [segment] = read_reply(reply).choices[0].segments
    assert segment.problem is not None and "2 tokens, 1 token_logprobs" in segment.problem
