"""The pace of reading: how much of waiting prompts is read between two steps of the answers that are being written."""

from __future__ import annotations

from collections import deque
from statistics import median

WHOLE = 64
"""Prompts of which at most this many tokens are to be read are read whole and together: in pieces, many of them would
take longer."""
FEWEST = 4
"""The fewest tokens of a longer prompt that are read before a step, however slow that is: whoever waits must get on."""
MOST = 512
"""The most tokens of prompts that are read in one pass: a pass over more is hardly faster for each of them, and whoever
comes meanwhile waits for all of it."""
SLOW, FAST = 1.5, 0.75
"""Bounds of the time that reading takes, in units of a decoding step. Above the first, half as much is read before the
next step; below the second, twice as much, which takes at most twice as long. So a token usually comes at most 2.5
steps after the one before it, and within 3 if a piece takes a third longer than usual.
"""
STEPS = 9
"""The number of decoding steps that are remembered; the median of their times is what a step takes."""


class Pace:
    """Limits how much of waiting prompts is read before a step, so that running answers usually wait no longer than the
    time of a step and a half; where more answers wait than are being written, longer in the same proportion.
    """

    def __init__(self) -> None:
        self._tokens = FEWEST
        self._steps: deque[float] = deque(maxlen=STEPS)

    def budget(self, waiting: int, running: int) -> int:
        """The number of tokens of prompts to read before the next step, given the numbers of answers that wait and that
        are being written.
        """
        return min(MOST, int(self._tokens * _share(waiting, running))) if running else MOST

    def note_step(self, seconds: float) -> None:
        """Record how many seconds a decoding step took in which nothing of a prompt was read."""
        self._steps.append(seconds)

    def note_reading(self, seconds: float, read: int, waiting: int, running: int) -> None:
        """Record how many seconds it took to read this many tokens of prompts."""
        if not read or not running or not self._steps:
            return
        share = _share(waiting, running)
        ratio = seconds / median(self._steps) / share
        if ratio > SLOW:
            self._tokens = max(FEWEST, self._tokens // 2)
        elif ratio < FAST and read >= self._tokens * share / 2:
            self._tokens = min(MOST, self._tokens * 2)


def _share(waiting: int, running: int) -> float:
    """The number of waiting answers for each that is being written, at least 1."""
    return max(1.0, waiting / running)


def has_room(tokens: int, before: int, budget: int) -> bool:
    """True if a prompt of this many tokens is read whole before the next step, after `before` tokens of others."""
    return before + tokens <= (MOST if tokens <= WHOLE else budget)


def is_long(tokens: int, budget: int) -> bool:
    """Return True if a prompt of this many tokens is read in pieces, so that running answers do not have to wait."""
    return tokens > max(WHOLE, budget)
