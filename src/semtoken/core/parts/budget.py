"""A limit on the work and time that the parts of one text may take, so that no text holds up anybody else.

Every finder reads a text once, so that its work grows as the text does. Its results may still grow faster: each field
carries its path, and an object within a hundred others is part of all of them.
"""

from __future__ import annotations

import math
import time
from typing import Any, NoReturn

from semtoken.errors import BudgetExceededError
from semtoken.support.inputs import real, whole

MAX_CHARACTERS = 500_000
"""Characters of the longest text in which parts are looked for by default."""
MAX_SECONDS = 10.0
"""The longest time that this may take by default."""
MAX_PARTS = 100_000
"""The most parts of one kind that a text may have by default."""
STEPS, STEPS_PER_CHARACTER = 1_000_000, 50
"""The steps of work that any text may take, and those for each of its characters in addition. A step is about a
hundred bytes or a microsecond."""


class Budget:
    """The steps and the time left for finding the parts of one text; `BudgetExceededError` if it is too long."""

    def __init__(self, text: str, *, max_characters: Any = MAX_CHARACTERS, max_seconds: Any = MAX_SECONDS) -> None:
        most = whole(max_characters, "max_characters", low=0)
        self._seconds = real(max_seconds, "max_seconds", low=0.0)
        self._end = time.monotonic() + self._seconds
        self._steps = STEPS + STEPS_PER_CHARACTER * len(text)
        if len(text) > most:
            raise BudgetExceededError(
                f"The text has {len(text):,} characters; parts are looked for in {most:,} at most."
            )

    def spend(self, steps: int = 1) -> None:
        """Subtract some steps; raise `BudgetExceededError` if no steps or no time are left."""
        self._steps -= steps
        if self._steps < 0:
            raise BudgetExceededError("Its parts are too many or too deeply nested for a text of this length.")
        if time.monotonic() > self._end:
            self.timed_out()

    @property
    def seconds_left(self) -> float:
        """Time that is left, in seconds; never 0."""
        return max(self._end - time.monotonic(), math.ulp(1.0))

    def timed_out(self) -> NoReturn:
        """Raise `BudgetExceededError`, saying that the time is over."""
        raise BudgetExceededError(f"Its parts could not be found within {self._seconds:g} seconds.")
