"""Odd arguments: `Predicate`, `Choice`, `Score` and `decide` answer, or raise an error of this package with words."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from semtoken import ScoredModel
from semtoken.decisions import Choice, Option, Predicate, Score
from semtoken.errors import InvalidInputError, SemtokenError
from tests.decisions.models import tiny
from tests.hostile import forms
from tests.rows import each


class Unspeakable:
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


LISTS: dict[str, Callable[[], Any]] = {
    "twice": lambda: ["a", "a"],
    "number inside": lambda: [1, 1.0],
    "nothing inside": lambda: [None],
    "list inside": lambda: ["a", ["b"]],
    "surrogate inside": lambda: ["\ud800", "b"],
    "unspeakable": Unspeakable,
    "unspeakable inside": lambda: [Unspeakable(), "b"],
    "unhashable value": lambda: [Option([], "a"), "b"],  # type: ignore[arg-type]
    "no name": lambda: [Option("a", None), "b"],  # type: ignore[arg-type]
    "set": lambda: {"a", "b"},
    "array of texts": lambda: np.array(["a", "b"]),
    "too many": lambda: [str(i) for i in range(256)],
    "endless": lambda: iter(lambda: "a", None),
    "ellipsis": lambda: ...,
}


def itself(value: Any) -> Any:
    return value


ODD: dict[str, Callable[[], Any]] = LISTS | {
    f"{n}: {one!r:.40}": partial(itself, one) for n, one in enumerate(forms.ODD)
}
"""Those of the campaign `functions`, and what is odd in lists of options."""
MADE: dict[str, Callable[[Any], Any]] = {
    "Predicate": Predicate,
    "Predicate, when": lambda odd: Predicate("x", odd, odd),
    "Predicate, name": lambda odd: Predicate("x", name=odd),
    "Choice": lambda odd: Choice(odd, ["a", "b"]),
    "choices": lambda odd: Choice("x", odd),
    "Score": lambda odd: Score(odd, ["a", "b"]),
    "levels": lambda odd: Score("x", odd),
    "value": lambda odd: Choice("x", [Option(odd, "a"), "b"]),
    "option": lambda odd: Choice("x", [Option("a", odd), "b"]),
    "description": lambda odd: Score("x", [Option("a", "a", odd), "b"]),
}
ASKED: dict[str, Callable[[ScoredModel, Any], Any]] = {
    "questions": lambda stc, odd: stc.decide("s", odd),
    "question": lambda stc, odd: stc.decide("s", [odd]),
    "named": lambda stc, odd: stc.decide("s", {"q": odd}),
    "reading": lambda stc, odd: stc.decide("s", [Predicate("x")], reading=odd),
    "orders": lambda stc, odd: stc.decide("s", [Predicate("x")], orders=odd),
    "type": lambda stc, odd: stc.decide("s", [{"type": odd, "instructions": "x"}]),
    "criteria": lambda stc, odd: stc.decide("s", {"q": {"type": "choice", "criteria": odd}}),
    "wire choices": lambda stc, odd: stc.decide("s", [{"type": "choice", "instructions": "x", "choices": odd}]),
}
WIRE = {"type", "criteria", "wire choices"}
"""Read by Pydantic, which lets an object without a text only be heard of on standard error."""


def outcome(call: Callable[[], Any]) -> str:
    try:
        call()
    except SemtokenError as error:
        assert len(str(error)) > 15, error
        return "refused"
    return "made"


@each("what", MADE)
def test_questions(what: str) -> None:
    found = {name: outcome(lambda odd=odd: MADE[what](odd())) for name, odd in ODD.items()}  # type: ignore[misc]
    assert "refused" in found.values()


@each("what", ASKED)
def test_decide(what: str) -> None:
    stc = ScoredModel(tiny())
    left_out = {"endless"} | ({"unspeakable", "unspeakable inside"} if what in WIRE else set())
    odd = {name: make for name, make in ODD.items() if name not in left_out}
    found = {name: outcome(lambda make=make: ASKED[what](stc, make())) for name, make in odd.items()}  # type: ignore[misc]
    assert "refused" in found.values()


def test_what_has_an_order_is_a_list() -> None:
    assert Choice("x", (one for one in "ab")) == Choice("x", ["a", "b"])  # type: ignore[arg-type]
    assert [one.value for one in Choice("x", [True, "true"]).options] == [True, "true"]
    with pytest.raises(InvalidInputError, match="needs a list of options; got set"):
        Choice("x", {"a", "b"})  # type: ignore[arg-type]
