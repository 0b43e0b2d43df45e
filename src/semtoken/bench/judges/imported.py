"""Verdicts from elsewhere: a file of ids with 1, 0 or nothing."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from semtoken.bench.datasets import read_rows
from semtoken.bench.judges.records import Judged, OnJudged, Verdict
from semtoken.errors import InvalidInput

_VERDICTS = {"1": 1.0, "1.0": 1.0, "true": 1.0, "0": 0.0, "0.0": 0.0, "false": 0.0, "": math.nan, "nan": math.nan}


@dataclass(frozen=True)
class _Entry:
    """One line of the file."""

    where: str
    correct: float
    answer: str | None


@dataclass(frozen=True)
class ImportedJudge:
    """Verdicts of a file, `.csv` or JSON lines (also `.gz`), with a column `id` and one of verdicts.

    A verdict is 1 or true, 0 or false; empty, null or NaN where there is none. A column `answer` is compared with the
    answers that are judged, so that verdicts on another model's answers are noticed. Other columns are ignored.
    """

    path: Path
    column: str = "correct"
    others: Literal["refuse", "ignore"] = "refuse"
    """Ids of no question: a file of another set, or one of more questions than are judged."""
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

    def check(self, ids: Iterable[str]) -> None:
        """Refuse what cannot be used before any work is done.

        Parameters
        ----------
        ids
            Of all questions that will be judged, be it in one call of `judge` or in several.

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

    def judge(self, items: Sequence[Judged], on_judged: OnJudged | None = None) -> list[Verdict]:
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

    def _verdict(self, item: Judged) -> Verdict:
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
        for where, row in self._rows():
            id, entry = self._entry(row, where)
            if id in found:
                raise InvalidInput(f"{where}: the id {id!r} stands more than once.")
            found[id] = entry
        return found

    def _rows(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if self.path.suffix != ".csv":
            yield from ((where, row) for _, where, row in read_rows(self.path))
            return
        content = self._content
        try:
            text = io.StringIO(content.decode("utf-8-sig"), newline="")
            for row in (reader := csv.DictReader(text, strict=True)):
                yield f"{self.path}, line {reader.line_num}", row
        except (ValueError, csv.Error) as error:
            raise InvalidInput(f"{self.path} cannot be read as CSV in UTF-8: {error}.") from error

    def _entry(self, row: Mapping[str, Any], where: str) -> tuple[str, _Entry]:
        missing = [name for name in ("id", self.column) if name not in row]
        if missing:
            raise InvalidInput(f"{where}: the column {missing[0]!r} is missing; there are {', '.join(map(str, row))}.")
        value, answer = row[self.column], row.get("answer")
        correct = _VERDICTS.get("" if value is None else str(value).strip().lower())
        if correct is None:
            raise InvalidInput(f"{where}: {self.column} must be 1 or 0 (true or false), or empty; got {value!r}.")
        return str(row["id"]), _Entry(where, correct, answer.strip() if isinstance(answer, str) else None)
