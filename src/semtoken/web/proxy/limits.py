"""How many log-probabilities an upstream gives, learned from what it refuses."""

from __future__ import annotations

import time
from collections.abc import Callable

REMEMBERED_SECONDS = 300.0
MOST_FORMS = 1000


class LearnedLimits:
    """The most log-probabilities a token, for each kind of answer and form of request; forgotten after five minutes.

    Parameters
    ----------
    wanted
        What to ask for where nothing is known.
    clock
        Seconds that only go up.
    """

    def __init__(self, wanted: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._wanted = wanted
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[int, float]] = {}

    def __len__(self) -> int:
        now = self._clock()
        return sum(now < until for _, until in self._known.values())

    def most(self, endpoint: str, form: str) -> int:
        """How many to ask for; 0: the upstream refuses to give any."""
        most, until = self._known.get((endpoint, form), (self._wanted, 0.0))
        return most if self._clock() < until else self._wanted

    def learn(self, endpoint: str, form: str, most: int) -> None:
        """The upstream refused to give more than `most` to a request of this form."""
        now = self._clock()
        if len(self._known) >= MOST_FORMS:  # they come from clients: keep only what still counts
            self._known = {key: known for key, known in self._known.items() if now < known[1]}
        if len(self._known) < MOST_FORMS or (endpoint, form) in self._known:
            self._known[endpoint, form] = (most, now + REMEMBERED_SECONDS)
