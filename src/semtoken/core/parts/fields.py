"""The fields of a JSON answer, with what a JSON Schema says of them; tool calls, marked by the model or given apart."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from semtoken.core.parts.budget import Budget
from semtoken.core.parts.figures import is_figure, is_reference
from semtoken.core.parts.json_values import JsonPlace, JsonText, JsonValue, all_json, escaped_name, unescaped_name
from semtoken.core.parts.part import Ending, FoundPart, Part, PartEquality
from semtoken.core.scored_token import Flag
from semtoken.errors import InvalidInputError

NEARLY_JSON = Flag("nearly_json", "This is not written as JSON; the value is shown as it stands.")
SHORT = 3
"""A string of at most so many words is taken for a name or a label, which is spelled in one way."""
STEPS_A_MEMBER = 10
"""The steps of the budget that each value in an object or array takes, at any depth."""
LONGEST_INDEX = 10
"""The number of an item with this many digits or more is not looked for in `prefixItems`."""
_EXACT_KEYWORDS = ("const", "format", "pattern")


def find_fields(
    text: str,
    document: JsonText,
    schema: Mapping[str, Any] | None = None,
    *,
    keys: bool = False,
    containers: bool = False,
    call: int | None = None,
    below: JsonPlace | None = None,
    budget: Budget | None = None,
) -> Iterator[FoundPart]:
    """Find the values to score among the JSON values of a text, if asked for also keys, and whole objects and arrays.

    The JSON Schema, of the whole value, gives types and enums. `call` is the number of the tool call that the values
    belong to, and paths begin at `below`. `BudgetExceededError` if paths or members are too many to be listed.
    """
    budget = budget or Budget(text)
    scalars = document.scalars if containers else []
    for value in document.values:
        if (value.kind == "key" and not keys) or (value.kind in ("object", "array") and not containers):
            continue
        pointer = value.place.pointer(below)
        budget.spend(1 + len(pointer))
        if value.kind == "key":
            yield FoundPart(
                value.start, value.end, "key", "exact", path=pointer, value=value.value, ending="quote", call=call
            )
        elif value.kind in ("object", "array"):
            yield from _container(scalars, value, pointer, call, budget)
        else:
            yield _scalar(text, value, pointer, subschema(schema, pointer), call)


def _scalar(text: str, value: JsonValue, pointer: str, schema: Mapping[str, Any], call: int | None) -> FoundPart:
    endings: dict[str, Ending] = {"string": "quote", "number": "number"}
    figure = value.kind == "number" or (value.kind == "string" and is_figure(text[value.start : value.end]))
    return FoundPart(
        value.start,
        value.end,
        value.kind,
        equality_of(value, schema),
        path=pointer,
        value=value.value,
        ending=endings.get(value.kind, "literal"),
        closing_in_confidence=figure,
        call=call,
        flags=(NEARLY_JSON,) if value.nearly else (),
    )


def equality_of(value: JsonValue, schema: Mapping[str, Any]) -> PartEquality:
    """The equality under which the confidence of a value is computed, by its type, its text and its schema."""
    if value.kind != "string":
        return "exact"
    written = str(value.value)
    if "enum" in schema:
        # Among words of an enum, case says nothing; "A1" and "a1" may be two of its values.
        return "surface" if written.replace(" ", "").isalpha() else "exact"
    if any(keyword in schema for keyword in _EXACT_KEYWORDS) or is_reference(written):
        return "exact"
    if is_figure(written):
        # In "5 kg" the number counts as written, and its unit in any case.
        return "mixed" if any(map(str.isalpha, written)) else "exact"
    return "surface" if len(written.split()) <= SHORT else "meaning"


def _container(
    scalars: Sequence[JsonValue], value: JsonValue, pointer: str, call: int | None, budget: Budget
) -> Iterator[FoundPart]:
    """The part of an object or array, over the tokens of its scalars; for an array also a part for its end."""
    first, last = (bisect_left(scalars, place, key=lambda member: member.start) for place in (value.start, value.end))
    budget.spend(value.end - value.start + STEPS_A_MEMBER * (last - first))
    inside = tuple((scalar.start, scalar.end) for scalar in scalars[first:last])
    yield FoundPart(value.start, value.end, value.kind, "mixed", path=pointer, members=inside, call=call)
    if value.kind == "array":
        # Behind its last item, or behind the bracket of an empty array: there the model chose to end it.
        end = value.start + 1 if value.last_item_end is None else value.last_item_end
        yield FoundPart(end, end, "length", "exact", path=pointer, members=(), ending="array", call=call)


def subschema(schema: Mapping[str, Any] | None, pointer: str) -> Mapping[str, Any]:
    """The part of a schema for the value at a pointer, empty if none; `InvalidInputError` for a broken reference."""
    if schema is None:
        return {}
    current: Any = schema
    for name in pointer.split("/")[1:]:
        current = _step(_resolved(current, schema), unescaped_name(name))
    return _resolved(current, schema)


def _step(schema: Mapping[str, Any], name: str) -> Any:
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return properties[name]
    if name.isdecimal():
        prefix = schema.get("prefixItems")
        if isinstance(prefix, list) and len(name) < LONGEST_INDEX and int(name) < len(prefix):
            return prefix[int(name)]
        return schema.get("items", {})
    return schema.get("additionalProperties", {})


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema without a reference and without the `null` of an optional value (as Pydantic writes them), which is
    `nullable` then.
    """
    optional: dict[str, Any] = {}
    # Schemas refer to each other a few times; 16 in a row are a circle.
    for _ in range(16):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            schema = _target(root, reference)
            continue
        options = schema.get("anyOf", schema.get("oneOf"))
        listed = options if isinstance(options, list | tuple) else ()
        others = [option for option in listed if isinstance(option, Mapping) and option.get("type") != "null"]
        if len(others) != 1:
            return {**schema, **optional}
        if len(listed) > 1:
            optional = {"nullable": True}
        schema = others[0]
    raise InvalidInputError("The schema's references go round in a circle.")


