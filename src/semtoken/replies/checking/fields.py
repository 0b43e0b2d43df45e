"""The fields of extracted JSON: value, confidence, likely alternatives, and whether a person should look."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from semtoken.core.parts import Part
from semtoken.core.parts.fields import NEARLY_JSON, allowed_values, subschema
from semtoken.core.parts.part import level_of
from semtoken.core.results import ScoredAnswer
from semtoken.errors import BudgetExceededError, InvalidInputError
from semtoken.guarantees.answer_records import AnswerRecord
from semtoken.guarantees.apply import REFUSED, CalibratorInUse, warnings_of
from semtoken.replies.checking.doubts import LEAST_RIVAL, rivals_of
from semtoken.support.files.images import Scans
from semtoken.support.files.record_files import read_rows, write_records
from semtoken.support.files.safe_files import read_file
from semtoken.support.files.strict_json import parse_json
from semtoken.support.questions import question_of
from semtoken.support.text import number, percent

ACCEPT, CHECK = "accept", "check"
"""Decisions on a field."""
KINDS = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}
"""Types of JSON Schema, and the kinds of parts that have them."""
NO_JSON = "The answer holds no JSON."
CUT_BEFORE = "The answer was cut off before the first value of its JSON was complete."
REPEATED = "The answer gives this field more than once; most readers of JSON take the last."
MISSING = "The schema asks for it, and the answer lacks it."
FEW_MISSING = 3
"""A field that more documents lack is one line, with their number."""
SIGNATURE = "field"
"""Ends the signature of a field's score, so that calibrators of answers and of fields are not taken for each other."""


def are_of_fields(signature: str | None) -> bool:
    """Return True if scores of this signature are those of fields, and not of whole answers."""
    return f"|{signature}".endswith(f"|{SIGNATURE}")


def read_schema(path: Path) -> dict[str, Any]:
    """A JSON Schema from a file; `InvalidInputError` if it cannot be read or holds no JSON object."""
    data = read_file(path)
    try:
        schema = parse_json(data)
    except ValueError as error:
        raise InvalidInputError(f"{path} is {error}.") from error
    if not isinstance(schema, dict):
        raise InvalidInputError(f"{path} holds no JSON Schema: that is an object, such as {{'properties': ...}}.")
    return schema


EXTRACT = "Give what stands in this document as one JSON object that follows this JSON Schema, and nothing else."
"""The request to a model for the fields of a scan."""


