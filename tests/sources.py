"""The source of the package, as the tests read it that look for names, imports or texts in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import semtoken

SOURCE = Path(semtoken.__file__).parent


@cache
def texts() -> dict[Path, str]:
    """The text of each module. To search it takes milliseconds, where to parse all of them takes seconds."""
    return {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(texts()[path])


def trees(pattern: str) -> Iterator[tuple[Path, ast.Module]]:
    """The modules whose text has a match of a regular expression, parsed."""
    return ((path, _tree(path)) for path, text in texts().items() if re.search(pattern, text))
