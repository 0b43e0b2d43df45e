"""The result of a campaign: how many cases were tried and survived."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import dataclass, field

SHOWN = 20


@dataclass
class Outcome:
    """The result of one campaign."""

    campaign: str
    what: str
    """The cases that were tried, in words for people."""
    tried: int = 0
    failures: list[str] = field(default_factory=list)
    """One line for each case that did not survive, with what is needed to try it again."""
    notes: list[str] = field(default_factory=list)

    @property
    def survived(self) -> int:
        """Cases that ended as they must."""
        return self.tried - len(self.failures)

    def count(self, fault: str | None, case: str = "") -> None:
        """Count one case; `fault` is what went wrong, None: nothing."""
        self.tried += 1
        if fault is not None:
            self.failures.append(f"{case}: {fault}" if case else fault)


def outcome_of(attack: Callable[[], Outcome], folder: str) -> Outcome:
    """Run a campaign, without logs and in a folder, since some functions save under odd names."""
    logging.disable(logging.CRITICAL)
    with chdir(folder):
        return attack()


def case_random(seed: int, campaign: str, number: int) -> random.Random:
    """The random numbers of one case."""
    return random.Random(f"{seed}/{campaign}/{number}")


def table(outcomes: Sequence[Outcome]) -> str:
    """All outcomes as lines of text, the failures below."""
    rows = [("campaign", "tried", "survived", "what")]
    rows += [(one.campaign, f"{one.tried:,}", f"{one.survived:,}", one.what) for one in outcomes]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        f"{name:<{widths[0]}}  {tried:>{widths[1]}}  {survived:>{widths[2]}}  {what}"
        for name, tried, survived, what in rows
    ]
    for one in outcomes:
        lines += [f"{one.campaign}: {note}" for note in one.notes]
        lines += [f"FAILED {one.campaign}: {failure}" for failure in one.failures[:SHOWN]]
        if len(one.failures) > SHOWN:
            lines.append(f"FAILED {one.campaign}: and {len(one.failures) - SHOWN:,} more")
    return "\n".join(lines)