def _target(root: Mapping[str, Any], reference: str) -> Any:
    target: Any = root
    for name in reference.split("/")[1:]:
        name = unescaped_name(name)
        if not isinstance(target, Mapping) or name not in target:
            raise InvalidInputError(f"The schema refers to {reference!r}, which it does not hold.")
        target = target[name]
    return target


def missing_fields(document: JsonText, schema: Mapping[str, Any] | None, budget: Budget) -> list[str]:
    """Pointers of properties that a schema names and the objects of a text lack, in the order of the schema."""
    if schema is None:
        return []
    present: set[str] = set()
    objects: list[str] = []
    for value in document.values:
        pointer = value.pointer
        budget.spend(1 + len(pointer))
        present.add(pointer)
        if value.kind == "object":
            objects.append(pointer)
    missing: list[str] = []
    for pointer in sorted(objects, key=lambda object_pointer: object_pointer.count("/")):
        properties = subschema(schema, pointer).get("properties")
        for name in properties if isinstance(properties, Mapping) else ():
            path = f"{pointer}/{escaped_name(str(name))}"
            budget.spend(1 + len(path))
            if path not in present:
                missing.append(path)
    return missing


def allowed_values(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values that a schema allows, where it names them: an enum, a constant, or the two booleans."""
    if isinstance(schema.get("enum"), list):
        return tuple(schema["enum"])
    if "const" in schema:
        return (schema["const"],)
    return (True, False) if schema.get("type") == "boolean" else ()


ARGUMENTS = ("arguments", "parameters", "input")
"""The names that models give to the arguments of a call."""
CHARACTERS_A_STEP = 100
"""The number of characters that are searched in the time of one step of the budget."""
RESPELLED = Flag("respelled", "The server wrote the arguments in its own way; they were found by their values.")
UNALIGNED = Flag("unaligned", "This cannot be found in the answer's tokens, so it has no confidence.")


@dataclass(frozen=True)
class ToolCall:
    """A call as a server gives it: its name, and its arguments as JSON text."""

    name: str
    arguments: str


def find_tool_calls(text: str, budget: Budget | None = None) -> Iterator[FoundPart]:
    """`/name` and each argument of every call that the text of an answer spells."""
    budget = budget or Budget(text)
    calls = (call for document in all_json(text, budget) for call in _calls(document, budget))
    for number, (base, values) in enumerate(calls):
        for field in find_fields(text, JsonText(values), call=number, below=base, budget=budget):
            name = (field.path or "").split("/")[1]
            if field.path == "/name":
                yield replace(field, kind="tool_name", equality="exact")
            elif name in ARGUMENTS:
                yield field


def _calls(document: JsonText, budget: Budget) -> Iterator[tuple[JsonPlace, list[JsonValue]]]:
    """The place of every object with a name and arguments, one or several in one list, and the scalars below it."""
    # By identity: all places in one object have that same object as their parent.
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
    enclosing = () if step is None else above[id(step)]
    for inner in reversed(way):
        enclosing = (*enclosing, id(inner)) if id(inner) in calls else enclosing
        above[id(inner)] = enclosing
    return enclosing


def find_given_calls(text: str, calls: Sequence[ToolCall], budget: Budget | None = None) -> Iterator[FoundPart]:
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
            yield FoundPart(
                name, position, "tool_name", "exact", path="/name", value=call.name, ending="quote", call=number
            )
        else:
            yield FoundPart(0, 0, "tool_name", "exact", path="/name", value=call.name, call=number, flags=(UNALIGNED,))
        start = text.find(call.arguments, position) if call.arguments.strip() else -1
        document = next(all_json(call.arguments, budget), JsonText())
        for argument in find_fields(call.arguments, document, call=number, budget=budget):
            path = f"/arguments{argument.path}"
            if start >= 0:
                yield replace(argument, start=argument.start + start, end=argument.end + start, path=path)
                continue
            place = _value_in(text, call.arguments[argument.start : argument.end], argument, position, budget)
            if place is None:
                yield replace(argument, start=0, end=0, path=path, flags=(UNALIGNED,))
                continue
            position = place[1]
            yield replace(argument, start=place[0], end=place[1], path=path, flags=(RESPELLED,))
        # The next call is looked for behind this one, so that two equal calls get a place each.
        position = max(position, start + len(call.arguments)) if start >= 0 else position


def _value_in(text: str, written: str, found_part: FoundPart, position: int, budget: Budget) -> tuple[int, int] | None:
    """The range of a field's value behind a place, as written or with other escapes; None if it is not there."""
    quoted = found_part.kind == "string"
    spellings = [written]
    if quoted:
        # Servers write é as it is or as \u00e9, whatever the model wrote.
        spellings += [json.dumps(found_part.value)[1:-1], json.dumps(found_part.value, ensure_ascii=False)[1:-1]]
    for spelling in dict.fromkeys(spellings):
        target = f'"{spelling}"' if quoted else spelling
        at, before = text.find(target, position), position
        # The 1 in "10" is not the value 1.
        while at >= 0 and not quoted and _inside_word(text, at, at + len(target)):
            budget.spend(1 + (at - before) // CHARACTERS_A_STEP)
            at, before = text.find(target, at + 1), at
        budget.spend(1 + ((at if at >= 0 else len(text)) - before) // CHARACTERS_A_STEP)
        if at >= 0:
            return at + quoted, at + quoted + len(spelling)
    return None


def _inside_word(text: str, start: int, end: int) -> bool:
    """Return True if a number or literal is a piece of a longer one."""
    before, after = text[start - 1 : start], text[end : end + 1]
    return before.isalnum() or before in ("-", ".") or after.isalnum() or after == "."


@dataclass(frozen=True)
class CallConfidence:
    """The confidence of one tool call, from the parts of its answer."""

    call: int
    """The number of the call in the answer, from 0."""
    name: str
    """The name of the function to call."""
    confidence: float | None
    """The product of the confidences of the name and all argument values, in [0, 1]. The tokens of braces, quotes and
    keys do not count. None where a part has no confidence."""
    weakest: Part
    """The part of the least confidence; one without any comes first."""


def call_confidences(parts: Iterable[Part]) -> list[CallConfidence]:
    """The confidence of each tool call, from `answer.parts(by="tool_call")`.

    The list is in the order of the calls, and empty if the parts are of another kind. A confidence is not a probability
    of being right: `semtoken calibrate` makes one of it, as of any number.
    """
    calls: dict[int, list[Part]] = {}
    for part in parts:
        if part.call is not None and part.path is not None:
            calls.setdefault(part.call, []).append(part)
    return [_confidence(call, own) for call, own in sorted(calls.items())]


def _confidence(call: int, parts: list[Part]) -> CallConfidence:
    known = [part.confidence for part in parts if part.confidence is not None]
    name = next((str(part.value) for part in parts if part.kind == "tool_name"), "")
    weakest = min(parts, key=lambda part: -1.0 if part.confidence is None else part.confidence)
    return CallConfidence(call, name, math.prod(known) if len(known) == len(parts) else None, weakest)
