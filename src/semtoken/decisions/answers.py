"""Probabilities of the options of a question, and what follows from them: the answer, its confidence, its score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semtoken.decisions.questions import Question, Value
from semtoken.support.arrays import FloatArray
from semtoken.tokens.scored_token import Flag

LEAST_ALLOWED = 0.5
"""Where all options together have less probability than this, the model wanted to say something else."""

MASS_ELSEWHERE = "mass_elsewhere"


@dataclass(frozen=True)
class AnsweredQuestion:
    """The probability of each option of a question, with the mass that was allowed."""

    question: Question
    probabilities: tuple[float, ...]
    """How probable each option is, in the question's order; the sum is 1. Empty where the question was refused."""
    allowed_mass: float | None = None
    """Share of the model's probability that fell on any option, in [0, 1], before it was divided among them. None
    where the source does not tell."""
    order_spread: float | None = None
    """Largest change of an option's probability with the order of the options, in [0, 1]. None: one order only."""
    bounds: tuple[tuple[float, float], ...] | None = None
    """Where the probabilities are not known exactly: the least and the greatest that each can be."""
    refusal: str | None = None
    """Why the question has no answer; None where it has one."""

    @property
    def best(self) -> int:
        """The index of the most probable option; the first one of equals.

        Raises
        ------
        ValueError
            The question was refused.
        """
        return int(np.argmax(self.probabilities))

    @property
    def flags(self) -> tuple[Flag, ...]:
        """What speaks against the figures: that most of the probability fell on none of the options."""
        allowed = self.allowed_mass
        if allowed is None or allowed >= LEAST_ALLOWED:
            return ()
        share = f"{allowed:.1%}" if allowed >= 0.001 else f"{allowed:.1e}"
        said = f"Only {share} of the probability fell on the options: the model wanted other words."
        return (Flag(MASS_ELSEWHERE, said),)

    @property
    def value(self) -> Value:
        """The value of the most probable option."""
        return self.question.options[self.best].value

    @property
    def probability(self) -> float:
        """The probability of the most probable option; for a predicate, the probability that it is so."""
        return self.probabilities[0 if self.question.kind == "predicate" else self.best]

    @property
    def score(self) -> float:
        """The expected level, in [0, n - 1]."""
        return expected_level(self.probabilities)

    @property
    def confidence(self) -> float:
        """0 where all options are equally probable, 1 where one has everything; see `confidence_of`."""
        return confidence_of(self.probabilities, ordered=self.question.kind == "score")


def expected_level(probabilities: Sequence[float]) -> float:
    """The expected level: the sum over all levels k of k times its probability, in [0, n - 1].

    >>> round(expected_level([0.1, 0.2, 0.7]), 12)
    1.6
    """
    return sum(level * p for level, p in enumerate(probabilities))


def confidence_of(probabilities: Sequence[float], *, ordered: bool) -> float:
    """How far the probabilities are from saying nothing, in [0, 1], as transformers defines it.

    Without an order, max(0, (p - 1/n) / (1 - 1/n)) of the best. With one,
    max(0, 1 - sum p_k |k - best| / mean_k |k - (n-1)/2|). One option alone has 1.

    >>> round(confidence_of([0.1, 0.2, 0.7], ordered=True), 12)
    0.4
    >>> round(confidence_of([0.5, 0.3, 0.2], ordered=False), 12)
    0.25
    """
    n = len(probabilities)
    if n == 1:
        return 1.0
    best = int(np.argmax(probabilities))
    if not ordered:
        return max(0.0, (probabilities[best] - 1 / n) / (1 - 1 / n))
    distance = sum(p * abs(level - best) for level, p in enumerate(probabilities))
    uniform = sum(abs(level - (n - 1) / 2) for level in range(n)) / n
    return max(0.0, 1 - distance / uniform)


@dataclass(frozen=True, eq=False)
class OptionMasses:
    """The probability of each option before renormalising, under some orders of the options."""

    low: FloatArray
    """[orders, options] lower bounds, in [0, 1]."""
    high: FloatArray
    """[orders, options] upper bounds, in [0, 1]; equal to `low` where everything is known."""


def answer_from_masses(question: Question, masses: OptionMasses) -> AnsweredQuestion:
    """Answer a question from the probabilities of its options: renormalised in each order, then averaged.

    Where no option has any probability in some order, the question has no answer, but a reason.
    """
    totals = masses.low.sum(axis=1, keepdims=True)
    known = masses.low if (totals > 0).all() else np.where(totals > 0, masses.low, masses.high)
    totals = known.sum(axis=1, keepdims=True)
    if not (totals > 0).all():
        return unanswered(question, "No option of this question has any probability that can be told from none.")
    shares = known / totals
    probabilities = shares.mean(axis=0)
    exact = bool((masses.high <= masses.low).all())
    spread = float((shares.max(axis=0) - shares.min(axis=0)).max()) if len(shares) > 1 else None
    return AnsweredQuestion(
        question,
        tuple(map(float, probabilities)),
        allowed_mass=float(np.minimum(masses.low.sum(axis=1), 1.0).mean()),
        order_spread=spread,
        bounds=None if exact else _bounds(masses),
    )


def unanswered(question: Question, why: str) -> AnsweredQuestion:
    """The answer to a question that has none, with the reason."""
    return AnsweredQuestion(question, (), refusal=why)


def _bounds(masses: OptionMasses) -> tuple[tuple[float, float], ...]:
    """An option's share is least where it has its least mass and all others their greatest."""
    low, high = masses.low, masses.high
    others_high = high.sum(axis=1, keepdims=True) - high
    others_low = low.sum(axis=1, keepdims=True) - low
    with np.errstate(invalid="ignore", divide="ignore"):
        least = np.nan_to_num(low / (low + others_high), nan=0.0).mean(axis=0)
        greatest = np.nan_to_num(high / (high + others_low), nan=0.0).mean(axis=0)
    return tuple((float(a), float(b)) for a, b in zip(least, greatest, strict=True))


def plain(answer: AnsweredQuestion) -> dict[str, Any]:
    """The fields of an answer that semtoken adds under its own key, before any calibrator."""
    found: dict[str, Any] = {"allowed_mass": answer.allowed_mass}
    if answer.refusal is not None:
        return {"refusal": answer.refusal}
    if answer.order_spread is not None:
        found["order_spread"] = answer.order_spread
    if answer.bounds is not None:
        found["bounds"] = [list(pair) for pair in answer.bounds]
    if answer.flags:
        found["flags"] = {flag.code: flag.message for flag in answer.flags}
    return found
