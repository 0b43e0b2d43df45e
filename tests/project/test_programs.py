"""Programs beside the package: whatever they import of it is there, since most of them run too long to be run here."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from semtoken.errors import MissingExtra
from tests.rows import each

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("benchmarks", "examples", "packaging", "research", "scripts")
    for path in (ROOT / folder).rglob("*.py")
)


@each("program", PROGRAMS)
def test_a_program_imports_names_that_are_there(program: str) -> None:
    missing = []
    for node in ast.walk(ast.parse((ROOT / program).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.level or (node.module or "").partition(".")[0] != "semtoken":
            continue
        of = node.module or ""
        if find_spec(of) is None:
            missing.append(of)
            continue
        try:
            module = import_module(of)
        except (MissingExtra, ModuleNotFoundError) as error:  # of a tool that is not installed here
            pytest.skip(str(error))
        names = (alias.name for alias in node.names)
        missing += [f"{of}.{name}" for name in names if not hasattr(module, name) and find_spec(f"{of}.{name}") is None]
    assert not missing
