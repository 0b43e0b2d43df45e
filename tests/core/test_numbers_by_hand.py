"""Small numbers of the readers of lists, by hand: what is missing, what is shared, where answers are."""

from __future__ import annotations

import math
from typing import Any

import pytest

from semtoken.core.engine_tokens import TopStep, TopToken, check_shared_vocabulary
from semtoken.core.engine_tokens.passes import steps_in_files
from semtoken.core.engine_tokens.placing import SpelledText, find_text, pieces_of, place_of_answer
from semtoken.core.engine_tokens.spellings import (
    as_top_steps,
    steps_from_items,
    steps_from_lists,
    steps_from_triples,
)
from semtoken.core.engine_tokens.token_names import SharedVocabulary
from semtoken.core.engine_tokens.top_steps import StepList, log_prob_or_none
from semtoken.errors import InvalidInputError, InvalidLogits
from semtoken.support.untrusted import as_bytes, as_id, text_or_empty
from tests.core.test_scoring import small_kind


def test_missing_steps_are_counted_from_the_beginning_of_the_first_list() -> None:
    step = TopStep(TopToken(-1.0, 3), ())
    both = StepList.chained([StepList((step, step), (1,)), StepList((step,)), StepList((step, step), (0, 1))])
    assert (len(both.steps), both.missing, both.fault) == (5, (1, 3, 4), None)
    assert both.problem is not None and both.problem.startswith("3 of 5 steps have no log-probability")
    assert "the first of them step 1" in both.problem
    assert StepList((step,)).problem is None
    assert StepList.chained([StepList(fault="first"), StepList(fault="second")]).problem == "first"


def test_ids_bytes_and_numbers_that_may_be_missing() -> None:
    assert as_id(0, "id") == 0 and as_bytes([0, 255], "bytes") == b"\x00\xff"
    assert (text_or_empty("Oslo", "text"), text_or_empty(None, "text")) == ("Oslo", "")
    for bad in (-1, True, 0.0):
        with pytest.raises(InvalidInputError, match="an integer from 0"):
            as_id(bad, "id")
    for numbers in ([256], [-1]):
        with pytest.raises(InvalidInputError, match="numbers from 0 to 255"):
            as_bytes(numbers, "bytes")
    assert [log_prob_or_none(x, "x") for x in (None, math.nan, math.inf, -math.inf, 0.0009, 0.001)] == [
        *[None] * 3,
        -math.inf,
        0.0,
        0.0,
    ]
    with pytest.raises(InvalidInputError) as error:
        as_id("9" * 100, "id")
    assert len(str(error.value)) == len("id must be an integer from 0. Got  instead.") + 80


@pytest.mark.parametrize(
    ("tokens", "fitting", "long", "enough"),
    [(20, 20, 5, True), (19, 19, 19, False), (20, 20, 4, False), (20, 19, 20, False), (24, 24, 6, True)],
)
def test_twenty_tokens_a_quarter_of_them_long_tell_a_tokenizer(
    tokens: int, fitting: int, long: int, enough: bool
) -> None:
    assert SharedVocabulary(tokens, fitting, long, ()).enough == enough


