"""JSON text that is changed in a few places: every other character stays as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from semtoken.payloads.inline import loaded

SPACE = " \t\n\r"
_SPACE = re.compile(r"[ \t\n\r]*")
_BEFORE_ELEMENT = re.compile(r"[ \t\n\r]*,?[ \t\n\r]*")
_BEFORE_MEMBER = re.compile(r'[ \t\n\r]*,?[ \t\n\r]*"(?:[^"\\]|\\.)*"[ \t\n\r]*:[ \t\n\r]*')
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(allow_nan=False).encode


@dataclass(frozen=True)
class Edit:
    """Characters start..end of a text are replaced."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True)
class Located:
    """A value and where it stands: characters start..end."""

    value: Any
    start: int
    end: int


def document(text: str) -> Located:
    """The one value that a text holds.

    Raises
    ------
    ValueError
        The text is not JSON.
    """
    return Located(loaded(text), _skip(text, 0), len(text.rstrip(SPACE)))


def members(text: str, parent: Located) -> dict[str, Located]:
    """The values of a valid object's members, the last one of a name that occurs twice."""
    return {name: Located(parent.value[name], start, end) for name, start, end in _spans(text, parent)}


def elements(text: str, parent: Located) -> list[Located]:
    """The elements of a valid array."""
    spans = _spans(text, parent)
    return [Located(value, start, end) for value, (_, start, end) in zip(parent.value, spans, strict=True)]


def _spans(text: str, parent: Located) -> Sequence[tuple[str, int, int]]:
    """The name ("" in an array), start and end of each value in an object or array that was decoded before."""
    try:
        return _measured(text, parent)
    except (msgspec.DecodeError, UnicodeEncodeError, _Unusual):
        return list(_decoded(text, parent))


class _Unusual(Exception):
    """A name occurs twice."""


def _measured(text: str, parent: Located) -> Sequence[tuple[str, int, int]]:
    """By the lengths of the values, which msgspec tells without decoding them."""
    inside = text[parent.start : parent.end]
    is_object = inside[0] == "{"
    values = _OBJECT.decode(inside) if is_object else dict(enumerate(_ARRAY.decode(inside)))
    before = _BEFORE_MEMBER if is_object else _BEFORE_ELEMENT
    spans = []
    at = 1
    for name, raw in values.items():
        found = before.match(inside, at)
        value = str(raw, "utf-8")
        if found is None or not inside.startswith(value, found.end()):
            raise _Unusual
        at = found.end() + len(value)
        spans.append((str(name) if is_object else "", parent.start + found.end(), parent.start + at))
    if inside[at:].strip(SPACE) not in ("}", "]"):
        raise _Unusual
    return spans


def _decoded(text: str, parent: Located) -> Iterator[tuple[str, int, int]]:
    """By decoding every value: slower, and for whatever Python's `json` takes."""
    is_object = text[parent.start] == "{"
    at = _skip(text, parent.start + 1)
    while text[at] not in "]}":
        name = ""
        if is_object:
            name, at = _decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        _, end = _decode(text, at)
        yield name, at, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    matched = _SPACE.match(text, at)
    assert matched is not None
    return matched.end()


def set_member(parent: Located, inside: dict[str, Located], name: str, value: Any) -> Edit:
    """The edit that gives an object a member: replaced where it is, or put behind the last one."""
    if name in inside:
        return Edit(inside[name].start, inside[name].end, _encode(value))
    last = max((found.end for found in inside.values()), default=parent.start + 1)
    return Edit(last, last, f"{',' if inside else ''}{member(name, value)}")


def set_members(text: str, parent: Located, values: Mapping[str, Any]) -> str:
    """The text with other values of an object's members; of a name that occurs twice the last one is another."""
    inside = members(text, parent)
    new = ",".join(member(name, value) for name, value in values.items() if name not in inside)
    end = max((found.end for found in inside.values()), default=parent.start + 1)
    edits = [set_member(parent, inside, name, value) for name, value in values.items() if name in inside]
    return apply(text, [*edits, Edit(end, end, f"{',' if inside and new else ''}{new}")])


def without(text: str, parent: Located, name: str) -> str:
    """The text without an object's member, however often it occurs."""
    edits, at, any_kept = [], parent.start + 1, False
    for found, _, end in (spans := _spans(text, parent)):
        if found == name and not any_kept and end < spans[-1][2]:
            end = text.index(",", end) + 1  # what follows becomes the first member
        if found == name:
            edits.append(Edit(at, end, ""))
        any_kept, at = any_kept or found != name, end
    return apply(text, edits)


def member(name: str, value: Any) -> str:
    """A member of an object in JSON."""
    return f"{_encode(name)}:{_encode(value)}"


def drop_member(inside: dict[str, Located], name: str) -> Edit:
    """The edit that takes a member out of an object; the first one stays, as null."""
    found = inside[name]
    before = [member.end for member in inside.values() if member.end < found.start]
    return Edit(max(before), found.end, "") if before else Edit(found.start, found.end, "null")


def keep_entries(text: str, parent: Located, entries: Sequence[Located], kept: Sequence[bool]) -> Edit | None:
    """The edit that leaves only some entries of an object or array, or None where all stay.

    Parameters
    ----------
    text
        The whole text.
    parent
        The object or array.
    entries
        All that it holds, in order; of an object's members their values.
    kept
        Which ones stay.
    """
    if all(kept):
        return None
    starts = [parent.start + 1, *(entry.end for entry in entries[:-1])]
    parts = [text[start : entry.end] for start, entry in zip(starts, entries, strict=True)]
    parts[1:] = [part.partition(",")[2] for part in parts[1:]]
    left = [part for part, keep in zip(parts, kept, strict=True) if keep]
    return Edit(parent.start + 1, entries[-1].end, ",".join([part.lstrip() for part in left[:1]] + left[1:]))


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with edits that do not overlap."""
    parts: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        parts += [text[done : edit.start], edit.replacement]
        done = edit.end
    return "".join([*parts, text[done:]])
