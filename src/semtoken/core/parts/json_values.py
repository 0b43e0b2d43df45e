"""The values of a JSON text and their places: any value, in talk or fences, complete or cut off.

The standard library's own scanners find the ends of strings and numbers, so positions hold with escapes and
surrogates. The walk keeps a stack instead of calling itself, and values keep their place as a chain of steps: any depth
will do, in time and memory that grow as the text does.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Literal

from semtoken.core.parts.budget import Budget
from semtoken.errors import BudgetExceededError

JsonKind = Literal["string", "number", "boolean", "null", "object", "array", "key"]

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_UNFINISHED = re.compile(r"(?:\.|(?:\.\d+)?[eE][-+]?)\Z", re.ASCII)
_NEARLY = re.compile(r'[^"{}\[\]\r\n]*[^"{}\[\]\r\n\t ,](?=[ \t]*(?:,[ \t\r\n]*["}]|\r?\n|}))')
"""The text in place of a member's value where no JSON value stands, up to the next member or the object's end."""
_NEARLY_STRING = re.compile(
    r'"(?:[^"\\\r\n]|\\.|"(?![ \t]*(?:,[ \t\r\n]*"|}|\r?\n)))*"(?=[ \t]*(?:,[ \t\r\n]*"|}|\r?\n))'
)
"""A string with quotation marks inside, up to the one that the next member or the end of the object follows."""
_AFTER_MEMBER = re.compile(r'[ \t\n\r]*(?:,[ \t\n\r]*(?:["}]|\Z)|}|\Z)')
_ENDS_MEMBER = re.compile(r'["}\r\n]')
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_BLANK = re.compile(r"[ \t\n\r]*")
_OPENING = re.compile(r"[{\[]")
_FENCE = re.compile(r"```[ \t]*json", re.IGNORECASE)
MAX_STARTS = 64  # brackets in talk that are tried as the beginning of an object


def escaped_name(name: str) -> str:
    """A name as a step of a JSON Pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def unescaped_name(step: str) -> str:
    """The name that a step of a JSON Pointer stands for."""
    return step.replace("~1", "/").replace("~0", "~")


@dataclass(frozen=True, eq=False, repr=False)
class JsonPlace:
    """A place in a JSON value: a name or number, and the place that contains it."""

    before: JsonPlace | None = None
    """The place that contains it; None for the whole value."""
    name: str = ""
    """A key, or the number of an item."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonPlace) and self.pointer() == other.pointer()

    def __hash__(self) -> int:
        return hash(self.pointer())

    def pointer(self, below: JsonPlace | None = None) -> str:
        """The JSON Pointer (RFC 6901) of the place, from the root or from a place above it."""
        steps: list[str] = []
        place: JsonPlace | None = self
        while place is not None and place.before is not None and place is not below:
            steps.append(escaped_name(place.name))
            place = place.before
        return "".join(f"/{step}" for step in reversed(steps))


@dataclass(frozen=True)
class JsonValue:
    """One value of a JSON text. The range of a string is what stands between its quotation marks."""

    place: JsonPlace
    kind: JsonKind
    start: int
    end: int
    value: Any
    """The decoded value; None for objects and arrays."""
    last_item_end: int | None = None
    """The end of an array's last item, if it has one: one past it, quotation mark included."""
    nearly: bool = False
    """True if the value is not written as JSON, such as 6,826.94; `value` is then what is written."""

    @property
    def pointer(self) -> str:
        """The JSON Pointer (RFC 6901) of the value."""
        return self.place.pointer()


@dataclass
class JsonText:
    """A JSON value that was found in a text, whole or cut off."""

    values: list[JsonValue] = field(default_factory=list)
    """Keys and values in the order in which they end."""
    begin: int | None = None
    end: int | None = None
    """One past its end; None where it was cut off or nothing was found."""

    @property
    def complete(self) -> bool:
        """True if the whole value stands in the text."""
        return self.end is not None

    @property
    def scalars(self) -> list[JsonValue]:
        """Strings, numbers, booleans and nulls in order."""
        return [value for value in self.values if value.kind not in ("object", "array", "key")]


class _BrokenJson(Exception):
    """The text is not JSON from some character on."""


class _CutOff(Exception):
    """The text ends before the JSON does."""


@dataclass
class _OpenContainer:
    """An object or an array whose end has not come yet."""

    place: JsonPlace
    start: int
    is_object: bool
    index: int = 0
    last_end: int | None = None


