"""Ranked answers as rows: for CSV and Markdown, and small ones for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from semtoken.core.parts.nested import nested
from semtoken.guarantees.apply import REFUSED
from semtoken.guarantees.fingerprint import ELSEWHERE
from semtoken.replies.checking.answers import RankedAnswer, RankedReplies, RefusedReply
from semtoken.replies.checking.doubts import Doubt
from semtoken.replies.checking.fields import CHECK, field_rows, sentence_of_field
from semtoken.support.files.strict_json import finite
from semtoken.support.text import one_line

MARKED = 12
"""Most stretches of an answer that go into the page: its most doubtful ones, of which it marks a few by itself."""

NUMBERS = (
    "confidence",
    "confidence_lower",
    "confidence_upper",
    "explanation",
    "confidence_method",
    "sequence_uncertainty",
    "sequence_uncertainty_lower",
    "sequence_uncertainty_upper",
)
"""Columns of an answer that `ScoredAnswer.facts` gives, in their order."""


def rows_of(checked: RankedReplies) -> list[dict[str, Any]]:
    """A row of plain values for each answer, then one for each reply without a score that says why."""
    return [_row(answer) for answer in checked.answers] + [_refused_row(reply) for reply in checked.refused]


def _refused_row(refused: RefusedReply) -> dict[str, Any]:
    """The row of a reply without a score: its place and the reason; everything else is null."""
    return _valid({"id": refused.id, "question": refused.question, "where": refused.where, "error": refused.reason})


def _row(answer: RankedAnswer) -> dict[str, Any]:
    response = answer.response
    facts = response.facts()
    flags = [flag.code for flag in response.flags]
    if (answer.calibration or {}).get(ELSEWHERE):
        flags.append(ELSEWHERE)
    logs = response.log_confidence_interval or (None, None)
    row: dict[str, Any] = {
        "rank": answer.rank,
        "id": answer.id,
        "question": answer.question,
        "answer": answer.text,
        "doubt": answer.explanation,
        **{name: facts[name] for name in NUMBERS},
        "log_confidence": finite(facts["log_confidence"]),
        "log_confidence_lower": finite(logs[0]),
        "log_confidence_upper": finite(logs[1]),
        **{name: facts[name] for name in ("signature", "distribution", "truncated")},
        "model": response.model,
        **{f"score_{name}": finite(value) for name, value in response.scores.items()},
        "flags": " ".join(flags),
        "numbers_from": "the reply's semtoken block" if answer.from_block else "log-probabilities",
        "where": answer.where,
        "error": None,
    }
    for name in ("probability_correct", "decision", REFUSED):
        if answer.calibration is not None and name in answer.calibration:
            row[name] = answer.calibration[name]
    return _valid(row)


def _valid(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose texts can be written: halves of characters, which some clients send, become question marks."""
    return {name: _whole(value) if isinstance(value, str) else value for name, value in row.items()}


