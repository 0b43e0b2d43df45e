"""Machine code that numba keeps from one process to the next, after an upgrade in place as well."""

from __future__ import annotations

from typing import Any


def kept_safely(dispatcher: Any) -> Any:
    """A compiled function whose kept machine code is made anew where numba cannot read it.

    numba keeps, beside the code, the types that a function was compiled for, and names their classes by their modules.
    It reads these before it looks whether the source is newer. Where a class has moved since, every call would raise
    `ModuleNotFoundError` or `AttributeError` until somebody deletes the files.

    Parameters
    ----------
    dispatcher
        What `numba.njit(cache=True)` gives.
    """
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    read = getattr(file, "_load_index", None)
    if file is None or read is None:  # another release of numba, or one that keeps nothing here
        return dispatcher

    def read_index() -> dict[Any, Any]:
        try:
            found: dict[Any, Any] = read()
        except Exception:  # whatever reading names that are gone, or half a file, raises
            return {}
        return found

    file._load_index = read_index
    return dispatcher
