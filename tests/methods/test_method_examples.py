"""The examples in the docstrings of methods and metrics are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

from semtoken import methods, metrics
from tests.rows import each

MODULES = [
    f"{package.__name__}.{module.name}"
    for package in (methods, metrics)
    for module in pkgutil.iter_modules(package.__path__)
]


@each("name", MODULES)
def test_docstring_examples(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module, raise_on_error=False).failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) >= 8
