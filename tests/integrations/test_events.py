"""A final block as an OpenTelemetry event, and what a reply says that is no final block."""

from __future__ import annotations

import json
from typing import Any

from semtoken.integrations.events import ReplyWatch, evaluation, evaluations_of

FINAL = {
    "version": 1,
    "uncertainty": 0.25,
    "lower": 0.2,
    "upper": 0.3,
    "chance": 0.7,
    "decision": "abstain",
    "reason": "The score is above the threshold.",
    "flags": [{"code": "top_k", "message": "..."}],
}


def test_a_decision_is_the_label_and_the_interval_keeps_our_names() -> None:
    assert evaluation(FINAL, response_id="r", model="m", index=1) == {
        "gen_ai.evaluation.name": "semtoken.uncertainty",
        "gen_ai.evaluation.score.value": 0.25,
        "gen_ai.evaluation.score.label": "abstain",
        "gen_ai.evaluation.explanation": "The score is above the threshold.",
        "gen_ai.response.id": "r",
        "gen_ai.response.model": "m",
        "semtoken.choice": 1,
        "semtoken.lower": 0.2,
        "semtoken.upper": 0.3,
        "semtoken.chance": 0.7,
        "semtoken.flags": ["top_k"],
    }


def test_an_answer_without_a_score_is_an_error_with_its_reason_and_no_number() -> None:
    found = evaluation({"version": 1, "reason": "The server sent no log-probabilities."})
    assert found["error.type"] == "semtoken.unscored"
    assert found["gen_ai.evaluation.explanation"] == "The server sent no log-probabilities."
    assert "gen_ai.evaluation.score.value" not in found


def test_texts_are_told_only_when_asked_for() -> None:
    reply = {"id": "r", "choices": [{"index": 0, "message": {"content": "Paris"}, "semtoken": FINAL}]}
    assert "Paris" not in str(evaluations_of(reply))
    assert evaluations_of(reply, content=True)[0]["semtoken.answer"] == "Paris"


def chunk(index: int, text: str, block: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": index, "delta": {"content": text}, "finish_reason": finish, "semtoken": block}
    return f"data: {json.dumps({'id': 'r', 'choices': [choice]})}\n\n".encode()


def test_a_stream_tells_each_choice_once_with_its_final_score() -> None:
    running, final = {"uncertainty": 0.1, "final": False}, {**FINAL, "final": True}
    watch = ReplyWatch(streamed=True, content=True)
    stream = [chunk(0, "Par", running), chunk(1, "L", running), chunk(0, "is", final), chunk(0, "", final, "stop")]
    found = [
        one for piece in [*stream, chunk(1, "yon", final, "stop"), b"data: [DONE]\n\n"] for one in watch.take(piece)
    ]
    assert [(one["semtoken.choice"], one["semtoken.answer"]) for one in found] == [(0, "Paris"), (1, "Lyon")]
    assert watch.end() == []


def test_what_is_not_understood_is_passed_over() -> None:
    for streamed in (False, True):
        watch = ReplyWatch(streamed=streamed)
        assert watch.take(b"data: {broken\n\nnonsense\n\n") + watch.end() == []
    watch = ReplyWatch(streamed=False, longest=10)
    assert watch.take(json.dumps({"choices": [{"semtoken": FINAL}]}).encode()) + watch.end() == []
