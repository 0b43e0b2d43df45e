"""Verdicts from elsewhere: a file of ids with 1, 0 or nothing."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from semtoken.bench.datasets import question_of_line
from semtoken.bench.judges import AnswerToJudge, OnJudged, Verdict
from semtoken.errors import InvalidInput
from semtoken.files.record_files import VERDICTS, read_rows, write_records


def read_answers(path: Path) -> list[AnswerToJudge]:
    """Read the answers of a file that `semtoken score` or `ask --json` wrote; see `semtoken.files.record_files`.

    Each record has `question` (or `prompt`), `answers` (the accepted ones), `response` (or `answer`) and, if it has a
    name, `id`.

    Raises
    ------
    InvalidInput
        The file cannot be read or holds no record, a record cannot be used, or an id stands twice.
    """
    found: dict[str, AnswerToJudge] = {}
    for number, where, row in read_rows(path):
        question = question_of_line(row, where, f"line-{number}")
        answer = row.get("response", row.get("answer"))
        if answer is None and path.suffix == ".csv":
            answer = ""  # CSV has no other way to write it
        if not isinstance(answer, str):
            raise InvalidInput(f"{where}: the answer to judge must be a text in the field 'response'.")
        if question.id in found:
            raise InvalidInput(f"{where}: the id {question.id!r} stands more than once; ids must differ.")
        found[question.id] = AnswerToJudge(question, answer, row)
    if not found:
        raise InvalidInput(f"{path} holds no answer.")
    return list(found.values())


def write_verdicts(path: Path, items: Sequence[AnswerToJudge], verdicts: Mapping[str, Sequence[Verdict]]) -> None:
    """Write every judge's verdicts, a line for each answer, whole or not at all.

    Each has the fields of the record that was judged, `id`, `response`, for each judge a column of its name with 1, 0
    or nothing (null in JSON), with `NAME_quality` and `NAME_reply` where the judge gives them, and as `correct` the
    verdict of the first judge, unless the record has one already. `ImportedJudge` reads such a file.

    Parameters
    ----------
    path
        `.jsonl`, `.csv` or `.parquet`, or "-" for standard output.
    items
        The answers that were judged.
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


@dataclass(frozen=True)
class _Entry:
    """One line of the file."""

    where: str
    correct: float
    answer: str | None


@dataclass(frozen=True)
class ImportedJudge:
    """Gives the verdicts of a file, which has a column `id` and one of verdicts; see `semtoken.files.record_files`.

    A verdict is 1 or true, 0 or false; empty, null or NaN where there is none. A column `response` (or `answer`) is
    compared with the answers that are judged, so that verdicts on another model's answers are found out. Other columns
    are ignored.
    """

    path: Path
    column: str = "correct"
    others: Literal["refuse", "ignore"] = "refuse"
    """What `check` does with an id of no judged question: refuse the file, which is of another set, or ignore the id,
    as in a file of verdicts on more questions than are judged."""
    name: str = "imported"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The column that holds the verdicts, and a hash of the file.

        Raises
        ------
        InvalidInput
            The file cannot be read.
        """
        return {"kind": "imported", "column": self.column, "sha256": hashlib.sha256(self._content).hexdigest()}

    @cached_property
    def _content(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise InvalidInput(f"The judgements cannot be read from {self.path}: {error.strerror}.") from error

    def check(self, ids: Iterable[str]) -> None:
        """Check the file of verdicts before any work is done.

        Parameters
        ----------
        ids
            The ids of all questions that will be judged, be it in one call of `judge` or in several.

        Raises
        ------
        InvalidInput
            The file cannot be read, has a line that cannot be used or an id twice, or (unless `others` is "ignore") an
            id of no question.
        """
        known = set(ids)
        for id, entry in self._entries.items():
            if self.others == "refuse" and id not in known:
                raise InvalidInput(
                    f"{entry.where}: there is no question with the id {id!r} among the {len(known):,} judged."
                )

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """The file's verdict for each item; NaN for an id that the file does not hold. Other ids are left to `check`.

        Raises
        ------
        InvalidInput
            The file cannot be used, or a verdict is of another answer than the one that is judged.
        """
        verdicts = [self._verdict(item) for item in items]
        if on_judged is not None:
            on_judged(len(items))
        return verdicts

    def _verdict(self, item: AnswerToJudge) -> Verdict:
        entry = self._entries.get(item.question.id)
        if entry is None:
            return Verdict(math.nan)
        if entry.answer is not None and entry.answer != item.answer.strip():
            raise InvalidInput(
                f"{entry.where}: the verdict on {item.question.id!r} is of the answer {entry.answer!r}, but the answer "
                f"here is {item.answer.strip()!r}."
            )
        return Verdict(entry.correct)

    @cached_property
    def _entries(self) -> Mapping[str, _Entry]:
        found: dict[str, _Entry] = {}
        for _, where, row in read_rows(self.path):
            id, entry = self._entry(row, where)
            if id in found:
                raise InvalidInput(f"{where}: the id {id!r} stands more than once.")
            found[id] = entry
        return found

    def _entry(self, row: Mapping[str, Any], where: str) -> tuple[str, _Entry]:
        missing = [name for name in ("id", self.column) if name not in row]
        if missing:
            raise InvalidInput(f"{where}: the column {missing[0]!r} is missing; there are {', '.join(map(str, row))}.")
        value, answer = row[self.column], row.get("response", row.get("answer"))
        spelled = "" if value is None else str(value).strip().lower()
        if spelled not in VERDICTS:
            raise InvalidInput(f"{where}: {self.column} must be 1 or 0 (true or false), or empty; got {value!r}.")
        known = VERDICTS[spelled]
        verdict = math.nan if known is None else float(known)
        return str(row["id"]), _Entry(where, verdict, answer.strip() if isinstance(answer, str) else None)
