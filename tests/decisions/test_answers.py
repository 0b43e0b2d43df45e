"""Confidence and scores by hand and by transformers; questions that cannot be asked."""

from __future__ import annotations

import numpy as np
import pytest

from semtoken.decisions import Choice, Option, Predicate, Score
from semtoken.decisions.answers import OptionMasses, answer_from_masses, confidence_of, unanswered
from semtoken.decisions.questions import as_text, question_from, question_values
from semtoken.decisions.wire import systemone
from semtoken.errors import InvalidInputError
from tests.rows import each


def masses(*rows: list[float], high: list[list[float]] | None = None) -> OptionMasses:
    low = np.array(rows)
    return OptionMasses(low, low if high is None else np.array(high))


@each(
    ("probabilities", "ordered", "confidence"),
    [
        ([0.5, 0.3, 0.2], False, 0.25),  # (0.5 - 1/3) / (2/3)
        ([0.25] * 4, False, 0.0),
        ([0.1, 0.2, 0.7], True, 0.4),
        ([0.8, 0.15, 0.05], True, 1 - 0.25 / (2 / 3)),  # an even spread is (1 + 0 + 1) / 3 from the middle level
        ([0.4, 0.25, 0.35], True, 0.0),  # the mean distance from level 0 is 0.95
        ([1.0], False, 1.0),
        ([1.0], True, 1.0),
    ],
)
def test_confidence_by_hand(probabilities: list[float], ordered: bool, confidence: float) -> None:
    assert confidence_of(probabilities, ordered=ordered) == pytest.approx(confidence)


@pytest.mark.parametrize("seed", range(20))
def test_answers_equal_transformers(seed: int) -> None:
    template = pytest.importorskip("transformers.decision.template_utils")
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 10))
    p = rng.dirichlet(np.ones(n))
    levels = [f"level {i}" for i in range(n)]
    for question, form in (
        (Score("?", levels), {"type": "score", "criteria": levels}),
        (Choice("?", levels), {"type": "choice", "criteria": dict.fromkeys(levels)}),
    ):
        theirs = template.Question.from_request("q", form, template.DecisionConfig()).answer(p.tolist())
        ours = systemone.written_answer(answer_from_masses(question, masses(p.tolist())), form["criteria"])
        assert ours.keys() == theirs.keys()
        assert ours["confidence"] == pytest.approx(theirs["confidence"])
        assert ours.get("score") == pytest.approx(theirs.get("score"))
        assert ours.get("choice") == theirs.get("choice") and ours.get("legend") == theirs.get("legend")


def test_masses_are_renormalized_in_each_order_and_averaged() -> None:
    answer = answer_from_masses(Predicate("?"), masses([0.3, 0.1], [0.1, 0.1]))
    assert answer.probabilities == pytest.approx((0.625, 0.375))  # (3/4 + 1/2) / 2
    assert answer.option_mass == pytest.approx(0.3)
    assert answer.order_spread == pytest.approx(0.25)
    assert [flag.code for flag in answer.flags] == ["off_option_mass"]
    assert answer_from_masses(Predicate("?"), masses([0.3, 0.2])).flags == ()


def test_an_order_in_which_nothing_was_seen_counts_by_its_upper_bounds() -> None:
    """Masses .3 and .1 in one order; at most .02 and .06 in the other, at least nothing."""
    answer = answer_from_masses(Predicate("?"), masses([0.3, 0.1], [0.0, 0.0], high=[[0.3, 0.1], [0.02, 0.06]]))
    assert answer.probabilities == pytest.approx(((0.75 + 0.25) / 2, (0.25 + 0.75) / 2))
    assert answer.option_mass == pytest.approx(0.2) and answer.order_spread == pytest.approx(0.5)
    assert answer.bounds is not None
    assert answer.bounds[0] == pytest.approx((0.75 / 2, (0.75 + 1) / 2))
    none = answer_from_masses(Predicate("?"), masses([0.3, 0.1], [0.0, 0.0], high=[[0.3, 0.1], [0.0, 0.06]]))
    assert none.bounds is not None  # yes has nothing in the other order, and no may have nothing or all of it
    assert none.bounds[0] == pytest.approx((0.75 / 2, 0.75 / 2))
    assert none.bounds[1] == pytest.approx((0.25 / 2, (0.25 + 1) / 2))
    over = answer_from_masses(Predicate("?"), masses([0.9, 0.3]))  # rounding of a server's numbers
    assert over.option_mass == 1.0 and over.probabilities == pytest.approx((0.75, 0.25))


def test_no_mass_at_all_is_no_number() -> None:
    answer = answer_from_masses(Predicate("?"), masses([0.0, 0.0]))
    assert answer.probabilities == () and answer.refusal is not None


@each("name", ["best", "value", "probability", "score", "log_confidence", "confidence"])
def test_a_refused_question_has_no_number_but_its_reason(name: str) -> None:
    """Its expected level was 0, the least of all."""
    for question in (Predicate("?"), Choice("?", ["a", "b"]), Score("?", ["none", "some"])):
        with pytest.raises(InvalidInputError, match="no answer: two options look the same"):
            getattr(unanswered(question, "two options look the same"), name)


def test_questions_that_cannot_be_asked() -> None:
    for make in (
        lambda: Choice("?", []),
        lambda: Choice("?", ["a", "a"]),
        lambda: Choice("?", [str(i) for i in range(256)]),
        lambda: Choice("?", "ab"),
        lambda: Choice("?", [1]),
        lambda: Score("?", []),
        lambda: Score("?", [str(i) for i in range(11)]),
        lambda: Predicate(None),  # type: ignore[arg-type]
        lambda: Predicate("half \ud800"),
        lambda: as_text({"a": float("nan")}),
        lambda: as_text({1, 2}),
    ):
        with pytest.raises(InvalidInputError):
            make()
    assert len(Choice("?", [True, "true", False]).options) == 3


@pytest.mark.parametrize(
    "question",
    [
        Predicate("Is it?", "yes", ""),
        Choice("Which?", [True, "true", Option("b", "b", "d")]),
        Score("How?", ["a", "b"]),
    ],
)
def test_questions_survive_a_file(question: Predicate | Choice | Score) -> None:
    assert question_from(question_values(question)) == question
