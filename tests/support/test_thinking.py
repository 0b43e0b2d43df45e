"""The end of the thinking in a text by each kind of marks, and marks that are none or are unclear."""

from __future__ import annotations

from semtoken.support.thinking import thinking_end, unclear_mark
from tests.rows import each


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
