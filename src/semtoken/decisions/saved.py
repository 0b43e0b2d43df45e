"""Saved replies to typed questions, of any server, with a file of labels: what fits, audits and checks read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from semtoken.decisions.answers import Answer
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.question_files import read_questions
from semtoken.decisions.questions import READ_AS_USUAL, Choice, Option, Predicate, Question, ReadingOptions, Score
from semtoken.decisions.records import (
    DecisionRecord,
    first_line,
    hash_of_state,
    place_of_label,
    read_decisions,
    records_of,
    unwrapped,
)
from semtoken.errors import InvalidInputError
from semtoken.replies.checking.finding import OpenedReplies
from semtoken.replies.checking.ids import IDS
from semtoken.replies.checking.saved_reply import FoundReply
from semtoken.support.files.record_files import read_cells
from semtoken.support.files.safe_files import ending_of
from semtoken.support.files.strict_json import read_json_lines
from semtoken.support.text import with_noun

REPLIES = ("response", "reply", "body", "decision")
"""The names under which a saved line keeps the reply."""


@dataclass(frozen=True)
class SavedDecision:
    """The answer of one saved reply to one question."""

    id: str
    """The identifier of its line, or the name of its file."""
    where: str
    record: DecisionRecord


@dataclass(frozen=True)
class _SavedLine:
    """One saved line, parsed."""

    id: str
    where: str
    value: Mapping[str, Any]

    @property
    def reply(self) -> Mapping[str, Any] | None:
        """The reply to typed questions in it, without a gateway's envelope; None if there is none."""
        for inner in (self.value, *(self.value.get(name) for name in REPLIES)):
            body = inner.get("body", inner) if isinstance(inner, Mapping) else None
            reply = unwrapped(body)
            if isinstance(reply, Mapping) and _has_answers(reply):
                return reply
        return None


def _has_answers(reply: Mapping[str, Any]) -> bool:
    """True if the field `answers` holds answers to typed questions, and not the accepted ones of an answer in text."""
    answers = reply.get("answers")
    return isinstance(answers, Mapping) or (
        isinstance(answers, list) and bool(answers) and isinstance(answers[0], Mapping)
    )


def is_decision(found: FoundReply) -> bool:
    """Return True if a saved reply answers typed questions."""
    try:
        line = _line(found)
    except InvalidInputError:
        return False
    return line is not None and line.reply is not None


def holds_decisions(source: Path) -> bool:
    """True if a file or folder holds answers to typed questions, written by `decide` or saved as a server gave them.

    Answers in text are one file of JSON lines, CSV or Parquet, whose field `answers`, if it is there, lists texts.
    """
    if source.is_dir() or ending_of(source) == ".json":
        return True
    if ending_of(source) in (".csv", ".parquet") or not source.is_file():
        return False
    first = first_line(source)
    if first is None:
        return False
    return _has_answers(first) or any(isinstance(first.get(name), Mapping) for name in REPLIES)


def decision_records(
    source: Path,
    *,
    labels: Path | None = None,
    questions: Mapping[str, Question] | Path | None = None,
    usual: Path | None = None,
) -> list[DecisionRecord]:
    """The answers in a file of `semtoken decide`, or in saved replies; see `saved_decisions`.

    `usual` is the file of questions about answers that have `labels` and no `questions`.
    """
    if labels is not None and questions is None:
        questions = usual
    if labels is None and questions is None and source.is_file() and ending_of(source) != ".json":
        first = first_line(source)
        if first is None or _is_own(first):
            return read_decisions(source)
    replies = OpenedReplies([str(source)])
    return [decision.record for decision in saved_decisions(replies, labels=labels, questions=questions)]


def saved_decisions(
    replies: OpenedReplies, *, labels: Path | None = None, questions: Mapping[str, Question] | Path | None = None
) -> list[SavedDecision]:
    """The answers in saved replies, in any of the formats in which servers answer typed questions.

    A file holds a reply as JSON, or one a line. A line may hold the reply under `response`,
    `reply`, `body` or `decision`, next to an `id` or `custom_id` and the `request`. `labels` says what is right: JSON
    lines with `id` and `labels`, or a CSV file with a column `id` and one for each question; without ids they belong to
    the replies in order. Without `questions`, by name or in a file, they are taken from the request beside a reply, or
    are known by their names and options alone.

    `InvalidInputError` if something cannot be read, no reply answers typed questions, or a label belongs to no reply.
    """
    if isinstance(questions, Path):
        questions = read_questions(questions)
    parsed = (_line(reply) for reply in replies)
    lines = [line for line in parsed if line is not None and line.reply is not None]
    if not lines:
        raise InvalidInputError(f"{', '.join(replies.sources)}: no reply answers typed questions.")
    right = _labels_of(lines, labels)
    decisions: list[SavedDecision] = []
    for line, own in zip(lines, right, strict=True):
        try:
            decisions += [SavedDecision(line.id, line.where, record) for record in _records(line, own, questions)]
        except KeyError as error:
            raise InvalidInputError(f"{line.where}: the field {error} is missing.") from error
        except (AttributeError, TypeError) as error:
            raise InvalidInputError(f"{line.where}: it is no answer to typed questions.") from error
        except ValueError as error:
            raise InvalidInputError(f"{line.where}: {error or 'it cannot be read'}") from error
    return decisions


