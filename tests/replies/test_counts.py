"""Counts, names and repetitions in replies: each number by hand, on both sides of where a rule begins."""

from __future__ import annotations

import math
from typing import Any

import pytest

from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.core.engine_tokens.passes import (
    WITHOUT_NAME,
    as_scored,
    has_twice,
    merged_steps,
    steps_in_files,
)
from semtoken.core.engine_tokens.top_steps import Name
from semtoken.errors import BackendError, InvalidInputError, SemtokenError
from semtoken.replies import ReplyStream, read_reply, score_reply
from tests.replies.made import chat_chunk, events, item
from tests.rows import each

WORDS = ["The", " best", " town", " is", " Oslo"]


def choice(words: list[str] | None = None, text: str | None = None, **fields: Any) -> dict[str, Any]:
    said = WORDS if words is None else words
    message = {"role": "assistant", "content": "".join(said) if text is None else text}
    logprobs = {"content": [item(word, -0.25 - k / 64) for k, word in enumerate(said)]}
    return {"index": 0, "finish_reason": "stop", "message": message, "logprobs": logprobs, **fields}


def reply(*choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"object": "chat.completion", "model": "m", "choices": list(choices or [choice()]), **fields}


def test_choices_have_numbers_up_to_ten_thousand() -> None:
    assert read_reply(reply(choice(index=10_000))).choices[0].index == 10_000
    with pytest.raises(InvalidInputError, match=r"at most 10000\. Got 10001"):
        read_reply(reply(choice(index=10_001)))
    with pytest.raises(InvalidInputError, match="index"):
        read_reply(reply(choice(index=-1)))
    assert [one.index for one in read_reply(reply(choice(index=None), choice(index=1))).choices] == [0, 1]


