"""A final block as an OpenTelemetry event, and what a reply says that is no final block."""

from __future__ import annotations

import json
from typing import Any

from semtoken.integrations.events import ReplyWatch, evaluation, evaluations_of
from tests.rows import each

FINAL = {
    "version": 1,
    "confidence": 0.4,
    "interval": [0.35, 0.45],
    "confidence_method": "new_phrases",
    "sequence_uncertainty": 0.25,
    "sequence_uncertainty_interval": [0.2, 0.3],
    "probability_correct": 0.7,
    "decision": "abstain",
    "reason": "The score is above the threshold.",
    "flags": [{"code": "top_k", "message": "..."}],
}


def test_a_decision_is_the_label_and_the_interval_keeps_our_names() -> None:
    assert evaluation(FINAL, response_id="r", model="m", index=1) == {
        "gen_ai.evaluation.name": "semtoken.confidence",
        "gen_ai.evaluation.score.value": 0.4,
        "gen_ai.evaluation.score.label": "abstain",
        "gen_ai.response.id": "r",
        "gen_ai.response.model": "m",
        "semtoken.choice": 1,
        "semtoken.confidence.method": "new_phrases",
        "semtoken.confidence.lower": 0.35,
        "semtoken.confidence.upper": 0.45,
        "semtoken.sequence_uncertainty": 0.25,
        "semtoken.sequence_uncertainty.lower": 0.2,
        "semtoken.sequence_uncertainty.upper": 0.3,
        "semtoken.probability_correct": 0.7,
        "semtoken.flags": ["top_k"],
    }


def test_an_answer_without_a_score_is_an_error_and_no_number() -> None:
    found = evaluation({"version": 1, "reason": "The server sent no log-probabilities."})
    assert found["error.type"] == "semtoken.unscored"
    assert found == {"gen_ai.evaluation.name": "semtoken.confidence", "error.type": "semtoken.unscored"}
    told = evaluation({"version": 1, "reason": "The server sent no log-probabilities."}, content=True)
    assert told["gen_ai.evaluation.explanation"] == "The server sent no log-probabilities."


def test_a_confidence_that_is_no_number_from_0_to_1_is_none() -> None:
    for odd in (None, {}, -0.1, 1.5, "sure", True):
        found = evaluation(FINAL | {"confidence": odd})
        assert found["error.type"] == "semtoken.unscored" and "gen_ai.evaluation.score.value" not in found


SECRET = "The secret is Paris"
ODD = [None, True, -1, 2.5, 10**400, float("nan"), "", SECRET, [SECRET], {"x": SECRET}, [[]], {"code": SECRET}]
FIELDS = (
    "confidence",
    "interval",
    "confidence_method",
    "sequence_uncertainty",
    "sequence_uncertainty_interval",
    "probability_correct",
    "n_tokens",
    "method",
    "preset",
    "decision",
    "reason",
    "flags",
)


@each("odd", ODD, ids=repr)
def test_codes_and_numbers_are_sent_and_no_texts_whatever_a_block_holds(odd: Any) -> None:
    for name in FIELDS:
        block = {**FINAL, name: odd, "final": True}
        block["flags"] = odd if name == "flags" else [{"code": odd, "message": SECRET}, {"code": "fine"}, odd]
        choice = {"index": 0, "message": {"content": SECRET}, "finish_reason": "stop", "semtoken": block}
        replies: list[Any] = [{"id": odd, "model": odd, "choices": [choice, odd]}, {"choices": odd, "semtoken": block}]
        replies += [{"choices": [choice | {"index": odd}]}, {"choices": [choice | {"semtoken": odd}]}, [choice, odd]]
        replies += [{"response": {"id": odd, "output": odd, "semtoken": block}}, {"content": odd, "semtoken": block}]
        for reply in replies:
            whole, stream = ReplyWatch(streamed=False), ReplyWatch(streamed=True)
            sent = whole.take(json.dumps(reply).encode()) + whole.end()
            sent += stream.take(f"data: {json.dumps(reply)}\n\n".encode())
            for attributes in sent:
                assert SECRET not in str(attributes)
                for value in attributes.values():
                    listed = value if isinstance(value, list) else [value]
                    assert all(type(one) in (str, int, float) and one == one for one in listed)
                ReplyWatch(streamed=True, content=True).take(f"data: {json.dumps(reply)}\n\n".encode())


