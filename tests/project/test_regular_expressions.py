"""No regular expression of the package takes much longer for a text that repeats itself than for half of that text.

A run that an expression can read in several ways takes time that doubles with every character, or grows with the square
of its length. Each expression gets runs of the characters that it names, of pairs of them, and what may stand
before them. The time is that of the thread, and it counts by how it grows.
"""

from __future__ import annotations

import ast
import functools
import importlib
import itertools
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import semtoken

parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
constants: Any = importlib.import_module("re._constants" if sys.version_info >= (3, 11) else "sre_constants")
PACKAGE = Path(semtoken.__file__).parent
SAMPLES = {
    constants.CATEGORY_SPACE: " \t\n\x1c",
    constants.CATEGORY_DIGIT: "07",
    constants.CATEGORY_WORD: "aZ_0",
    constants.CATEGORY_NOT_SPACE: "a;",
    constants.CATEGORY_NOT_DIGIT: "a ",
    constants.CATEGORY_NOT_WORD: " ;",
}
MOST_CHARACTERS = 5
METHODS = ("compile", "match", "search", "sub", "split", "fullmatch", "findall", "finditer")


def characters(parsed: Any) -> Iterator[str]:
    """Characters that an expression names, and some of each class, from the tree that Python makes of it."""
    for code, value in parsed:
        if code in (constants.LITERAL, constants.NOT_LITERAL):
            yield chr(value)
        elif code is constants.RANGE:
            yield from (chr(value[0]), chr(value[1]))
        elif code is constants.CATEGORY:
            yield from SAMPLES[value]
        elif code is constants.ANY:
            yield "a"
        elif code is constants.IN:
            yield from characters(value)
        elif code is constants.BRANCH:
            yield from itertools.chain.from_iterable(map(characters, value[1]))
        elif isinstance(value, list | tuple):
            parts = (part for part in value if isinstance(part, parser.SubPattern))
            yield from itertools.chain.from_iterable(map(characters, parts))


@functools.cache
def constants_of(path: Path) -> dict[str, Any]:
    """The constants of a module, expressions among them, without importing what it needs."""
    known: dict[str, Any] = {"re": re, "__builtins__": {"tuple": tuple, "frozenset": frozenset}}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("semtoken."):
            file = PACKAGE.joinpath(*str(node.module).split(".")[1:]).with_suffix(".py")
            names = [name.name for name in node.names if name.name.isupper() and file.is_file()]
            known |= {name: constants_of(file).get(name) for name in names}
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            with suppress(Exception):  # it needs more than constants
                scope = {**known}
                exec(compile(ast.Module([node], []), str(path), "exec"), scope)
                known = scope
    return known


Find = Callable[[Any], Any]
"""What the package does with an expression and a text."""


@functools.cache
def sources() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def use_of(name: str, pattern: re.Pattern[Any], module: Path) -> Find:
    """The use of a constant: from the start of a text, or from a place in it, everywhere; or anywhere in a text."""
    files = [module] if name.startswith("_") else sources()
    called = {use for path in files for use in re.findall(rf"\b{name}\.(\w+)\b", sources()[path])}
    anchored = called and called <= {"match", "fullmatch"}
    return pattern.match if anchored else all_of(pattern)


def all_of(pattern: re.Pattern[Any]) -> Find:
    return lambda text: list(pattern.finditer(text))


def expressions() -> dict[str, tuple[re.Pattern[Any], Find]]:
    """Every expression of the package, and how it is used: those of modules, and those that stand where they are."""
    found: dict[str, tuple[re.Pattern[Any], Find]] = {}
    for path, source in sources().items():
        if "import re\n" not in source:
            continue
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for node in ast.walk(ast.parse(source)):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in METHODS and ast.unparse(called.value) == "re":
                assert isinstance(node, ast.Call)
                if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str | bytes):
                    pattern = re.compile(node.args[0].value)
                    anchored = getattr(pattern, called.attr) if called.attr in ("match", "fullmatch") else None
                    if called.attr != "compile":  # those have a name
                        found[f"{name}:{node.lineno}"] = pattern, anchored or all_of(pattern)
        for key, value in constants_of(path).items():
            patterns = value if isinstance(value, tuple) else (value,)
            for i, pattern in enumerate(patterns):
                if isinstance(pattern, re.Pattern):
                    found[f"{name}.{key}[{i}]"] = pattern, use_of(key, pattern, path)
    return found


def seconds(find: Find, text: Any, times: int = 1) -> float:
    """The least time of the thread that finding takes."""
    taken = []
    for _ in range(times):
        begun = time.thread_time()
        find(text)
        taken.append(time.thread_time() - begun)
    return min(taken)


def grows_too_fast(find: Find, run: Callable[[int], Any], n: int) -> bool:
    """Whether a run takes more than three times as long when its length doubles, from `n` units on and once more."""
    if seconds(find, run(2 * n)) < 0.005:
        return False
    times = [seconds(find, run(size), times=5) for size in (n, 2 * n, 4 * n)]
    return times[1] > 3 * times[0] and times[2] > 3 * times[1]


def units(pattern: re.Pattern[Any]) -> tuple[list[str], list[str]]:
    """Texts that may stand before a run, and those that it repeats."""
    named = list(dict.fromkeys(characters(parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))))
    singles = named[:: -(-len(named) // MOST_CHARACTERS) or 1] or ["a"]
    return ["", *singles], [*singles, *map("".join, itertools.permutations(singles, 2))]


def hostile(pattern: re.Pattern[Any], find: Find) -> str | None:
    """A run whose time multiplies with every unit, or grows with the square of their number; None if there is none."""
    starts, repeated = units(pattern)
    for before, unit in itertools.product(starts, repeated):

        def run(n: int, before: str = before, unit: str = unit) -> Any:
            text = before + unit * n + "\N{BULLET}"  # which no expression knows
            return text.encode("utf-8", "replace") if isinstance(pattern.pattern, bytes) else text

        if any(seconds(find, run(n)) > 0.02 for n in range(10, 36, 2)):  # step by step, or it would never end
            return f"{before!r} + n * {unit!r}: multiplies with every unit"
        if len(unit) == 1 and any(grows_too_fast(find, run, n) for n in (250, 2000)):
            return f"{before!r} + n * {unit!r}: grows with the square"
    return None


def test_no_expression_reads_a_run_in_several_ways() -> None:
    known = expressions()
    assert len(known) > 60
    slow = {name: run for name, used in known.items() if (run := hostile(*used)) is not None}
    assert slow == {}


@pytest.mark.parametrize(
    "pattern", [r"\s*x", r"(?<=;)(?:[^\S\n]|[\x1c-\x1f])*=", r"(a|aa)+b", r"(?:\w|\d)*!", r"(\s*,?\s*)*x"]
)
def test_an_expression_with_several_ways_is_found(pattern: str) -> None:
    assert hostile(re.compile(pattern), all_of(re.compile(pattern))) is not None