def _whole(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def field_table(checked: RankedReplies) -> list[dict[str, Any]]:
    """A row for each field of all answers, the most doubtful first; after them the replies without a score."""
    rows = field_rows((answer.id, answer.question, answer.where, answer.fields) for answer in checked.answers)
    unread = [
        {"document": reply.id, "asked": reply.question, "where": reply.where, "error": reply.reason}
        for reply in checked.refused
    ]
    return [_valid(row | {"error": None}) for row in rows] + [_valid(row) for row in unread]


def nested_fields(checked: RankedReplies) -> list[dict[str, Any]]:
    """For each document, the most doubtful first, the confidences of its fields in the shape of its JSON, and the
    fields that a person should look at; then the replies without a score.
    """
    documents = [
        {
            "document": answer.id,
            "where": answer.where,
            "confidence": nested(answer.text, {field["path"]: field["confidence"] for field in answer.fields}),
            "check": [field["path"] for field in answer.fields if field["decision"] == CHECK],
            "error": None,
        }
        for answer in checked.answers
    ]
    unread = [{"document": reply.id, "where": reply.where, "error": reply.reason} for reply in checked.refused]
    return list(map(_valid, [*documents, *unread]))


def markdown_of_fields(rows: Sequence[Mapping[str, Any]], shown: int) -> str:
    """A page of Markdown: a table of the most doubtful fields, and what could not be scored."""
    refused = [(row["where"], row["error"]) for row in rows if row["error"] is not None]
    fields = rows[: len(rows) - len(refused)]
    listed = [
        (str(row["rank"]), row["document"], row["path"], row["value"], row["decision"], sentence_of_field(row))
        for row in fields[:shown]
    ]
    title = f"The {len(listed):,} most doubtful of {len(fields):,} fields"
    return _page(title, "| | document | field | value | decision | what is doubtful |", listed, refused)


def markdown(checked: RankedReplies, shown: Sequence[RankedAnswer]) -> str:
    """A page of Markdown: a table of the answers shown, and what could not be scored."""
    title = f"The {len(shown):,} most doubtful of {len(checked.answers):,} answers"
    listed = [(str(answer.rank), answer.question or "", answer.text, answer.explanation) for answer in shown]
    refused = [(reply.where, reply.reason) for reply in checked.refused]
    return _page(title, "| | question | answer | what is doubtful |", listed, refused)


def _page(title: str, header: str, rows: Sequence[Sequence[str]], refused: Sequence[tuple[str, str]]) -> str:
    lines = [f"# {title}", "", NOTE, "", header, "| --- " * (header.count("|") - 1) + "|"]
    lines += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    if refused:
        lines += ["", "## Not scored", "", *(f"- {_cell(where)}: {_cell(reason)}" for where, reason in refused)]
    return "\n".join(lines) + "\n"


NOTE = "Answers that the model was sure of and that are wrong are not found this way."


def _cell(text: str) -> str:
    """A text inside a table of Markdown, with nothing in it that Markdown or HTML would act on."""
    plain = one_line(" ".join(text.split()))
    for sign in "\\`*_[]<>|#":
        plain = plain.replace(sign, "&lt;" if sign == "<" else f"\\{sign}")
    return plain


def page_rows(checked: RankedReplies) -> list[dict[str, Any]]:
    """Rows for the page: answers with doubtful stretches and their rivals, and the replies without a score."""
    rows = [_slim(_row(answer) | _page_fields(answer) | _stretches(answer)) for answer in checked.answers]
    return rows + [_slim(_refused_row(reply)) for reply in checked.refused]


def _stretches(answer: RankedAnswer) -> dict[str, Any]:
    if not answer.fields:
        return {"marks": [_mark(doubt) for doubt in answer.doubts[:MARKED]]}
    return {"parts": [_slim({k: v for k, v in field.items() if k not in OF_THE_ANSWER}) for field in answer.fields]}


OF_THE_ANSWER = ("signature", "distribution", "model", "kind", "equality", "complete")
"""Columns that are the same for all fields of an answer, or that are not shown of a field."""


def _slim(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without what the page does not show or keep, its numbers to six digits."""
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in row.items()
        if name != "explanation" and (value not in (None, "", ()) or name == "log_confidence")  # `shown` holds it
    }


def _mark(doubt: Doubt) -> dict[str, Any]:
    mark: dict[str, Any] = {"start": doubt.start, "end": doubt.end, "confidence": round(doubt.confidence, 4)}
    if doubt.alternatives:
        mark["rivals"] = [[_whole(text), round(share, 4)] for text, share in doubt.alternatives]
    return mark if doubt.path is None else mark | {"path": doubt.path}


def _page_fields(answer: RankedAnswer) -> dict[str, Any]:
    shown: dict[str, Any] = {"shown": f"{answer.response.summary}."}
    if answer.response.flags:
        shown["flags"] = [{"code": flag.code, "message": flag.message} for flag in answer.response.flags]
    return shown if answer.calibration is None else shown | {"calibration": dict(answer.calibration)}
