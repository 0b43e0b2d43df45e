"""Our modules for tools that are not installed, imported over bare stand-ins for what they take from them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from semtoken.support.almanac import load_questions

CLOSE = 1e-4
QUESTIONS = {question.id: question for question in load_questions("test")}


class Fields(SimpleNamespace):
    """Something of a tool that keeps what it is made with, and can do what the tools' own records can."""

    def model_copy(self, *, update: dict[str, Any]) -> Fields:
        return Fields(**{**vars(self), **update})

    def model_dump(self) -> dict[str, Any]:
        return dict(vars(self))


def same(*_: Any, **__: Any) -> Any:
    """A decorator that leaves its function as it is."""
    return lambda decorated: decorated


def assert_same(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Two backends over one model gave the same answers, with all that is computed of them."""
    for one, other in zip(found, expected, strict=True):
        assert (one.token_ids, one.text, one.truncated) == (other.token_ids, other.text, other.truncated)
        assert one.log_confidence == pytest.approx(other.log_confidence, abs=CLOSE)
        probabilities = [token.log_probability for token in other.tokens]
        assert [token.log_probability for token in one.tokens] == pytest.approx(probabilities, abs=CLOSE)
        assert one.sequence_uncertainty_interval == pytest.approx([other.sequence_uncertainty] * 2, abs=CLOSE)


@contextmanager
def standing_in(**members: dict[str, Any]) -> Iterator[None]:
    """In which the tool's modules, written with `__` for a dot, are there and hold these names.

    On the way out no other module is touched: torch, which may have been loaded meanwhile, cannot be loaded twice.
    """
    bare: dict[str, ModuleType] = {}
    for name, names in members.items():
        parts = name.split("__")
        for k in range(1, len(parts) + 1):
            bare.setdefault(above := ".".join(parts[:k]), ModuleType(above))
        bare[".".join(parts)].__dict__.update(names)
    before = {module: sys.modules.pop(module, None) for module in bare}
    sys.modules.update(bare)
    try:
        yield
    finally:
        for module, found in before.items():
            sys.modules.pop(module)
            if found is not None:
                sys.modules[module] = found


@contextmanager
def imported(ours: str, **members: dict[str, Any]) -> Iterator[ModuleType]:
    """Our module of this name, which imports the tool as it is imported, over stand-ins for the tool's modules."""
    package, _, name = ours.rpartition(".")
    before = sys.modules.pop(ours, None)
    with standing_in(**members):
        try:
            yield import_module(ours)
        finally:
            sys.modules.pop(ours, None)
            vars(import_module(package)).pop(name, None)
            if before is not None:
                sys.modules[ours] = before
                setattr(import_module(package), name, before)
