"""The functions and classes of a source text."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    """One function or class."""

    name: str
    """With the classes and functions around it: `Class.function`."""
    line: int
    """Its first line, that of a decorator where it has one."""
    text: str


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
                found.append(Function(".".join(inner), first, "\n".join(lines[first - 1 : one.end_lineno])))
            visit(one, inner)

    visit(ast.parse(source), ())
    return found
