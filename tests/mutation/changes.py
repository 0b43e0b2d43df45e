"""All small wrong changes of a source text: comparisons, signs, constants, and arguments that change places."""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
REPLACED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
COMMUTATIVE = {"max", "min", "maximum", "minimum", "logaddexp", "union", "where"}
"""Functions that take their first arguments in any order, as `where` of SQL does."""
CHECKS = {"strict", "timeout", "check", "exist_ok", "parents", "missing_ok"}
"""Named arguments that change no number."""


@dataclass(frozen=True)
class Change:
    """One wrong change of a source text."""

    line: int
    place: tuple[str, ...]
    """Names of the classes and functions around it, from the outside; at a module's level, the name that is set."""
    before: str
    source: str
    """The whole text with the change in it."""

    def diff(self, file: str) -> str:
        """The lines that change."""
        lines = difflib.unified_diff(self.before.splitlines(), self.source.splitlines(), n=0, lineterm="")
        return "\n".join([f"{file}:{self.line} {'.'.join(self.place)}", *list(lines)[3:]])


def changes(source: str) -> list[Change]:
    """Every change, in the order of the text."""
    return [
        Change(node.lineno, place, source, _replaced(source, node, changed))
        for node, place in _nodes(ast.parse(source), ())
        for changed in _changed(node)
    ]


def _nodes(node: ast.AST, place: tuple[str, ...]) -> Iterator[tuple[ast.expr | ast.stmt, tuple[str, ...]]]:
    """The nodes and where they stand, without annotations, decorators, the texts of messages and what
    changes no number.
    """
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            place = (*place, node.name)
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if not place:
            place = (name,)
    if isinstance(node, ast.expr | ast.stmt):
        yield node, place
    if isinstance(node, ast.Raise | ast.JoinedStr) or (isinstance(node, ast.keyword) and node.arg in CHECKS):
        return
    if isinstance(node, ast.Call) and _last_name(node.func) in ("sleep", "String"):
        return
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST):
                    yield from _nodes(one, place)


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """The node with each change of its own."""
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                if type(op) in COMPARED:
                    yield _with(node, ops=[*ops[:place], COMPARED[type(op)](), *ops[place + 1 :]])
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in REPLACED:
            yield _with(node, op=REPLACED[type(op)]())
        case ast.UnaryOp(op=ast.USub()):
            yield _with(node, op=ast.UAdd())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield from (ast.Constant(value - 1), ast.Constant(value + 1))
        case ast.Constant(value=float() as value):
            yield from (ast.Constant(value * 0.8 if value else -0.1), ast.Constant(value * 1.2 if value else 0.1))
        case ast.Call(func=called, args=[first, second, *others]) if _last_name(called) not in COMMUTATIVE:
            starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
            if not starred and ast.dump(first) != ast.dump(second):
                yield _with(node, args=[second, first, *others])


def _last_name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _replaced(source: str, node: ast.expr | ast.stmt, changed: ast.AST) -> str:
    """The text with a node in place of another; the rest, comments too, stays as it is."""
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    assert node.end_lineno is not None
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    behind = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    text = ast.unparse(changed)
    return (before + (f"({text})" if isinstance(changed, ast.expr) else text).encode() + behind).decode()
