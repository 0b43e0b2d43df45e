"""Results kept for the names of tokens: the best tokens of many steps are few, so most names come again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

NAMES_KEPT = 2**17
LONGEST_KEPT = 100
"""Characters or bytes of the longest name that is kept; what upstreams send must not fill the memory."""


def kept_by_name(function: Callable[P, T]) -> Callable[P, T]:
    """The function with its results kept for arguments without a long string. The arguments come by position."""
    kept = lru_cache(maxsize=NAMES_KEPT)(function)

    @wraps(function)
    def found(*args: P.args, **kwargs: P.kwargs) -> T:
        for value in args:
            if isinstance(value, (str, bytes)) and len(value) > LONGEST_KEPT:
                return function(*args, **kwargs)
        return kept(*args, **kwargs)  # type: ignore[arg-type]  # ids, strings and bytes, all of which can be hashed

    return found
