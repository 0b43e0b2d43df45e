"""Values that may end at a token, by hand: after what the token before it left."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from semtoken import score_logits, score_logprobs
from semtoken.core import AnswerBatch, ScoringRules, normalized_rows, scorer_for
from semtoken.core.engine_tokens.top_steps import NOT_GIVEN
from semtoken.core.results import ValueEnds
from tests.core.lists import words
from tests.known import known
from tests.rows import each

PIECES = (b"7", b"x", b'"', b"]", b"\n", b",", b"true", b'"]')
VOCABULARY = words(*PIECES)


def ends_by_hand(before: bytes | None, token: bytes, chances: dict[bytes, float]) -> tuple[float | None, ...] | None:
    """Probabilities that a number, its digits, a string and an array end at a token, from all probabilities."""

    def mass(*beginnings: bytes) -> float:
        return sum(p for piece, p in chances.items() if piece.startswith(beginnings))

    digits = tuple(b"%d" % digit for digit in range(10))
    after_digit = before is not None and before[-1:] in digits
    number, quote = after_digit and not token.startswith(digits), token.startswith(b'"')
    after_value = before is not None and before[-1:] in (*digits, b'"', b"e", b"]", b"}")
    array = b"]" in token or (token == b"\n" and after_value)
    if not (number or quote or array):
        return None
    closes = mass(b"]", b"\n") + chances[b'"]']
    return (
        1 - mass(*digits, b".", b"-") if number else None,
        1 - mass(*digits) if number else None,
        mass(b'"') if quote else None,
        closes / (closes + chances[b","]) if array else None,
    )


def shown(ends: ValueEnds | None) -> list[Any] | None:
    if ends is None:
        return None
    found = (ends.number, ends.digits, ends.quote, ends.array)
    return [None if end is None else list(map(pytest.approx, end)) for end in found]


def test_ends_are_the_same_by_all_logits_by_whole_lists_and_in_a_batch() -> None:
    """Every token after every other, and a line's end after none; the vocabulary begins with a digit and a value."""
    pieces = (b"7", b"true", b"x", b'"', b"]", b"\n", b",", b'"]', b".5", b"-", b"12", b"5th", b"]}")
    vocabulary = words(*pieces)
    random = np.random.default_rng(0)
    pairs = np.ndindex(len(pieces), len(pieces))
    tokens = [pieces.index(b"\n"), *(token for pair in pairs for token in pair)]
    logits = random.normal(0, 4, (len(tokens), len(pieces)))
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    expected = [
        ends_by_hand(pieces[tokens[i - 1]] if i else None, pieces[token], dict(zip(pieces, row, strict=True)))
        for i, (token, row) in enumerate(zip(tokens, np.exp(log_probs).tolist(), strict=True))
    ]
    wanted = [None if ends is None else [end if end is None else [end] * 3 for end in ends] for ends in expected]
    batch = AnswerBatch(scorer_for(vocabulary, ScoringRules()))
    for token, row in zip(tokens, logits, strict=True):
        batch.add([([100], [token])], normalized_rows(row[None], len(pieces)))
    lists = [dict(enumerate(row)) for row in log_probs.tolist()]
    for scored in (
        score_logits(logits, tokens, vocabulary),
        batch[100].finish(),
        score_logprobs([*zip(tokens, lists, strict=True)], vocabulary),
    ):
        assert [shown(token.value_ends) for token in scored.tokens] == wanted


def test_a_list_of_more_than_everything_makes_an_end_no_more_than_certain() -> None:
    """Rounding lifts what may come after the digit to 1.04 in all, none of which is a digit."""
    digit, word, closes = (PIECES.index(piece) for piece in (b"7", b"x", b"]"))
    last = {word: float(np.log(0.64)), closes: float(np.log(0.4))}
    _, token = score_logprobs([(digit, {digit: 0.0}), (closes, last)], VOCABULARY).tokens
    assert token.value_ends == ValueEnds((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), None, (1.0, 1.0, 1.0))


def test_an_end_that_had_no_probability_has_none() -> None:
    """The bracket was forced, and the model would have gone on."""
    row = np.full((1, len(PIECES)), -np.inf)
    row[0, [PIECES.index(b","), PIECES.index(b"x")]] = np.log([0.4, 0.6])
    [token] = score_logits(row, [PIECES.index(b"]")], VOCABULARY).tokens
    assert token.value_ends == ValueEnds(None, None, None, (0.0, 0.0, 0.0))


def test_what_a_list_leaves_out_may_end_a_value_or_not() -> None:
    """.7 are listed: a digit, marks that end a string, an array or both, and a comma after which it goes on."""
    digit, last = PIECES.index(b"7"), PIECES.index(b'"]')
    chances = {b'"]': 0.1, b"7": 0.2, b'"': 0.1, b"]": 0.2, b",": 0.1}
    step = {PIECES.index(piece): float(np.log(p)) for piece, p in chances.items()}
    _, token = score_logprobs([(digit, step), (last, step)], VOCABULARY).tokens
    ends = known(token.value_ends)
    assert ends.number == ends.digits == pytest.approx((0.5, 0.5, 0.8), abs=2e-5)
    assert ends.quote == pytest.approx((0.2, 0.2, 0.5), abs=2e-5)
    assert ends.array == pytest.approx((0.3 / 0.7, 0.3 / 0.7, 0.6 / 0.7), abs=2e-5)


@each("is_listed", [True, False])
@each(("word", "comma", "bracket"), [(0.9004, 0.0786, 0.021), (0.9465, 0.02, 0.0335), (0.86, 0.03, 0.11)])
def test_the_bounds_of_an_end_hold_its_probability_though_a_rival_of_both_is_rounded(
    word: float, comma: float, bracket: float, is_listed: bool
) -> None:
    """A word that neither ends the array nor goes on is so likely that its rounding is as large as what is missing."""
    digit, other, goes_on, closes = (PIECES.index(piece) for piece in (b"7", b"x", b",", b"]"))
    step = {other: round(math.log(word), 2), goes_on: round(math.log(comma), 2)}
    step[closes] = round(math.log(bracket), 2) if is_listed else NOT_GIVEN
    steps = [*[(digit, {digit: -0.11, other: -2.26})] * 5, (closes, step)]
    low, estimate, high = known(known(score_logprobs(steps, VOCABULARY).tokens[-1].value_ends).array)
    assert low <= bracket / (bracket + comma) <= high
    assert low <= estimate <= high
