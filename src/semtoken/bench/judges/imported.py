"""Verdicts from elsewhere: a file of ids with 1, 0 or nothing."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from semtoken.bench.datasets import read_rows
from semtoken.bench.judges.records import Judged, OnJudged, Verdict
from semtoken.errors import InvalidInput

_VERDICTS = {"1": 1.0, "1.0": 1.0, "true": 1.0, "0": 0.0, "0.0": 0.0, "false": 0.0, "": math.nan, "nan": math.nan}


@dataclass(frozen=True)
class ImportedJudge:
    """Verdicts of a file, `.csv` or JSON lines (also `.gz`), with a column `id` and one of verdicts.

    A verdict is 1 or true, 0 or false; empty, null or NaN where there is none. A column `answer` is compared with the
    answers that are judged, so that verdicts on another model's answers are noticed. Other columns are ignored.
    """

    path: Path
    column: str = "correct"
    name: str = "imported"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The column, and the content of the file by its hash.

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

    def judge(self, items: Sequence[Judged], on_judged: OnJudged | None = None) -> list[Verdict]:
        """The file's verdict for each item; NaN for an id that the file does not hold.

        Raises
        ------
        InvalidInput
            The file cannot be read, has a line that cannot be used, an id twice, an id of no item, or another answer
            than the one that is judged.
        """
        answers = {item.question.id: item.answer.strip() for item in items}
        found: dict[str, float] = {}
        for where, row in self._rows():
            id, verdict = self._entry(row, where)
            if id in found:
                raise InvalidInput(f"{where}: the id {id!r} stands more than once.")
            if id not in answers:
                raise InvalidInput(f"{where}: there is no question with the id {id!r} among the {len(items):,} judged.")
            if isinstance(row.get("answer"), str) and row["answer"].strip() != answers[id]:
                raise InvalidInput(
                    f"{where}: the verdict on {id!r} is of the answer {row['answer'].strip()!r}, but the answer here "
                    f"is {answers[id]!r}."
                )
            found[id] = verdict
        if on_judged is not None:
            on_judged(len(items))
        return [Verdict(found.get(item.question.id, math.nan)) for item in items]

    def _rows(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if self.path.suffix != ".csv":
            yield from ((where, row) for _, where, row in read_rows(self.path))
            return
        try:
            text = io.StringIO(self._content.decode("utf-8-sig"), newline="")
            for row in (reader := csv.DictReader(text, strict=True)):
                yield f"{self.path}, line {reader.line_num}", row
        except (ValueError, csv.Error) as error:
            raise InvalidInput(f"{self.path} cannot be read as CSV in UTF-8: {error}.") from error

    def _entry(self, row: Mapping[str, Any], where: str) -> tuple[str, float]:
        missing = [name for name in ("id", self.column) if name not in row]
        if missing:
            raise InvalidInput(f"{where}: the column {missing[0]!r} is missing; there are {', '.join(map(str, row))}.")
        value = row[self.column]
        verdict = _VERDICTS.get("" if value is None else str(value).strip().lower())
        if verdict is None:
            raise InvalidInput(f"{where}: {self.column} must be 1 or 0 (true or false), or empty; got {value!r}.")
        return str(row["id"]), verdict
