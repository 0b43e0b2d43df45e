"""All small wrong changes of a source text: comparisons, signs, constants, and arguments that change places."""

from __future__ import annotations

import ast
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


@dataclass(frozen=True)
class Change:
    """One wrong change of a source text."""

    line: int
    before: str
    after: str
    source: str
    """The whole text with the change in it; comments are lost."""


def count(source: str) -> int:
    """How many changes there are."""
    return sum(map(_ways, _nodes(ast.parse(source))))


def change_number(source: str, number: int) -> Change:
    """One of the changes, in the order of the text."""
    tree = ast.parse(source)
    for node in _nodes(tree):
        if number < _ways(node):
            before = ast.unparse(node)
            _change(node, number)
            return Change(getattr(node, "lineno", 0), before, ast.unparse(node), ast.unparse(tree))
        number -= _ways(node)
    raise IndexError(number)


def _nodes(tree: ast.AST) -> list[ast.AST]:
    """The nodes in a fixed order, without annotations and the texts of messages."""
    found: list[ast.AST] = []

    def visit(node: ast.AST) -> None:
        found.append(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns") or isinstance(node, ast.Raise | ast.JoinedStr):
                continue
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST):
                    visit(one)

    visit(tree)
    return found


def _ways(node: ast.AST) -> int:
    match node:
        case ast.Compare(ops=[op]):
            return int(type(op) in COMPARED)
        case ast.BinOp(op=op):
            return int(type(op) in REPLACED)
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            return 1
        case ast.Constant(value=bool()):
            return 1
        case ast.Constant(value=int() | float()):
            return 2
        case ast.Call(args=[first, second, *_]) if not isinstance(first, ast.Starred) and not isinstance(
            second, ast.Starred
        ):
            return int(ast.dump(first) != ast.dump(second))
    return 0


def _change(node: ast.AST, way: int) -> None:
    match node:
        case ast.Compare(ops=[op]):
            node.ops = [COMPARED[type(op)]()]
        case ast.BinOp(op=op):
            node.op = REPLACED[type(op)]()
        case ast.UnaryOp(op=ast.USub()):
            node.op = ast.UAdd()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            node.operand = ast.UnaryOp(ast.Not(), operand)
        case ast.Constant(value=bool() as value):
            node.value = not value
        case ast.Constant(value=int() as value):
            node.value = value + (1 if way else -1)
        case ast.Constant(value=float() as value):
            node.value = value * (1.2 if way else 0.8)
        case ast.Call(args=args):
            args[0], args[1] = args[1], args[0]
