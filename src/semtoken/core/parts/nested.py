"""Facts about the fields of a JSON answer, in the shape of its JSON: `{"day": 0.1, "lines": [{"sum": 0.9}]}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semtoken.core.parts.budget import Budget
from semtoken.core.parts.json_values import JsonPlace, find_json, unescaped_name


def nested(text: str, known: Mapping[str, Any]) -> Any:
    """The JSON of an answer with something in place of each of its values; None if it holds no JSON.

    `known` has what to put there by JSON Pointer (RFC 6901); None stands for what it lacks. It is the JSON of
    `semtoken.core.parts`, without the text or the code fence around it, and as far as it goes where it was cut off.
    Entries of `known` that the text lacks, such as fields that a schema asks for, are added to their objects.
    Where an object names a field twice, the last one counts, as for `json.loads`. `BudgetExceededError` if it takes too
    long.
    """
    budget = Budget(text)
    values = sorted(find_json(text, budget).values, key=lambda value: value.start)
    members = {value.pointer for value in values if value.kind == "key"}  # all other places are items of lists
    made: dict[str, Any] = {}

    def put(place: JsonPlace, content: Any) -> None:
        pointer = place.pointer()
        budget.spend(1 + len(pointer))
        made[pointer] = content
        if place.before is None:
            return
        around = place.before.pointer()
        if not isinstance(made.get(around), dict | list):  # a list or an object that was cut off
            put(place.before, {} if pointer in members else [])
        if isinstance(made[around], dict):
            made[around][place.name] = content
        else:
            made[around].append(content)

    for value in values:
        empty: dict[str, Any] = {"object": {}, "array": [], "key": None}  # a key's value may have been cut off
        put(value.place, empty[value.kind] if value.kind in empty else known.get(value.pointer))
    for pointer in [one for one in known if one not in made]:  # in their order, which a difference of sets would lose
        around, _, name = pointer.rpartition("/")
        if isinstance(made.get(around), dict):
            made[around][unescaped_name(name)] = known[pointer]
    return made.get("")
