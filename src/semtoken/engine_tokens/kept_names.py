"""Results kept for the names of tokens: the best tokens of many steps are few, so most names come again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Name = tuple[Any, ...]
"""The arguments that name a token: ids, strings, bytes, switches."""

NAMES_KEPT = 2**17
LONGEST_KEPT = 100
"""Characters or bytes of the longest part of a name that is kept; what upstreams send must not fill the memory."""


class KeptByName(dict[Name, T]):
    """What a function says of each name, so that a name that comes again costs one look into a dictionary.

    Parameters
    ----------
    function
        Gets the parts of a name as its arguments. Names with a long string are computed each time.
    """

    def __init__(self, function: Callable[..., T]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, name: Name) -> T:
        found = self._function(*name)
        if not any(isinstance(part, str | bytes | tuple) and len(part) > LONGEST_KEPT for part in name):
            if len(self) >= NAMES_KEPT:
                self.clear()  # simpler than to forget the oldest, and as good: the usual names are back at once
            self[name] = found
        return found
