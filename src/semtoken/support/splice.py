"""JSON text that is changed in a few places: every other character stays as it was.

A place is a path from the root: names of members and numbers of elements. `Replace`, `Drop`, `Keep` and `Put` say what
is to change at a path, without knowing the text; `Document` knows where in its text each path stands.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from semtoken.support.plain_values import load_json

SPACE = " \t\n\r"
_SPACE = re.compile(r"[ \t\n\r]*")
_BEFORE_ELEMENT = re.compile(r"[ \t\n\r]*(?:,[ \t\n\r]*)?")
_BEFORE_MEMBER = re.compile(r'[ \t\n\r]*(?:,[ \t\n\r]*)?"[^"\\]*(?:\\.[^"\\]*)*"[ \t\n\r]*:[ \t\n\r]*')
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(allow_nan=False).encode
LONG_LIST = 200
"""A list of more items than this is encoded item by item."""


Path: TypeAlias = tuple[str | int, ...]
"""The place of a value in JSON: names of members and numbers of elements, from the root on."""


def encode(value: Any) -> str:
    """Encode a value as JSON.

    A long list within an object, such as the parts of an answer, is written item by item: Python's own encoder lets no
    other thread run before it is done, which for tens of thousands of items takes half a second.
    """
    if type(value) is list and len(value) > LONG_LIST:
        return f"[{', '.join(map(_encode, value))}]"
    if type(value) is dict and any(type(inner) is list and len(inner) > LONG_LIST for inner in value.values()):
        return f"{{{', '.join(f'{_encode(str(name))}: {encode(inner)}' for name, inner in value.items())}}}"
    return _encode(value)


class Replace(NamedTuple):
    """A change that replaces the value at a path. It has no effect where there is none."""

    path: Path
    value: Any


class Drop(NamedTuple):
    """A change that removes a member of an object, or sets it to null if it is the first; none if it is missing."""

    path: Path


class Keep(NamedTuple):
    """A change that keeps only some entries of the object or array at a path. It has no effect where there is none."""

    path: Path
    kept: Container[str | int]
    """The entries that stay: names of members, or numbers of elements."""


class Put(NamedTuple):
    """A change that sets members of the object at a path: those with these names, or new ones behind the last."""

    path: Path
    members: Mapping[str, Any]


Change: TypeAlias = Replace | Drop | Keep | Put


class Edit(NamedTuple):
    """The replacement of the characters from `start` to `end` of a text."""

    start: int
    end: int
    replacement: str


Span: TypeAlias = tuple[int, int]
"""The characters of a text from a start to before an end."""
Spans: TypeAlias = Iterable[tuple[str | int, Span]]
"""The places of the members of an object by their names, or of the elements of an array by their numbers."""


def _whole(text: str) -> Span:
    """The place of the one value that a text holds."""
    return _skip(text, 0), len(text.rstrip(SPACE))


def _spans(text: str, start: int, end: int) -> Spans:
    """The places of the values in the object or array that stands there, none in another value.

    A name may occur twice.
    """
    if text[start] not in "{[":
        return ()
    try:
        return _members_by_length(text, start, end)
    except (msgspec.DecodeError, UnicodeEncodeError, _Unusual):
        return _members_by_decoding(text, start)  # Python's `json` takes more


class _Unusual(Exception):
    """A name occurs twice."""


def _members_by_length(text: str, start: int, end: int) -> Spans:
    """Find the members by the lengths of their values, which msgspec finds without decoding them."""
    is_object = text[start] == "{"
    # `Raw` takes each value as it is: a reply of megabytes is split into its members, and no value is built.
    values = _OBJECT.decode(text[start:end]) if is_object else dict(enumerate(_ARRAY.decode(text[start:end])))
    before = _BEFORE_MEMBER.match if is_object else _BEFORE_ELEMENT.match
    spans: dict[str | int, Span] = {}
    at = start + 1
    for name, raw in values.items():
        match, value = before(text, at), str(raw, "utf-8")
        # A dictionary has a name once, so where one occurs twice the lengths do not add up to the text.
        if match is None or not text.startswith(value, match.end()):
            raise _Unusual
        begin = match.end()
        at = begin + len(value)
        spans[name] = begin, at
    if text[at:end].strip(SPACE) not in ("}", "]"):
        raise _Unusual
    return spans.items()


def _members_by_decoding(text: str, start: int) -> Spans:
    """Find the members by decoding every value: slower, but it takes whatever Python's `json` takes."""
    is_object = text[start] == "{"
    at = _skip(text, start + 1)
    for number in itertools.count():
        if text[at] in "]}":
            return
        name: str | int = number
        if is_object:
            name, at = _decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        _, end = _decode(text, at)
        yield name, (at, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    matched = _SPACE.match(text, at)
    assert matched is not None
    return matched.end()


def without(text: str, name: str) -> str:
    """Remove all members with this name from the object that a text holds."""
    start, end = _whole(text)
    edits, at, any_kept = [], start + 1, False
    spans = list(_spans(text, start, end))
    for member_name, (_, end) in spans:
        if member_name == name and not any_kept and end < spans[-1][1][1]:
            end = text.index(",", end) + 1  # what follows becomes the first member
        if member_name == name:
            edits.append(Edit(at, end, ""))
        any_kept, at = any_kept or member_name != name, end
    return apply(text, edits)


class Document:
    """A parsed JSON text (else `ValueError`) that can be changed in a few places while all else stays the same."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self.value: Any = load_json(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        self._entries: dict[Path, Mapping[str | int, Span]] = {}
        """The places of the entries of objects and arrays, by the paths of these."""

    def span(self, path: Path) -> Span | None:
        """The characters that the value at a path stands in; None if there is none."""
        return self._inside(path[:-1]).get(path[-1]) if path else _whole(self.text)

    def _inside(self, path: Path) -> Mapping[str | int, Span]:
        """The places of the entries of the object or array at a path; of two members with one name the last counts.
        Empty where something else is there, or nothing.
        """
        if path not in self._entries:
            span = self.span(path)
            self._entries[path] = {} if span is None else dict(_spans(self.text, *span))
        return self._entries[path]

    def edits(self, changes: Iterable[Change]) -> list[Edit]:
        """The edits for some changes, in the order of the text. Of two that overlap, the outer one counts."""
        found = itertools.chain.from_iterable(map(self._edits, changes))
        ordered = sorted(found, key=lambda edit: (edit.start, -edit.end))
        kept: list[Edit] = []
        for edit in ordered:
            # Sorted with the longest first, so the one that is kept holds those that overlap with it.
            if not kept or edit.start >= kept[-1].end:
                kept.append(edit)
        return kept

    def changed(self, changes: Iterable[Change]) -> str:
        """Apply changes to the text."""
        return apply(self.text, self.edits(changes))

    def _edits(self, change: Change) -> Iterator[Edit]:
        span = self.span(change.path)
        if span is None:
            return
        match change:
            case Replace():
                yield Edit(*span, encode(change.value))
            case Drop():
                yield _dropped(self._inside(change.path[:-1]), span)
            case Keep():
                inside = self._inside(change.path)
                if not all(name in change.kept for name in inside):
                    yield self._kept(span[0], inside, change.kept)
            case Put():
                inside = self._inside(change.path)
                for name in change.members.keys() & inside.keys():
                    yield Edit(*inside[name], encode(change.members[name]))
                added = {name: value for name, value in change.members.items() if name not in inside}
                if added:
                    end = max((end for _, end in inside.values()), default=span[0] + 1)
                    members = ",".join(f"{encode(name)}:{encode(value)}" for name, value in added.items())
                    yield Edit(end, end, f"{',' if inside else ''}{members}")

    def _kept(self, begin: int, inside: Mapping[str | int, Span], kept: Container[str | int]) -> Edit:
        """The edit that keeps some entries of the object or array that begins there, in their order."""
        ends = [end for _, end in inside.values()]
        parts = [self.text[start:end] for start, end in itertools.pairwise([begin + 1, *ends])]
        # Between two entries stand blanks and a comma, which is written again.
        parts[1:] = [part.partition(",")[2] for part in parts[1:]]
        left = [part for part, name in zip(parts, inside, strict=True) if name in kept]
        return Edit(begin + 1, ends[-1], ",".join([part.lstrip() for part in left[:1]] + left[1:]))


def _dropped(inside: Mapping[str | int, Span], span: Span) -> Edit:
    """The edit that removes the member of an object that stands there; the first one becomes null instead."""
    start, end = span
    before = [other for _, other in inside.values() if other < start]
    # The comma before it goes, too. The first has none, and what follows would have to change.
    return Edit(max(before), end, "") if before else Edit(start, end, "null")


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits to a text, in whose order they come; they do not overlap."""
    parts: list[str] = []
    done = 0
    for edit in edits:
        parts += [text[done : edit.start], edit.replacement]
        done = edit.end
    return "".join([*parts, text[done:]])
