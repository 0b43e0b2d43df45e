"""Edges of the rules about lists of log-probabilities: one case on each side."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Literal

import numpy as np
import pytest

from semtoken import ScoredAnswer, Vocabulary, score_logits, score_logprobs
from semtoken.core import ScoringRules
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.core.engine_tokens.checked_list import check_number
from semtoken.decisions.best_tokens import masses_from_top_tokens
from semtoken.errors import InvalidLogits, VocabularyMismatch
from tests.core.lists import words
from tests.rows import each

PIECES = [b"w" + bytes([letter]) for letter in b"abcdefghijklmnopqrst"]
VOCABULARY = words(*PIECES)


def step(*probabilities: float, repeated: bool = False) -> TopStep:
    """The first of some tokens was chosen; `repeated` lists it twice, so that the list is not read the short way."""
    top = [TopToken(math.log(p), i, None, PIECES[i]) for i, p in enumerate(probabilities)]
    return TopStep(top[0], [*top, *top[:1] * repeated])


def scored(one: TopStep, *, by: str) -> ScoredAnswer:
    return score_logprobs([one], VOCABULARY if by == "vocabulary" else None)


@pytest.mark.parametrize(("number", "refused"), [(0.0, False), (0.001, False), (0.0011, True)])
def test_a_log_probability_is_above_zero_by_rounding_alone(number: float, refused: bool) -> None:
    with pytest.raises(InvalidLogits, match="at most 0") if refused else nullcontext():
        check_number(TopToken(number, 1), 0)


@each("by", ["vocabulary", "names"])
@each("repeated", [False, True])
@each(("total", "flagged"), [(0.999, False), (1.0009, False), (1.0011, True), (1.049, True), (1.051, None)])
def test_a_list_may_add_up_to_little_more_than_one(total: float, flagged: bool | None, repeated: bool, by: str) -> None:
    one = step(0.6, total - 0.6, repeated=repeated)
    if flagged is None:
        with pytest.raises(InvalidLogits, match=r"step 0 add up to 1\.05"):
            scored(one, by=by)
    else:
        assert ("overfull" in [flag.code for flag in scored(one, by=by).flags]) == flagged


@pytest.mark.parametrize(("total", "refused"), [(1.049, False), (1.051, True)])
def test_nor_may_a_list_behind_a_question(total: float, refused: bool) -> None:
    one = step(0.6, total - 0.6)
    options = [piece.decode() for piece in PIECES[:2]]
    if refused:
        with pytest.raises(InvalidLogits, match=r"step 0 add up to 1\.05"):
            masses_from_top_tokens(options, [one], exact=True)
    else:
        assert masses_from_top_tokens(options, [one], exact=True)[0] == pytest.approx([0.6, total - 0.6])


@pytest.mark.parametrize("equality", ["exact", "surface"])
@pytest.mark.parametrize("text", ["Oslo", None])
def test_other_tokens_keep_their_ids_whether_named_or_not(
    equality: Literal["exact", "surface"], text: str | None
) -> None:
    own, other = TopToken(math.log(0.6), 5, "Rome"), TopToken(math.log(0.3), 7, text)
    [token] = score_logprobs([TopStep(own, [own, other])], None, ScoringRules(equality=equality)).tokens
    assert (token.id, [(one.id, one.probability) for one in token.alternatives]) == (5, [(7, pytest.approx(0.3))])


@each("by", ["vocabulary", "names"])
@each("number", [-100.0, -999.0, -1000.0, -9999.0])
def test_a_stand_in_for_the_number_of_the_chosen_token_leaves_open_what_the_list_does(number: float, by: str) -> None:
    """The others have .6, so that the chosen one may have .4; as the number of another one it says nothing at all."""
    own, other, last = (TopToken(0.0, i, None, PIECES[i]) for i in range(3))
    likely = other._replace(log_prob=math.log(0.6))
    missing = own._replace(log_prob=number)
    for top in ([likely], [missing, likely], [likely, missing]):
        found = scored(TopStep(missing, top), by=by)
        assert "missing_log_probability" in [flag.code for flag in found.flags]
        assert found.sequence_uncertainty_interval == pytest.approx((0.6, 1.0), abs=1e-4)
        assert found.tokens[0].log_probability == -math.inf
    sure = own._replace(log_prob=math.log(0.4))
    found = scored(TopStep(sure, [likely, sure, last._replace(log_prob=number)]), by=by)
    assert not found.flags and found.sequence_uncertainty == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("number", "known"), [(0, "'Oslo'"), (1, "' Rome'"), (2, "beyond its 2 tokens"), (-1, "beyond its 2 tokens")]
)
def test_a_token_that_the_vocabulary_calls_otherwise_is_shown_as_there(number: int, known: str) -> None:
    nothing = np.zeros(2, dtype=bool)
    vocabulary = Vocabulary(("Oslo", " Rome"), (b"Oslo", b" Rome"), nothing, nothing)
    with pytest.raises(VocabularyMismatch, match=f"in the vocabulary it is {known}"):
        score_logprobs([TopStep(TopToken(-1.0, number, " Lima"), ())], vocabulary)
    with pytest.raises(VocabularyMismatch, match="beyond its 2 tokens"):
        score_logprobs([TopStep(TopToken(-1.0, -1, " Rome"), ())], vocabulary)


@pytest.mark.parametrize("by", ["vocabulary", "names"])
@pytest.mark.parametrize("numbers", [(0.05, -3.0), (-0.7, 0.05), (0.0011, -3.0)])
def test_a_list_with_a_number_above_zero_is_refused(numbers: tuple[float, float], by: str) -> None:
    top = [TopToken(number, i, None, PIECES[i]) for i, number in enumerate(numbers)]
    with pytest.raises(InvalidLogits, match="at most 0"):
        scored(TopStep(top[0], top), by=by)


@pytest.mark.parametrize("number", [-9999.0, -math.inf])
@pytest.mark.parametrize("listed", [-100.0, -1000.0, -math.inf])
def test_two_stand_ins_for_one_token_leave_open_what_the_list_does(number: float, listed: float) -> None:
    own, other = TopToken(number, None, "Lima", b"Lima"), TopToken(math.log(0.6), None, "Rome", b"Rome")
    step = TopStep(own, [own._replace(log_prob=listed), other])
    found = score_logprobs([step], None, ScoringRules(equality="exact"))
    assert found.sequence_uncertainty_interval == pytest.approx((0.6, 1.0), abs=1e-4)


@pytest.mark.parametrize("zeros", [3, 4, 5, 6])
def test_five_zeros_without_lists_are_doubted_and_four_are_not(zeros: int) -> None:
    numbers = [0.0] * zeros + [-0.5] * 2
    found = score_logprobs([{"token": f" w{i}", "logprob": number} for i, number in enumerate(numbers)])
    assert ("zero_log_probabilities" in [flag.code for flag in found.flags]) == (zeros >= 5)


@each("by", ["rows", "lists"])
@each(("others", "told"), [(7, 7), (8, 8), (9, 8), (12, 8)])
def test_eight_other_tokens_of_a_step_are_told_at_most(by: str, others: int, told: int) -> None:
    ids = list(range(others + 1))
    row = np.full((1, len(PIECES)), -30.0)
    row[0, ids] = -np.arange(others + 1) / 8
    row -= np.log(np.exp(row).sum())
    one = TopStep(TopToken(row[0, ids[0]], ids[0]), [TopToken(row[0, i], i) for i in ids])
    answer = score_logits(row, ids[:1], VOCABULARY) if by == "rows" else score_logprobs([one], VOCABULARY)
    assert [other.id for other in answer.tokens[0].alternatives] == ids[1 : told + 1]
