"""The fields of a JSON answer, with what a JSON Schema says of them if there is one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from semtoken.errors import InvalidInput
from semtoken.parts.budget import Budget
from semtoken.parts.figures import is_figure, is_reference
from semtoken.parts.json_values import JsonPlace, JsonText, JsonValue
from semtoken.parts.part import Ending, Equality, Found

SHORT = 3
"""A string of so many words at most is a name or a label: spelled one way."""
STEPS_A_MEMBER = 10
"""What each value in an object or array, at any depth, takes of the budget."""
LONGEST_INDEX = 10
"""Digits of the number of an item; what is longer is a key."""
_EXACT_KEYWORDS = ("const", "format", "pattern")


@dataclass(frozen=True)
class Wanted:
    """A field that a schema asks for."""

    pointer: str
    schema: Mapping[str, Any]


def find_fields(
    text: str,
    found: JsonText,
    schema: Mapping[str, Any] | None = None,
    *,
    keys: bool = False,
    containers: bool = False,
    call: int | None = None,
    below: JsonPlace | None = None,
    budget: Budget | None = None,
) -> Iterator[Found]:
    """What to score of the JSON values that were found in a text.

    Parameters
    ----------
    text, found
        The answer, and its JSON values.
    schema
        A JSON Schema of the whole value: tells types and enums.
    keys, containers
        Give keys and whole objects and arrays too.
    call
        Number of the tool call that the values belong to.
    below
        The place that paths begin at. Default: the whole value.
    budget
        What the work may cost.

    Raises
    ------
    OverBudget
        The paths, or the members of objects within objects, are too many to be listed.
    """
    budget = budget or Budget(text)
    scalars = found.scalars if containers else []
    for value in found.values:
        if (value.kind == "key" and not keys) or (value.kind in ("object", "array") and not containers):
            continue
        pointer = value.place.pointer(below)
        budget.spend(1 + len(pointer))
        if value.kind == "key":
            yield Found(
                value.start, value.end, "key", "exact", path=pointer, value=value.value, ending="quote", call=call
            )
        elif value.kind in ("object", "array"):
            yield from _container(scalars, value, pointer, call, budget)
        else:
            yield _scalar(text, value, pointer, subschema(schema, pointer), call)


def _scalar(text: str, value: JsonValue, pointer: str, schema: Mapping[str, Any], call: int | None) -> Found:
    endings: dict[str, Ending] = {"string": "quote", "number": "number"}
    figure = value.kind == "number" or (value.kind == "string" and is_figure(text[value.start : value.end]))
    return Found(
        value.start,
        value.end,
        value.kind,
        equality_of(value, schema),
        path=pointer,
        value=value.value,
        ending=endings.get(value.kind, "literal"),
        closing_in_confidence=figure,
        call=call,
    )


def equality_of(value: JsonValue, schema: Mapping[str, Any]) -> Equality:
    """What counts as the same value, by its type."""
    if value.kind != "string":
        return "exact"
    written = str(value.value)
    if "enum" in schema:
        return "surface" if written.replace(" ", "").isalpha() else "exact"
    if any(keyword in schema for keyword in _EXACT_KEYWORDS) or is_reference(written):
        return "exact"
    if is_figure(written):
        return "mixed" if any(map(str.isalpha, written)) else "exact"
    return "surface" if len(written.split()) <= SHORT else "meaning"


def _container(
    scalars: Sequence[JsonValue], value: JsonValue, pointer: str, call: int | None, budget: Budget
) -> Iterator[Found]:
    """An object or array over its scalars' tokens; of an array also how sure it was to end there."""
    first, last = (bisect_left(scalars, place, key=lambda one: one.start) for place in (value.start, value.end))
    budget.spend(value.end - value.start + STEPS_A_MEMBER * (last - first))
    inside = tuple((scalar.start, scalar.end) for scalar in scalars[first:last])
    yield Found(value.start, value.end, value.kind, "mixed", path=pointer, members=inside, call=call)
    if value.kind == "array":
        end = value.start + 1 if value.last_item_end is None else value.last_item_end
        yield Found(end, end, "length", "exact", path=pointer, members=(), ending="array", call=call)


def subschema(schema: Mapping[str, Any] | None, pointer: str) -> Mapping[str, Any]:
    """What a schema says of the value at a pointer; nothing if it does not mention it."""
    if schema is None:
        return {}
    current: Any = schema
    for name in pointer.split("/")[1:]:
        current = _step(_resolved(current, schema), name.replace("~1", "/").replace("~0", "~"))
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
    """A schema without a reference and without the `null` of an optional value (as Pydantic writes them)."""
    for _ in range(16):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            schema = _target(root, reference)
            continue
        options = schema.get("anyOf", schema.get("oneOf"))
        listed = options if isinstance(options, list | tuple) else ()
        others = [one for one in listed if isinstance(one, Mapping) and one.get("type") != "null"]
        if len(others) != 1:
            return schema
        schema = others[0]
    raise InvalidInput("The schema's references go round in a circle.")


def _target(root: Mapping[str, Any], reference: str) -> Any:
    target: Any = root
    for name in reference.split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or name not in target:
            raise InvalidInput(f"The schema refers to {reference!r}, which it does not hold.")
        target = target[name]
    return target


def missing_fields(found: JsonText, schema: Mapping[str, Any] | None, budget: Budget) -> list[str]:
    """Pointers of the properties that a schema names and the objects of a text lack, in the order of the schema."""
    if schema is None:
        return []
    present: set[str] = set()
    objects: list[str] = []
    for value in found.values:
        pointer = value.pointer
        budget.spend(1 + len(pointer))
        present.add(pointer)
        if value.kind == "object":
            objects.append(pointer)
    missing: list[str] = []
    for pointer in sorted(objects, key=lambda one: one.count("/")):
        properties = subschema(schema, pointer).get("properties")
        for name in properties if isinstance(properties, Mapping) else ():
            path = f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"
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
