"""Clear lists are read in a shorter way: one that has every entry twice is read in full, and says the same."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from semtoken import Vocabulary, score_logprobs
from semtoken.core import ScoringRules
from semtoken.core.engine_tokens.top_steps import NOT_GIVEN, TopStep, TopToken
from semtoken.errors import SemtokenError
from tests import tiny
from tests.core.test_scoring import small_kind
from tests.examples import examples

FULL = 0.1234567
"""Makes a number one that was not rounded: of few decimals, the count of the numbers shows whether it was."""
NUMBERS = [-number - FULL for number in (1.5, 2.0, 2.0004, 3.0, 4.5, 5.0, 6.0, 20.0)]
ODD_NUMBERS = [*NUMBERS, 0.0, 5e-4, -0.2, -100.0, -math.inf, NOT_GIVEN]
TEXTS = ["a", "A", " a", "Ġa", "▁a", "b", " b", "B ", "é", "Ã©", "<s>", " <S>", "\n", " ", "\N{REPLACEMENT CHARACTER}"]
RULES = [ScoringRules(), ScoringRules(equality="exact")]


def named(text: str, number: float, token: int | None = None) -> TopToken:
    return TopToken(number, token, text, text.encode())


@st.composite
def any_token(draw: st.DrawFn, vocabulary: Vocabulary | None) -> TopToken:
    """An entry of a list under a name that engines might give its token: most have bytes and a number."""
    if vocabulary is None:
        text, token = draw(st.sampled_from(TEXTS)), draw(st.sampled_from([7, 8]))
        spelled = draw(st.sampled_from([text.encode(), text.encode(), b"\xc3"]))
    else:
        token = draw(st.integers(0, vocabulary.size - 1))
        text, spelled = vocabulary.texts[token], vocabulary.pieces[token]
    clear = TopToken(draw(st.sampled_from(NUMBERS)), None, text, spelled)
    number = draw(st.sampled_from(ODD_NUMBERS))
    odd = [
        clear._replace(id=token),
        TopToken(number, None, text),
        TopToken(number, token, text.strip()),
        TopToken(number, None, "<|end|>"),
        clear._replace(log_prob=number),
    ]
    return draw(st.sampled_from([*[clear] * 6, *odd]))


@st.composite
def any_step(draw: st.DrawFn, vocabulary: Vocabulary | None) -> TopStep:
    top = draw(st.lists(any_token(vocabulary), min_size=1, max_size=5))
    chosen = draw(st.one_of(st.sampled_from(top), any_token(vocabulary)))
    chosen = chosen._replace(log_prob=draw(st.sampled_from([*[chosen.log_prob] * 10, *ODD_NUMBERS])))
    return TopStep(chosen, [*top, chosen] if draw(st.booleans()) else top)


def may_be_any(token: TopToken) -> bool:
    """Whether the name of an entry says nothing of its token, as that of a piece of a character does."""
    return token.text in ("", "\N{REPLACEMENT CHARACTER}")


def outcome(steps: list[TopStep], vocabulary: Vocabulary | None, rules: ScoringRules) -> Any:
    try:
        scored = score_logprobs(steps, vocabulary, rules)
    except SemtokenError as error:
        return str(error)
    return scored.text, scored.log_confidence, scored.log_confidence_interval


def check(steps: list[TopStep], vocabulary: Vocabulary | None) -> None:
    # A list of one entry is too short to be called a copy of the one before, and of two entries it is not.
    assume(all(step.names[1:] != before.names[1:] for before, step in pairwise(steps)))
    # Of two entries without a name and with the chosen token's number one is another token; one alone may be itself.
    assume(not any(may_be_any(token) and token.log_prob == one.chosen.log_prob for one in steps for token in one.top))
    twice = [TopStep(step.chosen, [token for token in step.top for _ in range(2)]) for step in steps]
    for rules in RULES:
        once, again = outcome(steps, vocabulary, rules), outcome(twice, vocabulary, rules)
        # How names are spelled is known from the number of entries, so that more of them may be refused.
        assert once == again or isinstance(again, str)


@pytest.mark.parametrize("name", list(tiny.TOKENIZERS))
@examples(2)
@given(data=st.data())
def test_a_list_says_the_same_with_every_entry_twice(name: str, data: st.DataObject) -> None:
    vocabulary = small_kind(name).clusters.vocabulary
    check(data.draw(st.lists(any_step(vocabulary), min_size=1, max_size=3)), vocabulary)


OWN = named(" a", -FULL)
ALIKE = TopStep(OWN, [OWN, named("A", -2.0), named("b", -3.0)])


@examples(4)
@given(st.lists(any_step(None), min_size=1, max_size=4))
@example([ALIKE, TopStep(named(" a", -100.0), [named("b", -3.0)])])
@example([TopStep(OWN, [named("b", NOT_GIVEN)])])
@example([TopStep(OWN, [named(" a", -2.0), named("b", -3.0)])])
@example([TopStep(OWN._replace(id=7), [named(" a", -2.0), named("b", -3.0, 8)]), ALIKE])
@example([TopStep(named("<s>", -FULL), [named(" <S>", -2.0)])])
def test_a_list_says_the_same_with_every_entry_twice_where_no_vocabulary_is_known(steps: list[TopStep]) -> None:
    check(steps, None)


KNOWN = small_kind(next(iter(tiny.TOKENIZERS))).clusters.vocabulary


@pytest.mark.parametrize("vocabulary", [None, KNOWN], ids=["spelling", "vocabulary"])
def test_a_token_of_probability_zero_is_listed(vocabulary: Vocabulary | None) -> None:
    """So that a token that a grammar forces is none whose list is missing."""
    assert score_logprobs([TopStep(named("a", 0.0), [named("b", -math.inf)])], vocabulary).flags == ()


def test_an_entry_that_comes_again_counts_once_wherever_it_stands() -> None:
    once, piece = named("b", -3.5), TopToken(-3.0, None, "\N{REPLACEMENT CHARACTER}")
    pieces = [piece, piece._replace(log_prob=-4.0)]
    assert outcome([TopStep(OWN, [*pieces, once, piece])], None, RULES[0]) == outcome(
        [TopStep(OWN, [*pieces, once])], None, RULES[0]
    )
