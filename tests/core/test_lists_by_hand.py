"""One list of the best tokens and what an answer says of it, by hand: how wide it is, and what is told of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from semtoken import ScoredAnswer, Vocabulary, score_logits, score_logprobs
from semtoken.core import LogprobsStream, ScoringRules
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.errors import BackendError, InvalidInputError
from tests import worked
from tests.core.lists import codes, in_bytes, step, token
from tests.rows import each

MEANING = ScoringRules(equality="meaning", function_words="off")
WHOLE_WORDS = ScoringRules(equality="meaning", function_words="whole-word")
ROME = in_bytes(0.3, "Rome")
MANY = 70
"""So many steps are summed in arrays, and fewer one by one."""


def listed(step: dict[str, float], chosen: str) -> tuple[int, dict[int, float]]:
    """A step by the ids of the worked example, with these probabilities."""
    return worked.ids(chosen)[0], {worked.ids(token)[0]: math.log(p) for token, p in step.items()}


def bounds(scored: ScoredAnswer, place: int = 0) -> tuple[float, float]:
    """The bounds of a token's agreeing probability, as it counts and as its record has it, which are the same."""
    first = scored.marks[place].log_agreeing_bounds  # made without the records as long as there are none
    assert first is not None
    pair = scored.tokens[place].agreeing_bounds
    assert [math.exp(end) for end in first] == pytest.approx(list(pair), abs=1e-12)
    return pair


@each("n", [1, MANY])
@each(
    ("step", "rules", "expected"),
    [
        # All but the chosen token and its cluster is listed, and adds up to more than everything.
        ({"vision": 0.6, " radio": 0.44}, ScoringRules(), (0.6, 0.6)),
        ({" tele": 0.2, "TV": 0.4, " radio": 0.44}, MEANING, (0.6, 0.6)),
        # What agrees adds up to more than everything.
        ({" tele": 0.6, "TV": 0.44}, MEANING, (1.0, 1.0)),
        ({" tele": 0.6, "te": 0.44}, MEANING, (1.0, 1.0)),
        ({" tele": 0.6, "\n": 0.44}, WHOLE_WORDS, (1.0, 1.0)),
        ({" the": 0.6, "\n": 0.44}, ScoringRules("paper"), (1.0, 1.0)),
        ({" the": 0.6, " The": 0.44}, ScoringRules(), (1.0, 1.0)),
    ],
)
def test_a_list_of_more_than_everything_leaves_nothing_open(
    step: dict[str, float], rules: ScoringRules, expected: tuple[float, float], n: int
) -> None:
    scored = score_logprobs([listed(step, next(iter(step)))] * n, worked.clusters(), rules)
    assert bounds(scored) == pytest.approx(expected, abs=1e-4)
    assert scored.tokens[0].log_agreeing_probability == pytest.approx(math.log(expected[0]))
    assert scored.log_confidence == pytest.approx(n * math.log(expected[0]))
    token = scored.tokens[0]
    assert max(token.cluster_probability, token.prefix_probability, token.neutral_probability) <= 1.0
    assert [flag.code for flag in scored.flags if flag.code == "overfull"] == ["overfull"]


@pytest.mark.parametrize("n", [1, MANY])
def test_a_function_word_that_was_chosen_is_certain_whatever_is_listed(n: int) -> None:
    scored = score_logprobs([listed({" the": 0.3, " radio": 0.2}, " the")] * n, worked.clusters(), "paper")
    assert bounds(scored) == (1.0, 1.0) and scored.sequence_uncertainty_interval == (0.0, 0.0)
    token = scored.tokens[0]
    assert (token.agreeing_probability, token.prefix_probability) == (1.0, 0.0)
    assert (token.cluster_probability, token.neutral_probability) == pytest.approx((0.3, 0.3))


def test_many_of_the_same_spelling_are_everything_at_most() -> None:
    vocabulary = worked.vocabulary(("a", "A", " a", "b"))
    [token] = score_logprobs([(0, {0: math.log(0.001), 1: math.log(0.6), 2: math.log(0.44)})], vocabulary).tokens
    assert (token.prefix_probability, token.agreeing_probability) == (1.0, 1.0)


@pytest.mark.parametrize("n", [1, MANY])
def test_another_number_of_the_chosen_id_counts_for_the_upper_end_alone(n: int) -> None:
    """The list does not tell which of the two is its number."""
    word, other = worked.ids("TV", " radio")
    steps = [
        TopStep(TopToken(math.log(0.5), word), [TopToken(math.log(0.2), word), TopToken(math.log(0.1), other)])
    ] * n
    scored = score_logprobs(steps, worked.vocabulary(), ScoringRules(equality="exact"))
    assert bounds(scored) == pytest.approx((0.5, 0.7), abs=1e-4)


