"""Reading YAML of others, of a bounded size; it can name one value a million times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInput
from semtoken.files.safe_files import read_file
from semtoken.support.extras import require

MOST_VALUES = 1_000_000
"""Most values in a YAML file, with each one counted as often as the file names it."""


def read_yaml(path: Path) -> Any:
    """The content of a YAML file.

    Raises
    ------
    InvalidInput
        It cannot be read, is no YAML, or holds more than `MOST_VALUES` values.
    """
    yaml = require("yaml", extra="bench")
    text = read_file(path)
    try:
        found = yaml.safe_load(text)
        if _values(found, {}) > MOST_VALUES:
            raise InvalidInput(f"{path} holds more than {MOST_VALUES:,} values.")
    except InvalidInput:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not YAML: {' '.join(str(error).split())[:300]}.") from error
    return found


def _values(found: Any, known: dict[int, float]) -> float:
    """How many values there are, infinite where one holds itself; `known` are those counted before."""
    if not isinstance(found, dict | list):
        return 1
    if id(found) not in known:
        known[id(found)] = float("inf")
        inside = [*found, *found.values()] if isinstance(found, dict) else found
        known[id(found)] = 1 + sum(_values(one, known) for one in inside)
    return known[id(found)]
