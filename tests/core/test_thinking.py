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
from tests.core.shown import answer

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


def test_phrases_and_new_words_are_those_of_the_answer() -> None:
    scored: ScoredAnswer = answer(("<think>", 0.9), ("Bergen", 0.1), ("</think>", 0.9), ("Oslo", 0.8))
    assert [scored.text[a:b] for a, b in new_words(scored.text)] == ["Oslo"]
    assert phrase_log_probs(scored, "")[0].tolist() == pytest.approx([math.log(0.8)])
    assert scored.confidence == pytest.approx(0.8)
    assert scored.sequence_uncertainty == pytest.approx(1 - 0.9 * 0.1 * 0.9 * 0.8)
