"""The functions and classes of a source text."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    """One function or class."""

    name: str
    """With the classes and functions around it: `Class.function`."""
    lines: range
    """The lines of its body; none for a class, which runs when its file is imported."""
    text: str
    """With its name and its decorators."""


def functions(source: str) -> list[Function]:
    """All of them, in the order of the text."""
    lines = source.splitlines()
    found: list[Function] = []

    def visit(node: ast.AST, names: tuple[str, ...]) -> None:
        for one in ast.iter_child_nodes(node):
            inner = names
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = (*names, one.name)
                first = min(part.lineno for part in [one, *one.decorator_list])
                end = one.end_lineno or one.lineno
                body = range(0) if isinstance(one, ast.ClassDef) else range(one.body[0].lineno, end + 1)
                found.append(Function(".".join(inner), body, "\n".join(lines[first - 1 : end])))
            visit(one, inner)

    visit(ast.parse(source), ())
    return found
