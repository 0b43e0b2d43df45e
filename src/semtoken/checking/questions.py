"""Which question belongs to which reply: by id, by order, or as it was saved beside the reply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from semtoken.checking.replies import SavedReply, question_of
from semtoken.errors import InvalidInput
from semtoken.files.record_files import read_rows

IDS = ("id", "custom_id", "question_id")


@dataclass(frozen=True)
class QuestionRecord:
    """A question of a file, with what else its record holds."""

    id: str | None
    text: str
    record: Mapping[str, Any]
    """All its fields, such as accepted answers."""


def read_questions(path: Path) -> list[QuestionRecord]:
    """The questions of a file: records with `question`, `prompt` or `messages`, or saved request bodies.

    Raises
    ------
    InvalidInput
        The file cannot be read, or a record asks nothing.
    """
    return list(_questions(path))


def _questions(path: Path) -> Iterator[QuestionRecord]:
    for _, where, fields in read_rows(path):
        body = fields.get("body")
        text = question_of(fields) or (question_of(body) if isinstance(body, Mapping) else None)
        if text is None:
            raise InvalidInput(f"{where} asks nothing: it has no 'question', 'prompt', 'input' or 'messages'.")
        given = next((fields[name] for name in IDS if fields.get(name) is not None), None)
        yield QuestionRecord(None if given is None else str(given), text, fields)


def with_questions(replies: Sequence[SavedReply], questions: Sequence[QuestionRecord]) -> tuple[list[SavedReply], str]:
    """The replies with their questions, and a sentence on how they were joined.

    Ids decide where those of all replies are known among the questions; otherwise the order does, where there are as
    many of the one as of the other.

    Raises
    ------
    InvalidInput
        Neither is so: which question belongs to which reply cannot be told.
    """
    by_id = {one.id: one for one in questions if one.id is not None}
    if len(by_id) == len(questions) and all(reply.id in by_id for reply in replies):
        joined = [replace(reply, question=by_id[reply.id].text) for reply in replies]
        return joined, f"Joined {len(replies):,} replies with their questions by id."
    if len(questions) == len(replies):
        pairs = zip(replies, questions, strict=True)
        return [replace(reply, question=one.text) for reply, one in pairs], (
            f"Joined {len(replies):,} replies with their questions by order, since the ids do not match."
        )
    lacking = [reply for reply in replies if reply.id not in by_id]
    why = "ids stand more than once among the questions"
    if lacking:
        why = f"no question has the id of {len(lacking):,} replies, such as '{lacking[0].id}' of {lacking[0].where}"
    raise InvalidInput(
        f"There are {len(replies):,} replies and {len(questions):,} questions, and {why}. Give both the same ids, or "
        "one question for each reply in the same order."
    )