def test_shared_tokens_are_counted_by_their_bytes() -> None:
    """Four of the vocabulary, two of them of five bytes and more, and two that it lacks."""
    vocabulary = small_kind("byte-level").clusters.vocabulary
    pieces = sorted({piece for piece in vocabulary.pieces if piece.isalpha()}, key=lambda piece: (len(piece), piece))
    five, four = (next(piece for piece in pieces if len(piece) == n) for n in (5, 4))
    own = [pieces[0], four, five, pieces[-1]]
    assert len(pieces[0]) < 5 < len(pieces[-1])
    foreign = [TopToken(-3.0, text="xéé"), TopToken(-3.0, text="zzzzz qé")]
    steps = [TopStep(TopToken(-1.0, bytes=piece), foreign) for piece in own]
    found = check_shared_vocabulary(steps, vocabulary)
    assert (found.n_tokens, found.n_fitting, found.n_long) == (6, 4, 2)
    assert set(found.misfits) == {"'xéé'", "'zzzzz qé'"}
    blank = next(piece[1:] for piece in vocabulary.pieces if piece[:1] == b" " and piece[1:] not in vocabulary.pieces)
    assert check_shared_vocabulary([TopStep(TopToken(-1.0, bytes=blank), ())], vocabulary).n_fitting == 0
    # a character of several tokens, which engines name whole, speaks neither for nor against a vocabulary
    joined = [
        character
        for character in ("\U00020bb7", " \u9f98", "\U0001f600")
        if character.encode() not in vocabulary.pieces
    ]
    assert len(joined) == 3
    whole = [TopStep(TopToken(-1.0, text=character, bytes=character.encode()), ()) for character in joined]
    beside = check_shared_vocabulary([*steps, *whole], vocabulary)
    assert (beside.n_tokens, beside.n_fitting, beside.misfits) == (found.n_tokens, found.n_fitting, found.misfits)
    assert check_shared_vocabulary(whole, vocabulary).fits and not check_shared_vocabulary(whole, vocabulary).enough
    two = [TopStep(TopToken(-1.0, text="\u6771\u4eac"), ())]  # two characters that another vocabulary joins
    assert not check_shared_vocabulary(two, vocabulary).fits
    many = [TopStep(TopToken(-1.0, text=f"zzzzz q{k}"), ()) for k in range(12)]
    assert len(check_shared_vocabulary(many, vocabulary).misfits) == 10


def spelled(*texts: str) -> list[SpelledText]:
    return [SpelledText(text) for text in texts]


def test_an_answer_is_cut_at_most_64_characters_into_its_last_token() -> None:
    last = "".join(chr(ord("a") + k % 26) + str(k // 26) for k in range(50))
    for kept, found in ((1, (0, 2)), (64, (0, 2)), (65, None), (100, (0, 2))):
        assert find_text(spelled("Oslo: ", last), f"Oslo: {last[:kept]}") == found, kept


def test_where_tokens_and_message_differ_is_told_with_what_stands_there() -> None:
    digits = "".join(str(k % 10) for k in range(100))
    for at, begin in ((5, 0), (20, 0), (21, 1), (50, 30)):
        message = f"{digits[:at]}X{digits[at + 1 :]}"
        problem = place_of_answer(spelled(digits), message, called=False).problem
        assert problem is not None and f"from character {begin} on it says" in problem
        assert f"says {message[begin : begin + 60]!r}, the tokens {digits[begin : begin + 60]!r}." in problem
    shorter = place_of_answer(spelled(digits), digits + "!", called=False).problem
    assert shorter is not None and "from character 80 on" in shorter


@pytest.mark.parametrize("length", [60, 61])
def test_sixty_characters_of_an_answer_at_two_places_are_shown(length: int) -> None:
    answer = "y" * length
    problem = place_of_answer(spelled("a ", answer, " b ", answer, " c"), answer, called=False).problem
    assert problem is not None and "fits 2 places" in problem
    assert (repr(answer) in problem) == (length == 60) and ("..." in problem) == (length == 61)
    assert repr("y" * 60)[:-1] in problem
    assert place_of_answer(spelled("a ", answer, " b ", answer, " c"), answer, called=True)[:2] == (1, 2)
    ended = place_of_answer(spelled("a ", answer, " b ", answer, "<|end|>"), answer, called=False)
    assert (ended.start, ended.end, ended.before, ended.behind) == (3, 4, True, False)
    begun = place_of_answer(spelled("<s>", answer, " b ", answer, " c"), answer, called=False)
    assert (begun.start, begun.end, begun.before, begun.behind) == (1, 2, False, True)
    stopped = place_of_answer(spelled("a ", answer, "\nUser", answer, " c"), answer, ["\nUser"], called=False)
    assert (stopped.start, stopped.end, stopped.behind) == (1, 2, False)


def test_a_triple_says_number_id_and_text_and_a_pair_the_first_two() -> None:
    triple, pair = [-0.1, 5, " Oslo"], [-2.5, 6]
    (step,) = steps_from_triples([triple], [[triple, pair]], "reply").steps
    assert step.names == ((5, " Oslo", None), (5, " Oslo", None), (6, None, None))
    assert list(step.log_probs) == [-0.1, -0.1, -2.5]
    for entry in ([-0.1], [-0.1, 5, " Oslo", None]):
        with pytest.raises(
            InvalidInputError, match=r"^reply\S* \(log-probability, id, text\) must be a list. Got None"
        ):
            steps_from_triples([entry], None, "reply")


def test_a_step_of_a_triple_may_have_a_list_beside_it_or_none() -> None:
    triple, other = (-0.1, 5, " Oslo"), (-2.5, 6, " Bergen")
    listed, bare, alone = as_top_steps([(triple, [triple, other]), (triple, None), triple])
    assert [name[1] for name in listed.names] == [" Oslo", " Oslo", " Bergen"]
    assert [name[1] for name in bare.names] == [name[1] for name in alone.names] == [" Oslo"]


def test_a_probability_of_zero_has_no_finite_log() -> None:
    best = [{"token": "Oslo", "prob": 0.5}, {"token": "Rome", "prob": 0}]
    [one] = as_top_steps([{"token": "Oslo", "prob": 0.5, "top_probs": best}])
    assert one.log_probs == (math.log(0.5), math.log(0.5), -math.inf)


@pytest.mark.parametrize("more", [{}, {"rank": 1}])
def test_an_item_may_have_an_id_though_its_list_has_none(more: dict[str, Any]) -> None:
    best = [{"token": text, "logprob": -0.5 - k, "bytes": None} for k, text in enumerate(("Oslo", "Rome"))]
    [one] = as_top_steps([best[0] | {"id": 5, "top_logprobs": best} | more])
    assert one.names == ((5, "Oslo", None), (None, "Oslo", None), (None, "Rome", None))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"logprob": 0.05}, "at most 0. Got 0.05"),
        ({"bytes": 3}, "bytes must be a list"),
        ({"id": -1}, "from 0. Got -1"),
    ],
)
@pytest.mark.parametrize("ids", [{}, {"id": 5}])
def test_items_with_wrong_values_are_refused(ids: dict[str, int], wrong: dict[str, Any], error: str) -> None:
    entry = {"token": "Oslo", "logprob": -0.5, "bytes": list(b"Oslo")} | ids
    best, none = {"top_logprobs": [entry]}, {"top_logprobs": [entry | wrong]}
    for item in (entry | none, entry | wrong | best, entry | wrong | none):
        with pytest.raises((InvalidInputError, InvalidLogits), match=error):
            steps_from_items([item], "items")
    assert len(steps_from_items([entry | best], "items").steps) == 1


