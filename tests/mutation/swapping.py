"""Changed code in the functions of a package that is loaded already: no change needs a process of its own."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FunctionType

Functions = dict[tuple[str, str], list[FunctionType]]
"""By file and qualified name: a decorator or a closure may have made several of one text."""

IS_FUNCTION = 0x1
"""The flag of code with places for its own names (CO_OPTIMIZED), which modules and classes lack."""


def functions_in(source: str) -> Functions:
    """All functions of files below a folder that are alive, wherever they are kept."""
    gc.unfreeze()
    found: Functions = defaultdict(list)
    for value in gc.get_objects():
        if type(value) is FunctionType and value.__code__.co_filename.startswith(source):
            found[value.__code__.co_filename, value.__code__.co_qualname].append(value)
    return found


def swap(file: str, before: str, after: str, functions: Functions) -> bool:
    """Give the functions of a file the code of its changed text, as long as this process lives.

    False, and nothing is done, where more than the code of functions changes (constants of a module, fields of a
    class, default values) or where the functions are not alive as such, but compiled. What was computed with a function
    before, such as a table made at import, stays as it was.
    """
    pairs = _changed(compile(before, file, "exec"), compile(after, file, "exec"))
    if not pairs or "compile_and_keep" in before:
        return False
    done: list[tuple[FunctionType, CodeType]] = []
    for old, new in pairs:
        alive = [one for one in functions.get((file, old.co_qualname), ()) if _of(one.__code__) == _of(old)]
        if not alive and not any(old in _codes(outer) for outer, _ in pairs):
            return False
        done += [(one, new) for one in alive]
    for function, new in done:
        function.__code__ = new
    return True


def _changed(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """The functions whose code differs, the outer before the inner; None if a module or a class does."""
    if _of(old) == _of(new):
        return []
    inner = [_changed(a, b) for a, b in zip(_codes_in(old), _codes_in(new), strict=True)]
    pairs = [pair for several in inner if several is not None for pair in several]
    if old.co_flags & IS_FUNCTION:
        return [(old, new), *pairs]
    return None if None in inner or _own(old) != _own(new) else pairs


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    return (value for value in code.co_consts if isinstance(value, CodeType))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """All inner ones."""
    for inner in _codes_in(code):
        yield inner
        yield from _codes(inner)


def _own(code: CodeType) -> tuple[object, ...]:
    """The work of some code, without its lines and the functions in it."""
    constants = [_constant(value) for value in code.co_consts if not isinstance(value, CodeType)]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


def _of(code: CodeType) -> tuple[object, ...]:
    """The same with the functions in it."""
    return _own(code), [_of(inner) for inner in _codes_in(code)]


def _constant(value: object) -> object:
    """With its type, since 1, 1.0 and True are equal, and without the order of a set."""
    if isinstance(value, tuple | frozenset):
        parts = map(_constant, value)
        return type(value), sorted(parts, key=repr) if isinstance(value, frozenset) else [*parts]
    return type(value), repr(value)