def scan_records(scans: Scans, schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A record for each page of scans: its name, and `messages` that ask for its fields."""
    wanted = {"type": "text", "text": f"{EXTRACT}\n{json.dumps(schema, ensure_ascii=False)}"}
    return [{"id": name, "messages": [{"role": "user", "content": [image, wanted]}]} for name, image in scans.pages]


@contextmanager
def lines_of_scans(scans: Scans, schema: Mapping[str, Any]) -> Iterator[Path]:
    """A file with the lines of `scan_records`, which is deleted at the end."""
    with TemporaryDirectory() as folder:
        lines = Path(folder) / "scans.jsonl"
        write_records(lines, scan_records(scans, schema))
        yield lines


def field_records(
    response: ScoredAnswer,
    schema: Mapping[str, Any] | None,
    calibrator: CalibratorInUse | None = None,
    line: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """A record of plain values for each field of an answer, and for each that the schema asks for and the answer lacks.

    A calibrator that was fitted on labeled fields gives probabilities, and decisions with a guarantee;
    `CalibratorMismatchError` if they were not scored alike. Without one a field is to be checked where its confidence
    is under `semtoken.core.parts.part.SOME_DOUBT`, where it does not fit the schema, or where it is missing. `line` is
    the line of a file that the answer belongs to, as in `CalibratorInUse.block`.
    """
    try:
        parts = response.parts("field", schema=schema)
    except BudgetExceededError as error:
        return [_nothing(str(error))]
    if not parts:
        return [_nothing(CUT_BEFORE if response.truncated else NO_JSON)]
    times = Counter(part.path for part in parts)
    return [_record(response, part, schema, calibrator, line, repeated=times[part.path] > 1) for part in parts]


def _nothing(reason: str) -> dict[str, Any]:
    """The record of an answer whose fields are not known."""
    empty: dict[str, Any] = dict.fromkeys((*FACTS, "rival", "rival_probability", "log_confidence"))
    return empty | {"path": "", "text": "", "start": 0, "end": 0, "note": reason, "decision": CHECK, "present": False}


FACTS = ("path", "kind", "start", "end", "text", "confidence", "closing", "equality", "present", "complete")
"""The attributes of a part that are written; the names are those of `semtoken.core.parts.Part`."""


def _record(
    response: ScoredAnswer,
    part: Part,
    schema: Mapping[str, Any] | None,
    calibrator: CalibratorInUse | None,
    line: Mapping[str, Any] | None,
    *,
    repeated: bool,
) -> dict[str, Any]:
    rival, share = next(iter(_rivals(response, part)), (None, None))
    exact = response.log_confidence_interval is None or part.bounds is None
    low, high = (None, None) if exact else part.bounds or (None, None)
    notes = [*([REPEATED] if repeated else []), *_notes(part, schema, response.text[: part.start], response.truncated)]
    facts = {name: getattr(part, name) for name in FACTS}
    record = facts | {
        "confidence_lower": low,
        "confidence_upper": high,
        "rival": rival,
        "rival_probability": share,
        "log_confidence": _log(part.confidence),
        "log_confidence_lower": _log(low),
        "log_confidence_upper": _log(high),
        "signature": "|".join(filter(None, (response.rules, SIGNATURE))),
        "distribution": response.distribution,
        "model": response.model,
    }
    sure = part.confidence is not None and level_of(part.confidence) == "" and not notes
    if calibrator is not None and record["log_confidence"] is not None:
        block = calibrator.block_or_refusal(_as_answer(record), line)  # type: ignore[arg-type]
        record["probability_correct"] = block.get("probability_correct")
        accepted = block["decision"] == "answer" if "decision" in block else sure
        sure = accepted and not notes and REFUSED not in block
        notes += warnings_of(block)
    return record | {"note": " ".join(notes), "decision": ACCEPT if sure else CHECK}


def _as_answer(record: Mapping[str, Any]) -> AnswerRecord:
    """A field in the form that calibrators read."""
    low, high = record["log_confidence_lower"], record["log_confidence_upper"]
    bounds = None if high is None else (-math.inf if low is None else low, high)
    return AnswerRecord("", record, record["log_confidence"], None, bounds)


def _log(confidence: float | None) -> float | None:
    return math.log(confidence) if confidence else None


def _rivals(response: ScoredAnswer, part: Part) -> Iterable[tuple[str, float]]:
    """Alternatives to the value: other tokens at its weakest place, or where it ends if that is weaker."""
    ends = part.closing is not None and part.closing_token is not None and part.closing < (part.weakest or 0.0)
    if not ends or part.closing_token is None:
        return rivals_of(response, [part])[0]
    token = response.tokens[part.closing_token]
    others = [(other.text, other.probability) for other in token.alternatives if other.probability >= LEAST_RIVAL]
    return [(part.text + text.rstrip(), share) for text, share in others if text[:1].isalnum() or text[:1] in ".,"]


def _notes(part: Part, whole: Mapping[str, Any] | None, before: str, truncated: bool | None) -> Iterable[str]:
    """Notes on a field for a reader, besides its confidence."""
    if not part.present:
        yield MISSING
        return
    schema = subschema(whole, part.path or "")
    types = _types(schema)
    wanted = [KINDS.get(name) for name in types if name != "null"]
    asked = f"The schema asks for a {' or a '.join(map(str, wanted))}"
    empty = part.kind == "null" and (schema.get("nullable") is True or "null" in types)
    if {"enum", "const"} & set(schema) and not empty and part.value not in (allowed := allowed_values(schema)):
        yield f"The schema allows only {', '.join(map(str, allowed))}."
    elif wanted and None not in wanted and part.kind not in wanted and not empty:
        yield f"{asked}, this is {'null' if part.kind == 'null' else f'a {part.kind}'}."
    elif part.kind == "number" and "integer" in types and "number" not in types and not _is_whole(part.value):
        yield "The schema asks for a whole number."
    if whole is not None and (other := _other_above(whole, part.path or "", before)):
        yield other
    yield from (flag.message for flag in part.flags if flag.code == NEARLY_JSON.code)
    if not part.complete:
        yield "The JSON breaks off." if truncated is False else "The answer was cut off."


def _types(schema: Mapping[str, Any]) -> list[str]:
    """The names of the types that a schema lists; none where it lists none."""
    types = schema.get("type")
    return [str(name) for name in (types if isinstance(types, list) else [types]) if name is not None]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _other_above(schema: Mapping[str, Any], path: str, before: str) -> str | None:
    """The fault of a value in an object or a list for which the schema has another type; None if there is no fault.

    `before` is the text in front of the value, which holds the keys that lead to it.
    """
    names = path.split("/")[1:]
    for depth, name in enumerate(names):
        above = "/".join(["", *names[:depth]])
        declared = subschema(schema, above)
        types = set(_types(declared))
        is_list = name.isdecimal() and f'"{name}"' not in before
        if types and not types & {"object", "array"}:
            return f"The schema has no object or list at {above or 'the top'}."
        if types and "array" not in types and is_list:
            return f"The schema asks for an object at {above or 'the top'}, this is a list."
    return None


def field_rows(
    documents: Iterable[tuple[str, str | None, str, Iterable[Mapping[str, Any]]]],
) -> list[dict[str, Any]]:
    """A row for each field of all documents, the most doubtful first: missing ones, then by their confidence.

    Of each document: identifier, question, place in its file, and fields as `field_records` gives them.
    """
    rows = [
        {
            "document": name,
            "path": record["path"],
            "value": record["text"],
            "confidence": record["confidence"],
            "rival": record["rival"],
            "rival_probability": record["rival_probability"],
            "decision": record["decision"],
            "note": record["note"],
            "id": f"{name}#{record['path']}",
            "question": f"{record['path'] or 'fields'} of {name}",
            "asked": question,
            "where": where,
        }
        | {key: value for key, value in record.items() if key in LATER}
        for name, question, where, records in documents
        for record in records
    ]
    rows.sort(key=lambda row: (-1.0 if row["confidence"] is None else row["confidence"], row["id"]))
    return [{"rank": rank} | row for rank, row in enumerate(rows, start=1)]


def fields_of_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of `field_rows` from scored lines with `parts`; `InvalidInputError` if the file cannot be read."""
    rows = read_rows(path)
    return field_rows(
        (str(line.get("id", place)), question_of(line), where, line["parts"])
        for place, where, line in rows
        if line.get("parts")
    )


def often_missing(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The paths of fields that more than a few documents lack, with the number of documents, the most frequent first;
    rows as `field_rows` gives them.
    """
    missing = Counter(row["path"] for row in rows if row["path"] and not row["present"])
    many = [(path, count) for path, count in missing.items() if count > FEW_MISSING]
    return dict(sorted(many, key=lambda counted: (-counted[1], counted[0])))


LATER = (
    "confidence_lower",
    "confidence_upper",
    "closing",
    "kind",
    "equality",
    "present",
    "complete",
    "probability_correct",
    "log_confidence",
    "log_confidence_lower",
    "log_confidence_upper",
    "signature",
    "distribution",
    "model",
)
"""Columns for other programs, after those for people."""


def sentence_of_field(row: Mapping[str, Any]) -> str:
    """A line on the confidence in a field's value, and its alternatives."""
    phrases = [] if row["confidence"] is None else [f"confidence {number(row['confidence'], 2)}"]
    if row["rival"] is not None:
        phrases.append(f"also likely: “{row['rival']}” {percent(row['rival_probability'])}")
    return " · ".join([*phrases, *([row["note"]] if row["note"] else [])])
