"""Two servers, and two ways of asking, compared on a few answers: every figure by hand."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from semtoken.decisions import Choice, Predicate, Question, ReadingOptions
from semtoken.decisions.answers import Answer
from semtoken.decisions.asked_texts import asked_texts
from semtoken.decisions.asking_again import REWORDED, TURNED, ask_again
from semtoken.decisions.audit_results import SideAudit
from semtoken.decisions.auditing import audit
from semtoken.decisions.calibrating import CalibratedQuestion, DecisionCalibrator
from semtoken.decisions.comparing import compare, sensitivity
from semtoken.decisions.options import OptionScale
from semtoken.decisions.records import AskedQuestion, DecisionRecord
from semtoken.decisions.sides import DecisionSide
from semtoken.errors import InvalidInputError
from semtoken.guarantees.drift import Drift
from semtoken.guarantees.judge import KINDS, Claim, Share
from tests.decisions.made_up import changed
from tests.json_lines import write_lines

PAIRS = [  # of the first server and of the second one, over the options a, b and c
    ((0.6, 0.3, 0.1), (0.5, 0.4, 0.1)),
    ((0.2, 0.7, 0.1), (0.1, 0.8, 0.1)),
    ((0.4, 0.3, 0.3), (0.3, 0.6, 0.1)),
    ((0.1, 0.0, 0.9), (0.2, 0.1, 0.7)),
]


ASKED, YES_OR_NO = Choice("Which?", ["a", "b", "c"], "q"), Predicate("So?", name="q")


def records(side: int, question: Question = ASKED, **further: Any) -> list[DecisionRecord]:
    return [DecisionRecord(Answer(question, pair[side]), state=f"state {k}", **further) for k, pair in enumerate(PAIRS)]


def accepting(accepts: Callable[[DecisionRecord], bool] = lambda one: True) -> Any:
    """A calibrator that accepts all answers, or some."""
    return SimpleNamespace(accepts=accepts)


def bootstrap(values: list[float], seed: int) -> tuple[float, float]:
    """The 2.5th and 97.5th of a hundred parts of 2,000 means, of as many values drawn with the seed."""
    means = np.array(values)[np.random.default_rng(seed).integers(0, len(values), (2000, len(values)))].mean(axis=1)
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def test_the_shift_is_that_of_what_the_first_server_chose() -> None:
    [found] = compare(records(0), records(1), seed=3)
    moved = [0.5 - 0.6, 0.8 - 0.7, 0.3 - 0.4, 0.7 - 0.9]
    assert (found.agreement.count, found.agreement.of) == (3, 4)  # the third answer is b instead of a
    assert found.shift == pytest.approx(sum(moved) / 4)
    assert found.shift_bounds == pytest.approx(bootstrap(moved, 3))
    assert found.rank_correlation == pytest.approx(0.8)  # ranks 2 3 1 4 and 2 4 1 3: 1 - 6 (1 + 1) / (4 x 15)
    assert (found.open_pairs.count, found.open_pairs.of) == (0, 4)
    assert found.shift_range == pytest.approx((found.shift, found.shift))
    assert "did not list" not in found.statement


def test_of_a_predicate_the_shift_is_that_of_yes() -> None:
    [found] = compare(records(0, YES_OR_NO), records(1, YES_OR_NO))
    assert found.shift == pytest.approx((0.5 + 0.1 + 0.3 + 0.2 - 0.6 - 0.2 - 0.4 - 0.1) / 4)
    assert compare(records(0), records(1))[0].shift_bounds == pytest.approx(bootstrap([-0.1, 0.1, -0.1, -0.2], 0))


def test_open_probabilities_widen_the_shift_to_both_sides() -> None:
    first, second = records(0), records(1)
    first[0] = changed(first[0], bounds=((0.55, 0.75), (0.2, 0.4), (0.0, 0.2)))
    second[1] = changed(second[1], bounds=((0.1, 0.2), (0.6, 0.85), (0.0, 0.2)))
    [found] = compare(first, second)
    assert (found.open_pairs.count, found.open_pairs.of) == (2, 4)
    low, high = found.shift_range
    assert f"In {found.open_pairs} a server rounds" in found.statement
    assert f"anything from {low:+.3f} to {high:+.3f}" in found.statement
    assert found.shift_range == pytest.approx(
        ((0.5 - 0.75 + 0.6 - 0.7 - 0.1 - 0.2) / 4, (0.5 - 0.55 + 0.85 - 0.7 - 0.1 - 0.2) / 4)
    )


def test_bounds_are_drawn_with_seed_0_unless_told_otherwise() -> None:
    moved = np.random.default_rng(8).random((30, 2)) / 2
    first, second = (
        [DecisionRecord(Answer(YES_OR_NO, (p, 1 - p)), state=str(k)) for k, p in enumerate(side)]
        for side in moved.T.tolist()
    )
    [found] = compare(first, second)
    assert found.shift_bounds == pytest.approx(bootstrap((moved[:, 1] - moved[:, 0]).tolist(), 0), abs=1e-12)
    [found] = sensitivity(accepting(), first, second, "in other words")  # type: ignore[assignment]
    chosen = [abs(b - a) for a, b in moved.tolist()]
    assert (found.moved.low, found.moved.high) == pytest.approx(bootstrap(chosen, 0), abs=1e-12)  # type: ignore[attr-defined]


def test_one_answer_is_compared_and_has_the_first_servers_name() -> None:
    other = [changed(one, question=replace(one.answer.question, name="other")) for one in records(1)]
    [found] = compare(records(0)[:1], other[:1])
    assert np.isnan(found.rank_correlation) and found.shift == pytest.approx(-0.1) and found.name == "q"


def test_a_server_that_always_says_the_same_has_no_rank_correlation() -> None:
    flat = [changed(one, probabilities=(0.5, 0.25, 0.25)) for one in records(1)]
    first = [changed(one, probabilities=pair[0]) for one, pair in zip(records(0), PAIRS, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # SciPy would say that it is not defined
        assert np.isnan(compare(flat, first)[0].rank_correlation)
    assert not np.isnan(compare(first, records(1))[0].rank_correlation)


def test_another_way_of_asking_moves_what_was_chosen_first() -> None:
    sure = accepting(lambda one: max(one.answer.probabilities) > 0.55)
    second = [changed(one, question=replace(ASKED, instructions="What?")) for one in reversed(records(1))]
    [found] = sensitivity(sure, records(0), second, "in other words", seed=5)
    moved = [0.1, 0.1, 0.1, 0.2]
    assert found.statement.startswith(f"q, asked in other words: another choice in {found.changed}, another decision")
    assert (found.changed.count, found.changed.of) == (1, 4)
    assert (found.decided_otherwise.count, found.decided_otherwise.of) == (2, 4)  # the first and the third
    assert found.moved.value == pytest.approx(sum(moved) / 4)
    assert (found.moved.low, found.moved.high) == pytest.approx(bootstrap(moved, 5))


def test_with_labels_the_ways_of_asking_are_compared() -> None:
    """The first is right about two of four, the second about three: +0.25, with a paired bootstrap by hand."""
    labels = [one.answer.best if k else (one.answer.best + 1) % 3 for k, one in enumerate(records(1))]
    first = [replace(one, label=label) for one, label in zip(records(0), labels, strict=True)]
    rights = [[one.answer.best == k for one, k in zip(some, labels, strict=True)] for some in (first, records(1))]
    gain = [float(b) - float(a) for a, b in zip(*rights, strict=True)]
    both: list[Any] = [*sensitivity(accepting(), first, records(1), "in other words"), *compare(first, records(1))]
    for found in both:
        assert found.right is not None
        assert (found.right.first.count, found.right.second.count) == tuple(map(sum, rights)) == (2, 3)
        assert found.right.gain.value == pytest.approx(sum(gain) / 4)
        assert (found.right.gain.low, found.right.gain.high) == pytest.approx(bootstrap(gain, 0))
        assert found.right.statement in found.statement
    assert compare(records(0), records(1))[0].right is None


def test_options_in_another_order_are_matched_by_their_values() -> None:
    order = (2, 0, 1)
    turned = Choice("Which?", ["c", "a", "b"], "q")
    second = [
        changed(one, question=turned, probabilities=tuple(one.answer.probabilities[k] for k in order))
        for one in records(1)
    ]
    [found] = sensitivity(accepting(lambda one: one.answer.best == 0), records(0), second, "in another order")
    assert (found.changed.count, found.decided_otherwise.count) == (1, 1)
    assert found.moved.value == pytest.approx(0.125)


TWO = Choice("Which?", ["a", "b"], "q")


def side_of(**fields: Any) -> SideAudit:
    side = DecisionSide("q", "answer", 40, 50, 20, 1, fields.pop("calibrator", None))
    told = {"fired": Share(9, 60), "wrong": Share(2, 9)}
    return SideAudit(side, **{**told, "drift": None, "order_spread": None, **fields})


def test_a_side_fires_otherwise_where_the_intervals_lie_apart_in_either_direction() -> None:
    """Clopper and Pearson: 20 of 50 is 26.4 to 54.8%, 9 of 60 is 7.1 to 26.6%, 8 of 60 5.9 to 24.6%."""
    for fired, otherwise in ((9, False), (8, True), (30, False), (42, True)):  # 42 of 60: 56.8 to 81.2%
        assert side_of(fired=Share(fired, 60)).fires_otherwise == otherwise


def test_an_audit_counts_each_share_of_its_own() -> None:
    """A threshold of 0.5 nats accepts what has at least 0.607; of five answers on this side, three."""
    threshold = SimpleNamespace(
        guarantee="selective_risk",
        delta=0.1,
        min_log_score=-0.5,
        n_wrong=4,
        accepts=lambda scores: [-one <= 0.5 for one in scores],
    )
    asked_for: list[list[float]] = []
    drift = Drift(0.2, 0.1, 0.3, 40, 5)

    def drift_of(scores: list[float]) -> Drift:
        asked_for.append(scores)
        return drift

    calibrator: Any = SimpleNamespace(threshold=threshold, guarantees=True, drift=drift_of)
    side = DecisionSide("q", "answer", 40, 50, 20, 1, calibrator)
    told = [(0.9, 0), (0.8, 1), (0.7, None), (0.6, 0), (0.55, 1)]
    answers = [
        DecisionRecord(Answer(TWO, (p, 1 - p), order_spread=spread), label=label, state=str(p))
        for (p, label), spread in zip(told, (0.1, None, 0.4, None, None), strict=True)
    ]
    for guarantee, fitted, there in (
        ("selective_risk", (1, 20), (1, 2)),  # wrong ones of the accepted that have a label
        ("miss_rate", (1, 4), (1, 2)),  # of all wrong ones
        ("joint_risk", (1, 40), (1, 4)),  # of all that have a label
    ):
        threshold.guarantee, threshold.claim = guarantee, Claim(KINDS[guarantee], 0.1, 0.1)
        [[found]] = [
            question.sides
            for question in audit(
                DecisionCalibrator({answers[0].fingerprint: CalibratedQuestion(answers[0].asked, (side,))}), answers
            ).questions
        ]
        assert (found.fired.count, found.fired.of) == (3, 5)
        assert (found.fitted.fired.count, found.fitted.fired.of) == (20, 50)
        assert (found.fitted.wrong.count, found.fitted.wrong.of) == fitted
        assert (found.wrong.count, found.wrong.of) == there
        assert found.order_spread == pytest.approx(0.25)
        assert found.drift == drift and asked_for[-1] == pytest.approx(np.log([0.9, 0.8, 0.7, 0.6, 0.55]))


def test_as_many_texts_and_characters_as_one_inquiry_may_take() -> None:
    questions = [Predicate("So?")] * 1024
    own = len("So?") + sum(len(option.line) for option in questions[0].options)
    assert len(asked_texts("s" * (2**16 - own), questions, ReadingOptions("words")).texts) == 1024
    with pytest.raises(InvalidInputError, match=r"1,024 requests, or 67,108,864 characters"):
        asked_texts("s" * (2**16 - own + 1), questions, ReadingOptions("words"))
    with pytest.raises(InvalidInputError):
        asked_texts("s", [*questions, questions[0]], ReadingOptions("words"))
    orders = [Choice("Which?", ["red", "green"])]
    assert [one.number for one in asked_texts("s", orders * 3, ReadingOptions("words", 2)).texts] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("few", [3, 4, 5])
def test_three_options_with_too_few_labels_are_named(few: int) -> None:
    names = [f"option {k}" for k in range(few + 1)]
    p = np.full((40, few + 1), 1 / (few + 1))
    missing = OptionScale.fit(p, [few] * (40 - few) + list(range(few)), names).missing
    assert missing.count("4 missing") == 3 and "'option 2' is right in 1" in missing and "option 3" not in missing
    assert (f"; and {few - 3} further options" in missing) == (few > 3)


@pytest.mark.parametrize(("most", "variants"), [(None, 100), (2, 2), (0, None)])
def test_the_first_items_are_asked_about_in_other_ways(most: int | None, variants: int | None, tmp_path: Path) -> None:
    """A choice of five options is also shown with the last two first, and in other words where these are given."""
    question = Choice("Which?", list("abcde"), "q")
    asked = AskedQuestion(question, ReadingOptions())
    side = DecisionSide("q", "answer", 40, 50, 20, 1, None)
    calibrator = DecisionCalibrator({asked.fingerprint: CalibratedQuestion(asked, (side,))})
    seen: list[tuple[str, str]] = []

    def ask(state: Any, questions: Mapping[str, Question], options: ReadingOptions) -> dict[str, Answer]:
        [one] = questions.values()
        seen.append((one.instructions, "".join(str(option.value) for option in one.options)))
        return {"q": Answer(one, (0.5, 0.2, 0.1, 0.1, 0.1))}

    items = [{"state": f"state {k}", "labels": {"q": "a"}} for k in range(101)]
    source = write_lines(tmp_path / "items.jsonl", items)
    further: dict[str, Any] = {} if most is None else {"most": most}
    other = Choice("What?", list("abcde"), "q")
    found = ask_again(calibrator, source, ask, tmp_path / "there.jsonl", reworded={"q": other}, **further)
    assert len(found.records) == 101 and all(one.correct for one in found.records)
    assert {how: len(some) for how, some in found.variants.items()} == (
        {} if variants is None else {TURNED: variants, REWORDED: variants}
    )
    wanted = (
        [("Which?", "abcde")] * 101 + [("Which?", "deabc")] * (variants or 0) + [("What?", "abcde")] * (variants or 0)
    )
    assert seen == wanted