def decision_rows(
    decisions: Sequence[SavedDecision], calibrator: DecisionCalibrator | None = None
) -> list[dict[str, Any]]:
    """Rows of a table, the least probable choice first; equal ones in the order in which they were saved."""
    ranked = sorted(decisions, key=lambda decision: decision.record.answer.log_confidence)
    return [
        {
            "rank": rank,
            "id": decision.id,
            "question": decision.record.name,
            "value": decision.record.answer.value,
            "probability": decision.record.answer.probabilities[decision.record.answer.best],
            "option_mass": decision.record.answer.option_mass,
            "flags": [flag.message for flag in decision.record.answer.flags],
            "correct": None if decision.record.label is None else decision.record.correct,
            **({} if calibrator is None else calibrator.block(decision.record)),
            "where": decision.where,
        }
        for rank, decision in enumerate(ranked, start=1)
    ]


def _line(found: FoundReply) -> _SavedLine | None:
    """A saved reply, parsed; None if it is no JSON object. `InvalidInputError` if it cannot be read."""
    try:
        value = found.parsed()
    except InvalidInputError as error:
        raise InvalidInputError(f"{found.where}: {error}") from error
    if not isinstance(value, Mapping):
        return None
    given = next((value[name] for name in IDS if isinstance(value.get(name), str | int)), None)
    is_reply = "answers" in value and not _is_own(value) and "custom_id" not in value
    return _SavedLine(found.name if given is None or is_reply else str(given), found.where, value)


def _is_own(value: Mapping[str, Any]) -> bool:
    """Return True if a line is one of `semtoken decide`."""
    answers = value.get("answers")
    first = next(iter(answers.values()), None) if isinstance(answers, Mapping) else None
    return isinstance(first, Mapping) and ("options" in first or set(first) == {"refusal"})


def _records(
    line: _SavedLine, labels: Mapping[str, Any], asked: Mapping[str, Question] | None
) -> Iterator[DecisionRecord]:
    reply = line.reply or {}
    if _is_own(reply):
        yield from records_of({**line.value, **({"labels": dict(labels)} if labels else {})})
        return
    questions = _questions(line, reply, asked)
    if unasked := set(labels) - set(questions):
        raise InvalidInputError(f"the label is of a question {min(unasked)!r:.60} that was not asked.")
    request = line.value.get("request")
    asked_with = request if isinstance(request, Mapping) else {}  # it may be a text for people to read
    # Without a state, replies with different ids count as being about different items.
    state = line.value.get("state", asked_with.get("state", asked_with.get("input", {"id": line.id})))
    for answer, options in _read(reply, questions):
        if answer.refusal is None:
            label = place_of_label(answer.question, labels)
            yield DecisionRecord(answer, options, label, hash_of_state(state))


def _questions(line: _SavedLine, reply: Mapping[str, Any], asked: Mapping[str, Question] | None) -> dict[str, Question]:
    """The questions of a reply by name, in its order."""
    if asked is None and isinstance(line.value.get("request"), Mapping):
        asked = _of_request(line.value["request"])
    answers = reply["answers"]
    if not isinstance(answers, Mapping):
        known = list(asked or ())
        # OpenAI's answers stand in the order of the questions, with a name only where the question has one.
        usual = known if len(known) == len(answers) else [f"question_{number}" for number in range(len(answers))]
        answers = {str(given.get("name") or name): given for name, given in zip(usual, answers, strict=True)}
    return {name: _one(asked, name) or _guessed(name, given) for name, given in answers.items()}


def _one(asked: Mapping[str, Question] | None, name: str) -> Question | None:
    if asked is None:
        return None
    if name not in asked:
        raise InvalidInputError(f"there is no question {name!r:.60}: the questions are {', '.join(asked)}.")
    return asked[name]


def _of_request(request: Mapping[str, Any]) -> dict[str, Question]:
    from semtoken.decisions.wire.openai import with_listed_options
    from semtoken.decisions.wire.shapes import OPENAI, SYSTEM_ONE, parsed_request

    if isinstance(request.get("questions"), Mapping) and "state" not in request:  # as LangChain's `OpenAIDecisions`
        asked = [{**with_listed_options(question), "name": name} for name, question in request["questions"].items()]
        request = {**request, "questions": asked}
    _, parsed = parsed_request(SYSTEM_ONE if "state" in request else OPENAI, request)
    return {question.name or f"question_{number}": question for number, question in enumerate(parsed.questions)}


