"""Values that lines of answers and settings may hold, at the ends of each range, and counts of a calibrator."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from semtoken.decisions import Choice, Predicate, ReadingOptions, Score
from semtoken.decisions.answers import Answer
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import AskedQuestion, DecisionRecord, read_decisions, records_of
from semtoken.decisions.saved import saved_decisions
from semtoken.decisions.wire import openai, sglang, systemone
from semtoken.decisions.wire.extension import WireError
from semtoken.errors import InvalidInputError
from semtoken.replies.checking.finding import OpenedReplies
from tests.decisions.made_up import ASKED, side_of, world
from tests.decisions.server_replies import MASSES, PROBABILITIES, QUESTIONS, SERVERS
from tests.json_lines import write_lines
from tests.known import known

A_OR_B = Choice("Which?", ["a", "b"])


def line(probabilities: list[float], label: str | None = None, **fields: Any) -> dict[str, Any]:
    asked = AskedQuestion(A_OR_B, ReadingOptions())
    answer = {"question": asked.fingerprint, "asked": asked.values(), "probabilities": probabilities, **fields}
    return {"state": "s", "answers": {"q": answer}, "labels": {"q": label}}


@pytest.mark.parametrize(
    ("probabilities", "taken"),
    [
        ([0.0, 1.0], True),
        ([1.0, 0.0], True),
        ([0.0, 0.0], False),
        ([1.001, 0.0], False),
        ([-0.001, 1.0], False),
        ([1.0], False),
    ],
)
def test_probabilities_of_a_line_are_from_0_to_1(probabilities: list[float], taken: bool) -> None:
    with nullcontext() if taken else pytest.raises(ValueError, match="are none, or not as many"):
        [record] = records_of(line(probabilities))
        assert record.answer.probabilities == tuple(probabilities) and record.answer.log_confidence == 0.0


def test_an_answer_without_its_question_is_refused_by_name(tmp_path: Path) -> None:
    whole, lacking = (line([0.4, 0.6], options=["a", "b"]) for _ in range(2))
    del lacking["answers"]["q"]["asked"]
    source = write_lines(tmp_path / "answers.jsonl", [whole, lacking])
    named = "2: The answer to 'q' lacks the field `asked`"
    with pytest.raises(InvalidInputError, match=f"line {named}"):
        read_decisions(source)
    with pytest.raises(InvalidInputError, match=f":{named}"):
        saved_decisions(OpenedReplies([str(source)]))


@pytest.mark.parametrize(
    ("first", "taken"),
    [((0.0, 1.0), True), ((0.4, 0.4), True), ((0.5, 0.4), False), ((-0.1, 0.4), False), ((0.4, 1.1), False)],
)
def test_bounds_of_a_line_are_intervals(first: tuple[float, float], taken: bool) -> None:
    bounds = [list(first), [0.0, 0.6]]
    with nullcontext() if taken else pytest.raises(ValueError, match="no intervals"):
        [record] = records_of(line([0.4, 0.6], bounds=bounds))
        assert record.answer.bounds == (first, (0.0, 0.6))
    for odd in (bounds[:1], 5, "ab", [[0.5], [0.5]]):
        with pytest.raises(ValueError, match="no intervals"):
            list(records_of(line([0.4, 0.6], bounds=odd)))


@pytest.mark.parametrize("field", ["option_mass", "order_spread"])
def test_shares_of_a_line_are_numbers_from_0_to_1(field: str) -> None:
    given: Any
    for given in (0, 0.25, 1.0, None):
        [record] = records_of(line([0.4, 0.6], **{field: given}))
        assert getattr(record.answer, field) == given
    for given in ("high", -0.01, 1.01, True, [0.5]):
        with pytest.raises(ValueError, match=f"The field {field} of 'q' must be a number in"):
            list(records_of(line([0.4, 0.6], **{field: given})))


def test_the_label_is_found_by_its_place_and_the_first_of_equals_is_the_answer() -> None:
    for label, place, correct in (("a", 0, True), ("b", 1, False), (None, None, False)):
        [record] = records_of(line([0.5, 0.5], label, order_spread=0.25))
        assert (record.answer.best, record.label, record.correct, record.answer.order_spread) == (
            0,
            place,
            correct,
            0.25,
        )
    assert [one.answer.side for one in records_of(line([0.4, 0.6]))] == ["answer"]


def test_what_an_answer_says_of_its_options() -> None:
    predicate = Answer(Predicate("So?"), (0.25, 0.75))
    assert (predicate.value, predicate.probability, predicate.best, predicate.confidence) == (False, 0.25, 1, 0.5)
    choice = Answer(Choice("Which?", ["a", "b", "c"]), (0.25, 0.5, 0.25))
    assert (choice.value, choice.probability, choice.confidence) == ("b", 0.5, pytest.approx(0.25))
    score = Answer(Score("How?", ["a", "b", "c"]), (0.25, 0.25, 0.5))
    assert (score.value, score.score, score.probability) == (2, 1.25, 0.5)
    assert score.confidence == pytest.approx(max(0.0, 1 - 0.75 / (2 / 3)))  # 0.25 x 2 + 0.25 x 1 from the best


def test_a_calibrator_counts_what_it_accepts_and_keeps_the_counts(tmp_path: Path) -> None:
    labeled = world(400, 21)
    made = DecisionCalibrator.fit([*labeled, *unlabeled(3)], alpha=0.2)
    made.save(tmp_path / "made")
    assert made.n == 400
    for one in (made, DecisionCalibrator.load(tmp_path / "made")):
        for side in one.sides:
            own = [record for record in labeled if record.answer.side == side.side]
            level = known(known(side.threshold).min_log_score)
            accepted = [record for record in own if record.answer.log_confidence >= level]
            assert 0 < sum(not record.correct for record in accepted) < len(accepted) < len(own) < 400
            assert (side.n, side.asked, side.n_accepted) == (len(own), 400, len(accepted))
            assert side.n_wrong_accepted == sum(not record.correct for record in accepted)
    [record] = world(1, 22)
    block = made.block(record)
    assert block["labels"] == side_of(made, record).n
    assert block["prediction_set"]["coverage"] == pytest.approx(0.8)


def unlabeled(n: int) -> list[DecisionRecord]:
    return [DecisionRecord(Answer(ASKED, (0.9, 0.1)), state=f"new {k}") for k in range(n)]


def test_each_format_writes_an_answer_as_servers_document_it_and_reads_it_again() -> None:
    """Probabilities are read as they were written; the confidence of choices and scores is that of transformers."""
    for server, wire in {"OpenAI": openai, "SGLang": sglang, "Jev": systemone}.items():
        [(_, reply)] = SERVERS[server].routes.values()
        given = reply["answers"]
        documented = given if isinstance(given, dict) else {one["name"]: one for one in given}
        for name, question in QUESTIONS.items():
            found = wire.written_answer(Answer(question, PROBABILITIES[name], MASSES[name]))
            sure = {} if "confidence" not in found else {"confidence": {"team": 0.625, "tone": 0.0}[name]}
            assert found == {
                key: pytest.approx(value) if key == "score" else value
                for key, value in (documented[name] | sure).items()
            }
            assert wire.read_answer(question, found) == pytest.approx(PROBABILITIES[name])
    boolean = Answer(Choice("Which?", ["a", True]), (0.25, 0.75))
    assert openai.written_answer(boolean)["probabilities"][1]["value"] is True
    assert sglang.written_answer(boolean)["choice"] == "true"


def test_one_message_of_the_user_is_a_state_as_a_text_and_all_else_is_json() -> None:
    def state(*items: dict[str, Any]) -> str:
        asked = [{"type": "predicate", "instructions": "So?"}]
        return openai.parse({"input": list(items), "questions": asked}).state

    mine, theirs = {"role": "user", "content": "late"}, {"role": "assistant", "content": "sorry"}
    parts = [{"type": "input_text", "text": "late"}, {"type": "input_json", "data": {"days": 2}}]
    assert state(mine) == "late" and state({**mine, "content": parts}) == 'late\n{"days": 2}'
    assert json.loads(state(theirs)) == [theirs]
    assert json.loads(state(mine, theirs)) == [mine, theirs]
    call = {"type": "function_call", "call_id": "1", "name": "find", "arguments": '{"n": 3}'}
    custom = {"type": "custom_tool_call", "call_id": "1", "name": "say", "input": "no JSON"}
    output = {"type": "function_call_output", "call_id": "1", "output": "found"}
    told = [{**call, "arguments": {"n": 3}}, custom, output]
    assert json.loads(state(call, custom, output)) == told
    for items in ((output, call), (custom, output), ({**call, "call_id": "2"}, output)):
        with pytest.raises(WireError, match="No call before has the call_id '1'"):
            state(*items)


def test_a_question_of_the_openai_form_names_its_options() -> None:
    choices = [{"value": True}, {"value": False, "description": "not so"}, {"value": "other"}]
    found = openai.read_question({"type": "choice", "instructions": "Which?", "choices": choices}, "q")
    options = [(one.value, one.name, one.description) for one in found.options]
    assert options == [(True, "true", ""), (False, "false", "not so"), ("other", "other", "")]
    levels = [{"label": "low"}, {"label": "high", "description": "much"}]
    found = openai.read_question({"type": "score", "instructions": "How?", "levels": levels}, "q")
    assert [(one.value, one.name, one.description) for one in found.options] == [(0, "low", ""), (1, "high", "much")]
    assert (found.name, found.instructions) == ("q", "How?")


@pytest.mark.parametrize("wire", [systemone, sglang])
def test_options_with_one_name_are_not_asked_where_names_are_all_that_tells_them_apart(wire: Any) -> None:
    """True and "true" are two options, and would be one key of a JSON object: the other would be lost on the way."""
    mixed = Choice("Which?", [True, "true", "other"])
    assert len(openai.body("s", {"q": mixed})["questions"][0]["choices"]) == 3
    with pytest.raises(InvalidInputError, match=r"Two options of the question 'Which\?' are named 'true'.* Name one"):
        wire.body("s", {"q": mixed})
    with pytest.raises(InvalidInputError, match="are named 'true'"):
        wire.written_answer(Answer(mixed, (0.2, 0.3, 0.5)))
