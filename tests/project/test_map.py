"""Whoever looks for a thing in the package finds it: a package on the map, a module in the docstring of its package."""

from __future__ import annotations

import ast
import re
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


def test_every_package_is_in_the_table_and_says_what_is_in_it() -> None:
    page = (PACKAGE.parents[1] / "docs" / "development.md").read_text("utf-8")
    for package in (init.parent for init in PACKAGE.rglob("__init__.py") if init.parent != PACKAGE):
        name = str(package.relative_to(PACKAGE))
        assert "/" in name or f"| `{name}` |" in page, name
        assert len(opening(package).splitlines()) >= 3, f"{name}: say in 3 to 10 lines what is in it and how to enter"


@each("package", LISTS)
def test_a_package_that_lists_its_modules_lists_all_of_them_and_no_others(package: Path) -> None:
    named = set(re.findall(r"\b\w+\.py\b", opening(package)))
    inside = {path.name for path in package.rglob("*.py")}
    assert named - inside == set()
    assert {path.name for path in package.glob("*.py")} - named == {"__init__.py"}
