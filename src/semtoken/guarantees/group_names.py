"""The names of groups of answers: the same for a value of a table, of JSON, of CSV and of Parquet."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from semtoken.support.files.strict_json import dump_json
from semtoken.support.inputs import text

MISSING = ("None", "nan", "NaT", "<NA>")
"""The missing values of Python, NumPy and pandas, as `str` writes them."""
MOST_NAMED = 3
"""The most groups that a sentence names."""
_WHOLE = re.compile(r"-?[0-9]+\.0")


@dataclass(frozen=True)
class Group:
    """A group of answers: those with one value of a field. `InvalidInputError` unless both are texts."""

    by: str
    """The field by which answers are grouped."""
    value: str
    """The name of the value (`group_name`)."""

    def __post_init__(self) -> None:
        text(self.by, "by")
        text(self.value, "value")

    def __str__(self) -> str:
        return f"{self.by} {self.value}"

    def unlike(self, others: Collection[str]) -> str:
        """The words for answers of other groups than this one, a calibrator's: "another group (language en) than the
        calibrator's (language de)".

        `others` are the names of these groups (`str` of a group).
        """
        named = ", ".join(islice(others, MOST_NAMED))
        rest = f" and {len(others) - MOST_NAMED:,} more" if len(others) > MOST_NAMED else ""
        groups = "another group" if len(others) == 1 else "other groups"
        return f"{groups} ({named}{rest}) than the calibrator's ({self})"


def group_name(value: Any) -> str:
    """The name of the group that answers with a value belong to; empty for None, NaN, and a text without characters.

    It is the value as JSON spells it, and a whole number has no decimals: `true`, `1`, `de`. So a file in CSV, where
    every value is a text (`True`, `1.0`), has the same groups as in JSON or in Parquet.
    """
    name = value.strip() if isinstance(value, str) else _in_json(value)
    if name.lower() in ("true", "false"):
        return name.lower()
    return name.removesuffix(".0") if _WHOLE.fullmatch(name) else name


def _in_json(value: Any) -> str:
    plain = value.item() if isinstance(value, np.generic) else value
    # A text of that spelling is a name: "nan" is the code of a language.
    if str(plain) in MISSING:
        return ""
    try:
        return dump_json(plain).decode("utf-8")
    except (TypeError, ValueError):  # a date, or infinity
        return str(plain).strip()