@each(
    ("usage", "counted"),
    [
        ({"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 1}}, 8),
        ({"output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 2}}, 7),
        ({"output_tokens": 9, "output_token_details": {"reasoning": 1}}, 8),
        ({"completionTokens": 9, "completionTokensDetails": {"reasoningTokens": 1}}, 8),
        ({"outputTokens": 9, "reasoningTokens": 1}, 8),
        ({"candidatesTokenCount": 9}, 9),
        ({"completion_tokens": 0, "output_tokens": 8}, 0),
        ({"completion_tokens": -1, "output_tokens": 8}, 8),
        ({"completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 5}}, 0),
        ({"completion_tokens": True}, None),
        ({}, None),
    ],
)
def test_tokens_of_a_hidden_reasoning_are_none_of_the_answer(usage: dict[str, Any], counted: int | None) -> None:
    [found] = read_reply(reply(usage=usage)).choices
    told = [flag for flag in found.flags if "The reply counts" in flag]
    if counted is None or counted <= len(WORDS):
        assert not told
    else:
        assert len(told) == 1 and told[0].startswith(f"The reply counts {counted} tokens and lists 5")


def test_a_tool_call_that_lacks_tokens_has_no_number_and_the_answer_before_it_keeps_its_own() -> None:
    """As in streams of llama-server, which list a token only if it adds to the arguments."""
    called = [{"type": "function", "function": {"name": "show", "arguments": '{"a":1}'}}]
    call = ['{"', "name", '":"', "show", '","', "arguments", '":', '{"', "a", '":', "1", "}}"]
    words = ["Wait", ".", "<tool_call>", *call]

    def problems(words: list[str], text: str, **usage: int) -> dict[str, bool]:
        one = choice(words, text) | {"finish_reason": "tool_calls"}
        one["message"]["tool_calls"] = called
        segments = read_reply(reply(one, usage=usage)).choices[0].segments
        return {segment.kind: "omit the name of the function" in (segment.problem or "") for segment in segments}

    n = len(words)
    for text, begin in (("Wait.", 0), ("", 2)):
        kinds = {"answer", "tool_call"} if text else {"tool_call"}
        for left_out in range(n - 4):
            kept = words[begin:3] + words[3 + left_out :]
            found = problems(kept, text, completion_tokens=n - begin)
            assert found == {kind: kind == "tool_call" and left_out > 1 for kind in kinds}
            assert not any(problems(kept, text).values())  # without a count nothing shows it


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("nameless", sorted(WITHOUT_NAME, key=repr))
def test_an_entry_without_a_name_goes_and_all_others_keep_their_numbers(nameless: Name, place: int) -> None:
    """A gateway dropped the names of a list, so that the chosen token is there once more, by its number alone."""
    others = [((None, word, None), -1.0 - k) for k, word in enumerate(WORDS[:4])]
    entries = [*others[:place], (nameless, -0.5), *others[place:]]
    for number, left in ((-0.5, others), (-0.625, entries)):
        own = [((None, "Rome", None), number)]
        [step] = as_scored([TopStep.of_columns(*map(tuple, zip(*own, *entries, strict=True)))])
        assert list(zip(step.names, step.log_probs, strict=True)) == own + left


def lacking(counted: int, reason: str = "stop", words: list[str] | None = None) -> str:
    """The notes and the problem of a reply that counts more than it lists."""
    [found] = read_reply(reply(choice(words, finish_reason=reason), usage={"completion_tokens": counted})).choices
    return " ".join([*found.flags, *(segment.problem or "" for segment in found.segments)])


def test_one_token_more_is_the_terminator_and_two_are_missing() -> None:
    assert [bool(lacking(n)) for n in (4, 5, 6, 7)] == [False, False, True, True]
    assert "the terminator has no log-probability" in lacking(6) and "steps are missing" in lacking(7)
    assert "steps are missing, or a reasoning is hidden" in lacking(6, "length")  # it was cut off before one
    town = [*WORDS[:-1], " Tromsø"]
    assert "merged (a character of several tokens)" in lacking(7, words=town) and "terminator" in lacking(6, words=town)
    assert lacking(5, words=town) == ""


@pytest.mark.parametrize(("tokens", "said"), [(2, 0), (3, 1), (5, None)])
@pytest.mark.parametrize("repeated", [True, False])
def test_a_stream_of_responses_is_held_against_its_count_as_the_whole_reply_is(
    tokens: int, said: int | None, repeated: bool
) -> None:
    items = [item("é"), item("!")]
    part = {"type": "output_text", "text": "é!", "logprobs": items if repeated else []}
    output = [{"type": "message", "role": "assistant", "content": [part]}]
    response = {"object": "response", "status": "completed", "output": output, "usage": {"output_tokens": tokens}}
    stream = events(
        {"type": "response.output_text.delta", "delta": "é!", "logprobs": items},
        {"type": "response.completed", "response": response},
    )
    if said is None:
        with pytest.raises(BackendError, match="counts 5 tokens and lists 2"):
            score_reply(stream)
        return
    [found] = score_reply(stream)
    assert found.log_confidence == pytest.approx(-0.5)
    assert sum(f"counts {tokens} tokens" in flag.message for flag in found.flags) == said


def test_tokens_of_several_choices_are_counted_together_but_for_their_terminators() -> None:
    for counted, flagged in ((10, False), (12, False), (13, True)):
        found = read_reply(reply(choice(), choice(index=1), usage={"completion_tokens": counted}))
        told = [
            f"The reply counts {counted} tokens in all choices and lists 10: some are missing." in one.flags
            for one in found.choices
        ]
        assert told == [flagged, flagged]


def test_a_step_that_is_there_twice_counts_once_where_the_text_has_it_once() -> None:
    doubled = choice(["The", " best", " best", " town"], "The best town")
    doubled["logprobs"]["content"][2] = doubled["logprobs"]["content"][1] = item(" best", -0.123456)
    [found] = read_reply(reply(doubled)).choices
    assert [step.chosen.text for step in found.segments[0].steps] == ["The", " best", " town"]
    assert "1 of 4 items are there twice: they count once." in found.flags


def step(log_prob: float, *others: float, text: str = "a") -> TopStep:
    chosen = TopToken(log_prob, text=text)
    return TopStep(chosen, [chosen, *(TopToken(p, text=f"b{k}") for k, p in enumerate(others))] if others else [])


CHUNK = [step(-0.12345, text="a"), step(-0.34567, text="b"), step(-0.56789, text="c")]
LONG, SHORT, ALONE, OTHER = step(-0.12345, -2.5), step(-0.1234, -2.5), step(-0.12345), step(-0.5, -3.0)
SURE = [step(own := -math.log1p(math.exp(-eighths / 8)), own - eighths / 8, text='"') for eighths in (12, 60, 115)]
"""Steps of two entries, in logits that are multiples of an eighth: a sure token and its rival, as in JSON."""
FOUR = step(*(number - 0.00123 for number in (-0.7, -0.95, -2.2, -4.45)))
"""A step of four entries, where three differences of eighths agree."""


@each(
    ("steps", "twice"),
    [
        *(([pair, OTHER, pair], False) for pair in SURE),
        ([FOUR, FOUR], True),
        ([OTHER, *CHUNK, *CHUNK], True),
        ([*CHUNK, OTHER, *CHUNK], False),
        ([CHUNK[0], OTHER, CHUNK[1], CHUNK[0], CHUNK[1]], False),  # each at another distance
        # numbers of more than four decimals
        ([LONG, OTHER, LONG], True),
        ([SHORT, OTHER, SHORT], False),
        ([ALONE, ALONE, OTHER], True),
        ([OTHER, ALONE, ALONE], True),
        ([ALONE, OTHER, ALONE], False),
        ([SHORT, SHORT, OTHER], False),
        ([step(-0.1234), step(-0.1234)], False),
        ([step(-0.00101)] * 2, True),
        ([step(-0.00099)] * 2, False),  # a sure token, which shares its number with others
        ([ALONE, step(-0.12345, text="b")], False),
        ([LONG, step(-0.12345, -2.75)], False),
        ([LONG, OTHER], False),
    ],
)
def test_steps_were_sent_twice_if_numbers_come_again_that_do_not_by_chance(steps: list[TopStep], twice: bool) -> None:
    assert has_twice(steps) == twice


def test_a_whole_character_with_the_number_of_its_last_piece_is_found() -> None:
    def named(own: tuple[int, bytes], *entries: tuple[int, bytes]) -> TopStep:
        return TopStep(TopToken(-1.0, own[0], None, own[1]), [TopToken(-1.0, a, None, b) for a, b in entries])

    whole = "é".encode()
    merged = named((7, whole), (7, whole[1:]), (8, b"a"))
    assert merged_steps([merged, merged, named((7, whole), (7, whole))]) == 2
    assert merged_steps([named((7, whole), (6, whole[1:]))]) == 0  # another token
    assert merged_steps([named((7, b"a"), (7, b"\xa9"))]) == 0  # no character of several pieces
    assert (
        merged_steps([named((7, b"\x7f"), (7, b"\xa9"))]) == 0
        and merged_steps([named((7, b"\x80"), (7, b"\xa9"))]) == 1
    )
    assert merged_steps([named((7, whole), (7, b"\xc3"))]) == 0  # its first piece
    nameless = TopToken(-1.0, None, None, whole[1:])  # without ids it may be any token
    assert merged_steps([TopStep(nameless._replace(bytes=whole), [nameless])]) == 0


def test_names_as_in_files_hold_no_white_space_themselves() -> None:
    plain = [TopStep(TopToken(-1.0, text=text), []) for text in ("Oslo", "Ġis", "Ċ")]
    found = steps_in_files(plain)
    assert found is not None and [one.chosen.text for one in found] == ["Oslo", " is", "\n"]
    assert steps_in_files([*plain, TopStep(TopToken(-1.0, text=" here"), [])]) is None
    assert steps_in_files(plain[:1]) is None
    beside = TopStep(TopToken(-1.0, text="so"), [TopToken(-1.0, text=" so")])
    assert steps_in_files([*plain, beside]) is None


def streamed(*chunks: tuple[int, str, str | None]) -> ReplyStream:
    stream = ReplyStream()
    for index, text, reason in chunks:
        stream.feed(events(chat_chunk(item(text), index=index, finish_reason=reason)))
    stream.feed("data: [DONE]\n\n")
    return stream


def test_three_choices_of_one_step_each_of_which_only_the_last_ends_are_pieces_of_one_answer() -> None:
    with pytest.raises(BackendError, match="counts chunks"):
        streamed((0, "a", None), (1, " b", None), (2, " c", "stop")).finish()
    assert len(streamed((0, "a", None), (1, " b", "stop")).finish().choices) == 2
    assert len(streamed((0, "a", "stop"), (1, " b", None), (2, " c", "stop")).finish().choices) == 3
    assert len(streamed((0, "a", None), (1, " b", "stop"), (2, " c", "stop")).finish().choices) == 3
    assert len(streamed((0, "a", None), (0, " b", None), (1, " b", None), (2, " c", "stop")).finish().choices) == 3


def test_chunks_that_say_everything_again_are_no_answer() -> None:
    def said(*chunks: list[str]) -> str | None:
        stream = ReplyStream()
        for texts in chunks:
            stream.feed(chat_chunk(*(item(text, -0.5 - len(text) / 64) for text in texts)))
        return stream.finish().choices[0].broken

    again = said(["a"], ["a", " be"], ["a", " be", " cat"])
    assert again is not None and again == said(["a"], [" be"], ["a", " be"])
    assert said(["a"], ["a"]) != again and said(["a"], [" be"], ["a", " be", " cat"]) != again
    assert said(["a", " be"], ["a", " cat", " fish"]) != again and said(["a"], ["a", " be"]) == again


def test_an_error_is_told_on_one_line_of_500_characters() -> None:
    for length in (500, 501):
        with pytest.raises(BackendError) as error:
            read_reply({"error": {"message": "x" * (length - 2) + "\n\n y"}})
        told = str(error.value).removeprefix("The server reports an error: ")
        assert told == ("x" * (length - 2) + " y")[:500]


def test_a_choice_without_the_part_that_is_asked_for_is_named_by_its_number() -> None:
    with pytest.raises(SemtokenError, match="Choice 1 has no refusal"):
        score_reply(reply(choice(index=1)), segment="refusal")
