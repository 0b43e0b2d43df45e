"""Tool calls: their names and arguments, in the markup of the model or as a server gives them apart."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from semtoken.parts.budget import Budget
from semtoken.parts.fields import find_fields
from semtoken.parts.json_values import JsonPlace, JsonText, JsonValue, all_json
from semtoken.parts.part import Found
from semtoken.tokens.scored import Flag

ARGUMENTS = ("arguments", "parameters", "input")
"""What models call the arguments of a call."""
CHARACTERS_A_STEP = 100
"""Characters that are searched in the time of one step of the budget."""
RESPELLED = Flag("respelled", "The server wrote the arguments in its own way; they were found by their values.")
UNALIGNED = Flag("unaligned", "This cannot be found in the answer's tokens, so it has no confidence.")


@dataclass(frozen=True)
class ToolCall:
    """A call as a server gives it: its name, and its arguments as JSON text."""

    name: str
    arguments: str


def find_tool_calls(text: str, budget: Budget | None = None) -> Iterator[Found]:
    """`/name` and each argument of every call that the text of an answer spells."""
    budget = budget or Budget(text)
    calls = (call for document in all_json(text, budget) for call in _calls(document, budget))
    for number, (base, values) in enumerate(calls):
        for found in find_fields(text, JsonText(values), call=number, below=base, budget=budget):
            name = (found.path or "").split("/")[1]
            if found.path == "/name":
                yield replace(found, kind="tool_name", equality="exact")
            elif name in ARGUMENTS:
                yield found


def _calls(document: JsonText, budget: Budget) -> Iterator[tuple[JsonPlace, list[JsonValue]]]:
    """The place of every object with a name and arguments, one or several in one list, and the scalars below it."""
    keys = {(id(value.place.before), value.place.name) for value in document.values if value.kind == "key"}
    scalars = document.scalars
    calls: dict[int, tuple[JsonPlace, list[JsonValue]]] = {}
    for value in scalars:
        base = value.place.before
        named = base is not None and value.kind == "string" and value.place.name == "name"
        if base is not None and named and any((id(base), argument) in keys for argument in ARGUMENTS):
            calls[id(base)] = base, []
    above: dict[int, tuple[int, ...]] = {}
    for value in scalars if calls else ():
        for base_id in _calls_above(value.place, calls, above):
            budget.spend()
            calls[base_id][1].append(value)
    yield from calls.values()


def _calls_above(place: JsonPlace, calls: Container[int], above: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    """The calls that a place belongs to, the outer ones first; `above` holds them for the places seen before."""
    way: list[JsonPlace] = []
    step: JsonPlace | None = place
    while step is not None and id(step) not in above:
        way.append(step)
        step = step.before
    found = () if step is None else above[id(step)]
    for one in reversed(way):
        found = (*found, id(one)) if id(one) in calls else found
        above[id(one)] = found
    return found


def find_given_calls(text: str, calls: Sequence[ToolCall], budget: Budget | None = None) -> Iterator[Found]:
    """`/name` and each argument of calls that a server gives apart, found in the text that the model wrote.

    Arguments are looked for as they are written, call after call. If the server wrote them in its own way, their
    values are looked for in order (flag `respelled`). What is not found is given with the flag `unaligned`.
    """
    budget = budget or Budget(text)
    position = 0
    for number, call in enumerate(calls):
        budget.spend(1 + (len(text) - position) // CHARACTERS_A_STEP)
        name = text.find(call.name, position) if call.name else -1
        if name >= 0:
            position = name + len(call.name)
            yield Found(
                name, position, "tool_name", "exact", path="/name", value=call.name, ending="quote", call=number
            )
        else:
            yield Found(0, 0, "tool_name", "exact", path="/name", value=call.name, call=number, flags=(UNALIGNED,))
        start = text.find(call.arguments, position) if call.arguments.strip() else -1
        document = next(all_json(call.arguments, budget), JsonText())
        for found in find_fields(call.arguments, document, call=number, budget=budget):
            path = f"/arguments{found.path}"
            if start >= 0:
                yield replace(found, start=found.start + start, end=found.end + start, path=path)
                continue
            place = _value_in(text, call.arguments[found.start : found.end], found, position, budget)
            if place is None:
                yield replace(found, start=0, end=0, path=path, flags=(UNALIGNED,))
                continue
            position = place[1]
            yield replace(found, start=place[0], end=place[1], path=path, flags=(RESPELLED,))
        position = max(position, start + len(call.arguments)) if start >= 0 else position


def _value_in(text: str, written: str, found: Found, position: int, budget: Budget) -> tuple[int, int] | None:
    """Where the value of a field stands after a place: as written, or spelled with other escapes."""
    quoted = found.kind == "string"
    spellings = [written]
    if quoted:
        spellings += [json.dumps(found.value)[1:-1], json.dumps(found.value, ensure_ascii=False)[1:-1]]
    for spelling in dict.fromkeys(spellings):
        target = f'"{spelling}"' if quoted else spelling
        at, before = text.find(target, position), position
        while at >= 0 and not quoted and _inside_word(text, at, at + len(target)):
            budget.spend(1 + (at - before) // CHARACTERS_A_STEP)
            at, before = text.find(target, at + 1), at
        budget.spend(1 + ((at if at >= 0 else len(text)) - before) // CHARACTERS_A_STEP)
        if at >= 0:
            return at + quoted, at + quoted + len(spelling)
    return None


def _inside_word(text: str, start: int, end: int) -> bool:
    """Whether a number or literal is a piece of a longer one."""
    before, after = text[start - 1 : start], text[end : end + 1]
    return before.isalnum() or before in ("-", ".") or after.isalnum() or after == "."
