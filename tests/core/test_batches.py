"""Answers that are written together are those that are written alone, whatever their numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from semtoken import score_logits
from semtoken.core import AnswerBatch, GrowingAnswer, ScoringRules, normalized_rows, scorer_for
from semtoken.core.rules import as_rules
from semtoken.errors import InvalidLogits
from tests import worked

WHOLE_WORDS = ScoringRules(equality="meaning", function_words="whole-word")
SIZE = len(worked.TOKENS)
ROWS = np.random.default_rng(0).normal(0, 2, (20, SIZE))


@pytest.mark.parametrize("rules", [WHOLE_WORDS, ScoringRules(equality="meaning", function_words="off")])
def test_answers_have_any_numbers_and_new_ones_come_while_others_go_on(rules: ScoringRules) -> None:
    """A function word is certain unless it opens its answer, a numeral may end at the token behind it, and before a
    blank it is open what begins there.
    """
    spelled = {0: ("vision", " the"), 63: (" 17", "\n"), 64: (" the", "vision"), 200: ("\n", " tele", " the")}
    answers = {number: worked.ids(*tokens) for number, tokens in spelled.items()}
    batch, rows = AnswerBatch(scorer_for(worked.clusters(), rules)), dict[int, list[int]]()
    for numbers in ([0], [63], [64, 0], [200], [63, 64], [200], [200]):
        first = sum(map(len, rows.values()))
        places = range(first, first + len(numbers))
        tokens = [answers[number][len(rows.setdefault(number, []))] for number in numbers]
        batch.add([(numbers, tokens)], normalized_rows(ROWS, SIZE, places))
        for number, place in zip(numbers, places, strict=True):
            rows[number].append(place)
    found = batch.finish({number: len(ids) for number, ids in answers.items()})
    for scored, (number, ids) in zip(found, answers.items(), strict=True):
        assert scored == score_logits(ROWS[rows[number]], ids, worked.clusters(), rules)


def test_tokens_that_do_not_count_have_no_say() -> None:
    """An answer whose last tokens are left out is the one without them, also where these decided how its text goes on,
    as `7` says of ` 1` that ` 17` may begin there.
    """
    scorer = scorer_for(worked.clusters(), as_rules("paper", None))
    for ids in itertools.product(worked.ids("\n", " 1", "7", " tele", "te", "vision"), repeat=3):
        batch = AnswerBatch(scorer)
        for place, token in enumerate(ids):
            batch.add([([0], [token])], normalized_rows(ROWS, SIZE, [place]))
            batch.running([0])
        kept = sum(ids) % 2 + 1
        [found] = batch.finish({0: kept})
        assert found == score_logits(ROWS[:kept], ids[:kept], worked.clusters(), scorer.rules)


def test_under_the_number_of_a_forgotten_answer_nothing_comes_before() -> None:
    """Neither what was there nor any token of the vocabulary, nearly all of which would leave a number behind."""
    vocabulary, (digit, word) = worked.vocabulary(("7", "8", "x", "9")), (0, 2)
    rows = np.log([[0.4, 0.2, 0.3, 0.1], [0.3, 0.4, 0.2, 0.1]])
    batch = AnswerBatch(scorer_for(vocabulary, ScoringRules()))
    batch.add([([0], [digit])], normalized_rows(rows, 4, [0]))
    assert batch[0].ids == [digit]
    del batch[0]
    batch.add([([0, 1], [word, word])], normalized_rows(rows, 4))
    found = batch.finish({0: 1, 1: 1})
    assert found == [score_logits(rows[k : k + 1], [word], vocabulary) for k in (0, 1)]
    assert [scored.tokens[0].value_ends for scored in found] == [None, None]


@pytest.mark.parametrize(
    ("numbers", "place", "message"),
    [([0], 0, r"^The logits of step 1 hold"), ([0, 1], 1, r"^Sequence 1 of the batch: The logits of step 1 hold")],
)
def test_a_row_without_a_distribution_is_named_by_its_answer_where_there_are_several(
    numbers: list[int], place: int, message: str
) -> None:
    batch, rows, tokens = AnswerBatch(scorer_for(worked.clusters(), WHOLE_WORDS)), ROWS[: len(numbers)].copy(), [5, 5]
    batch.add([(numbers, tokens[: len(numbers)])], normalized_rows(rows, SIZE))
    rows[place, 3] = np.nan
    with pytest.raises(InvalidLogits, match=message):
        batch.add([(numbers, tokens[: len(numbers)])], normalized_rows(rows, SIZE))


def test_steps_before_one_without_a_distribution_are_taken() -> None:
    batch, rows = AnswerBatch(scorer_for(worked.clusters(), WHOLE_WORDS)), ROWS[:4].copy()
    rows[3, 3] = np.nan
    with pytest.raises(InvalidLogits, match=r"^Sequence 3 of the batch: The logits of step 1 hold"):
        batch.add([([0, 1], [5, 4]), ([0, 1], [3, 2])], normalized_rows(rows, SIZE))
    assert [batch[number].ids for number in (0, 1)] == [[5], [4]]


def test_an_answer_without_the_padding_behind_it_may_go_on() -> None:
    """The steps that are left count as they did without padding."""

    def answer_of(*tokens: str) -> GrowingAnswer:
        answer = GrowingAnswer(scorer_for(worked.clusters(), WHOLE_WORDS))
        for token in worked.ids(*tokens):
            answer.add_row(ROWS, token, token)
            answer.running()
        return answer

    for tokens in ((), ("\n",), (" the",), ("\n", "TV", "vision"), (" 17", " tele"), ("TV", " the")):
        answer, further = answer_of(*tokens, worked.END, worked.END), (" radio", "te")
        answer.truncate(len(tokens))
        assert answer.running() == answer_of(*tokens).running()
        for token in worked.ids(*further):
            answer.add_row(ROWS, token, token)
        assert answer.finish() == answer_of(*tokens, *further).finish()