def find_json(text: str, budget: Budget | None = None) -> JsonText:
    """The first JSON value of a text: a fenced one, else the first object or array, else the whole text as a scalar."""
    budget = budget or Budget(text)
    best = JsonText()
    for document, broken in _try_brackets(text, _starts(text), budget):
        if not broken:
            return document
        if len(document.scalars) > len(best.scalars):
            best = document
    return best if best.values else _bare(text)


def all_json(text: str, budget: Budget | None = None) -> Iterator[JsonText]:
    """Every complete object or array of a text, one after the other; the last one may be cut off."""
    budget = budget or Budget(text)
    for document, broken in _try_brackets(text, (match.start() for match in _OPENING.finditer(text)), budget):
        if not broken:
            yield document


def _try_brackets(text: str, starts: Iterable[int], budget: Budget) -> Iterator[tuple[JsonText, bool]]:
    """Read what begins at each of some brackets, and say whether it stops being JSON at some character.

    Brackets inside a value that was found are left out, and so are those that were open where an object broke, since
    they break at the same character.
    """
    hopeless: set[int] = set()
    failures = end = 0
    for start in starts:
        if start < end or start in hopeless:
            continue
        document, stack = JsonText(begin=start), list[_OpenContainer]()
        try:
            document.end = end = _walk(text, start, stack, document.values, budget)
            yield document, False
        except _CutOff:
            yield document, False
            return
        except _BrokenJson:
            yield document, True
            # Whatever begins at one of these brackets runs into the same broken character, so that a long text is read
            # once.
            hopeless.update(opened.start for opened in stack)
            failures += 1
            if failures == MAX_STARTS:
                return


def _starts(text: str) -> Iterator[int]:
    """The bracket after the first fence of JSON, then every bracket from the beginning."""
    fence = _FENCE.search(text)
    line_end = -1 if fence is None else text.find("\n", fence.end())
    fenced = None if line_end < 0 else _OPENING.search(text, line_end)
    # A fence says what is JSON, where talk before it may hold brackets.
    if fenced is not None:
        yield fenced.start()
    yield from (opening.start() for opening in _OPENING.finditer(text))


def _bare(text: str) -> JsonText:
    """A text that is one scalar."""
    begin = _blank(text, 0)
    document = JsonText(begin=begin)
    try:
        end = _scalar(text, begin, JsonPlace(), document.values)
    except (_BrokenJson, _CutOff):
        return JsonText()
    if _blank(text, end) != len(text):
        return JsonText()
    document.end = end
    return document


def _walk(text: str, begin: int, stack: list[_OpenContainer], values: list[JsonValue], budget: Budget) -> int:
    """Read the value that begins at `begin`; the values so far are in `values` whatever happens."""
    position = begin
    while True:
        budget.spend()
        position = _value(text, position, stack, values)
        if position < 0:  # an object or array was opened: go on with its first member
            position = -position
            continue
        position = _close(text, position, stack, values)
        if not stack:
            return position


def _value(text: str, position: int, stack: list[_OpenContainer], values: list[JsonValue]) -> int:
    """Read a key if one is due, and a value; returns the place after it, or minus that inside an object or array."""
    position = _blank(text, position)
    place = JsonPlace()
    if stack and stack[-1].is_object:
        place, position = _key(text, position, stack[-1], values)
    elif stack:
        place = JsonPlace(stack[-1].place, str(stack[-1].index))
    position = _blank(text, position)
    if position >= len(text):
        raise _CutOff
    if text[position] not in "{[":
        end = (_member if stack and stack[-1].is_object else _scalar)(text, position, place, values)
        if end == len(text) and stack:  # a number at the very end: it may go on
            raise _CutOff
        return end
    stack.append(_OpenContainer(place, position, text[position] == "{"))
    inside = _blank(text, position + 1)
    if inside >= len(text):
        raise _CutOff
    if text[inside] == ("}" if stack[-1].is_object else "]"):
        done = stack.pop()
        values.append(JsonValue(done.place, _kind(done), done.start, inside + 1, None))
        return inside + 1
    return -(position + 1)


def _key(text: str, position: int, parent: _OpenContainer, values: list[JsonValue]) -> tuple[JsonPlace, int]:
    """The place that the key at a position names, and where its value may begin."""
    if position >= len(text):
        raise _CutOff
    if text[position] != '"':
        raise _BrokenJson
    name, end = _string(text, position)
    place = JsonPlace(parent.place, name)
    values.append(JsonValue(place, "key", position + 1, end - 1, name))
    colon = _blank(text, end)
    if colon >= len(text):
        raise _CutOff
    if text[colon] != ":":
        raise _BrokenJson
    return place, colon + 1


