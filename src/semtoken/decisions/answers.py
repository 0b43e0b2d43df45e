"""Answers to typed questions: the probabilities of all options, and the value, confidence and score that follow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semtoken.core.scored_token import Flag
from semtoken.decisions.questions import (
    Question,
    Value,
    same_value,
)
from semtoken.errors import InvalidInputError
from semtoken.support.arrays import FloatArray

LEAST_ALLOWED = 0.5
"""With less probability than this on all options together, the model wanted to say something else."""

MASS_ELSEWHERE = "off_option_mass"


@dataclass(frozen=True)
class Answer:
    """The probability of each option of a question, with the mass that was allowed."""

    question: Question
    probabilities: tuple[float, ...]
    """The probability of each option, in the question's order; the sum is 1. Empty if the question was refused."""
    option_mass: float | None = None
    """Share of the model's probability that fell on any option, in [0, 1], before it was divided among them. None
    where the source does not say."""
    order_spread: float | None = None
    """Largest change of an option's probability with the order of the options, in [0, 1]. None: one order only."""
    bounds: tuple[tuple[float, float], ...] | None = None
    """The least and the greatest that each probability can be; None where all are known exactly."""
    refusal: str | None = None
    """Why the question has no answer; None where it has one."""
    choice: Value | None = None
    """The value of the option that the server chose, where it says so; None: the most probable one."""
    model: str | None = None
    """The model that gave the answer, as the server names it; None where it does not."""

    @property
    def _read(self) -> tuple[float, ...]:
        """The probabilities; `InvalidInputError` if the question was refused, so that there are none."""
        if self.refusal is not None:
            raise InvalidInputError(f"The question {self.question.instructions!r:.60} has no answer: {self.refusal}")
        return self.probabilities

    @property
    def best(self) -> int:
        """The index of the option that was chosen, the first of equals.

        This and what follows from it raise `InvalidInputError` if the question was refused, with the reason.
        """
        if self.choice is not None:
            return [same_value(option.value, self.choice) for option in self.question.options].index(True)
        return self._read.index(max(self._read))

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Doubts about the figures: that most of the probability fell on none of the options."""
        allowed = self.option_mass
        if allowed is None or allowed >= LEAST_ALLOWED:
            return ()
        share = f"{allowed:.1%}" if allowed >= 0.001 else f"{allowed:.1e}"
        said = f"Only {share} of the probability fell on the options: the model wanted other words."
        return (Flag(MASS_ELSEWHERE, said),)

    @property
    def value(self) -> Value:
        """The value of the option that was chosen: the most probable one, unless the server chose another."""
        return self.question.options[self.best].value

    @property
    def probability(self) -> float:
        """The probability of the option that was chosen; for a predicate, the probability that it is so."""
        return self._read[0 if self.question.kind == "predicate" else self.best]

    @property
    def score(self) -> float:
        """The expected level, in [0, n - 1]."""
        return expected_level(self._read)

    @property
    def log_confidence(self) -> float:
        """Log-probability of the option that was chosen, in (-inf, 0]."""
        return min(math.log(self.probabilities[self.best]), 0.0)

    @property
    def side(self) -> str:
        """The guarantee to which the answer belongs: `true` or `false` for a predicate, else `answer`."""
        return ("true", "false")[self.best] if self.question.kind == "predicate" else "answer"

    @property
    def confidence(self) -> float:
        """0 where all options are equally probable, 1 where one has everything; see `confidence_of`."""
        return confidence_of(self._read, ordered=self.question.kind == "score")


def expected_level(probabilities: Sequence[float]) -> float:
    """The expected level: the sum over all levels k of k times its probability, in [0, n - 1].

    >>> round(expected_level([0.1, 0.2, 0.7]), 12)
    1.6
    """
    return sum(level * p for level, p in enumerate(probabilities))


def confidence_of(probabilities: Sequence[float], *, ordered: bool) -> float:
    """The distance of the probabilities from saying nothing, in [0, 1], as transformers defines it.

    Without an order, max(0, (p - 1/n) / (1 - 1/n)) of the best. With one,
    max(0, 1 - sum p_k |k - best| / mean_k |k - (n-1)/2|). A single option has 1.

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
    # The distance of equally probable levels from their middle: a distance as large as that says nothing.
    uniform = sum(abs(level - (n - 1) / 2) for level in range(n)) / n
    return max(0.0, 1 - distance / uniform)