def test_lists_of_ids_have_ids_as_the_keys_of_an_object() -> None:
    lists = {
        "tokens": [5, 6],
        "token_logprobs": [-0.1, -0.2],
        "top_logprobs": [{"5": -0.1, "7": -2.0, "x": -3.0}, None],
    }
    first, second = steps_from_lists(lists, "choice").steps
    assert (first.names, first.log_probs) == (((5, None, None), (5, None, None), (7, None, None)), (-0.1, -0.1, -2.0))
    assert (second.names, second.log_probs) == (((6, None, None),), (-0.2,))


def test_a_piece_without_its_bytes_stands_for_one_character_more_than_its_text_at_most() -> None:
    def piece(*chosen: Any, listed: str | None = "a longer text") -> SpelledText:
        (found,) = pieces_of([TopStep(TopToken(-1.0, *chosen), (TopToken(-2.0, 9, listed, None),))])
        return found

    assert piece(3, "ab\ufffd", None) == SpelledText(None, 4)
    assert piece(3, None, None) == SpelledText(None, 2)  # others have texts
    assert piece(3, None, None, listed=None) == SpelledText(None, math.inf)
    assert piece(3, "ab", None) == SpelledText("ab")


def test_names_as_in_the_files_of_a_tokenizer_are_decoded() -> None:
    blank, line, piece = (TopToken(-0.1, text=text) for text in ("\u2581Oslo", "<0x0A>", "<0xC3>"))
    found = steps_in_files([TopStep(blank, ()), TopStep(line, (line, piece))])
    assert found is not None
    names = [(None, " Oslo", b" Oslo"), (None, "\n", b"\n"), (None, "\n", b"\n"), (None, "\ufffd", b"\xc3")]
    assert [name for step in found for name in step.names] == names
