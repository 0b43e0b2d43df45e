"""How probabilities are read: of labels or words, and in how many orders of the options."""

from __future__ import annotations

from dataclasses import dataclass

from semtoken.choices import Reading
from semtoken.errors import InvalidInput
from semtoken.support.inputs import shown

DEFAULT_READING: Reading = "labels"
"""See docs/decisions.md for the measurement."""


@dataclass(frozen=True)
class ReadingOptions:
    """How probabilities are read.

    Raises
    ------
    InvalidInput
        Another reading than `labels` or `words`, or fewer than one order.
    """

    reading: Reading = DEFAULT_READING
    orders: int | None = 1
    """Orders of the options that are averaged; None: all."""

    def __post_init__(self) -> None:
        if not isinstance(self.reading, str) or self.reading not in ("labels", "words"):
            raise InvalidInput(f"'reading' must be 'labels' or 'words', got {shown(self.reading)}.")
        if self.orders is not None and (
            isinstance(self.orders, bool) or not isinstance(self.orders, int) or self.orders < 1
        ):
            raise InvalidInput(f"'orders' must be a whole number from 1 on, or all, got {shown(self.orders)}.")


READ_AS_USUAL = ReadingOptions()
