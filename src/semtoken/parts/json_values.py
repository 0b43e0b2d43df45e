"""Where the values of a JSON text stand: any value, in talk or fences, complete or cut off.

The standard library's own scanners find the ends of strings and numbers, so positions hold with escapes and
surrogates. The walk keeps a stack instead of calling itself: any depth will do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Literal

JsonKind = Literal["string", "number", "boolean", "null", "object", "array", "key"]

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_UNFINISHED = re.compile(r"(?:\.|(?:\.\d+)?[eE][-+]?)\Z", re.ASCII)
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_BLANK = re.compile(r"[ \t\n\r]*")
_OPENING = re.compile(r"[{\[]")
_FENCE = re.compile(r"```[ \t]*json[^\n]*\n", re.IGNORECASE)
MAX_STARTS = 64  # brackets in talk that are tried as the beginning of an object


@dataclass(frozen=True)
class JsonValue:
    """One value of a JSON text. The range of a string is what stands between its quotation marks."""

    pointer: str
    """JSON Pointer (RFC 6901)."""
    kind: JsonKind
    start: int
    end: int
    value: Any
    """Decoded; None for objects and arrays."""
    last_item_end: int | None = None
    """Where the last item of an array ends, if it has one: one past it, quotation mark included."""


@dataclass
class JsonText:
    """What was found in a text."""

    values: list[JsonValue] = field(default_factory=list)
    """Keys and values in the order in which they end."""
    begin: int | None = None
    """Where the JSON begins."""
    end: int | None = None
    """One past its end; None where it was cut off or nothing was found."""

    @property
    def complete(self) -> bool:
        """It was found and not cut off."""
        return self.end is not None

    @property
    def scalars(self) -> list[JsonValue]:
        """Strings, numbers, booleans and nulls in order."""
        return [value for value in self.values if value.kind not in ("object", "array", "key")]


class _Broken(Exception):
    """The text is not JSON from some character on."""


class _CutOff(Exception):
    """The text ends before the JSON does."""


@dataclass
class _Open:
    """An object or an array whose end has not come yet."""

    pointer: str
    start: int
    is_object: bool
    index: int = 0
    last_end: int | None = None


def find_json(text: str) -> JsonText:
    """The first JSON value of a text: a fenced one, else the first object or array, else the whole text as a scalar."""
    best = JsonText()
    for start in _starts(text):
        found = JsonText(begin=start)
        try:
            found.end = _walk(text, start, found.values)
            return found
        except _CutOff:
            return found
        except _Broken:
            if len(found.scalars) > len(best.scalars):
                best = found
    return best if best.values else _bare(text)


def all_json(text: str) -> Iterator[JsonText]:
    """Every complete object or array of a text, one after the other; the last one may be cut off."""
    position = 0
    for _ in range(MAX_STARTS):
        opening = _OPENING.search(text, position)
        if opening is None:
            return
        found = JsonText(begin=opening.start())
        try:
            found.end = _walk(text, opening.start(), found.values)
        except _CutOff:
            yield found
            return
        except _Broken:
            position = opening.end()
            continue
        yield found
        position = found.end


def _starts(text: str) -> list[int]:
    fence = _FENCE.search(text)
    fenced = [] if fence is None else [m.start() for m in [_OPENING.search(text, fence.end())] if m]
    others = [match.start() for match, _ in zip(_OPENING.finditer(text), range(MAX_STARTS), strict=False)]
    return list(dict.fromkeys([*fenced, *others]))


def _bare(text: str) -> JsonText:
    """A text that is one scalar."""
    begin = _blank(text, 0)
    found = JsonText(begin=begin)
    try:
        end = _scalar(text, begin, "", found.values)
    except (_Broken, _CutOff):
        return JsonText()
    if _blank(text, end) != len(text):
        return JsonText()
    found.end = end
    return found


def _walk(text: str, begin: int, values: list[JsonValue]) -> int:
    """Read the value that begins at `begin`; the values so far are in `values` whatever happens."""
    stack: list[_Open] = []
    position = begin
    while True:
        position = _value(text, position, stack, values)
        if position < 0:  # an object or array was opened: go on with its first member
            position = -position
            continue
        position = _close(text, position, stack, values)
        if not stack:
            return position


def _value(text: str, position: int, stack: list[_Open], values: list[JsonValue]) -> int:
    """Read a key if one is due, and a value. Negative: the place inside what the value opened."""
    position = _blank(text, position)
    pointer = ""
    if stack:
        parent = stack[-1]
        if parent.is_object:
            key, position = _key(text, position, parent, values)
            pointer = f"{parent.pointer}/{key}"
        else:
            pointer = f"{parent.pointer}/{parent.index}"
    position = _blank(text, position)
    if position >= len(text):
        raise _CutOff
    if text[position] not in "{[":
        end = _scalar(text, position, pointer, values)
        if end == len(text) and stack:  # a number at the very end: it may go on
            raise _CutOff
        return end
    stack.append(_Open(pointer, position, text[position] == "{"))
    inside = _blank(text, position + 1)
    if inside >= len(text):
        raise _CutOff
    if text[inside] == ("}" if stack[-1].is_object else "]"):
        done = stack.pop()
        values.append(JsonValue(done.pointer, _kind(done), done.start, inside + 1, None))
        return inside + 1
    return -(position + 1)


def _key(text: str, position: int, parent: _Open, values: list[JsonValue]) -> tuple[str, int]:
    """The key that begins at a place, escaped for a pointer, and where its value may begin."""
    if position >= len(text):
        raise _CutOff
    if text[position] != '"':
        raise _Broken
    name, end = _string(text, position)
    pointer = name.replace("~", "~0").replace("/", "~1")
    values.append(JsonValue(f"{parent.pointer}/{pointer}", "key", position + 1, end - 1, name))
    colon = _blank(text, end)
    if colon >= len(text):
        raise _CutOff
    if text[colon] != ":":
        raise _Broken
    return pointer, colon + 1


def _close(text: str, position: int, stack: list[_Open], values: list[JsonValue]) -> int:
    """After a value: close what ends here. Where the next value begins, or the end of everything."""
    while stack:
        parent = stack[-1]
        parent.last_end = position
        position = _blank(text, position)
        if position >= len(text):
            raise _CutOff
        if text[position] == ",":
            parent.index += 1
            return position + 1
        if text[position] != ("}" if parent.is_object else "]"):
            raise _Broken
        position += 1
        stack.pop()
        last = None if parent.is_object else parent.last_end
        values.append(JsonValue(parent.pointer, _kind(parent), parent.start, position, None, last))
    return position


def _kind(opened: _Open) -> Literal["object", "array"]:
    return "object" if opened.is_object else "array"


def _scalar(text: str, position: int, pointer: str, values: list[JsonValue]) -> int:
    """Read a string, number or literal; the place after it."""
    if text[position : position + 1] == '"':
        value, end = _string(text, position)
        values.append(JsonValue(pointer, "string", position + 1, end - 1, value))
        return end
    for literal, meant in _LITERALS.items():
        if text.startswith(literal, position):
            end = position + len(literal)
            values.append(JsonValue(pointer, "null" if meant is None else "boolean", position, end, meant))
            return end
        if literal.startswith(text[position : position + 6]):
            raise _CutOff
    number = _NUMBER.match(text, position)
    if number is None:
        raise _CutOff if text[position:] == "-" else _Broken
    if _UNFINISHED.match(text, number.end()):
        raise _CutOff
    values.append(JsonValue(pointer, "number", position, number.end(), _as_number(number.group())))
    return number.end()


def _as_number(written: str) -> int | float | str:
    try:
        number: int | float = json.loads(written)
    except ValueError:  # more digits than Python turns into an integer
        return written
    return number


def _string(text: str, position: int) -> tuple[str, int]:
    """The string whose quotation mark stands at a place, decoded, and the place after it."""
    try:
        value, end = scanstring(text, position + 1, False)
    except json.JSONDecodeError as error:
        if error.msg.startswith("Unterminated string") or error.pos >= len(text) - 6:
            raise _CutOff from error
        raise _Broken from error
    return value, end


def _blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    assert match is not None
    return match.end()