@dataclass(frozen=True, eq=False)
class OptionMasses:
    """The probability of each option before renormalizing, under some orders of the options."""

    low: FloatArray
    """[orders, options] lower bounds, in [0, 1]."""
    high: FloatArray
    """[orders, options] upper bounds, in [0, 1]; equal to `low` where everything is known."""


def in_all_orders(masses: Iterable[tuple[int, tuple[FloatArray, FloatArray]]]) -> dict[int, OptionMasses]:
    """The masses of each question's options in all orders, by its number, from the bounds that were read in each."""
    rows: dict[int, list[tuple[FloatArray, FloatArray]]] = {}
    for number, pair in masses:
        rows.setdefault(number, []).append(pair)
    return {
        number: OptionMasses(*(np.stack(side) for side in zip(*pairs, strict=True))) for number, pairs in rows.items()
    }


def answer_from_masses(question: Question, masses: OptionMasses) -> Answer:
    """Answer a question from the probabilities of its options: renormalized in each order, then averaged.

    Where no option has any probability in some order, the question has no answer, but a reason.
    """
    totals = masses.low.sum(axis=1, keepdims=True)
    # Where a list names no option for sure, the upper ends are all that is known of the options.
    known = masses.low if (totals > 0).all() else np.where(totals > 0, masses.low, masses.high)
    totals = known.sum(axis=1, keepdims=True)
    if not (totals > 0).all():
        return unanswered(question, "No option of this question has any probability above 0.")
    shares = known / totals
    probabilities = shares.mean(axis=0)
    exact = bool((masses.high <= masses.low).all())
    spread = float((shares.max(axis=0) - shares.min(axis=0)).max()) if len(shares) > 1 else None
    return Answer(
        question,
        tuple(map(float, probabilities)),
        # Rounded log-probabilities may add up to a little more than 1, and no share may.
        option_mass=float(np.minimum(masses.low.sum(axis=1), 1.0).mean()),
        order_spread=spread,
        bounds=None if exact else _bounds(masses),
    )


def answers_to(
    questions: Sequence[Question], masses: Mapping[int, OptionMasses], refusals: Mapping[int, str]
) -> list[Answer]:
    """The answers to questions, in their order, by the masses of their options, or why there are none, by number."""
    return [
        unanswered(question, refusals[number]) if number in refusals else answer_from_masses(question, masses[number])
        for number, question in enumerate(questions)
    ]


def unanswered(question: Question, why: str) -> Answer:
    """The answer to a question that has none, with the reason."""
    return Answer(question, (), refusal=why)


def _bounds(masses: OptionMasses) -> tuple[tuple[float, float], ...]:
    """An option's share is least where it has its least mass and all others their greatest."""
    low, high = masses.low, masses.high
    # Renormalized, an option loses most where all the others gain most.
    others_high = high.sum(axis=1, keepdims=True) - high
    others_low = low.sum(axis=1, keepdims=True) - low
    with np.errstate(invalid="ignore", divide="ignore"):
        # 0 / 0 is an option that may have nothing beside others that may have nothing.
        least = np.nan_to_num(low / (low + others_high), nan=0.0).mean(axis=0)
        greatest = np.nan_to_num(high / (high + others_low), nan=0.0).mean(axis=0)
    return tuple((float(a), float(b)) for a, b in zip(least, greatest, strict=True))


def plain(answer: Answer) -> dict[str, Any]:
    """The fields of an answer that semtoken adds under its own key, before any calibrator."""
    fields: dict[str, Any] = {"option_mass": answer.option_mass}
    if answer.refusal is not None:
        return {"refusal": answer.refusal}
    if answer.order_spread is not None:
        fields["order_spread"] = answer.order_spread
    if answer.bounds is not None:
        fields["bounds"] = [list(pair) for pair in answer.bounds]
    if answer.flags:
        fields["flags"] = {flag.code: flag.message for flag in answer.flags}
    return fields
