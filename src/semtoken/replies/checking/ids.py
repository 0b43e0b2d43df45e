"""Values that may identify a saved line, a reply or a question: every short one in it, by the name of its field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

IDS = ("custom_id", "question_id", "id")
"""Usual names of the identifier of a line, of a reply or of a question, the most telling first."""
DEEPEST = 3
"""The depth of objects in which values are looked for, as in `metadata.document.id`."""
LONGEST = 200
"""Characters of an identifier; a longer text is content."""
MOST = 100
"""Values of one line that are looked at."""
_ID_WORD = re.compile(
    r"ids?|key|u?u?id|guid|qid|index|idx|no|nr|num|hash|ref|docno|file|filename|path|url|slug|identifier|\w+id"
)
_OF_A_GROUP = re.compile(
    r"run|session|trace|user|model|org|organization|project|batch|job|thread|conversation|parent|group|experiment|"
    r"tenant|account|previous|system"
)
"""Names of things with an id that several lines share."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_CODE = re.compile(r"(?=\D*\d)(?=[\d.,:%+-]*[^\d.,:%+\s-])\S{2,64}")
"""A value that is made to identify: without blanks, with a digit, and neither a number nor a time."""
_TIME = re.compile(r"\d{4}-\d\d-\d\d")


def identifiers(record: Any, inside: Any = None) -> dict[str, str]:
    """The short values of a record by the names of their fields, those of its own first; none of those `inside` it.

    Names of members of members are joined with dots, as in `metadata.id`.
    """
    found: dict[str, str] = {}
    level: list[tuple[str, Any]] = [("", record)]
    for _ in range(DEEPEST):
        below: list[tuple[str, Any]] = []
        for prefix, value in level:
            for name, member in value.items() if isinstance(value, Mapping) and value is not inside else ():
                if _is_value(member) and len(found) < MOST:
                    found[f"{prefix}{name}"] = str(member)
                elif isinstance(member, Mapping) and len(below) < MOST:
                    below.append((f"{prefix}{name}.", member))
        level = below
    return found


def _is_value(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= LONGEST and "\n" not in value
    return type(value) is int


def own_name(name: str) -> str:
    """The name of a field without those around it, as it is compared: `metadata.recordId` is `record id`."""
    return " ".join(_words(name))


def is_id_name(name: str) -> bool:
    """Return True if a field by its name holds an identifier."""
    words = _words(name)
    return bool(words) and _ID_WORD.fullmatch(words[-1]) is not None


def _words(name: str) -> list[str]:
    own = name.rpartition(".")[2]
    return [word.casefold() for word in _WORD.findall(own)] if own.isascii() else [own.casefold()]


def may_identify(name: str, values: Sequence[str]) -> bool:
    """True if the values of a field, one for each line, may be identifiers of the lines: by its name, or by its values.

    Where all lines share the value, it is none, unless it has one of the usual names.
    """
    if len(values) > 1 and len(set(values)) == 1 and name not in IDS:
        return False
    if is_id_name(name):
        return True
    codes = all(_CODE.fullmatch(value) and not _TIME.match(value) for value in values)
    return codes and len(set(values)) == len(values)


def telling(names: Mapping[str, str]) -> Iterator[str]:
    """The names that are identifiers of one line and no group's, the most telling first."""
    yield from (name for name in IDS if name in names)
    others = (
        name
        for name in names
        if name not in IDS and is_id_name(name) and not any(map(_OF_A_GROUP.fullmatch, _words(name)))
    )
    yield from sorted(others, key=lambda name: name.count("."))
