"""One test over all rows of a table, for rows that take less time than a test of their own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def each(
    names: str | Sequence[str], rows: Iterable[Any], ids: Sequence[str] | Callable[[Any], Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a test that is called with every row; at the end it fails with all rows that failed, each by its name.

    It is written as `pytest.mark.parametrize` is. A test of pytest's own for each row costs 6 ms, which is more than
    most rows need. Fixtures are shared by the rows, so this is for tests that change none of theirs.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    title = ", ".join(arguments)
    table = [row if len(arguments) > 1 else (row,) for row in rows]

    def name(index: int) -> str:
        if callable(ids):
            return "-".join(str(ids(value)) for value in table[index])
        return ids[index] if ids is not None else repr(table[index])[:200]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def every_row(*args: Any, **fixtures: Any) -> None:
            assert table, f"No rows of {title}"
            failed: list[BaseException] = []
            skipped: list[str] = []
            for index, row in enumerate(table):
                try:
                    test(*args, **fixtures, **dict(zip(arguments, row, strict=True)))
                except pytest.skip.Exception as reason:  # the other rows are tried all the same
                    skipped.append(f"{name(index)}: {reason}")
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"This is row {index} of {title}: {name(index)}")
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(table)} rows of {title} fail", failed)
            if skipped:
                pytest.skip(f"{len(skipped)} of {len(table)} rows of {title} were left out; {skipped[0]}")

        kept = [parameter for parameter in signature.parameters.values() if parameter.name not in arguments]
        every_row.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return every_row

    return decorate
