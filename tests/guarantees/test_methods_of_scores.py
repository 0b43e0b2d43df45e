"""By which number an answer counts: the product, the confidence, another method; with its bounds, and from files."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from semtoken.errors import CalibratorMismatchError, InvalidInputError
from semtoken.guarantees.answer_records import answer_record, read_answers
from semtoken.guarantees.labels import log_confidences, log_score_ends
from tests.json_lines import write_lines


def answer(name: str, **more: Any) -> SimpleNamespace:
    known: dict[str, Any] = {"confidence_method": name, "confidence": 0.5, "confidence_interval": (0.4, 0.6)}
    known |= {"log_confidence": -0.5, "log_confidence_interval": (-0.9, -0.3), "scores": {"own": 2.0}}
    return SimpleNamespace(**known | {"score_bounds": {"own": (1.0, 3.0)}} | more)


def test_which_number_and_which_bounds_count() -> None:
    for by, name, score, ends in (
        (None, "stc", -0.5, (-0.9, -0.3)),
        (None, "new_phrases", -0.5, (-0.9, -0.3)),
        ("confidence", "stc", -0.5, (-0.9, -0.3)),
        ("confidence", "new_phrases", math.log(0.5), (math.log(0.4), math.log(0.6))),
        ("own", "stc", -math.log1p(math.exp(2)), (-math.log1p(math.exp(3)), -math.log1p(math.exp(1)))),
    ):
        one = answer(name)
        assert log_confidences([one], by).tolist() == pytest.approx([score])
        assert log_score_ends(one, by) == pytest.approx(ends)
    exact = answer("new_phrases", score_bounds={})
    exact.confidence_interval = (0.5, 0.5)
    assert log_score_ends(exact, "confidence") is None and log_score_ends(exact, "own") is None
    certain = answer("new_phrases")
    certain.confidence_interval = (0.0, 1.0)
    assert log_score_ends(certain, "confidence") == (-math.inf, 0.0)
    with pytest.raises(CalibratorMismatchError):
        log_confidences([exact], "another")
    with pytest.raises(
        CalibratorMismatchError, match=r"by the method owm \(did you mean 'own'\?\), and the answer has"
    ):
        log_confidences([exact], "owm")
    assert log_confidences([answer("stc", scores={"own": None})], "own").tolist() == [-math.inf]


def test_the_confidence_of_a_file() -> None:
    def read(name: str, value: Any) -> Any:
        return answer_record("a file, line 1", {"log_confidence": -0.5, "confidence_method": name, "confidence": value})

    for value in (0.25, 0, 1):
        assert read("new_phrases", value).confidence_method == "new_phrases"
        assert read("new_phrases", value).confidence == value
        assert log_score_ends(read("new_phrases", value), "confidence") is None  # a file has no bounds of it
    assert log_confidences([read("new_phrases", 0.25), read("stc", 0.25)], "confidence").tolist() == [
        pytest.approx(math.log(0.25)),
        -0.5,
    ]
    assert read("another", 0.25).confidence_method is None
    with pytest.raises(CalibratorMismatchError, match="scores by the method confidence, and the answer has no other"):
        log_confidences([read("another", 0.25)], "confidence")
    odd: list[Any] = [-1e-9, 1.1, True, "0.25", [0.25], None]
    for value in odd:
        with pytest.raises(InvalidInputError, match=r"a file, line 1.*'confidence'"):
            log_confidences([read("new_phrases", value)], "confidence")


def test_answers_as_they_stand_in_a_file(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"question": "a", "response": "x", "log_confidence": -0.5, "correct": "yes", "signature": ""},
        {"prompt": "b", "text": "y", "log_confidence": None, "correct": 0, "log_confidence_interval": [None, -0.25]},
        {"question": "c", "error": "no answer in time"},
        {
            "messages": [1],
            "value": "z",
            "log_confidence": 0,
            "answers": ["p", "q"],
            "log_confidence_lower": -math.log(4),
        },
    ]
    lines[3]["log_confidence_upper"] = -math.log(2)
    path = tmp_path / "answers.jsonl"
    write_lines(path, lines)
    first, second, last = read_answers(path)
    assert (first.question, first.text, first.log_confidence, first.correct) == ("a", "x", -0.5, True)
    assert first.log_confidence_interval is None and first.signature is None
    assert (second.question, second.text, second.log_confidence, second.correct) == ("b", "y", -math.inf, False)
    assert second.log_confidence_interval == (-math.inf, -0.25) and second.can_be_labeled and not second.references
    assert (last.question, last.text, last.log_confidence, last.correct) == ("[1]", "z", 0.0, None)
    assert last.references == ("p", "q")
    assert last.log_confidence_interval == (-math.log(4), -math.log(2))
    unscored = {"question": "d", "response": "w", "unscored": "no log-probabilities", "log_confidence": None}
    for odd, reason in (
        ([lines[2], unscored], "no answer with a score. The first of 2 lines says why: no answer in time"),
        ([unscored], "no answer with a score. Its only line says why: no log-probabilities"),
        ([{"error": {"message": "busy"}}], "no answer with a score. Its only line says why: busy"),
        ([{"error": {"a": 1}}], "no answer with a score. Its only line has a field 'error' that is no text."),
        (
            [{"unscored": True}] * 2,
            "no answer with a score. The first of 2 lines has a field 'unscored' that is no text.",
        ),
        ([], "no answers."),
    ):
        with pytest.raises(InvalidInputError, match=f"{path} holds {reason}$"):
            read_answers(write_lines(path, odd))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"log_confidence": 0.01}, "at most 0, got 0.01"),
        ({"log_confidence": math.nan}, "at most 0, got nan"),
        ({"log_confidence": "low"}, "must be a number, got 'low'"),
        ({"log_confidence": -(10**400)}, "must be a number, got -1000"),
        ({"sequence_uncertainty": 0.5}, "there is a 'sequence_uncertainty' but no 'log_confidence'"),
        ({"log_confidence": -1, "correct": "perhaps"}, "a label must be true or false"),
        *(
            ({"log_confidence": -1, "log_confidence_interval": ends}, "bounds of 'log_confidence' must be numbers of")
            for ends in (["low", 0], [-(10**400), 0], [-2, 1000], [-0.5, -2], [math.nan, 0], [-2, {}])
        ),
    ],
)
def test_what_no_line_can_say_is_refused(record: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^a file, line 1: .*{message}"):
        answer_record("a file, line 1", record)