OFF = 1 / 128
"""By how much of itself a number in half precision may be off."""


def test_numbers_in_half_precision_widen_what_is_listed_and_what_is_missing() -> None:
    """ " Paris" is not listed: it has what is missing at most, and no more than the other word."""
    vocabulary = worked.vocabulary(("paris", " Paris", "x"))
    for own, other in ((-3.0, -0.5), (-1.0, -4.0)):
        p, q = math.exp(own), math.exp(other)
        whole = math.log((p * math.exp(-own * OFF) + q * math.exp(-other * OFF)) / (p + q))
        unlisted = min(1 - (p + q) + whole * (p + q), q * math.exp(-other * OFF))
        expected = (p * math.exp(own * OFF), min((p + unlisted) * math.exp(-own * OFF), 1.0))
        assert bounds(score_logprobs([(0, {0: own, 2: other})], vocabulary)) == pytest.approx(expected, abs=1e-4)


def test_numbers_in_half_precision_without_a_vocabulary_widen_what_is_missing() -> None:
    """Any number of tokens may be spelled as the word is, so that all of what is missing may agree."""
    own, other = -3.078125, -0.5078125
    names = [TopToken(own, text=" Rome", bytes=b" Rome"), TopToken(other, text=" Lima", bytes=b" Lima")]
    p, q = math.exp(own), math.exp(other)
    whole = math.log((p * math.exp(-own * OFF) + q * math.exp(-other * OFF)) / (p + q))
    missing = 1 - (p + q) + whole * (p + q)
    expected = (p * math.exp(own * OFF), (p + missing) * math.exp(-own * OFF))
    for n in (1, MANY):
        assert bounds(score_logprobs([TopStep(names[0], names)] * n)) == pytest.approx(expected, abs=1e-4)
    running = LogprobsStream().add(TopStep(names[0], names))
    assert running.sequence_uncertainty_interval == pytest.approx((1 - expected[1], 1 - expected[0]), abs=1e-4)


@pytest.mark.parametrize("n", [1, MANY])
def test_a_step_that_does_not_tell_its_token_is_open_up_to_what_is_missing(n: int) -> None:
    """Also among numbers in half precision, of which its own is none."""
    others = [TopToken(-0.5078125, id=2), TopToken(-9999.0, id=0)]
    scored = score_logprobs([TopStep(others[1], others)] * n, worked.vocabulary(("paris", " Paris", "x")))
    q = math.exp(-0.5078125)
    whole = 0.5078125 * OFF
    assert bounds(scored) == pytest.approx((0.0, 1 - q + whole * q), abs=1e-4)


def test_a_name_that_may_agree_is_off_with_the_whole_list() -> None:
    """The entry may be either half of a character, so that all numbers of the list have to be sure."""
    texts, pieces, nothing = ("x", "\ufffd", "\ufffd", "y"), (b"x", b"\xc3", b"\xa9", b"y"), np.zeros(4, dtype=bool)
    half, either = TopToken(-0.5, bytes=b"\xc3"), TopToken(-4.0, text="\ufffd")
    [token] = score_logprobs(
        [TopStep(half, [either, TopToken(-3.0, bytes=b"x")])],
        Vocabulary(texts, pieces, nothing, nothing),
        ScoringRules(equality="exact"),
    ).tokens
    sizes = np.array([0.5, 3.0])
    whole = math.log(np.exp(sizes * OFF - sizes).sum() / np.exp(-sizes).sum())
    expected = (math.exp(-0.5 - whole), (math.exp(-0.5) + math.exp(-4.0)) * math.exp(whole))
    assert token.agreeing_bounds == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("by", ["names", "a vocabulary"])
def test_others_are_told_down_to_a_percent(by: str) -> None:
    names = [(" vision", 0.9), (" radio", 0.05), (" 17", 0.011), ("te", 0.009)]
    tokens = [in_bytes(p, name) for name, p in names]
    vocabulary = None if by == "names" else worked.vocabulary([name for name, _ in names])
    scored = score_logprobs([TopStep(tokens[0], tokens)] * 6, vocabulary)
    assert [len(others) for others in scored.alternatives_at([5, 2])] == [2, 2]
    for one in scored.tokens:
        shown = [(other.text, other.source, other.counted) for other in one.alternatives]
        assert shown == [(" radio", "other", False), (" 17", "other", False)]


