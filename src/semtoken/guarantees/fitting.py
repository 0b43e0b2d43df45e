"""The fit of each kind of guarantee to labels: the loosest threshold that it allows, or why there is none.

`selective_risk` and `discarded` walk from strict to loose and test each threshold (`exact.fixed_sequence`), begun at
several places, so that it also finds a threshold where few answers deserve to pass. `miss_rate` and `joint_risk` need
no tests: the threshold is an order statistic (`exact.most_wrong`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semtoken.errors import InvalidInputError
from semtoken.guarantees import exact
from semtoken.guarantees.exact import FixedSequences, Test, percent
from semtoken.guarantees.judge import SAME, Claim
from semtoken.guarantees.labels import LabeledScores
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require

FEWEST_UNLABELED = 200
"""Fewest scores without labels that may place the thresholds of the fixed sequence."""
MOST_LABELS = 100_000
"""More labels than this are not advised."""


@dataclass(frozen=True)
class Fit:
    """The loosest threshold that a guarantee allows."""

    uncertainty: float | None
    """In nats; None where nothing can be guaranteed."""
    statement: str
    """The guarantee in one sentence with its numbers, or why nothing can be guaranteed."""
    strict: bool = False
    """True if answers are accepted only below the threshold, and not at it."""
    start: float | None = None
    """Share of answers that the first threshold of the sequence accepts; None where there is no sequence."""
    tests: tuple[Test, ...] = ()
    """The tests of the sequence, in order."""


def fit(claim: Claim, answers: LabeledScores, *, placing: FloatArray | None = None, start: float | None = None) -> Fit:
    """The loosest threshold for a guarantee, from labeled answers.

    `placing`, uncertainties without labels, place the thresholds of a sequence; without them the labeled answers do.
    `start` is the share of answers that its first threshold accepts, fixed before anybody saw the labels.
    `InvalidInputError` for a start outside (0, 1], one for a kind without a sequence, or too few scores without labels.
    """
    name = claim.kind.name
    if name not in ("miss_rate", "joint_risk"):
        return _sequence(claim, answers.turned if name == "discarded" else answers, placing, start)
    if start is not None:
        raise InvalidInputError(f"The guarantee {name!r} tries no thresholds, so it has no start. Leave it out.")
    return _missed(claim, answers) if name == "miss_rate" else _joint(claim, answers)


def _sequence(claim: Claim, answers: LabeledScores, placing: FloatArray | None, start: float | None) -> Fit:
    n, uncertainty = answers.n, answers.uncertainty
    if start is not None:
        exact.shares_of_coverage(start)
    if n < claim.fewest:
        return Fit(None, _too_few(claim, n, "labeled answers"), start=start)
    plan = FixedSequences.of(n, claim.alpha, claim.delta, start)
    placed = exact.own_thresholds(uncertainty, plan.shares) if placing is None else _grid(placing, plan.shares)
    grid, parts = plan.placed(placed)
    kept, tests = exact.fixed_sequence(uncertainty, answers.correct, grid, claim.alpha, claim.delta, parts)
    if kept is None:
        refusal = _refused(claim, answers, tests)
        # Advice that was tried on the labeled answers would say nothing of thresholds that others place.
        advice = _advice(claim, answers, start) if placing is None and any(test.accepted for test in tests) else []
        return Fit(None, " ".join([refusal, *advice]), start=plan.shares[0], tests=tests)
    last = next(test for test in tests if test.threshold == kept)
    done, bad = ("discarded", "right") if claim.kind.name == "discarded" else ("accepted", "wrong")
    counts = f"{last.accepted} {done}, {last.wrong} of them {bad}"
    return Fit(kept, _made(claim, f"on {n} labeled answers: {counts}"), start=plan.shares[0], tests=tests)


def _made(claim: Claim, source: str) -> str:
    """The sentence of a guarantee that the labels support."""
    return f"With confidence {percent(1 - claim.delta)}, {claim.bound} ({source}), {SAME}."


def _wanted(claim: Claim) -> str:
    """The beginning of the sentence where they do not."""
    return f'Nothing can be guaranteed: "{claim.bound}, with confidence {percent(1 - claim.delta)}"'


def _too_few(claim: Claim, n: int, what: str) -> str:
    missing = claim.fewest - n
    return f"{_wanted(claim)} needs at least {claim.fewest} {what}. There are {n}: {missing} are missing."


def _grid(uncertainty: Any, shares: Sequence[float]) -> list[float]:
    """Thresholds at quantiles of scores without labels; empty answers are never accepted, so they do not count."""
    finite = uncertainty[np.isfinite(uncertainty)]
    if finite.size < FEWEST_UNLABELED:
        raise InvalidInputError(
            f"The thresholds to try are placed by at least {FEWEST_UNLABELED} scores without labels. There are "
            f"{finite.size}: {FEWEST_UNLABELED - finite.size} are missing. The answers that you want to decide on "
            "will do; or leave `unlabeled` out."
        )
    placed: list[float] = np.quantile(finite, shares).tolist()
    return placed


def _missed(claim: Claim, answers: LabeledScores) -> Fit:
    level, n_wrong, rank = exact.wrong_answers_caught(answers.uncertainty, answers.correct, claim.alpha, claim.delta)
    if level is None:
        return Fit(None, _too_few(claim, n_wrong, "wrong answers among the labeled ones"))
    source = f"below the {_ordinal(rank)} surest of {n_wrong} wrong answers among {answers.n} labeled ones"
    statement = _made(claim, source)
    if not (answers.uncertainty < level).any():
        statement += " No labeled answer passes: some of the surest score are wrong, and equal scores go together."
    return Fit(level, statement, strict=True)


def _joint(claim: Claim, answers: LabeledScores) -> Fit:
    n = answers.n + answers.n_blank  # blank answers are questions too; they are never accepted
    if n < claim.fewest:
        return Fit(None, _too_few(claim, n, "labeled answers"))
    uncertainty = np.append(answers.uncertainty, np.full(answers.n_blank, math.inf))
    correct = np.append(answers.correct, np.zeros(answers.n_blank))
    level = exact.joint_risk(uncertainty, correct, claim.alpha, claim.delta)
    surest = answers.uncertainty.min(initial=math.inf)
    passed = answers.uncertainty <= (surest if level is None else level)
    accepted, wrong = int(passed.sum()), int((1 - answers.correct[passed]).sum())
    if level is None:
        most = exact.most_wrong(n, claim.alpha, claim.delta)
        return Fit(
            None,
            f"{_wanted(claim)} allows {most} wrong answers among {n} labeled ones, and of the {accepted} with the "
            f"surest score {wrong} are wrong.",
        )
    return Fit(level, _made(claim, f"on {n} labeled answers: {accepted} accepted, {wrong} of them wrong"))


def _ordinal(rank: int) -> str:
    end = "th" if 10 <= rank % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank}{end}"


def _refused(claim: Claim, answers: LabeledScores, tests: Sequence[Test]) -> str:
    """Why no start passed."""
    if not any(test.accepted for test in tests):
        surer = "the scores that place the thresholds are surer than all labeled answers"
        return f"Nothing can be guaranteed: {surer}. Place the thresholds by others."
    best = min((test for test in tests if test.accepted), key=lambda test: test.p_value)
    inside = answers.uncertainty[answers.uncertainty <= best.threshold]
    tied = int((answers.uncertainty == inside.max()).sum())
    equal = f", {tied} of them with one and the same score," if tied > 1 else ""
    most, bad = _end(claim)
    return (
        f"Nothing can be guaranteed: of the {best.accepted} {most} of {answers.n} labeled answers{equal} "
        f"{best.wrong} {'is' if best.wrong == 1 else 'are'} {bad}, too many to show that {claim.bound} "
        f"(p = {best.p_value:.2g})."
    )


def _end(claim: Claim) -> tuple[str, str]:
    """The answers that a sequence begins with, and what counts against it among them, in words."""
    return ("most doubtful", "right") if claim.kind.name == "discarded" else ("surest", "wrong")


def _advice(claim: Claim, answers: LabeledScores, start: float | None) -> list[str]:
    """Sentences on what would help: each was tried on these labels, or is worked out from them."""
    advice = [_more_labels(claim, answers, start), _other_alpha(claim, answers, start)]
    if claim.kind.name != "discarded":  # bands have no start to choose
        advice.append(_other_start(answers.uncertainty, answers.correct, claim.alpha, claim.delta))
    return [sentence for sentence in advice if sentence]


def _more_labels(claim: Claim, answers: LabeledScores, start: float | None) -> str:
    """A sentence on how many labels would let a start pass if the same share of the surest stays wrong."""
    uncertainty, correct, alpha, delta = answers.uncertainty, answers.correct, claim.alpha, claim.delta
    more = correct.size
    while more <= MOST_LABELS:
        # Steps of a tenth are enough: the number is shown with two digits.
        more = math.ceil(more * 1.1)
        starts = FixedSequences.of(more, alpha, delta, start).starts
        thresholds = exact.own_thresholds(uncertainty, starts.shares)
        # Equal scores can put two starts at one threshold, which then has the parts of both.
        for threshold, part in zip(*starts.placed(thresholds), strict=True):
            inside = uncertainty <= threshold
            own = [share for share, placed in zip(starts.shares, thresholds, strict=True) if placed == threshold]
            accepted = round(max(*own, float(inside.mean())) * more)
            wrong = math.ceil(float((1 - correct[inside]).mean()) * accepted)
            if exact.binomial_p_value(wrong, accepted, alpha) <= part * delta:
                most, bad = _end(claim)
                return f"If the same share of the {most} stays {bad}, about {_round_up(more):,} labels would do."
    return ""


def _other_alpha(claim: Claim, answers: LabeledScores, start: float | None) -> str:
    """The next higher alpha, in steps of 0.01, at which these labels give a guarantee from the same start."""
    name = "A discard_alpha" if claim.kind.name == "discarded" else "An alpha"
    # A guarantee that half of the answers are wrong helps nobody, so the search ends there.
    for larger in (step / 100 for step in range(math.floor(100 * claim.alpha) + 1, 51)):
        if exact.comes(answers.uncertainty, answers.correct, larger, claim.delta, start):
            return f"{name} of {larger:g} gets a guarantee from these labels: choose it, and fit on further ones."
    return ""


def _other_start(uncertainty: FloatArray, correct: FloatArray, alpha: float, delta: float) -> str:
    """The share of answers at which one start, with all of delta, would have passed on these labels."""
    n, ascending = correct.size, np.argsort(uncertainty, kind="stable")
    wrong = np.cumsum(1 - correct[ascending])
    least = exact.labels_needed(0, alpha, delta)
    binom = require("scipy.stats", extra="calibrate").binom
    places = np.arange(least, n + 1)
    p_values = binom.cdf(wrong[places - 1], places, alpha)
    share = float(places[p_values.argmin()] / n)
    share = round(share, 2) or share
    if not exact.comes(uncertainty, correct, alpha, delta, share):
        return ""
    way = f"`Threshold.fit(start={share:.2g})`"
    return f"Or begin at the surest {percent(share)} alone, as {way} does in Python, and fit on further labels."


def _round_up(n: float) -> int:
    """The number with two digits, rounded up."""
    digit: int = 10 ** max(0, math.floor(math.log10(n)) - 1)
    return math.ceil(n / digit) * digit