def test_other_shapes_of_replies_are_told_too() -> None:
    final = {**FINAL, "final": True}
    output = [{"type": "message", "content": [{"type": "output_text", "text": "Paris"}]}]
    for reply in (
        {"id": "r", "output": output, "semtoken": FINAL},
        {"content": "Paris", "semtoken": FINAL},
        [{"text": "Paris", "meta_info": {}, "semtoken": FINAL}],
    ):
        [told] = evaluations_of(reply, content=True)
        assert (told["gen_ai.evaluation.score.value"], told["semtoken.answer"]) == (0.4, "Paris")
    watch, found = ReplyWatch(streamed=True, content=True), []
    for event in (
        {"type": "response.output_text.delta", "delta": "Par"},
        {"type": "response.output_text.delta", "delta": "is", "semtoken": final},
        {"type": "response.completed", "response": {"id": "r", "output": output, "semtoken": final}},
    ):
        found += watch.take(f"data: {json.dumps(event)}\n\n".encode())
    assert [(one["semtoken.answer"], one["gen_ai.response.id"]) for one in found] == [("Paris", "r")]
    watch = ReplyWatch(streamed=True, content=True)
    numbered = [{"text": name, "index": n, "finish_reason": "stop", "semtoken": final} for n, name in enumerate("ab")]
    del numbered[0]["index"]
    found = watch.take(f"data: {json.dumps({'choices': numbered})}\n\n".encode())
    assert [one["semtoken.answer"] for one in found] == ["a", "b"]
    watch, found = ReplyWatch(streamed=True, content=True), []
    for event in ({"content": "Par"}, {"content": "is", "stop": True, "semtoken": final}):
        found += watch.take(f"data: {json.dumps(event)}\n\n".encode())
    assert [one["semtoken.answer"] for one in found] == ["Paris"]


def test_texts_are_told_only_when_asked_for() -> None:
    reply = {"id": "r", "choices": [{"index": 0, "message": {"content": "Paris"}, "semtoken": FINAL}]}
    assert "Paris" not in str(evaluations_of(reply))
    assert evaluations_of(reply, content=True)[0]["semtoken.answer"] == "Paris"


def chunk(index: int, text: str, block: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": index, "delta": {"content": text}, "finish_reason": finish, "semtoken": block}
    return f"data: {json.dumps({'id': 'r', 'choices': [choice]})}\n\n".encode()


def test_a_stream_tells_each_choice_once_with_its_final_score() -> None:
    running, final = {"sequence_uncertainty": 0.1, "final": False}, {**FINAL, "final": True}
    watch = ReplyWatch(streamed=True, content=True)
    stream = [chunk(0, "Par", running), chunk(1, "L", running), chunk(0, "is", final), chunk(0, "", final, "stop")]
    found = [
        one
        for piece in [*stream, *[chunk(1, "yon", final, "stop")] * 2, b"data: [DONE]\n\n"]
        for one in watch.take(piece)
    ]  # some gateways send the end of a choice again, with the usage
    assert [(one["semtoken.choice"], one["semtoken.answer"]) for one in found] == [(0, "Paris"), (1, "Lyon")]
    assert watch.end() == []


def test_what_is_not_understood_is_passed_over() -> None:
    for streamed in (False, True):
        watch = ReplyWatch(streamed=streamed)
        assert watch.take(b"data: {broken\n\nnonsense\n\n") + watch.end() == []
    for deep in ("[" * 10**5, '{"choices":' * 10**5):
        watch = ReplyWatch(streamed=False)
        assert watch.take(deep.encode()) + watch.end() == []
        assert ReplyWatch(streamed=True, content=True).take(f"data: {deep}\n\n".encode()) == []
    watch = ReplyWatch(streamed=False, longest=10)
    assert watch.take(json.dumps({"choices": [{"semtoken": FINAL}]}).encode()) + watch.end() == []
