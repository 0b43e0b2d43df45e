"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import semtoken
from tests.rows import each

PACKAGE = Path(semtoken.__file__).parent
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    # Most integrations need a host that is not installed here.
    if "integrations" not in path.parts and ">>> " in path.read_text(encoding="utf-8")
]


@each("name", MODULES)
def test_docstring_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    assert len(MODULES) >= 30
