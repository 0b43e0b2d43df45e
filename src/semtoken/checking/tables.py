"""Ranked answers as rows: for CSV and Markdown, and small ones for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from semtoken.checking.answers import CheckedAnswer, CheckedReplies
from semtoken.checking.doubts import Doubt
from semtoken.checking.fields import field_rows, sentence_of_field
from semtoken.support.text import one_line

MARKED = 12
"""Most stretches of an answer that go into the page: its most doubtful ones."""


def rows_of(answers: Sequence[CheckedAnswer]) -> list[dict[str, Any]]:
    """A row of plain values for each answer, the same columns in each."""
    return [_row(one) for one in answers]


def _row(one: CheckedAnswer) -> dict[str, Any]:
    response = one.response
    low, high = response.uncertainty_bounds
    logs = response.log_score_bounds or (None, None)
    row: dict[str, Any] = {
        "rank": one.rank,
        "id": one.id,
        "question": one.question,
        "answer": response.text,
        "doubt": one.sentence,
        "headline_name": response.headline.name,
        "headline_value": _finite(response.headline.value),
        "headline_confidence": response.headline.confidence,
        "uncertainty": response.uncertainty,
        "uncertainty_lower": low,
        "uncertainty_upper": high,
        "log_score": _finite(response.log_score),
        "log_score_lower": _finite(logs[0]),
        "log_score_upper": _finite(logs[1]),
        "signature": response.signature,
        "distribution": response.distribution,
        "truncated": response.truncated,
        "flags": " ".join(flag.code for flag in response.flags),
        "numbers_from": "the reply's semtoken block" if one.from_block else "log-probabilities",
        "where": one.where,
    }
    for name in ("chance", "decision"):
        if one.calibration is not None and name in one.calibration:
            row[name] = one.calibration[name]
    return row


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def field_table(checked: CheckedReplies) -> list[dict[str, Any]]:
    """A row of plain values for each field of all answers, the most doubtful first."""
    return field_rows((one.id, one.question, one.where, one.fields) for one in checked.answers)


def markdown_of_fields(rows: Sequence[Mapping[str, Any]], shown: int) -> str:
    """A page of Markdown: a table of the most doubtful fields."""
    lines = [f"# The {shown:,} most doubtful of {len(rows):,} fields", "", NOTE, ""]
    lines += ["| | document | field | value | decision | what is doubtful |", "| --- | --- | --- | --- | --- | --- |"]
    for row in rows[:shown]:
        told = (str(row["rank"]), row["document"], row["path"], row["value"], row["decision"], sentence_of_field(row))
        lines.append(f"| {' | '.join(map(_cell, told))} |")
    return "\n".join(lines) + "\n"


def markdown(checked: CheckedReplies, shown: Sequence[CheckedAnswer]) -> str:
    """A page of Markdown: a table of the answers shown, and what could not be scored."""
    lines = [f"# The {len(shown):,} most doubtful of {len(checked.answers):,} answers", "", NOTE, ""]
    lines += ["| | question | answer | what is doubtful |", "| --- | --- | --- | --- |"]
    for one in shown:
        cells = (str(one.rank), one.question or "", one.response.text, one.sentence)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    if checked.refused:
        lines += ["", "## Not scored", "", *(f"- {_cell(one.where)}: {_cell(one.reason)}" for one in checked.refused)]
    return "\n".join(lines) + "\n"


NOTE = "Answers that the model was sure of and that are wrong are not found this way."


def _cell(text: str) -> str:
    """A text inside a table of Markdown, with nothing in it that Markdown or HTML would act on."""
    plain = one_line(" ".join(text.split()))
    for sign in "\\`*_[]<>|#":
        plain = plain.replace(sign, "&lt;" if sign == "<" else f"\\{sign}")
    return plain


def page_rows(answers: Sequence[CheckedAnswer]) -> list[dict[str, Any]]:
    """Rows for the page: the answer and its doubtful stretches with their rivals, without tokens."""
    return [_slim(_row(one) | _page_fields(one) | _stretches(one)) for one in answers]


def _stretches(one: CheckedAnswer) -> dict[str, Any]:
    if not one.fields:
        return {"marks": _marks(one)}
    return {"parts": [_slim({k: v for k, v in field.items() if k not in OF_THE_ANSWER}) for field in one.fields]}


OF_THE_ANSWER = ("signature", "distribution", "kind", "equality", "complete")
"""What is the same for all fields of an answer, or is not shown of a field."""


def _slim(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without what the page does not show or keep, its numbers to six digits."""
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in row.items()
        if value not in (None, "", ()) or name == "log_score"
    }


def _marks(one: CheckedAnswer) -> list[dict[str, Any]]:
    return [_mark(doubt) for doubt in one.doubts[:MARKED]]


def _mark(doubt: Doubt) -> dict[str, Any]:
    mark: dict[str, Any] = {"start": doubt.start, "end": doubt.end, "confidence": round(doubt.confidence, 4)}
    if doubt.rivals:
        mark["rivals"] = [[text, round(share, 4)] for text, share in doubt.rivals]
    return mark if doubt.path is None else mark | {"path": doubt.path}


def _page_fields(one: CheckedAnswer) -> dict[str, Any]:
    headline = one.response.headline
    shown = {"shown": f"{headline.shown}: {headline.sentence}"}
    return shown if one.calibration is None else shown | {"calibration": dict(one.calibration)}
