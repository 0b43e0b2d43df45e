"""Files of typed questions, as people write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from semtoken.decisions.deciding import as_question
from semtoken.decisions.questions import Question
from semtoken.errors import InvalidInputError
from semtoken.support.files.safe_files import read_file
from semtoken.support.files.texts import read_yaml
from semtoken.support.plain_values import json_or_none


def read_questions(path: Path) -> dict[str, Question]:
    """Read questions by name from a YAML or JSON file; `InvalidInputError` if it cannot be read or holds none."""
    try:
        return _questions_of(path)
    except InvalidInputError as error:
        # Looked at last, since a question may have the name "state", too.
        first = json_or_none(read_file(path).partition(b"\n")[0])
        if not isinstance(first, dict) or "state" not in first:
            raise
        raise InvalidInputError(f"{path} holds items, not questions: the file of questions comes first.") from error


def _questions_of(path: Path) -> dict[str, Question]:
    questions = read_yaml(path)
    if not isinstance(questions, dict) or not questions:
        raise InvalidInputError(f"{path} must hold questions by their names.")
    return {str(name): _question(path, str(name), question) for name, question in questions.items()}


def _question(path: Path, name: str, record: Any) -> Question:
    try:
        return as_question(record, name)
    except InvalidInputError as error:
        place = ".".join(str(part) for part in getattr(error, "place", ()) if part != name)
        field = f", {place}" if place else ""
        raise InvalidInputError(f"{path}, question {name!r}{field}: {str(error).rstrip('.')}.") from error
