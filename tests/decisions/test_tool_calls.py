"""The gate for tool calls: what may run, by replies made here token by token, and everything that may not."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from semtoken import ScoredModel
from semtoken.decisions import Answer, Choice, Predicate, ReadingOptions
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import DecisionRecord, answer_values, records_of
from semtoken.decisions.tool_calls import (
    CUT_OFF,
    END_UNKNOWN,
    NO_OBJECT,
    UNCLEAR,
    ProposedCall,
    gate,
    proposed_calls,
)
from semtoken.errors import InvalidInputError
from tests.known import known
from tests.rows import each

MAY_RUN = Predicate("May this tool call run as it is?", name="may_run")
YES, NO = Answer(MAY_RUN, (0.97, 0.03)), Answer(MAY_RUN, (0.03, 0.97))


@pytest.fixture(scope="module")
def calibrator() -> DecisionCalibrator:
    """Fitted in a world where the probability of the predicate is right as often as it says."""
    chance = np.random.default_rng(0)
    records: list[DecisionRecord] = []
    for n, p in enumerate(chance.beta(1.2, 0.4, 500)):
        answer = answer_values(Answer(MAY_RUN, (float(p), float(1 - p))), ReadingOptions())
        labels = {"may_run": bool(chance.random() < p)}
        records += records_of({"state": n, "labels": labels, "answers": {"may_run": answer}})
    return DecisionCalibrator.fit(records, alpha=0.05)


def spelled(*calls: tuple[str, str]) -> str:
    """Calls in the markup of many models."""
    body = (f'{{"name": "{name}", "arguments": {arguments}}}' for name, arguments in calls)
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in body)


def choice(
    written: str,
    calls: list[tuple[str, str]] | None = None,
    end: str | None = "tool_calls",
    index: int = 0,
    doubtful: str = "",
) -> dict[str, Any]:
    """One answer of a reply, a token for each character, each with the probability 0.999; 0.5 for a doubtful one."""
    content = []
    for character in written:
        p = 0.5 if character == doubtful else 0.999
        one = {"token": character, "logprob": math.log(p), "bytes": list(character.encode())}
        content.append({**one, "top_logprobs": [one]})
    message: dict[str, Any] = {"role": "assistant", "content": None if calls else written}
    if calls:
        message["tool_calls"] = [
            {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for i, (name, arguments) in enumerate(calls)
        ]
    return {"index": index, "message": message, "logprobs": {"content": content}, "finish_reason": end}


def reply(*choices: dict[str, Any]) -> dict[str, Any]:
    return {"object": "chat.completion", "model": "m", "choices": list(choices)}


NOTES = ("delete_file", '{"path": "notes.txt"}')
SECRET = ("delete_file", '{"path": "secret.txt"}')


def test_a_whole_call_that_a_guarantee_covers_runs(calibrator: DecisionCalibrator) -> None:
    calls = proposed_calls(reply(choice(spelled(NOTES), [NOTES])))
    assert [(call.name, call.arguments, call.doubt) for call in calls] == [("delete_file", {"path": "notes.txt"}, None)]
    assert calls[0].confidence is not None
    assert calls[0].confidence.confidence == pytest.approx(0.999 ** len("delete_filenotes.txt"))
    [verdict] = gate(calls, [YES], calibrator)
    assert verdict.runs and str(verdict).startswith("run it: With confidence 90%, at most 5%")


@pytest.mark.parametrize("end", ["length", "max_tokens", "FINISH_REASON_MAX_TOKENS", "SAFETY", "pause_turn", None])
def test_an_answer_that_was_cut_off_runs_nothing(end: str | None, calibrator: DecisionCalibrator) -> None:
    """Also where the server closed the arguments, so that they look whole."""
    cut = ("delete_file", '{"path": "notes')
    for calls in ([cut], [NOTES], [SECRET, NOTES]):
        found = proposed_calls(reply(choice(spelled(*calls), calls, end)))
        verdicts = gate(found, [YES] * len(calls), calibrator)
        assert len(verdicts) == len(calls) and not any(verdict.runs for verdict in verdicts)
        assert {verdict.reason.split(" (")[0] for verdict in verdicts} == {END_UNKNOWN if end is None else CUT_OFF}


def test_two_calls_have_two_verdicts(calibrator: DecisionCalibrator) -> None:
    calls = proposed_calls(reply(choice(spelled(NOTES, SECRET), [NOTES, SECRET])))
    assert [call.arguments for call in calls] == [{"path": "notes.txt"}, {"path": "secret.txt"}]
    assert [verdict.runs for verdict in gate(calls, [YES, NO], calibrator)] == [True, False]
    assert [verdict.runs for verdict in gate(calls, [NO, YES], calibrator)] == [False, True]


@pytest.mark.parametrize("answers", [[], [YES], [YES] * 3])
def test_an_answer_about_several_calls_is_none_about_each(
    answers: list[Answer], calibrator: DecisionCalibrator
) -> None:
    calls = proposed_calls(reply(choice(spelled(NOTES, SECRET), [NOTES, SECRET])))
    verdicts = gate(calls, answers, calibrator)
    assert [verdict.runs for verdict in verdicts] == [False, False]
    assert "ask about each call by itself" in verdicts[0].reason


def test_each_of_n_answers_is_judged(calibrator: DecisionCalibrator) -> None:
    calls = proposed_calls(
        reply(
            choice(spelled(NOTES), [NOTES]),
            choice("I would not delete it.", end="stop", index=1),
            choice(spelled(SECRET), [SECRET], "length", index=2),
            choice(spelled(SECRET), [SECRET], index=3, doubtful="s"),
        )
    )
    assert [(call.choice, call.name) for call in calls] == [(0, "delete_file"), (2, "delete_file"), (3, "delete_file")]
    verdicts = gate(calls, [YES] * 3, calibrator)
    assert [verdict.runs for verdict in verdicts] == [True, False, False]
    assert verdicts[2].reason == "/arguments/path is in doubt"


@pytest.mark.parametrize(
    "arguments",
    ['{"path": "notes', '"notes.txt"', '["notes.txt"]', '{"path": NaN}', '{"path": "a", "path": "b"}', "", "{" * 3000],
)
def test_arguments_that_readers_of_json_do_not_agree_on_do_not_run(
    arguments: str, calibrator: DecisionCalibrator
) -> None:
    calls = proposed_calls(reply(choice(spelled(("f", arguments)), [("f", arguments)])))
    assert [verdict.reason for verdict in gate(calls, [YES], calibrator)] == [NO_OBJECT]


def test_a_call_that_the_tokens_do_not_spell_does_not_run(calibrator: DecisionCalibrator) -> None:
    """The call runs as the server reads it out of an answer, so the tokens have to spell that."""
    [verdict] = gate(proposed_calls(reply(choice(spelled(NOTES), [SECRET]))), [YES], calibrator)
    assert str(verdict) == "ask a person: /arguments/path is in doubt"


def test_a_reply_without_log_probabilities_runs_nothing(calibrator: DecisionCalibrator) -> None:
    for given in (choice(spelled(NOTES), [NOTES]), choice(spelled(NOTES), end="stop")):
        [call] = proposed_calls(reply({**given, "logprobs": None}))
        assert call.arguments == {"path": "notes.txt"} and call.confidence is None
        [verdict] = gate([call], [YES], calibrator)
        assert not verdict.runs and "holds no log-probabilities" in verdict.reason


@pytest.mark.parametrize(
    "written",
    [
        spelled(NOTES),
        '{"name": "delete_file", "arguments": {"path": "notes.txt"}}',
        '```json\n[{"name": "delete_file", "parameters": {"path": "notes.txt"}}]\n```',
        '[TOOL_CALLS][{"name": "delete_file", "arguments": {"path": "notes.txt"}}]',
    ],
)
def test_calls_in_the_text_of_an_answer(written: str, calibrator: DecisionCalibrator) -> None:
    [call] = proposed_calls(reply(choice(written, end="stop")))
    assert (call.name, call.arguments, call.doubt) == ("delete_file", {"path": "notes.txt"}, None)
    assert gate([call], [YES], calibrator)[0].runs


@each(
    "written",
    [
        "One could write " + spelled(NOTES),
        spelled(NOTES) + " but do not.",
        '{"name": "delete_file", "arguments": {"path": "notes.txt"}',
        '{"name": "delete_file", "arguments": {"path": "notes',
        '{"name": "f", "arguments": {"call": {"name": "g", "arguments": {"x": 1}}}}',
        '{"name": "delete_file", "name": "send_file", "arguments": {"path": "notes.txt"}}',
        '{"name": "f", "arguments": {"path": "a"}} {"path": "b"}',
        '{"name": "f", "arguments": "notes.txt"}',
    ],
)
def test_an_answer_that_is_not_calls_alone_runs_nothing(written: str, calibrator: DecisionCalibrator) -> None:
    calls = proposed_calls(reply(choice(written, end="stop")))
    assert calls and {call.doubt for call in calls} == {UNCLEAR}
    assert not any(verdict.runs for verdict in gate(calls, [YES] * len(calls), calibrator))


def test_what_else_sends_a_call_to_a_person(calibrator: DecisionCalibrator) -> None:
    [call] = proposed_calls(reply(choice(spelled(NOTES), [NOTES])))

    def why(answer: Answer | None, by: DecisionCalibrator | None = calibrator, least: float = 0.8) -> str:
        [verdict] = gate([call], [answer], by, least=least)
        assert not verdict.runs
        return verdict.reason

    assert why(None) == why(replace(YES, refusal="too long")) == "no answer says whether it may run"
    assert why(YES, None) == "no calibrator says what the probability is worth"
    assert why(NO) == "the model says no"
    assert why(Answer(MAY_RUN, (0.55, 0.45))) == "the model is less sure than the guarantee needs"
    assert why(YES, least=1.0) == "/name is in doubt"
    weakest = min(known(part.confidence) for part in call.parts)
    assert why(YES, least=math.nextafter(weakest, 1.0)).endswith("is in doubt")
    assert gate([call], [YES], calibrator, least=weakest)[0].runs
    other = Predicate("May this tool call run at all?", name="may_run")
    assert "knows no question with these words" in why(Answer(other, (0.97, 0.03)))
    with pytest.raises(InvalidInputError, match="is a predicate"):
        gate([call], [Answer(Choice("Which?", ["a", "b"]), (0.9, 0.1))], calibrator)
    with pytest.raises(InvalidInputError, match="least"):
        gate([call], [YES], calibrator, least=1.5)


def test_an_answer_of_a_local_model() -> None:
    """Cut off or not as the model's own pass says; where nothing says so, it is not known."""
    [answer] = ScoredModel.from_pretrained().score(
        "Delete notes.txt.", '{"name": "f", "arguments": {"path": "notes.txt"}}'
    )
    doubts = {ended: proposed_calls(answer.with_fields(truncated=ended))[0].doubt for ended in (True, False, None)}
    assert doubts == {True: CUT_OFF, False: None, None: END_UNKNOWN}


def test_the_state_holds_one_call_and_the_conversation() -> None:
    said = [{"role": "user", "content": "Delete both."}]
    calls = proposed_calls(reply(choice(spelled(NOTES, SECRET), [NOTES, SECRET])))
    one, other = (call.state(said) for call in calls)
    assert one[:-1] == other[:-1] == said
    assert one[-1] == {
        "type": "function_call",
        "call_id": "1",
        "name": "delete_file",
        "arguments": {"path": "notes.txt"},
    }
    assert json.dumps(other[-1]).count("secret.txt") == 1 and "secret" not in json.dumps(one)
    assert ProposedCall("f", '{"a', None, ()).state([])[-1]["arguments"] == '{"a'
