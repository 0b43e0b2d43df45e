"""A final block as an OpenTelemetry event, and what a reply says that is no final block."""

from __future__ import annotations

import json
from typing import Any

from semtoken.integrations.events import ReplyWatch, evaluation, evaluations_of
from tests.rows import each

FINAL: dict[str, Any] = {
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
    unscored = {"version": 1, "reason": "The server sent no log-probabilities."}
    error = {"gen_ai.evaluation.name": "semtoken.confidence", "error.type": "semtoken.unscored"}
    assert evaluation(unscored) == error
    assert evaluation(unscored, content=True)["gen_ai.evaluation.explanation"] == unscored["reason"]


@each("odd", [None, {}, -0.1, 1.5, "sure", True])
def test_a_confidence_that_is_no_number_from_0_to_1_is_none(odd: Any) -> None:
    found = evaluation(FINAL | {"confidence": odd})
    assert found["error.type"] == "semtoken.unscored" and "gen_ai.evaluation.score.value" not in found


SECRET = "The secret is Paris"
ODD: list[Any] = [
    None,
    True,
    -1,
    2.5,
    10**400,
    float("nan"),
    "",
    SECRET,
    [SECRET],
    {"x": SECRET},
    [[]],
    {"code": SECRET},
]
FIELDS = (*(name for name in FINAL if name != "version"), "n_tokens", "method", "preset")


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


def told(*events: Any) -> list[dict[str, Any]]:
    """The values that a stream of these events gives, with its texts."""
    watch = ReplyWatch(streamed=True, content=True)
    pieces = [f"data: {one if isinstance(one, str) else json.dumps(one)}\n\n".encode() for one in events]
    return [found for piece in pieces for found in watch.take(piece)] + watch.end()


DONE = {**FINAL, "final": True}
OUTPUT = [{"type": "message", "content": [{"type": "output_text", "text": "Paris"}]}]


@each(
    "reply",
    [
        {"id": "r", "output": OUTPUT, "semtoken": FINAL},
        {"content": "Paris", "semtoken": FINAL},
        [{"text": "Paris", "meta_info": {}, "semtoken": FINAL}],
    ],
)
def test_other_shapes_of_replies_are_told_too(reply: Any) -> None:
    [one] = evaluations_of(reply, content=True)
    assert (one["gen_ai.evaluation.score.value"], one["semtoken.answer"]) == (0.4, "Paris")


@each(
    ("events", "answers"),
    [
        (
            [
                {"type": "response.output_text.delta", "delta": "Par"},
                {"type": "response.output_text.delta", "delta": "is", "semtoken": DONE},
                {"type": "response.completed", "response": {"id": "r", "output": OUTPUT, "semtoken": DONE}},
            ],
            [("Paris", "r")],
        ),
        ([{"content": "Par"}, {"content": "is", "stop": True, "semtoken": DONE}], [("Paris", None)]),
        (
            [
                {
                    "choices": [
                        {"text": "a", "finish_reason": "stop", "semtoken": DONE},
                        {"text": "b", "index": 1, "finish_reason": "stop", "semtoken": DONE},
                    ]
                }
            ],
            [("a", None), ("b", None)],
        ),
    ],
)
def test_other_shapes_of_streams_are_told_too(events: list[Any], answers: list[tuple[str, str | None]]) -> None:
    assert [(one["semtoken.answer"], one.get("gen_ai.response.id")) for one in told(*events)] == answers


def chunk(index: int, text: str, block: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": index, "delta": {"content": text}, "finish_reason": finish, "semtoken": block}
    return {"id": "r", "choices": [choice]}


def test_a_stream_tells_each_choice_once_with_its_final_score() -> None:
    running = {"sequence_uncertainty": 0.1, "final": False}
    begun = [chunk(0, "Par", running), chunk(1, "L", running)]
    ends = [chunk(0, "is", DONE), chunk(0, "", DONE, "stop")]
    ends += [chunk(1, "yon", DONE, "stop")] * 2  # some gateways send the end of a choice again, with the usage
    found = told(*begun, *ends, "[DONE]")
    assert [(one["semtoken.choice"], one["semtoken.answer"]) for one in found] == [(0, "Paris"), (1, "Lyon")]


def test_what_is_not_understood_is_passed_over() -> None:
    for streamed in (False, True):
        watch = ReplyWatch(streamed=streamed)
        assert watch.take(b"data: {broken\n\nnonsense\n\n") + watch.end() == []
    for deep in ("[" * 10**5, '{"choices":' * 10**5):
        watch = ReplyWatch(streamed=False)
        assert watch.take(deep.encode()) + watch.end() == []
        assert told(deep) == []
    watch = ReplyWatch(streamed=False, longest=10)
    assert watch.take(json.dumps({"choices": [{"semtoken": FINAL}]}).encode()) + watch.end() == []
