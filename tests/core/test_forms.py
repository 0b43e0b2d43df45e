"""Forms in which engines write steps, each in its smallest case."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import pytest

from semtoken.core.engine_tokens import TopStep, TopToken, as_top_steps
from semtoken.core.engine_tokens.passes import steps_in_files, without_copied_lists, without_doubles
from semtoken.core.engine_tokens.spellings import steps_from_columns, steps_from_items, steps_from_lists
from semtoken.core.engine_tokens.top_steps import NOT_GIVEN, StepList
from semtoken.errors import InvalidInputError


def columns(names: str, *log_probs: float) -> TopStep:
    """Tokens of one letter each, the chosen one first."""
    return TopStep.of_columns(tuple((None, name, None) for name in names), log_probs)


def test_lists_of_a_completion() -> None:
    two = {"tokens": ["a", "b"], "token_logprobs": [-0.5, -0.7], "top_logprobs": [{"a": -0.5, "c": -2.0}, {"b": -0.7}]}
    expected = StepList((columns("aac", -0.5, -0.5, -2.0), columns("bb", -0.7, -0.7)))
    assert steps_from_lists(two, "choice") == expected
    del two["top_logprobs"]
    assert steps_from_lists(two, "choice") == StepList((columns("a", -0.5), columns("b", -0.7)))
    nulls = {"tokens": ["a", "b"], "token_logprobs": [-0.5, None], "top_logprobs": [{"a": -0.5, "c": None}, None]}
    found = steps_from_lists(nulls, "choice")
    assert found == StepList((columns("aac", -0.5, -0.5, NOT_GIVEN), columns("b", NOT_GIVEN)), (1,))


def test_a_list_of_chosen_tokens_and_one_of_the_best_of_each() -> None:
    a, b = ({"token": name, "logprob": -0.5} for name in "ab")
    assert steps_from_columns([a, b], [[a, b], []], "reply").steps == (columns("aab", *[-0.5] * 3), columns("b", -0.5))


@pytest.mark.parametrize("item", ["a", 3, ["token", "a"]])
def test_an_item_is_an_object(item: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^items\[0\] must be an object"):
        steps_from_items([item], "items")
    proxied = MappingProxyType({"token": "a", "logprob": -0.5, "top_logprobs": []})
    assert steps_from_items([proxied], "items").steps == (columns("a", -0.5),)


def test_a_step_is_taken_once_where_it_is_there_twice_in_a_row() -> None:
    first, second = columns("a", -0.5), columns("b", -0.7)
    assert without_doubles([first, first, second, first]) == (first, second, first)


def test_older_items_of_llama_cpp_have_the_chosen_number_in_the_list_alone() -> None:
    best = [{"tok_str": "b", "prob": 0.25}, {"tok_str": "a", "prob": 0.5}]
    [step] = steps_from_items([{"content": "a", "probs": best}], "items").steps
    assert step == columns("aba", math.log(0.5), math.log(0.25), math.log(0.5))


@pytest.mark.parametrize("probability", [math.nan, "0.5", True])
def test_what_is_no_probability_is_refused(probability: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^steps\[0\]\.prob must be a number"):
        as_top_steps([{"token": "a", "prob": probability, "top_probs": []}])


@pytest.mark.parametrize(("name", "spelled"), [("bytes:\\xc3", b"\xc3"), ("byte: \\xc3\\xa9", b"\xc3\xa9")])
def test_names_that_write_their_bytes_out(name: str, spelled: bytes) -> None:
    assert as_top_steps([{"token": name, "logprob": -0.5}])[0].names == ((None, None, spelled),)


def test_bytes_of_nothing_are_no_bytes() -> None:
    named = ((None, "a", b"a"), (None, "</s>", b""))
    [step] = as_top_steps([TopStep.of_columns(named, (-0.5, -0.5))])
    assert step.names == ((None, "a", b"a"), (None, "</s>", None))


@pytest.mark.parametrize(("first", "rival", "name"), [("", "a", "\ufffdé"), ("a", "", "é")])
def test_the_name_of_a_whole_character_behind_a_piece_of_it_is_borrowed(first: str, rival: str, name: str) -> None:
    """It is the chosen token before it that tells."""
    steps = [
        {"token": text, "logprob": -0.5, "top_logprobs": [{"token": other, "logprob": -1.0}]}
        for text, other in ((first, rival), ("é", "b"))
    ]
    assert as_top_steps(steps)[1].names == ((None, name, None), (None, "b", None))


def test_behind_the_last_piece_of_a_character_names_are_their_own_again() -> None:
    steps = as_top_steps([{"token": text, "logprob": -0.5} for text in ("", "", "é", "ü", "", "a", "ü")])
    named = ["", "", "\ufffdé", "ü", "", "a", "ü"]
    assert [step.names[0][1] for step in steps] == named
    assert [step.names[0][1] for step in as_top_steps(steps)] == named, "steps that were read before stay as they are"


def test_names_of_files_may_have_ids() -> None:
    found = steps_in_files([TopStep(TopToken(-0.1, 3, "\u2581a"), (TopToken(-0.1, 3, "\u2581a"),))])
    assert found is not None and found[0].names == ((3, " a", b" a"),) * 2
    assert steps_in_files([TopStep(TopToken(-0.1, 3, "\u2581a b"), ())]) is None


@pytest.mark.parametrize(
    ("listed", "own", "copied"),
    [
        ((-0.123456, -2.0), -0.9, True),
        ((-2.0, -0.123456), -0.9, True),
        ((-0.123, -2.0), -0.9876543, False),  # short numbers may agree by chance
        ((-0.123456, -2.0), -0.123456, False),  # its own is in the list
    ],
)
def test_a_list_that_the_own_number_contradicts_is_the_one_before(
    listed: tuple[float, float], own: float, copied: bool
) -> None:
    before, step = columns("aab", listed[0], *listed), columns("aab", own, *listed)
    read = columns("a", own) if copied else step
    assert without_copied_lists([step], before) == [read]
    assert without_copied_lists([before, step, step]) == [before, read, read], "each is held against the one as it came"
    assert without_copied_lists([step], columns("aac", listed[0], *listed)) == [step]
    assert without_copied_lists([step], columns("aab", listed[0], listed[0], -5.0)) == [step]
    one = columns("aa", own, listed[0])
    assert without_copied_lists([one], columns("aa", listed[0], listed[0])) == [one], "one entry is no list"


def test_a_number_may_be_written_without_a_fraction() -> None:
    assert steps_from_items([{"token": "a", "logprob": -1, "top_logprobs": []}], "items").steps == (columns("a", -1.0),)
