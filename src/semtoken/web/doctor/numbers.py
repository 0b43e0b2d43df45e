"""The numbers of two replies compared: raw or processed, repeated or impossible entries, how exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from semtoken.core.engine_tokens import TopStep
from semtoken.core.engine_tokens.precision import IN_FULL, Precision
from semtoken.core.engine_tokens.top_steps import Name
from semtoken.core.results import Distribution

SENTINELS = -1000.0  # -9999 and the like are no log-probabilities
SAME = 0.02  # log-probabilities of two runs of one server differ by less
ABOVE_ONE = 1.001  # what the probabilities of a list may sum to

TOO_FEW = "too few alternatives to compare"


@dataclass(frozen=True)
class Numbers:
    """The properties of the lists in two replies to one prompt, at temperatures 1 and 0.5."""

    distribution: Distribution = "unknown"
    reason: str = "there are no log-probabilities"
    repeated: int = 0
    """Entries that are named as another one of their list is."""
    impossible: int = 0
    """Entries without a probability: minus infinity, or a number that stands for it."""
    unlisted: int = 0
    """Chosen tokens with the log-probability 0 and no list, where others have one."""
    only_zeros: bool = False
    """True if every chosen token is said to be certain."""
    above_one: bool = False
    """True if the probabilities of a list sum to more than 1."""
    off: float | None = None
    """The largest error of a number of -1 that comes from its rounding, in nats; None if it is written in full."""
    apart: float | None = None
    """The largest difference of the same raw number between the two replies, in nats; None if none can be compared."""
    problem: str | None = None
    """The reason why one of the two answers has no score, if its lists are at fault."""


def judge(at_1: Sequence[TopStep], at_half: Sequence[TopStep]) -> Numbers:
    """Compare the steps of one prompt's answers at temperatures 1 and 0.5, as far as both begin alike."""
    steps = (*at_1, *at_half)
    shared = [(_by_name(a), _by_name(b)) for a, b in _while_alike(at_1, at_half)]
    verdicts = [compare_temperatures(a, b) for a, b in shared]
    known = [verdict for verdict in verdicts if verdict[0] != "unknown"]
    counted = known or verdicts or [("unknown", "no tokens came")]
    mixed: tuple[Distribution, str] = ("unknown", "some tokens follow the temperature, others not")
    distribution, reason = counted[0] if len({kind for kind, _ in counted}) == 1 else mixed
    gaps = [abs(a[name] - b[name]) for a, b in shared for name in a.keys() & b.keys()]
    return Numbers(
        distribution,
        reason,
        repeated=sum(len(step.names) - 1 - len(set(step.names[1:])) for step in steps),
        impossible=sum(value <= SENTINELS for step in steps for value in step.log_probs[1:]),
        unlisted=sum(step.log_probs == (0.0,) for step in steps) if any(step.top for step in steps) else 0,
        only_zeros=only_zeros(steps),
        above_one=any(
            math.fsum(math.exp(min(value, 1.0)) for value in step.log_probs[1:]) > ABOVE_ONE for step in steps
        ),
        off=_off(steps),
        apart=max(gaps) if gaps and distribution == "raw" else None,
    )


def _while_alike(one: Sequence[TopStep], other: Sequence[TopStep]) -> list[tuple[TopStep, TopStep]]:
    """Pairs of steps that follow the same tokens: up to the first that were chosen differently, and these."""
    pairs: list[tuple[TopStep, TopStep]] = []
    for a, b in zip(one, other, strict=False):
        pairs.append((a, b))
        if a.names[0] != b.names[0]:
            break
    return pairs


def _by_name(step: TopStep) -> dict[Name, float]:
    """Log-probabilities of the listed tokens; sentinels and names that stand for several tokens are left out."""
    names = step.names[1:]
    pairs = zip(names, step.log_probs[1:], strict=True)
    return {name: value for name, value in pairs if value > SENTINELS and names.count(name) == 1}


def _off(steps: Sequence[TopStep]) -> float | None:
    precision = Precision()
    for step in steps:
        precision.add(step.log_probs)
    rounding = precision.rounding
    if rounding == IN_FULL:
        return None
    return rounding.off + rounding.relative + (10.0 ** (1 - rounding.digits) if rounding.digits is not None else 0.0)


def only_zeros(steps: Sequence[TopStep]) -> bool:
    """Return True if all tokens have a log-probability of 0 and their alternatives minus infinity: they say nothing."""
    others = (token for step in steps for token in step.top if token.log_prob != step.chosen.log_prob)
    certain = all(step.chosen.log_prob == 0 for step in steps)
    return bool(steps) and certain and all(token.log_prob < SENTINELS for token in others)


def compare_temperatures(at_1: dict[Name, float], at_half: dict[Name, float]) -> tuple[Distribution, str]:
    """Conclude from the same step at temperatures 1 and 0.5 which distribution the server shows.

    Division by the temperature makes the difference of any two log-probabilities twice as large at 0.5.
    """
    shared = sorted(set(at_1) & set(at_half), key=lambda name: -at_1[name])
    if len(shared) < 2:
        return "unknown", TOO_FEW
    if all(abs(at_1[name] - at_half[name]) < SAME for name in shared):
        return "raw", "equal at temperatures 1 and 0.5"
    pairs = list(combinations(shared, 2))
    scaled = all(
        math.isclose(at_half[a] - at_half[b], 2 * (at_1[a] - at_1[b]), rel_tol=SAME, abs_tol=2 * SAME) for a, b in pairs
    )
    if scaled:
        return "processed", "divided by the temperature"
    return "unknown", "different at temperatures 1 and 0.5, but not by the temperature: the server is not repeatable"
