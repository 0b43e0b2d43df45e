"""Marks of a thinking in a message: they divide it only where they open it, or where the prompt opened it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from semtoken import score_reply
from tests.replies.made import chat_reply
from tests.replies.test_ends_of_answers import item

ABOUT = [("Write", 0.9), (" ", 0.95), ("<think>", 0.5), ("plan", 0.6), ("</think>", 0.7), (" first", 0.8), (".", 0.97)]


def score(pieces: list[tuple[str, float]], **options: Any) -> Any:
    [found] = score_reply(
        chat_reply("".join(text for text, _ in pieces), [item(*piece) for piece in pieces]), **options
    )
    return found


def log_of(pieces: list[tuple[str, float]]) -> float:
    return math.fsum(math.log(probability) for _, probability in pieces)


def test_an_answer_that_speaks_of_thinking_is_scored_whole() -> None:
    found = score(ABOUT)
    assert found.log_confidence == pytest.approx(log_of(ABOUT), abs=1e-6)
    assert not any("thinking" in flag.message for flag in found.flags)


def test_a_closing_mark_inside_a_line_is_flagged() -> None:
    pieces = [("The", 0.9), (" mark", 0.8), (" </think>", 0.7), (" ends", 0.9), (" it", 0.8)]
    found = score(pieces)
    assert found.log_confidence == pytest.approx(log_of(pieces), abs=1e-6)
    assert any("thinking" in flag.message for flag in found.flags)


def test_a_second_thinking_is_flagged() -> None:
    first = [("<think>", 0.9), ("a", 0.5), ("</think>", 0.9)]
    second = [("Oslo", 0.8), ("<think>", 0.9), ("b", 0.5), ("</think>", 0.9), ("!", 0.9)]
    found = score([*first, *second])
    assert found.log_confidence == pytest.approx(log_of(second), abs=1e-6)
    assert any("thinking" in flag.message for flag in found.flags)


@pytest.mark.parametrize("opening", ["<think>", "<think>\n"])
def test_a_prompt_that_opens_the_thinking_tells(opening: str) -> None:
    asked = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": opening}]}
    pieces = [("Bergen", 0.5), ("</think>", 0.9), ("Oslo", 0.8)]
    assert score(pieces, request=asked).log_confidence == pytest.approx(log_of(pieces[2:]), abs=1e-6)


def test_channels_without_their_special_tokens_are_divided() -> None:
    pieces = [("analysis", 0.9), ("Norway", 0.5), ("?", 0.4), ("assistant", 0.9), ("final", 0.8), ("Oslo", 0.7)]
    assert score(pieces).log_confidence == pytest.approx(log_of(pieces[5:]), abs=1e-6)
