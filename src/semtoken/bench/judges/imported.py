"""Verdicts from elsewhere: a file of ids with 1, 0 or nothing."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from semtoken.bench.judges.records import Judged, OnJudged, Verdict
from semtoken.errors import InvalidInput
from semtoken.files.record_files import VERDICTS, read_rows


@dataclass(frozen=True)
class _Entry:
    """One line of the file."""

    where: str
    correct: float
    answer: str | None


@dataclass(frozen=True)
class ImportedJudge:
    """Verdicts of a file, with a column `id` and one of verdicts; see `semtoken.files.record_files`.

    A verdict is 1 or true, 0 or false; empty, null or NaN where there is none. A column `response` (or `answer`) is
    compared with the answers that are judged, so that verdicts on another model's answers are found out. Other columns
    are ignored.
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
