"""Answers in files, JSON lines or CSV: what `semtoken calibrate`, `label` and `drift` read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInput
from semtoken.files.record_files import VERDICTS, read_rows


@dataclass(frozen=True)
class AnswerRecord:
    """One line of a file of answers. It stands in for a `ScoredResponse` wherever calibrators take one."""

    where: str
    """File and line."""
    record: Mapping[str, Any]
    """All fields of the line."""
    log_score: float | None
    """None: not scored yet; -inf: blank."""
    correct: bool | None
    """None: no label."""
    log_score_bounds: tuple[float, float] | None = None
    """Where only the k best tokens of each step were known."""

    @property
    def uncertainty_width(self) -> float:
        """Width of the interval around its uncertainty, in [0, 1]; 0 where that is exact."""
        low, high = self.log_score_bounds or (0.0, 0.0)
        return math.exp(high) - math.exp(low)

    @property
    def question(self) -> str:
        """What was asked, as it stands in the file."""
        for name in ("question", "prompt"):
            if isinstance(value := self.record.get(name), str):
                return value
        messages = self.record.get("messages")
        return "" if messages is None else str(messages)

    @property
    def text(self) -> str:
        """The answer."""
        return next((v for n in ("response", "text", "answer") if isinstance(v := self.record.get(n), str)), "")

    @property
    def references(self) -> tuple[str, ...]:
        """Accepted answers."""
        given = self.record.get("answers")
        return (given,) if isinstance(given, str) and given else tuple(given) if isinstance(given, list) else ()

    @property
    def signature(self) -> str | None:
        """Clusters and rules."""
        return self.record.get("signature") or None

    @property
    def distribution(self) -> str | None:
        """`raw`, `processed` or `unknown`."""
        return self.record.get("distribution") or None


def read_answers(path: Path, label: str = "correct") -> list[AnswerRecord]:
    """The answers of a `.jsonl` or `.csv` file.

    Parameters
    ----------
    path
        As `semtoken score` and `semtoken ask --json` write it, or any file with these fields: `log_score`, `question`
        or `prompt`, `response`, `answers` (accepted ones) and a label.
    label
        Field of the labels: true, false, 1, 0, yes, no; empty or null where there is none.

    Raises
    ------
    InvalidInput
        The file cannot be read or holds no answers, or a line cannot be used; the message names it.
    """
    answers = [_answer(where, record, label) for _, where, record in read_rows(path)]
    if not answers:
        raise InvalidInput(f"{path} holds no answers.")
    return answers


def _answer(where: str, record: Mapping[str, Any], label: str) -> AnswerRecord:
    bounds = record.get("log_score_bounds")
    if isinstance(bounds, list) and len(bounds) == 2:
        ends = tuple(-math.inf if end is None else float(end) for end in bounds)
        return AnswerRecord(where, record, _score(where, record), _label(where, record.get(label)), (ends[0], ends[1]))
    return AnswerRecord(where, record, _score(where, record), _label(where, record.get(label)))


def _score(where: str, record: Mapping[str, Any]) -> float | None:
    """JSON has no infinity: a blank answer's log score is null."""
    if "log_score" not in record:
        if "uncertainty" in record:
            raise InvalidInput(
                f"{where}: there is an 'uncertainty' but no 'log_score'. Calibrators need `log_score`: the uncertainty "
                "of long answers is 1 to all digits."
            )
        return None
    value = record["log_score"]
    if value is None or value == "":
        return -math.inf
    try:
        score = float(value)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{where}: 'log_score' must be a number, got {value!r:.40}.") from error
    if math.isnan(score) or score > 0:
        raise InvalidInput(f"{where}: 'log_score' must be at most 0, got {score:g}.")
    return score


def _label(where: str, value: Any) -> bool | None:
    text = "" if value is None else str(value).strip().lower()
    if text not in VERDICTS:
        raise InvalidInput(f"{where}: a label must be true or false (1 or 0, yes or no), got {value!r:.40}.")
    verdict = VERDICTS[text]
    return None if verdict is None else bool(verdict)
