"""Our modules for hosts that are not installed, imported over bare stand-ins for what they take from their host."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

from semtoken.support.almanac import load_questions

CLOSE = 1e-4
QUESTIONS = {question.id: question for question in load_questions("test")}


class Fields(SimpleNamespace):
    """Something of a host that keeps what it is made with, and can do what the hosts' own records can."""

    def model_copy(self, *, update: dict[str, Any]) -> Fields:
        return Fields(**{**vars(self), **update})

    def model_dump(self) -> dict[str, Any]:
        return dict(vars(self))


def same(*_: Any, **__: Any) -> Any:
    """A decorator that leaves its function as it is."""
    return lambda decorated: decorated


@contextmanager
def imported(name: str, **members: dict[str, Any]) -> Iterator[ModuleType]:
    """`semtoken.integrations.NAME`, where the host's modules, written with `__` for a dot, hold these names."""
    ours = f"semtoken.integrations.{name}"
    wanted = {module.replace("__", "."): names for module, names in members.items()}
    bare: dict[str, ModuleType] = {}
    for module, names in wanted.items():
        parts = module.split(".")
        for k in range(1, len(parts) + 1):
            bare.setdefault(above := ".".join(parts[:k]), ModuleType(above))
        bare[module].__dict__.update(names)
    before = {module: sys.modules.get(module) for module in (ours, *bare)}
    sys.modules.pop(ours, None)
    sys.modules.update(bare)
    try:
        yield import_module(ours)
    finally:  # of these names only: libraries that are loaded meanwhile, such as torch, cannot be loaded twice
        for module, found in before.items():
            sys.modules.pop(module, None)
            if found is not None:
                sys.modules[module] = found
