"""The fields of a JSON answer, with what a JSON Schema says of them if there is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from semtoken.errors import InvalidInput
from semtoken.parts.figures import is_figure, is_reference
from semtoken.parts.json_values import JsonText, JsonValue
from semtoken.parts.records import Ending, Equality, Found

SHORT = 3
"""A string of so many words at most is a name or a label: spelled one way."""
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
    below: str = "",
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
        Only values whose pointer begins so.
    """
    for value in found.values:
        if not value.pointer.startswith(below):
            continue
        if value.kind == "key":
            if keys:
                yield Found(
                    value.start,
                    value.end,
                    "key",
                    "exact",
                    path=value.pointer,
                    value=value.value,
                    ending="quote",
                    call=call,
                )
        elif value.kind in ("object", "array"):
            if containers:
                yield from _container(found, value, call)
        else:
            yield _scalar(text, value, subschema(schema, value.pointer), call)


def _scalar(text: str, value: JsonValue, schema: Mapping[str, Any], call: int | None) -> Found:
    endings: dict[str, Ending] = {"string": "quote", "number": "number"}
    figure = value.kind == "number" or (value.kind == "string" and is_figure(text[value.start : value.end]))
    return Found(
        value.start,
        value.end,
        value.kind,
        equality_of(value, schema),
        path=value.pointer,
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


def _container(found: JsonText, value: JsonValue, call: int | None) -> Iterator[Found]:
    """An object or array over its scalars' tokens; of an array also how sure it was to end there."""
    inside = tuple(
        (scalar.start, scalar.end)
        for scalar in found.scalars
        if value.start <= scalar.start and scalar.end <= value.end and scalar.pointer.startswith(f"{value.pointer}/")
    )
    yield Found(value.start, value.end, value.kind, "mixed", path=value.pointer, members=inside, call=call)
    if value.kind == "array":
        end = value.start + 1 if value.last_item_end is None else value.last_item_end
        yield Found(end, end, "length", "exact", path=value.pointer, members=(), ending="array", call=call)


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
        if isinstance(prefix, list) and int(name) < len(prefix):
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
        others = [one for one in options or () if isinstance(one, Mapping) and one.get("type") != "null"]
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


def missing_fields(found: JsonText, schema: Mapping[str, Any] | None) -> list[str]:
    """Pointers of the properties that a schema names and the objects of a text lack, in the order of the schema."""
    if schema is None:
        return []
    present = {value.pointer for value in found.values}
    objects = [value.pointer for value in found.values if value.kind == "object"]
    missing: list[str] = []
    for pointer in sorted(objects, key=lambda one: one.count("/")):
        properties = subschema(schema, pointer).get("properties")
        for name in properties if isinstance(properties, Mapping) else ():
            path = f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"
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
