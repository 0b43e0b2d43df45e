"""Answers to judge from a file, and what judges said of them to a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from semtoken.bench.datasets import question_of_line
from semtoken.bench.judges.records import Judged, Verdict
from semtoken.errors import InvalidInput
from semtoken.files.record_files import read_rows, write_records


def read_answers(path: Path) -> list[Judged]:
    """Answers of a file, as `semtoken score` and `ask --json` write it, see `semtoken.files.record_files`.

    Each record has `question` (or `prompt`), `answers` (the accepted ones), `response` (or `answer`) and, if it has a
    name, `id`.

    Raises
    ------
    InvalidInput
        The file cannot be read or holds no record, a record cannot be used, or an id stands twice.
    """
    found: dict[str, Judged] = {}
    for number, where, row in read_rows(path):
        question = question_of_line(row, where, f"line-{number}")
        answer = row.get("response", row.get("answer"))
        if answer is None and path.suffix == ".csv":
            answer = ""  # CSV has no other way to write it
        if not isinstance(answer, str):
            raise InvalidInput(f"{where}: the answer to judge must be a text in the field 'response'.")
        if question.id in found:
            raise InvalidInput(f"{where}: the id {question.id!r} stands more than once; ids must differ.")
        found[question.id] = Judged(question, answer, row)
    if not found:
        raise InvalidInput(f"{path} holds no answer.")
    return list(found.values())


def write_verdicts(path: Path, items: Sequence[Judged], verdicts: Mapping[str, Sequence[Verdict]]) -> None:
    """Write every judge's verdicts, one line an answer, whole or not at all.

    Each has the fields of the record that was judged, `id`, `response`, for each judge a column of its name with 1, 0
    or nothing (null in JSON), with `NAME_quality` and `NAME_reply` where the judge gives them, and as `correct` the
    verdict of the first judge, unless the record has one already. `ImportedJudge` reads such a file.

    Parameters
    ----------
    path
        `.jsonl`, `.csv` or `.parquet`, or "-" for standard output.
    items
        What was judged.
    verdicts
        Name of a judge -> one verdict for each item.

    Raises
    ------
    InvalidInput
        The file cannot be written.
    """
    columns: dict[str, list[Any]] = {}
    for judge, said in verdicts.items():
        columns |= _columns(judge, said)
    first = next(iter(verdicts))
    rows = []
    for i, item in enumerate(items):
        own = {"id": item.question.id, **item.record, "response": item.answer}
        own.pop("answer", None)
        if own.get("correct") is None:
            own["correct"] = columns[first][i]
        rows.append(own | {name: values[i] for name, values in columns.items()})
    write_records(path, rows)


def _columns(judge: str, verdicts: Sequence[Verdict]) -> dict[str, list[Any]]:
    """The columns of one judge, without those that it leaves empty."""
    measured: dict[str, list[Any]] = {
        f"{judge}_quality": [verdict.quality for verdict in verdicts],
        f"{judge}_reply": [verdict.reply for verdict in verdicts],
    }
    correct = [None if math.isnan(verdict.correct) else int(verdict.correct) for verdict in verdicts]
    return {judge: correct} | {name: values for name, values in measured.items() if any(v is not None for v in values)}
