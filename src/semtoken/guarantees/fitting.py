"""How each kind of guarantee is fitted to labels: the loosest threshold that it allows, or why there is none.

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
from semtoken.guarantees.judge import KINDS, SAME, Kind
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
    """Whether answers are accepted only below the threshold, and not at it."""
    start: float | None = None
    """Share of answers that the first threshold of the sequence accepts; None where there is no sequence."""
    tests: tuple[Test, ...] = ()
    """The tests of the sequence, in order."""


def fit(
    kind: Kind,
    answers: LabeledScores,
    alpha: float,
    delta: float,
    *,
    placing: FloatArray | None = None,
    start: float | None = None,
) -> Fit:
    """The loosest threshold for a kind of guarantee, from labeled answers.

    `placing`, uncertainties without labels, place the thresholds of a sequence; without them the labeled answers do.
    `start` is the share of answers that its first threshold accepts, fixed before anybody saw the labels.
    `InvalidInputError` for a start outside (0, 1], one for a kind without a sequence, or too few scores without labels.
    """
    if kind.name in ("miss_rate", "joint_risk"):
        if start is not None:
            raise InvalidInputError(
                f"The guarantee {kind.name!r} tries no thresholds, so it has no start. Leave it out."
            )
        return _missed(answers, alpha, delta) if kind.name == "miss_rate" else _joint(answers, alpha, delta)
    if kind.name == "discarded":
        return _sequence(kind, -answers.uncertainty, 1 - answers.correct, alpha, delta, placing, start)
    return _sequence(kind, answers.uncertainty, answers.correct, alpha, delta, placing, start)


def _sequence(
    kind: Kind,
    uncertainty: FloatArray,
    correct: FloatArray,
    alpha: float,
    delta: float,
    placing: FloatArray | None,
    start: float | None,
) -> Fit:
    n, least = correct.size, exact.labels_needed(0, alpha, delta)
    if start is not None:
        exact.shares_of_coverage(start)
    if n < least:
        return Fit(None, _too_few(kind, alpha, delta, n, least, "labeled answers"), start=start)
    plan = FixedSequences.of(n, alpha, delta, start)
    own = placing is None
    grid, parts = plan.placed(exact.own_thresholds(uncertainty, plan.shares) if own else _grid(placing, plan.shares))
    kept, tests = exact.fixed_sequence(uncertainty, correct, grid, alpha, delta, parts)
    if kept is None:
        return Fit(
            None,
            _refused(kind, uncertainty, correct, tests, alpha, delta, start, own=own),
            start=plan.shares[0],
            tests=tests,
        )
    last = next(test for test in tests if test.threshold == kept)
    done, bad = ("discarded", "right") if kind.name == "discarded" else ("accepted", "wrong")
    counts = f"{last.accepted} {done}, {last.wrong} of them {bad}"
    statement = f"{_confident(kind, alpha, delta)} (on {n} labeled answers: {counts}), {SAME}."
    return Fit(kept, statement, start=plan.shares[0], tests=tests)


def _confident(kind: Kind, alpha: float, delta: float) -> str:
    return f"With confidence {percent(1 - delta)}, {kind.guaranteed(alpha)}"


def _too_few(kind: Kind, alpha: float, delta: float, n: int, least: int, what: str) -> str:
    return (
        f'Nothing can be guaranteed: "{kind.guaranteed(alpha)}, with confidence {percent(1 - delta)}" needs at least '
        f"{least} {what}. There are {n}: {least - n} are missing."
    )


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


def _missed(answers: LabeledScores, alpha: float, delta: float) -> Fit:
    kind = KINDS["miss_rate"]
    level, n_wrong, rank = exact.wrong_answers_caught(answers.uncertainty, answers.correct, alpha, delta)
    if level is None:
        least = exact.labels_needed(0, alpha, delta)
        return Fit(None, _too_few(kind, alpha, delta, n_wrong, least, "wrong answers among the labeled ones"))
    statement = (
        f"{_confident(kind, alpha, delta)} (below the {_ordinal(rank)} surest of {n_wrong} wrong answers among "
        f"{answers.n} labeled ones), {SAME}."
    )
    if not (answers.uncertainty < level).any():
        statement += " No labeled answer passes: some of the surest score are wrong, and equal scores go together."
    return Fit(level, statement, strict=True)


def _joint(answers: LabeledScores, alpha: float, delta: float) -> Fit:
    kind = KINDS["joint_risk"]
    n = answers.n + answers.n_blank  # blank answers are questions too; they are never accepted
    least = exact.labels_needed(0, alpha, delta)
    if n < least:
        return Fit(None, _too_few(kind, alpha, delta, n, least, "labeled answers"))
    uncertainty = np.append(answers.uncertainty, np.full(answers.n_blank, math.inf))
    correct = np.append(answers.correct, np.zeros(answers.n_blank))
    level = exact.joint_risk(uncertainty, correct, alpha, delta)
    if level is None:
        surest = answers.uncertainty == answers.uncertainty.min(initial=math.inf)
        wrong, most = int((1 - answers.correct[surest]).sum()), exact.most_wrong(n, alpha, delta)
        return Fit(
            None,
            f'Nothing can be guaranteed: "{kind.guaranteed(alpha)}, with confidence {percent(1 - delta)}" allows '
            f"{most} wrong answers among {n} labeled ones, and of the {int(surest.sum())} with the surest score "
            f"{wrong} are wrong.",
        )
    passed = answers.uncertainty <= level
    wrong = int((1 - answers.correct[passed]).sum())
    counts = f"{int(passed.sum())} accepted, {wrong} of them wrong"
    return Fit(level, f"{_confident(kind, alpha, delta)} (on {n} labeled answers: {counts}), {SAME}.")


def _ordinal(rank: int) -> str:
    end = "th" if 10 <= rank % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank}{end}"


def _refused(
    kind: Kind,
    uncertainty: FloatArray,
    correct: FloatArray,
    tests: Sequence[Test],
    alpha: float,
    delta: float,
    start: float | None,
    *,
    own: bool,
) -> str:
    """Why no start passed, and what would help: each advice was tried on these labels, or is worked out from them."""
    if not any(test.accepted for test in tests):
        surer = "the scores that place the thresholds are surer than all labeled answers"
        return f"Nothing can be guaranteed: {surer}. Place the thresholds by others."
    best = min((test for test in tests if test.accepted), key=lambda test: test.p_value)
    inside = uncertainty <= best.threshold
    tied = int((uncertainty == uncertainty[inside].max()).sum())
    equal = f", {tied} of them with one and the same score," if tied > 1 else ""
    most, bad = ("most doubtful", "right") if kind.name == "discarded" else ("surest", "wrong")
    told = (
        f"Nothing can be guaranteed: of the {best.accepted} {most} of {correct.size} labeled answers{equal} "
        f"{best.wrong} are {bad}, too many to show that {kind.guaranteed(alpha)} (p = {best.p_value:.2g})."
    )
    advice = []
    if own:
        advice += [
            _more_labels(uncertainty, correct, alpha, delta, start),
            _other_alpha(uncertainty, correct, alpha, delta),
            _other_start(uncertainty, correct, alpha, delta),
        ]
    return " ".join([told, *filter(None, advice)])


def _more_labels(uncertainty: FloatArray, correct: FloatArray, alpha: float, delta: float, start: float | None) -> str:
    """How many labels would let a start pass if the same share of the surest stays wrong."""
    n = correct.size
    seen: dict[float, tuple[float, float]] = {}  # by share of a start: what its threshold accepts, and is wrong of that
    more = n
    while more <= MOST_LABELS:
        # Steps of a tenth are enough: the number is shown with two digits.
        more = math.ceil(more * 1.1)
        plan = FixedSequences.of(more, alpha, delta, start)
        for share, part in zip(plan.shares, plan.parts, strict=True):
            if not part:
                continue
            if share not in seen:
                inside = uncertainty <= exact.own_thresholds(uncertainty, [share])[0]
                seen[share] = max(share, float(inside.mean())), float((1 - correct[inside]).mean())
            accepted = round(seen[share][0] * more)
            if exact.binomial_p_value(math.ceil(seen[share][1] * accepted), accepted, alpha) <= part * delta:
                return f"If the same share of the surest stays wrong, about {_round_up(more):,} labels would do."
    return ""


def _other_alpha(uncertainty: FloatArray, correct: FloatArray, alpha: float, delta: float) -> str:
    """The next higher alpha, in steps of 0.01, at which these labels give a guarantee."""
    # A guarantee that half of the answers are wrong helps nobody, so the search ends there.
    for larger in (step / 100 for step in range(math.floor(100 * alpha) + 1, 51)):
        if exact.comes(uncertainty, correct, larger, delta):
            return f"An alpha of {larger:g} gets a guarantee from these labels: choose it, and fit on further ones."
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
    return f"Or begin at the surest {percent(share)} alone (start={share:.2g}), and fit on further labels."


def _round_up(n: float) -> int:
    """The number with two digits, rounded up."""
    digit: int = 10 ** max(0, math.floor(math.log10(n)) - 1)
    return math.ceil(n / digit) * digit
