"""Answers in files, as `semtoken score` and others write them: a line stands in for a scored answer."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from semtoken.core.results import HiddenState
from semtoken.core.results.generation import state_from
from semtoken.errors import HOW_TO_SCORE, InvalidInputError, SemtokenError
from semtoken.guarantees.group_names import group_name
from semtoken.guarantees.labels import PRODUCT
from semtoken.support.files.record_files import VERDICTS, read_rows
from semtoken.support.files.safe_files import ending_of
from semtoken.support.inputs import real
from semtoken.support.text import error_text, with_noun

_METHODS = (PRODUCT, "new_phrases")
"""The methods that confidences are by."""


@dataclass(frozen=True)
class AnswerRecord:
    """One line of a file of answers. It stands in for a `ScoredAnswer` wherever calibrators take one."""

    where: str
    """File and line, for messages."""
    record: Mapping[str, Any]
    """All fields of the line."""
    log_confidence: float | None
    """The log score, at most 0; -inf for an empty answer, None for one that is not scored yet."""
    correct: bool | None
    """True if it is right; None where there is no label."""
    log_confidence_interval: tuple[float, float] | None = None
    """Bounds of the log score where only the k best tokens of each step were known; None where it is exact."""

    @property
    def scores(self) -> Mapping[str, float | None]:
        """The uncertainty by each method, as `semtoken score` and `semtoken ask --json` write it."""
        nested = self.record.get("scores")
        scores = dict(nested) if isinstance(nested, Mapping) else {}
        return scores | {n.removeprefix("score_"): v for n, v in self.record.items() if n.startswith("score_")}

    @property
    def state(self) -> HiddenState | None:
        """The hidden state at its end, as `semtoken score` writes it on request; None where there is none."""
        return state_from(self.record, self.where)

    @property
    def confidence_method(self) -> str | None:
        """The method of its confidence, as `semtoken score` and `semtoken ask --json` write it; None where there is
        none.
        """
        name = self.record.get("confidence_method")
        return name if name in _METHODS else None

    @property
    def confidence(self) -> float:
        """Its confidence, in [0, 1]; `InvalidInputError` where the file has none."""
        return real(self.record.get("confidence"), f"{self.where}: 'confidence'", low=0.0, high=1.0)

    @property
    def question(self) -> str:
        """The question as it stands in the file."""
        for name in ("question", "prompt"):
            if isinstance(value := self.record.get(name), str):
                return value
        messages = self.record.get("messages")
        return "" if messages is None else str(messages)

    @property
    def text(self) -> str:
        """The answer, under whichever name the file has it."""
        return next(
            (v for n in ("response", "text", "answer", "value") if isinstance(v := self.record.get(n), str)), ""
        )

    @property
    def document(self) -> str | None:
        """The document that a field of extracted JSON belongs to; None for what is no field."""
        return self._name("document")

    @property
    def extracted_from(self) -> str:
        """The text that a field was extracted from, as far as the file has it; "" where it does not."""
        asked = self.record.get("asked")
        return asked if isinstance(asked, str) else ""

    @property
    def references(self) -> tuple[str, ...]:
        """Answers that count as right; none where the file names none."""
        given = self.record.get("answers")
        return (given,) if isinstance(given, str) and given else tuple(given) if isinstance(given, list) else ()

    @property
    def model(self) -> str | None:
        """The model that answered; None where the file does not say."""
        return self._name("model")

    def _name(self, field: str) -> str | None:
        """A field that holds a name; None where it is missing, empty or holds something else."""
        name = self.record.get(field)
        return name if isinstance(name, str) and name else None

    @property
    def can_be_labeled(self) -> bool:
        """True if it has a label, or answers to judge it by."""
        return self.correct is not None or bool(self.references)

    @property
    def needs_a_judge(self) -> bool:
        """True if it has answers to judge it by, and no label."""
        return self.correct is None and bool(self.references)

    @property
    def signature(self) -> str | None:
        """The line that names clusters and rules; None where the file has none."""
        return self._name("signature")

    @property
    def distribution(self) -> str | None:
        """`raw`, `processed` or `unknown`."""
        return self._name("distribution")


def read_answers(path: Path, label: str = "correct") -> list[AnswerRecord]:
    """The answers of a file of JSON lines, CSV or Parquet, such as `semtoken score` and `semtoken ask --json` write.

    Each line has `log_confidence`, `question` or `prompt`, and `response`; it may have `answers` (accepted ones), and
    a field `label`: true, false, 1, 0, yes or no, and empty or null where nobody judged. Lines that say why they have
    no score are left out: in `error`, or in `unscored`, as exports of a journal do. `InvalidInputError` if the file
    cannot be read, no line is left, or one cannot be used; the message names the line.
    """
    rows = [(where, record) for _, where, record in read_rows(path)]
    answers = [answer_record(where, record, label) for where, record in rows if not _has_no_score(record)]
    if rows and not answers:
        first = "Its only line" if len(rows) == 1 else f"The first of {with_noun(len(rows), 'line')}"
        raise InvalidInputError(f"{path} holds no answer with a score. {first} {_why_unscored(rows[0][1])}")
    if not answers:
        raise InvalidInputError(f"{path} holds no answers.")
    return answers


def _has_no_score(record: Mapping[str, Any]) -> bool:
    """True for a line that says why it has no score: an `error`, or what a journal calls `unscored`."""
    return bool(record.get("error") or (record.get("unscored") and record.get("log_confidence") in (None, "")))


def _why_unscored(record: Mapping[str, Any]) -> str:
    """The end of a sentence on a line that has no score: the reason that it gives, if that is a text."""
    field = "error" if record.get("error") else "unscored"
    said = record[field]
    if isinstance(said.get("message") if isinstance(said, Mapping) else said, str):
        return f"says why: {error_text(said)}"
    return f"has a field '{field}' that is no text."


def are_scored(path: Path) -> bool:
    """Return True if a file holds answers with their scores, as `semtoken score` writes them, by its first line."""
    if not path.is_file() or ending_of(path) not in (".jsonl", ".csv", ".parquet"):
        return False
    try:
        _, _, fields = next(iter(read_rows(path)))
    except (SemtokenError, StopIteration, UnicodeError):
        return False
    return "sequence_uncertainty" in fields and ("response" in fields or "answer" in fields)


def require_scores(answers: Sequence[AnswerRecord]) -> None:
    """Raise `InvalidInputError`, which names the answer, if one has no score."""
    if unscored := [answer for answer in answers if answer.log_confidence is None]:
        raise InvalidInputError(f"{unscored[0].where}: 'log_confidence' is missing. {HOW_TO_SCORE}")


def require_labels(answers: Sequence[AnswerRecord], label: str = "correct") -> None:
    """Raise `InvalidInputError` if no answer has the field of labels, nor accepted answers to judge by."""
    if any(answer.can_be_labeled for answer in answers):
        return
    fields = ", ".join(f"'{name}'" for name in answers[0].record)
    raise InvalidInputError(
        f"No answer has a label: the field '{label}' is missing or empty in all {len(answers):,} of them, and none has "
        f"'answers' to judge by. The first one has the fields {fields}. Name the right field with --label-field, or "
        "make labels with `semtoken label`."
    )


def without_disputes(answers: Sequence[AnswerRecord], by: str | None = None) -> tuple[list[AnswerRecord], int]:
    """The answers, and the number of different ones that are labeled right at one place and wrong at another.

    All places of such an answer count as wrong, as in a journal. It is known by its question, its text and its id; in a
    file without ids by its score, since the same words about another context have another one. With `by` answers of
    different values of this field are different, too.
    """
    known_as = [_identity(answer, by) for answer in answers]
    right, wrong = (
        {known for known, answer in zip(known_as, answers, strict=True) if known and answer.correct is said}
        for said in (True, False)
    )
    disputed = right & wrong
    settled = [
        replace(answer, correct=False) if answer.correct and known in disputed else answer
        for known, answer in zip(known_as, answers, strict=True)
    ]
    return settled, len(disputed)


def disputes_sentence(n: int) -> str:
    """A sentence on the number of answers that are labeled both right and wrong; empty if there are none."""
    if not n:
        return ""
    is_labeled, counts = ("answer is labeled", "it counts") if n == 1 else ("answers are labeled", "they count")
    return f"{n:,} {is_labeled} both right and wrong: {counts} as wrong."


def _identity(answer: AnswerRecord, by: str | None) -> tuple[str, ...] | None:
    """The facts that an answer is known by; None for one without a question or a text, which may be any."""
    if not (answer.question and answer.text):
        return None
    group = "" if by is None else group_name(answer.record.get(by))
    name = answer.record.get("id")
    # The last digits of a score depend on what was computed beside it.
    score = "" if answer.log_confidence is None else str(round(answer.log_confidence, 3) + 0.0)  # no -0.0
    return group, answer.question, answer.text, score if name in (None, "") else f"id {name}"


def one_of_each_question(
    answers: Sequence[AnswerRecord], by: str | None = None, *, labeled_first: bool = False
) -> list[AnswerRecord]:
    """One answer for each question, since repeated ones count as evidence that is not there.

    Which of them is drawn by the question alone: in a file that is ranked, the first is the most doubtful one. With
    `labeled_first` an answer that can be labeled comes before one that cannot, so that no label is lost to it; with
    `by` there is one for each question and value of this field, whose groups are fitted apart. They keep the order of
    the questions; answers without a question are all kept.
    """
    several: dict[tuple[Any, ...], list[AnswerRecord]] = {}
    for i, answer in enumerate(answers):
        group = None if by is None else group_name(answer.record.get(by))
        several.setdefault((group, answer.question, None if answer.question else i), []).append(answer)
    drawn = []
    for (_, question, _), same in several.items():
        able = [answer for answer in same if answer.can_be_labeled] if labeled_first else []
        wanted = able or same
        drawn.append(wanted[zlib.crc32(question.encode("utf-8", "replace")) % len(wanted)])
    return drawn


def answer_record(where: str, record: Mapping[str, Any], label: str = "correct") -> AnswerRecord:
    """An answer from plain values (see `read_answers`); `InvalidInputError` names `where` one cannot be used."""
    return AnswerRecord(where, record, _score(where, record), _label(where, record.get(label)), _bounds(where, record))


def _bounds(where: str, record: Mapping[str, Any]) -> tuple[float, float] | None:
    """The interval of a log score, as one field or as two; None where the score is exact."""
    ends = record.get("log_confidence_interval")
    if not (isinstance(ends, list) and len(ends) == 2):
        ends = [record.get("log_confidence_lower"), record.get("log_confidence_upper")]
        if ends == [None, None]:
            return None
    try:
        low, high = (-math.inf if end is None else float(end) for end in ends)
    except (TypeError, ValueError, OverflowError):
        low = high = math.nan
    if not low <= high <= 0:
        raise InvalidInputError(
            f"{where}: the bounds of 'log_confidence' must be numbers of at most 0, the lower one first, got "
            f"{ends!r:.40}."
        )
    return low, high


def _score(where: str, record: Mapping[str, Any]) -> float | None:
    """JSON has no infinity: an empty answer's log score is null."""
    if "log_confidence" not in record:
        if "sequence_uncertainty" in record:
            raise InvalidInputError(
                f"{where}: there is a 'sequence_uncertainty' but no 'log_confidence', which calibrators need: the "
                "uncertainty of long answers is 1 to all digits."
            )
        return None
    value = record["log_confidence"]
    if value is None or value == "":
        return -math.inf
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{where}: 'log_confidence' must be a number, got {value!r:.40}.") from error
    if math.isnan(score) or score > 0:
        raise InvalidInputError(f"{where}: 'log_confidence' must be at most 0, got {score:g}.")
    return score


def _label(where: str, value: Any) -> bool | None:
    text = "" if value is None else str(value).strip().lower()
    if text not in VERDICTS:
        raise InvalidInputError(f"{where}: a label must be true or false (1 or 0, yes or no), got {value!r:.40}.")
    verdict = VERDICTS[text]
    return None if verdict is None else bool(verdict)
