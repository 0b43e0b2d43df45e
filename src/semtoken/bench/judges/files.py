"""Answers to judge from a file, and what judges said of them to a file."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from semtoken._files import replacing_file
from semtoken.bench.datasets import question_of_line, read_rows
from semtoken.bench.judges.records import Judged, Verdict
from semtoken.errors import InvalidInput


def read_answers(path: Path) -> list[Judged]:
    """Answers of a file of JSON lines, `.gz` or not: `{"id", "question", "answers", "answer"}`.

    Raises
    ------
    InvalidInput
        The file cannot be read or holds no line, a line cannot be used, or an id stands twice.
    """
    found: dict[str, Judged] = {}
    for number, where, row in read_rows(path):
        question = question_of_line(row, where, f"line-{number}")
        if not isinstance(row.get("answer"), str):
            raise InvalidInput(f"{where}: the answer to judge must be a text in the field 'answer'.")
        if question.id in found:
            raise InvalidInput(f"{where}: the id {question.id!r} stands more than once; ids must differ.")
        found[question.id] = Judged(question, row["answer"])
    if not found:
        raise InvalidInput(f"{path} holds no answer.")
    return list(found.values())


def write_verdicts(path: Path, items: Sequence[Judged], verdicts: Mapping[str, Sequence[Verdict]]) -> None:
    """Write every judge's verdicts, one line an answer, whole or not at all.

    Each line has `id`, `answer`, and for each judge a column of its name with 1, 0 or nothing (null in JSON), with
    `NAME_quality` and `NAME_reply` where the judge gives them. `ImportedJudge` reads such a file.

    Parameters
    ----------
    path
        `.csv`; anything else becomes JSON lines.
    items
        What was judged.
    verdicts
        Name of a judge -> one verdict for each item.

    Raises
    ------
    InvalidInput
        The file cannot be written.
    """
    columns: dict[str, list[Any]] = {
        "id": [item.question.id for item in items],
        "answer": [item.answer for item in items],
    }
    for judge, said in verdicts.items():
        columns |= _columns(judge, said)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    with replacing_file(path) as file:
        file.write((_csv(rows) if path.suffix == ".csv" else _json_lines(rows)).encode("utf-8"))


def _columns(judge: str, verdicts: Sequence[Verdict]) -> dict[str, list[Any]]:
    """The columns of one judge, without those that it leaves empty."""
    measured: dict[str, list[Any]] = {
        f"{judge}_quality": [verdict.quality for verdict in verdicts],
        f"{judge}_reply": [verdict.reply for verdict in verdicts],
    }
    correct = [None if math.isnan(verdict.correct) else int(verdict.correct) for verdict in verdicts]
    return {judge: correct} | {name: values for name, values in measured.items() if any(v is not None for v in values)}


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _json_lines(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
