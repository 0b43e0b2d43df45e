"""The confidence of an answer that a model thought about is that of the answer: worked by hand, and as in a reply."""

from __future__ import annotations

import math
from typing import Any

import pytest

from semtoken.core.parts.newness import new_words
from semtoken.core.results import ScoredAnswer
from semtoken.core.results.confidence import confidence_of
from semtoken.core.scored_token import TokenMark
from semtoken.methods.observers.method_scores import phrase_log_probs
from semtoken.support.thinking import thinking_end, unclear_mark
from tests.core.shown import answer
from tests.rows import each

SHORT = [("Oslo", 0.8), (".", 0.9)]
SENTENCE = [
    (" is", 0.9),
    (" what", 0.9),
    (" they", 0.7),
    (" call", 0.8),
    (" it", 0.6),
    (" up", 0.7),
    (" there", 0.5),
] * 2
THOUGHTS = [("Maybe", 0.1), (" Bergen", 0.01), ("?", 0.2)]


def confidence(pieces: list[tuple[str, float]], **options: Any) -> Any:
    """The confidence of an answer whose tokens are these."""
    text, marks = "", []
    for piece, p in pieces:
        marks.append(TokenMark(len(text), len(text) + len(piece), math.log(p), math.log(p), None))
        text += piece
    return confidence_of(text, lambda: marks, len(marks), math.fsum(math.log(p) for _, p in pieces), **options)


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("answer", [SHORT, [("Oslo", 0.8), *SENTENCE]])
def test_the_confidence_is_that_of_the_answer(opened: bool, answer: list[tuple[str, float]]) -> None:
    thought = [*([("<think>", 0.9)] if opened else []), *THOUGHTS, ("</think>", 0.5), ("\n\n", 0.6)]
    found, alone = confidence([*thought, *answer]), confidence(answer)
    assert (found.method, found.explanation) == (alone.method, alone.explanation)
    assert found.value == pytest.approx(alone.value, rel=1e-12)
    assert found.value > confidence([("Oslo", 0.1)]).value


def test_without_an_answer_there_is_no_confidence() -> None:
    for cut in ([("<think>", 0.9), *THOUGHTS], [("<think>", 0.9), *THOUGHTS, ("</think>", 0.9), ("\n", 0.9)]):
        assert confidence(cut).value == 0


@each(
    ("opening", "closing"),
    [
        ("<think>", "</think>"),
        ("<seed:think>", "</seed:think>"),
        ("[THINK]", "[/THINK]"),
        ("<|channel>thought\n", "<channel|>"),
        ("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),
        ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
        ("<|channel|>", "<|channel|>final <|constrain|>json<|message|>"),
    ],
)
@each("thought", ["", "Bergen? ", "They write a < b and </b>.\n\n", "a <|end|> b"])
def test_each_way_to_mark_thinking_ends_where_its_answer_begins(opening: str, closing: str, thought: str) -> None:
    text = f"{opening}{thought}{closing}"
    assert thinking_end(f"{text}Oslo") == len(text)
    assert thinking_end(f"{opening}{thought}") == len(opening) + len(thought)
    assert thinking_end(f"It is written {text}Oslo", lambda: ["It is written ", *text]) == 0
    assert thinking_end(f"{opening}{thought} </other> [/OTHER]") == len(f"{opening}{thought} </other> [/OTHER]")


def test_a_text_about_the_marks_is_no_thinking() -> None:
    assert thinking_end("Close it by </think>, then go on.", lambda: ["Close", " it", " by </", "think", ">,"]) == 0
    assert thinking_end("An answer", lambda: ["An", " answer"]) == 0
    assert thinking_end(" <think>a</think>b") == len(" <think>a</think>")


def test_phrases_and_new_words_are_those_of_the_answer() -> None:
    scored: ScoredAnswer = answer(("<think>", 0.9), ("Bergen", 0.1), ("</think>", 0.9), ("Oslo", 0.8))
    assert [scored.text[a:b] for a, b in new_words(scored.text)] == ["Oslo"]
    assert phrase_log_probs(scored, "")[0].tolist() == pytest.approx([math.log(0.8)])
    assert scored.confidence == pytest.approx(0.8)
    assert scored.sequence_uncertainty == pytest.approx(1 - 0.9 * 0.1 * 0.9 * 0.8)


def test_marks_divide_a_text_that_they_open_or_that_the_prompt_opened() -> None:
    tokens = ["Oslo", "</think>", "\n\n", "x"]
    for text, opened, end in (
        ("Bergen?</think>\n\nOslo", False, len("Bergen?</think>")),  # likely
        ("Bergen?</think>Oslo", False, 0),
        ("Bergen?</think>Oslo", True, len("Bergen?</think>")),
        ("The mark </think> ends it.", False, 0),
        ("Write <think>plan</think>\nfirst.", False, 0),
        ("Write <think>plan</think> first.", True, 0),
        ("analysisThey ask for it.assistantfinalOslo", False, len("analysisThey ask for it.assistantfinal")),
        ("analysis of the final", False, 0),
    ):
        assert thinking_end(text, lambda: tokens, opened=opened) == end, text


def test_marks_inside_an_answer_are_unclear_where_a_thinking_may_have_left_them() -> None:
    tokens = ["Oslo", "</think>", "<think>"]
    assert unclear_mark("The mark </think> ends it.", tokens, thought=False) == "</think>"
    assert unclear_mark("The mark </think> ends it.", ["mark", " </", "think", ">"], thought=False) is None
    assert unclear_mark("Write <think>a</think> first.", tokens, thought=False) is None
    assert unclear_mark("Oslo<think>b</think>!", tokens, thought=True) == "<think>"
    assert unclear_mark("Oslo", tokens, thought=True) is None
