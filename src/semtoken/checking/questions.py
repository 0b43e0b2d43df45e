"""What was asked: the question of a record or request; a file of questions, joined by what both sides have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInput
from semtoken.files.record_files import read_rows
from semtoken.support.text import last_of_user

IDS = ("custom_id", "question_id", "id")
"""Names of the identifier of a line, of a reply or of a question, the most telling first."""


def question_of(value: Mapping[str, Any]) -> str | None:
    """The question in a record or a request body: its question, its prompt, or the last message of the user."""
    for field in ("question", "prompt", "input"):
        if isinstance(value.get(field), str):
            return str(value[field])
    for field in ("messages", "input"):
        if isinstance(value.get(field), list) and (said := last_of_user(value[field])):
            return said
    request = value.get("request")
    return question_of(request) if isinstance(request, Mapping) else None


@dataclass(frozen=True)
class SavedQuestion:
    """A question from a file, with the id by which replies refer to it."""

    id: str | None
    text: str


@dataclass(frozen=True)
class ReplyNames:
    """What a reply is called, for joining it with its question."""

    where: str
    """File and line, for messages."""
    names: tuple[str, ...]
    """All that it goes by, the most telling first: ids of its line, its own id, the name of its file."""
    has_id: bool
    """Whether its line has an id beside the reply, which says whose question it answers."""


def read_questions(path: Path) -> list[SavedQuestion]:
    """The questions of a file: records with `question`, `prompt` or `messages`, or saved request bodies.

    Raises
    ------
    InvalidInput
        The file cannot be read, or a record asks nothing.
    """
    found = []
    for _, where, fields in read_rows(path):
        body = fields.get("body")
        text = question_of(fields) or (question_of(body) if isinstance(body, Mapping) else None)
        if text is None:
            raise InvalidInput(f"{where} asks nothing: it has no 'question', 'prompt', 'input' or 'messages'.")
        given = next((fields[name] for name in IDS if fields.get(name) is not None), None)
        found.append(SavedQuestion(None if given is None else str(given), text))
    return found


def join_questions(
    replies: Sequence[ReplyNames | None], questions: Sequence[SavedQuestion]
) -> tuple[list[str | None], str]:
    """The question of each reply, in the order of the replies, and a sentence on how they were joined.

    Ids join them wherever the questions have some. The order does where neither side has ids and there are as many of
    the one as of the other.

    Parameters
    ----------
    replies
        The names of each reply; None for what cannot be read, which gets no question and counts for the order.
    questions
        See `read_questions`.

    Raises
    ------
    InvalidInput
        Neither ids nor order tell which question belongs to which reply.
    """
    read = [one for one in replies if one is not None]
    counts = f"There are {len(replies):,} replies and {len(questions):,} questions"
    ids = [one.id for one in questions if one.id is not None]
    if not ids:
        if named := next((one for one in read if one.has_id), None):
            raise InvalidInput(f"{counts}; the replies have ids, such as '{named.names[0]}', the questions none. {HOW}")
        if len(questions) != len(replies):
            raise InvalidInput(f"{counts}, and neither have ids. {HOW}")
        return [one.text for one in questions], (
            f"Joined {len(replies):,} replies with their questions by order: the questions have no ids."
        )
    if len(ids) < len(questions):
        raise InvalidInput(f"{counts}, and {len(questions) - len(ids):,} of the questions have no id. {HOW}")
    if twice := next((one for one in ids if ids.count(one) > 1), None) if len(set(ids)) < len(ids) else None:
        raise InvalidInput(f"{counts}, and the id '{twice}' stands more than once among the questions. {HOW}")
    by_id = {one.id: one.text for one in questions}
    keys = [None if one is None else next((n for n in one.names if n in by_id), None) for one in replies]
    lacking = [one for one, key in zip(replies, keys, strict=True) if one is not None and key is None]
    if lacking:
        such = f"such as '{lacking[0].names[0]}' of {lacking[0].where}" if lacking[0].names else lacking[0].where
        raise InvalidInput(f"{counts}, and no question has the id of {len(lacking):,} replies, {such}. {HOW}")
    return [None if key is None else by_id[key] for key in keys], (
        f"Joined {len(read):,} replies with their questions by id."
    )


HOW = "Give both the same ids, or neither, and then one question for each reply in the same order."