def _guessed(name: str, given: Mapping[str, Any]) -> Question:
    """A question as far as its answer shows it: the name and the options."""
    kind, listed = given["type"], given.get("probabilities")
    if kind in ("predicate", "noul", "yes_no", "refusal"):
        return Predicate(name, name=name)
    pairs = (
        [(entry, entry["value"]) for entry in listed]
        if isinstance(listed, list)
        else [({}, key) for key in listed or ()]
    )
    if kind == "choice":
        return Choice(name, [value for _, value in pairs], name)
    legend = given.get("legend") or {}
    return Score(
        name, [Option(i, str(entry.get("label", legend.get(str(i), i)))) for i, (entry, _) in enumerate(pairs)], name
    )


def _read(reply: Mapping[str, Any], questions: Mapping[str, Question]) -> Iterator[tuple[Answer, ReadingOptions]]:
    from semtoken.decisions.wire.extension import KEY, answers_in
    from semtoken.decisions.wire.shapes import OPENAI, SGLANG, SYSTEM_ONE

    answers = reply["answers"]
    for number, (name, question) in enumerate(questions.items()):
        key: str | int = name if isinstance(answers, Mapping) else number
        given = answers[key]
        kind = given.get("type")
        listed = kind in ("predicate", "refusal") or isinstance(given.get("probabilities"), list)
        shape = SGLANG if kind == "yes_no" else OPENAI if listed else SYSTEM_ONE
        [answer] = answers_in([replace(question, name=name)], [("answers", key)], reply, shape.read_answer)
        own = given.get(KEY) if isinstance(given.get(KEY), Mapping) else {}
        yield answer, ReadingOptions.read(own) if "reading" in own else READ_AS_USUAL


def _labels_of(lines: Sequence[_SavedLine], path: Path | None) -> list[Mapping[str, Any]]:
    """The labels of each line."""
    if path is None:
        return [line.value.get("labels") or {} for line in lines]
    rows = list(_csv_rows(path) if ending_of(path) == ".csv" else _json_rows(path))
    if all(row.id is None for row in rows):
        if len(rows) != len(lines):
            raise InvalidInputError(
                f"{path} has {with_noun(len(rows), 'line')} without ids for {len(lines):,} replies."
            )
        return [row.labels for row in rows]
    known = _joined(rows)
    ids = [line.id for line in lines]
    if len(set(ids)) < len(ids):
        twice = next(identifier for number, identifier in enumerate(ids) if identifier in ids[:number])
        raise InvalidInputError(f"Two replies have the id {twice!r:.60}, so labels cannot be joined by it.")
    if lost := set(known) - set(ids):
        raise InvalidInputError(f"{path}: no reply has the id {min(lost)!r:.60}. The first reply has {ids[0]!r:.60}.")
    return [known.get(identifier, {}) for identifier in ids]


@dataclass(frozen=True)
class _LabelRow:
    """One row of a file of labels."""

    where: str
    id: str | None
    labels: Mapping[str, Any]


def _joined(rows: Sequence[_LabelRow]) -> dict[str, dict[str, Any]]:
    """The labels by id; `InvalidInputError` if a row has no id, or two rows contradict each other."""
    known: dict[str, dict[str, Any]] = {}
    places: dict[tuple[str, str], str] = {}
    for row in rows:
        if row.id is None:
            raise InvalidInputError(f"{row.where}: it has no id, which other lines have.")
        own = known.setdefault(row.id, {})
        for question, label in row.labels.items():
            if question in own and own[question] != label:
                raise InvalidInputError(
                    f"{row.where}: {row.id!r:.60} has the label {label!r:.40} for {question!r:.60}, and "
                    f"{own[question]!r:.40} at {places[row.id, question]}. Leave one of them out."
                )
            own[question] = label
            places.setdefault((row.id, question), row.where)
    return known


def _json_rows(path: Path) -> Iterator[_LabelRow]:
    for line in read_json_lines(path):
        value, where = line.value, f"{path}, line {line.number}"
        if line.fault:
            raise InvalidInputError(f"{where}: {line.fault}")
        if not isinstance(value, Mapping) or not isinstance(value.get("labels"), Mapping):
            raise InvalidInputError(f'{where}: a line is like {{"id": "7", "labels": {{"refund": false}}}}.')
        identifier = next((value[name] for name in IDS if value.get(name) is not None), None)
        labels = {question: label for question, label in value["labels"].items() if label is not None}
        yield _LabelRow(where, None if identifier is None else str(identifier), labels)


def _csv_rows(path: Path) -> Iterator[_LabelRow]:
    for number, cells, fault in read_cells(path):
        where = f"{path}, line {number}"
        if fault:
            raise InvalidInputError(f"{where}: {fault}.")
        identifier = next((cells[name] for name in IDS if cells.get(name)), None)
        yield _LabelRow(where, identifier, {n: text for n, text in cells.items() if n not in IDS and text.strip()})
