"""Tool calls: their names and arguments, in the markup of the model or as a server gives them apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from semtoken.parts.fields import find_fields
from semtoken.parts.json_values import JsonText, all_json
from semtoken.parts.records import Found
from semtoken.tokens.scored import Flag

ARGUMENTS = ("arguments", "parameters", "input")
"""What models call the arguments of a call."""
RESPELLED = Flag("respelled", "The server wrote the arguments in its own way; they were found by their values.")
UNALIGNED = Flag("unaligned", "This cannot be found in the answer's tokens, so it has no confidence.")


@dataclass(frozen=True)
class ToolCall:
    """A call as a server gives it: its name, and its arguments as JSON text."""

    name: str
    arguments: str


def find_tool_calls(text: str) -> Iterator[Found]:
    """`/name` and each argument of every call that the text of an answer spells."""
    calls = list(_calls(text))
    for number, (document, base) in enumerate(calls):
        for found in _in_call(text, document, base, number):
            yield replace(found, path=(found.path or "").removeprefix(base))


def _calls(text: str) -> Iterator[tuple[JsonText, str]]:
    """Every object with a name and arguments, and its pointer in the JSON that holds it (several in one list)."""
    for document in all_json(text):
        for value in document.values:
            if value.kind == "string" and value.pointer.endswith("/name"):
                base = value.pointer.removesuffix("/name")
                siblings = {one.pointer for one in document.values if one.kind == "key"}
                if any(f"{base}/{name}" in siblings for name in ARGUMENTS):
                    yield document, base


def _in_call(text: str, document: JsonText, base: str, number: int) -> Iterator[Found]:
    for found in find_fields(text, document, call=number, below=base):
        name = (found.path or "").removeprefix(base).split("/")[1:2]
        if name == ["name"]:
            yield replace(found, kind="tool_name", equality="exact")
        elif name and name[0] in ARGUMENTS:
            yield found


def find_given_calls(text: str, calls: Sequence[ToolCall]) -> Iterator[Found]:
    """`/name` and each argument of calls that a server gives apart, found in the text that the model wrote.

    Arguments are looked for as they are written, call after call. If the server wrote them in its own way, their
    values are looked for in order (flag `respelled`). What is not found is given with the flag `unaligned`.
    """
    position = 0
    for number, call in enumerate(calls):
        name = text.find(call.name, position) if call.name else -1
        if name >= 0:
            position = name + len(call.name)
            yield Found(
                name, position, "tool_name", "exact", path="/name", value=call.name, ending="quote", call=number
            )
        else:
            yield Found(0, 0, "tool_name", "exact", path="/name", value=call.name, call=number, flags=(UNALIGNED,))
        start = text.find(call.arguments, position) if call.arguments.strip() else -1
        document = next(all_json(call.arguments), JsonText())
        for found in find_fields(call.arguments, document, call=number):
            path = f"/arguments{found.path}"
            if start >= 0:
                yield replace(found, start=found.start + start, end=found.end + start, path=path)
                continue
            place = _value_in(text, call.arguments[found.start : found.end], found, position)
            if place is None:
                yield replace(found, start=0, end=0, path=path, flags=(UNALIGNED,))
                continue
            position = place[1]
            yield replace(found, start=place[0], end=place[1], path=path, flags=(RESPELLED,))
        position = max(position, start + len(call.arguments)) if start >= 0 else position


def _value_in(text: str, written: str, found: Found, position: int) -> tuple[int, int] | None:
    """Where the value of a field stands after a place: as written, or spelled with other escapes."""
    quoted = found.kind == "string"
    spellings = [written]
    if quoted:
        spellings += [json.dumps(found.value)[1:-1], json.dumps(found.value, ensure_ascii=False)[1:-1]]
    for spelling in dict.fromkeys(spellings):
        target = f'"{spelling}"' if quoted else spelling
        at = text.find(target, position)
        while at >= 0 and not quoted and _inside_word(text, at, at + len(target)):
            at = text.find(target, at + 1)
        if at >= 0:
            return at + quoted, at + quoted + len(spelling)
    return None


def _inside_word(text: str, start: int, end: int) -> bool:
    """Whether a number or literal is a piece of a longer one."""
    before, after = text[start - 1 : start], text[end : end + 1]
    return before.isalnum() or before in ("-", ".") or after.isalnum() or after == "."