def _close(text: str, position: int, stack: list[_OpenContainer], values: list[JsonValue]) -> int:
    """Close what ends after a value; returns the place where the next value begins, or the end of everything."""
    while stack:
        parent = stack[-1]
        parent.last_end = position
        position = _blank(text, position)
        if position >= len(text):
            raise _CutOff
        if text[position] == ",":
            after = _blank(text, position + 1)
            # Models write JSON with trailing commas, which `json.loads` refuses.
            if text[after : after + 1] not in ("}", "]"):  # else a comma too many
                parent.index += 1
                return position + 1
            position = after
        if parent.is_object and text[position] == '"' and "\n" in text[parent.last_end : position]:
            return position  # a comma is missing
        if text[position] != ("}" if parent.is_object else "]"):
            raise _BrokenJson
        position += 1
        stack.pop()
        last = None if parent.is_object else parent.last_end
        values.append(JsonValue(parent.place, _kind(parent), parent.start, position, None, last))
    return position


def _kind(opened: _OpenContainer) -> Literal["object", "array"]:
    return "object" if opened.is_object else "array"


def _member(text: str, position: int, place: JsonPlace, values: list[JsonValue]) -> int:
    """Read a member's value, also one that is nearly JSON; returns the place after it."""
    known, number, quoted = len(values), False, text[position] == '"'
    try:
        end = _scalar(text, position, place, values)
        if _AFTER_MEMBER.match(text, end):
            return end
        number = values[-1].kind == "number"
    except _BrokenJson:
        end = 0
    written = _NEARLY_STRING.match(text, position) if quoted else _NEARLY.match(text, position)
    if written is not None:
        del values[known:]
        start, last = written.start() + quoted, written.end() - quoted
        kind: JsonKind = "number" if not quoted and text[last - 1].isdigit() else "string"
        values.append(JsonValue(place, kind, start, last, text[start:last], nearly=True))
        return written.end()
    if number and not _ENDS_MEMBER.search(text, position):
        del values[known:]
        raise _CutOff
    if not end:
        raise _BrokenJson
    return end


def _scalar(text: str, position: int, place: JsonPlace, values: list[JsonValue]) -> int:
    """Read a string, number or literal; returns the place after it."""
    if text[position : position + 1] == '"':
        value, end = _string(text, position)
        values.append(JsonValue(place, "string", position + 1, end - 1, value))
        return end
    for literal, meant in _LITERALS.items():
        if text.startswith(literal, position):
            end = position + len(literal)
            values.append(JsonValue(place, "null" if meant is None else "boolean", position, end, meant))
            return end
        # A literal that the end of the text cuts off; six characters, since no literal has more than five.
        if literal.startswith(text[position : position + 6]):
            raise _CutOff
    number = _NUMBER.match(text, position)
    if number is None:
        raise _CutOff if text.startswith("-", position) and position == len(text) - 1 else _BrokenJson
    if _UNFINISHED.match(text, number.end()):
        raise _CutOff
    values.append(JsonValue(place, "number", position, number.end(), _as_number(number.group())))
    return number.end()


def _as_number(written: str) -> int | float | str:
    try:
        number: int | float = json.loads(written)
    except ValueError:  # more digits than Python turns into an integer
        return written
    return written if isinstance(number, float) and math.isinf(number) else number


def _string(text: str, position: int) -> tuple[str, int]:
    """The string whose quotation mark stands at a place, decoded, and the place after it."""
    try:
        # False allows line ends inside strings, which models write.
        value, end = scanstring(text, position + 1, False)
    except json.JSONDecodeError as error:
        # An escape of up to six characters, such as \u00e9, may have been cut off.
        if error.msg.startswith("Unterminated string") or error.pos >= len(text) - 6:
            raise _CutOff from error
        raise _BrokenJson from error
    return value, end


def _blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    assert match is not None
    return match.end()


def is_json(text: str) -> bool:
    """Return True if a whole text is a JSON object or array, or an object with values that are nearly JSON."""
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        pass
    try:
        document = find_json(text) if text.lstrip().startswith("{") else JsonText()
    except BudgetExceededError:
        return False
    return document.end is not None and not text[document.end :].strip()