@pytest.mark.parametrize("equality", ["surface", "exact"])
@pytest.mark.parametrize(("text", "upper"), [(" Rome", 0.8), ("\n", 0.5)])
def test_what_names_do_not_tell_may_be_spelled_alike_whatever_is_scored(equality: Any, text: str, upper: float) -> None:
    """Without a vocabulary, all of what is missing may be the word in capitals; a blank is spelled like no other."""
    steps = [step(in_bytes(0.5, text), in_bytes(0.2, " Lima"))]
    scored = score_logprobs(steps, None, ScoringRules(equality=equality))
    assert bounds(scored) == pytest.approx((0.5, upper if equality == "surface" else 0.5), abs=1e-4)
    alike = scored.tokens[0].log_surface_bounds
    assert alike is not None
    assert [math.exp(end) for end in alike] == pytest.approx([0.5, upper], abs=1e-4)


def test_a_rival_is_told_of_an_answer_that_is_hardly_likely() -> None:
    """ "TV" counts for " tele" by its cluster; the numeral after it makes the answer as unlikely as .02."""
    chances = {" tele": 0.2, "TV": 0.2, " radio": 0.5, "te": 0.1}, {" radio": 0.95, " 17": 0.05}
    steps, rows = [listed(chances[0], " tele"), listed(chances[1], " 17")], worked.logits(*chances)
    for rules in (ScoringRules("paper"), MEANING, ScoringRules()):
        of_lists = score_logprobs(steps, worked.clusters(), rules)
        of_rows = score_logits(rows, worked.ids(" tele", " 17"), worked.clusters(), rules)
        for scored in (of_lists, of_rows):
            assert 1 - scored.sequence_uncertainty < 0.1
            assert ("rivals_counted" in [flag.code for flag in scored.flags]) == rules.clustering


def test_zeros_of_all_tokens_but_function_words_are_no_log_probabilities() -> None:
    """The function word is certain under the paper's rules, whatever its number."""
    zero, word = TopStep(TopToken(0.0, worked.ids("vision")[0]), ()), listed({" the": 0.5, " radio": 0.3}, " the")
    with pytest.raises(BackendError, match="does not report log-probabilities"):
        score_logprobs([zero, word, zero], worked.clusters(), "paper")


def test_text_that_the_steps_do_not_spell_is_told_from_both_sides() -> None:
    steps = [listed({"TV": 0.5, " radio": 0.1}, "TV")]
    scored = score_logprobs(steps, worked.clusters(), proxy_for="other", text="TV set")
    assert [(flag.code, flag.message) for flag in scored.flags[-2:]] == [
        (
            "shared_vocabulary",
            "The vocabulary is another model's than other, with the same tokenizer: a proxy for its own.",
        ),
        ("other_text", "The steps spell '' where the answer says 'set': some are missing."),
    ]


def test_thirty_characters_of_what_differs_are_shown_from_both_sides() -> None:
    """Blanks and pieces of characters without a name do not differ."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    [flag] = score_logprobs([step(in_bytes(0.6, f"the same {letters}"), ROME)], text=f"the same X{letters}").flags
    assert (
        flag.message
        == f"The steps spell {letters[:30]!r} where the answer says {'X' + letters[:29]!r}: some are missing."
    )
    blank = score_logprobs([step(token(0.6, "it is \ufffd here"), ROME)], text="it ishere")
    assert "other_text" not in codes(blank)


@pytest.mark.parametrize("name", ["proxy_for", "text"])
def test_what_is_to_be_text_is_text(name: str) -> None:
    steps, odd = [listed({"TV": 0.5, " radio": 0.1}, "TV")], {name: 5}
    with pytest.raises(InvalidInputError, match=name):
        score_logprobs(steps, worked.clusters(), **odd)  # type: ignore[arg-type]


def test_entries_that_have_ids_alone_are_told_where_no_vocabulary_is_known() -> None:
    step = TopStep(TopToken(-0.5, 5, " Rome"), [TopToken(-0.5, 5), TopToken(-2.0, 7)])
    [flag] = score_logprobs([step]).flags
    assert flag.code == "unmapped_names" and flag.message.endswith(" name tokens only by ids.")
    top = [TopToken(-0.5, text="TV"), TopToken(-2.0, text="nowhere")]
    [flag] = score_logprobs([TopStep(top[0], top)], worked.vocabulary()).flags
    assert flag.message.endswith(" list names that fit no token of the vocabulary.")
