"""Whoever looks for a thing in the package finds it: a class by its name, a module in the docstring of its package."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import semtoken
from tests.rows import each

PACKAGE = Path(semtoken.__file__).parent


def opening(package: Path) -> str:
    """The docstring of a package."""
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""


LISTED = re.compile(r"^\w+\.py  ", re.MULTILINE)
"""The beginning of a line on a module, by which a docstring is a list of all of them."""
LISTS = sorted(file.parent for file in PACKAGE.rglob("__init__.py") if LISTED.search(opening(file.parent)))


def test_no_two_classes_have_one_name() -> None:
    trees = [ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")]
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []


@each("package", LISTS)
def test_a_package_that_lists_its_modules_lists_all_of_them_and_no_others(package: Path) -> None:
    named = set(re.findall(r"\b\w+\.py\b", opening(package)))
    inside = {path.name for path in package.rglob("*.py")}
    assert named - inside == set()
    assert {path.name for path in package.glob("*.py")} - named == {"__init__.py"}
