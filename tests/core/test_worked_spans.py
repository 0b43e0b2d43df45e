"""The worked cases, made by an independent implementation that works in bytes and was checked against `json.loads`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from semtoken.core.parts import parts_of
from semtoken.core.parts.json_values import find_json
from tests.core.answers import answer_of
from tests.rows import each

CASES = json.loads((Path(__file__).parent / "data" / "span_cases.json").read_text(encoding="utf-8"))["cases"]


def tokens_of(case: dict[str, Any]) -> Any:
    tokens = case["input"]["tokens"]
    return answer_of(
        [bytes.fromhex(token["bytes"]) for token in tokens],
        [token["log_probability"] for token in tokens],
        [token["log_agreeing"] for token in tokens],
    )


def same(part: Any, expected: dict[str, Any]) -> None:
    assert list(part.tokens) == expected["tokens"]
    for name in ("weakest", "mean"):
        assert getattr(part, name) == pytest.approx(expected[name], abs=1e-9)
    assert part.product == pytest.approx(expected["confidence"], abs=1e-9)
    assert part.confidence == part.product  # these cases do not say how probable the end of a value was


@each("case", [c for c in CASES if c["kind"] == "json"], ids=lambda case: case["name"])
def test_json(case: dict[str, Any]) -> None:
    answer = tokens_of(case)
    expected = case["expected"]
    document = find_json(answer.text)
    assert answer.text == case["input"]["text"]
    assert (document.end, document.complete) == (expected["end"], expected["complete"])
    parts = parts_of(answer, "field", equality="meaning")
    plain = parts_of(answer, "field", equality="exact")
    assert len(parts) == len(expected["fields"])
    for part, exact, field in zip(parts, plain, expected["fields"], strict=True):
        assert (part.path, part.kind, part.start, part.end) == tuple(
            field[k] for k in ("pointer", "kind", "start", "end")
        )
        assert part.value == field["value"] and type(part.value) is type(field["value"])
        assert part.closing_token == field["closing_token"]
        same(part, field)
        assert exact.product == pytest.approx(math.exp(field["log_probability"]), abs=1e-9)


@pytest.mark.parametrize("case", [c for c in CASES if c["kind"] == "span"], ids=lambda case: case["name"])
def test_spans(case: dict[str, Any]) -> None:
    answer = tokens_of(case)
    spans = [tuple(span) for span in case["input"]["spans"]]
    parts = parts_of(answer, lambda _: spans, equality="meaning")
    for part, span, expected in zip(parts, spans, case["expected"], strict=True):
        assert (part.start, part.end) == span
        assert part.text == expected["text"]
        same(part, expected)


def test_all_are_here() -> None:
    assert len(CASES) == 31
