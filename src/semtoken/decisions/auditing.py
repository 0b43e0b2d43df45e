"""Does a calibrator of decisions hold for other labeled answers, of this server or another one?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from semtoken.decisions.answers import DecisionRecord
from semtoken.decisions.calibrating import DecisionCalibrator, short
from semtoken.decisions.options import PredictionSets
from semtoken.decisions.sides import DecisionSide
from semtoken.errors import InvalidInputError
from semtoken.guarantees import Threshold
from semtoken.guarantees.betting import LEVEL
from semtoken.guarantees.exact import percent
from semtoken.guarantees.judge import CONFIDENCE, KINDS, Claim, Kind, Share, Verdict, judge, run_sentence
from semtoken.guarantees.measures import Drift

ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""The levels among which a person can choose, in the table of an audit."""
CHANGED = (
    "No answer is to this question as it was fitted: words, options and their order, reading and orders have to be the "
    "same."
)


@dataclass(frozen=True)
class SideAudit:
    """Whether the guarantee of one side of a question holds for other answers, with the same counts from its fit."""

    fitted: DecisionSide
    fired_fitted: Share
    """Accepted on this side, of all labeled answers of the question, where it was fitted."""
    wrong_fitted: Share
    """Of the answers that the guarantee is about, those that counted against it in the fit (`judge.Kind`). They chose
    the threshold, so the share flatters."""
    fired: Share
    """Accepted on this side, of all the answers to the question."""
    wrong: Share
    """Of the labeled answers that the guarantee is about, those that count against it."""
    drift: Drift | None
    """How far the log-probabilities of what was chosen have moved, which needs no labels; None where this side is never
    chosen, or has no calibrator."""
    order_spread: float | None
    """Mean of `order_spread` over the answers on this side, in [0, 1]; None where one order was read."""
    verdict: Verdict = "nothing was guaranteed"
    """Whether the guarantee holds, judged together with all others of the audit."""

    @property
    def claim(self) -> Claim | None:
        """The guarantee as the judge tests it; None where nothing was guaranteed."""
        return self.fitted.threshold.claim if self.fitted.threshold is not None and self.fitted.guarantees else None

    @property
    def statement(self) -> str:
        """The verdict as a sentence."""
        n, claim = self.wrong.of, self.claim
        verdict = f"cannot be told from {n} labels" if self.verdict == "cannot be told" else self.verdict
        lines = [f"{self.fitted.what}: {verdict}."]
        if claim is not None:
            lines.append(f"Accepted {self.fired}, where it was fitted {self.fired_fitted}.")
            lines.append(f"{claim.kind.among} {self.wrong}, where it was fitted {self.wrong_fitted}.")
            if self.fires_otherwise:
                lines.append("It fires on another share of the answers than where it was fitted.")
        if self.drift is not None:
            d = self.drift
            lines.append(f"Distance of the probabilities {d.distance:.2f} ({d.low:.2f} to {d.high:.2f}).")
        if self.order_spread is not None:
            lines.append(f"The order of the options moves a probability by {self.order_spread:.2f} on average.")
        return " ".join(lines)

    @property
    def fires_otherwise(self) -> bool:
        """Whether the intervals of the two shares that are accepted lie apart."""
        (low, high), (low_fitted, high_fitted) = self.fired.interval, self.fired_fitted.interval
        return high < low_fitted or high_fitted < low


@dataclass(frozen=True)
class SetAudit:
    """Whether the sets of a question's options hold the right one often enough for other answers."""

    name: str
    sets: PredictionSets
    held: Share
    """Labeled answers whose set has the right option."""
    size: float
    """Mean number of options in a set."""
    verdict: Verdict = "no difference is shown"
    """Whether more sets lack the right option than were guaranteed on average."""

    @property
    def claim(self) -> Claim:
        """The guarantee as the judge tests it."""
        return Claim(KINDS["set"], self.sets.alpha, None, self.sets.shared + sum(self.sets.labels))

    @property
    def missed(self) -> Share:
        """Labeled answers whose set lacks the right option."""
        return Share(self.held.of - self.held.count, self.held.of)

    @property
    def statement(self) -> str:
        """The verdict as a sentence."""
        return (
            f"{self.name}, sets of options: {self.verdict}. The right option is in {self.held}, where "
            f"{percent(1 - self.sets.alpha)} are guaranteed on average; {self.size:.2f} options in a set."
        )


@dataclass(frozen=True)
class LevelOutcome:
    """What one level would mean: how many answers would run, by thresholds fitted to the audit's own labels."""

    alpha: float
    run: Share
    """Answers that would run, of all."""
    wrong: Share
    """Wrong ones among the labeled answers that would run. They chose the threshold, so the share flatters."""


@dataclass(frozen=True)
class QuestionAudit:
    """All that an audit says of one question."""

    name: str
    n: int
    """Answers to it, with and without labels."""
    sides: tuple[SideAudit, ...]
    sets: SetAudit | None
    nothing: str
    """Why nothing was measured; empty where something was."""
    remarks: tuple[str, ...] = ()
    """What was left out, and why."""
    choices: tuple[LevelOutcome, ...] = ()
    """What other levels would mean; empty where nothing was measured."""
    slices: Mapping[str, Share] = field(default_factory=dict)
    """By the value of a column: what counts against the guarantee, of the labeled answers that it is about."""

    @property
    def verdict(self) -> Verdict:
        """The verdict on the thresholds of all sides together: the worst of them."""
        found = {side.verdict for side in self.sides if side.claim is not None}
        # A broken guarantee is reported even if another side could not be measured.
        if "does not hold" in found:
            return "does not hold"
        if self.nothing:
            return "nothing was measured"
        return "holds" if found == {"holds"} else "cannot be told"

    @property
    def answer(self) -> str:
        """The answer that a reader wants first, as a sentence."""
        guaranteed = [(side, side.claim) for side in self.sides if side.claim is not None]
        broken = [side for side, _ in guaranteed if side.verdict == "does not hold"]
        if not guaranteed or (self.nothing and not broken):
            return f"{self.name}: nothing was measured. {self.nothing}"
        kind, alpha = guaranteed[0][1].kind, guaranteed[0][1].alpha
        counts = f"{self.name}: {run_sentence(kind, alpha, sum(side.fired.count for side, _ in guaranteed), self.n)}"
        if broken:
            return f"{counts}: this does not hold. {'; '.join(f'{kind.among} {side.wrong}' for side in broken)}."
        if self.verdict == "cannot be told":
            return f"{counts}: cannot be told from {sum(side.wrong.of for side, _ in guaranteed)} labels."
        return f"{counts}."

    @property
    def choice_lines(self) -> list[str]:
        """The table of other levels, a line for each, under a heading; empty where nothing was measured."""
        if not self.choices:
            return []
        told = ["at most wrong        run  to a person  wrong of those that run and have a label"]
        for choice in self.choices:
            wrong = str(choice.wrong) if choice.run.count else "nothing can be guaranteed from these labels"
            run, rest = f"{choice.run.count:,}", f"{choice.run.of - choice.run.count:,}"
            told.append(f"{percent(choice.alpha):>13}{run:>11}{rest:>13}  {wrong}")
        return told

    @property
    def slice_lines(self) -> list[str]:
        """The slices, the worst first, with intervals that hold for all of them together."""
        # Bonferroni: the reader looks for the worst slice, which chance alone makes look bad among many.
        confidence = 1 - (1 - CONFIDENCE) / max(len(self.slices), 1)
        worst = sorted(self.slices.items(), key=lambda one: -one[1].count / max(one[1].of, 1))
        told = []
        for place, (name, seen) in enumerate(worst):
            low, high = seen.within(confidence)
            first = " (the worst)" if not place and len(worst) > 1 else ""
            told.append(
                f"{name}{first}: {seen.count:,} of {seen.of:,}, {percent(seen.count / seen.of)} ({percent(low)} to "
                f"{percent(high)})"
            )
        return told


@dataclass(frozen=True)
class Audit:
    """What an audit found."""

    questions: tuple[QuestionAudit, ...]
    unknown: tuple[str, ...] = ()
    """Names of questions that were answered and that the calibrator does not know as they were asked."""

    @property
    def is_broken(self) -> bool:
        """Whether any guarantee does not hold, of thresholds or of sets."""
        sets = [question.sets.verdict for question in self.questions if question.sets is not None]
        return "does not hold" in [*sets, *(question.verdict for question in self.questions)]

    @property
    def gaps(self) -> list[str]:
        """What was not measured, each as a sentence."""
        unknown = [f"{name}: the calibrator does not know this question as it was asked." for name in self.unknown]
        return [f"{question.name}: {question.nothing}" for question in self.questions if question.nothing] + unknown


def exceeded(side: SideAudit, limits: DecisionLimits) -> list[str]:
    """The limits that a side does not keep, each as a sentence; none where nothing was guaranteed for it."""
    if side.claim is None:
        return []
    sentences = []
    if side.drift is not None and side.drift.is_beyond(limits.distance):
        sentences.append(f"The distance exceeds the limit of {limits.distance:g}.")
    if limits.accepted is not None and side.fired.interval[1] < limits.accepted:
        sentences.append(f"It accepts fewer than the limit of {percent(limits.accepted)}.")
    if limits.undecided is False and side.verdict in ("cannot be told", "nothing was measured"):
        sentences.append("The limits ask for labels that can tell.")
    return sentences


def audit(
    calibrator: DecisionCalibrator,
    records: Sequence[DecisionRecord],
    *,
    level: float = LEVEL,
    by: str | None = None,
    required: Callable[[DecisionSide], bool] = lambda side: True,
) -> Audit:
    """Whether the guarantees of a calibrator hold for other answers to the same questions.

    The verdicts need labels of items that the calibrator was not fitted on; the accepted share and the drift do not.
    While every guarantee is kept, any verdict of the audit is `does not hold` with a probability of at most `level`.
    Answers to questions of which no side is `required` are left out. `by` names a column of the answers whose values
    make slices. `InvalidInputError` if no answer has that column.
    """
    names = {key: side.name for (key, _), side in calibrator.sides.items() if required(side)}
    groups: dict[str, list[DecisionRecord]] = {key: [] for key in names}
    unknown: dict[str, None] = {}
    known = {fingerprint for fingerprint, _ in calibrator.sides}
    for record in records:
        if record.fingerprint in groups:
            groups[record.fingerprint].append(record)
        elif record.fingerprint not in known:
            unknown[record.name] = None
    if by is not None and not any(by in record.columns for record in records):
        raise InvalidInputError(f"No answer has the column {by!r:.60}.")
    counted = [_counted(calibrator, key, names[key], own, by, required) for key, own in groups.items()]
    return Audit(_judged(counted, level), tuple(unknown))


def _judged(questions: Sequence[QuestionAudit], level: float) -> tuple[QuestionAudit, ...]:
    """The same questions with the verdicts on all their guarantees, which are judged together."""
    tested = [
        (side.claim, side.wrong) for question in questions for side in question.sides if side.claim is not None
    ] + [(question.sets.claim, question.sets.missed) for question in questions if question.sets is not None]
    # Together, since the level is about any false alarm of the audit, however many guarantees it tests.
    verdicts = iter(judge(tested, level))
    with_sides = [
        tuple(side if side.claim is None else replace(side, verdict=next(verdicts)) for side in question.sides)
        for question in questions
    ]
    with_sets = [None if q.sets is None else replace(q.sets, verdict=next(verdicts)) for q in questions]
    return tuple(
        replace(question, sides=sides, sets=sets)
        for question, sides, sets in zip(questions, with_sides, with_sets, strict=True)
    )


def _counted(
    calibrator: DecisionCalibrator,
    key: str,
    name: str,
    records: Sequence[DecisionRecord],
    by: str | None,
    required: Callable[[DecisionSide], bool],
) -> QuestionAudit:
    """The counts of one question, before they are judged."""
    fitted = [side for (fingerprint, _), side in calibrator.sides.items() if fingerprint == key]
    usable, nothing, remarks = _usable(calibrator.states.get(key, frozenset()), records)
    sides = tuple(_counted_side(side, records, usable) for side in fitted)
    guaranteed = [side for side in sides if side.claim is not None and required(side.fitted)]
    if not records:
        nothing = CHANGED
    elif not guaranteed:
        nothing = "The calibrator guarantees nothing for it."
    elif not nothing and not any(side.wrong.of for side in guaranteed):
        nothing = f"None of its {len(usable):,} labeled answers is one that the guarantee is about."
    if nothing and any(side.fires_otherwise for side in guaranteed):
        remarks = (*remarks, "It fires on another share of the answers than where it was fitted.")
    measured = not nothing
    return QuestionAudit(
        name,
        len(records),
        sides,
        _counted_sets(name, calibrator.sets.get(key), usable) if usable else None,
        nothing,
        remarks,
        _choices(guaranteed, records, usable) if measured else (),
        _slices(guaranteed, usable, by) if measured and by is not None else {},
    )


def _usable(
    seen: frozenset[str], records: Sequence[DecisionRecord]
) -> tuple[list[DecisionRecord], str, tuple[str, ...]]:
    """The labeled answers that can test a guarantee, why there are none, and what was left out."""
    labeled = [record for record in records if record.label is not None]
    if not labeled:
        return [], f"None of its {len(records):,} answers has a label.", ()
    states = [record.state for record in labeled if record.state]
    if repeated := len(states) - len(set(states)):
        return (
            [],
            f"{repeated:,} of its {len(labeled):,} labeled answers are about an item that another one is about, too: "
            "repeated answers count as evidence that is not there. Leave them out.",
            (),
        )
    # Answers that chose the threshold look better under it than new ones.
    usable = [record for record in labeled if not record.state or short(record.state) not in seen]
    if not usable:
        return [], "All its labels are of items that the calibrator was fitted on. Label others.", ()
    left_out = len(labeled) - len(usable)
    told = f"{left_out:,} labels are left out: the calibrator was fitted on these items."
    return usable, "", (told,) if left_out else ()


def _counted_side(side: DecisionSide, records: Sequence[DecisionRecord], usable: Sequence[DecisionRecord]) -> SideAudit:
    chosen = [record for record in records if record.side == side.side]
    judged = [record for record in usable if record.side == side.side]
    spreads = [record.order_spread for record in chosen if record.order_spread is not None]
    kind = KINDS["selective_risk" if side.threshold is None else side.threshold.guarantee]
    return SideAudit(
        side,
        Share(side.n_accepted, side.asked),
        _fitted_share(side, kind),
        Share(sum(side.accepted(chosen)), len(records)),
        kind.count(side.accepted(judged), [record.correct for record in judged]),
        side.calibrator.drift([record.log_confidence for record in chosen]) if side.calibrator and chosen else None,
        float(np.mean(spreads)) if spreads else None,
    )


def _fitted_share(side: DecisionSide, kind: Kind) -> Share:
    """The counts of the fit, as the guarantee counts them: accepted and wrong ones first, then the others."""
    wrong = 0 if side.threshold is None else side.threshold.n_wrong
    accepted = np.arange(side.n) < side.n_accepted
    right = np.ones(side.n, dtype=bool)
    # The order does not matter to the count, so wrong ones are put first among the accepted and among the others.
    right[: side.n_wrong_accepted] = False
    right[side.n_accepted : side.n_accepted + wrong - side.n_wrong_accepted] = False
    return kind.count(accepted, right)


def _counted_sets(name: str, sets: PredictionSets | None, usable: Sequence[DecisionRecord]) -> SetAudit | None:
    if sets is None:
        return None
    chosen = [sets(record.probabilities) for record in usable]
    held = sum(record.label in options for record, options in zip(usable, chosen, strict=True))
    return SetAudit(name, sets, Share(held, len(usable)), float(np.mean([len(options) for options in chosen])))


def _choices(
    guaranteed: Sequence[SideAudit], records: Sequence[DecisionRecord], usable: Sequence[DecisionRecord]
) -> tuple[LevelOutcome, ...]:
    """What each level would mean, delta divided by the number of levels, since a person chooses one of them."""
    judged = []
    for side in guaranteed:
        own = [record for record in usable if record.side == side.fitted.side]
        if side.claim is not None and own:
            scores, right = [record.log_confidence for record in own], np.array([record.correct for record in own])
            asked = [record.log_confidence for record in records if record.side == side.fitted.side]
            judged.append((side.claim, scores, right, asked))
    rows = []
    for alpha in ALPHAS:
        run, wrong, of = 0, 0, 0
        for claim, scores, right, asked in judged:
            # A person picks one of the levels after seeing all of them, so they share delta (Bonferroni).
            delta = (claim.delta or 0.1) / len(ALPHAS)
            made = Threshold.fit(scores, right, guarantee=claim.kind.name, alpha=alpha, delta=delta)  # type: ignore[arg-type]
            accepted = made.accepts(scores)
            run += int(made.accepts(asked).sum())
            wrong, of = wrong + int((accepted & ~right).sum()), of + int(accepted.sum())
        rows.append(LevelOutcome(alpha, Share(run, len(records)), Share(wrong, of)))
    return tuple(rows)


def _slices(guaranteed: Sequence[SideAudit], usable: Sequence[DecisionRecord], by: str) -> dict[str, Share]:
    counts: dict[str, tuple[int, int]] = {}
    for side in guaranteed:
        for record in usable:
            if side.claim is None or record.side != side.fitted.side:
                continue
            one = side.claim.kind.count([side.fitted.accepts(record)], [record.correct])
            bad, of = counts.get(value := record.columns.get(by, "(none)"), (0, 0))
            counts[value] = bad + one.count, of + one.of
    return {value: Share(bad, of) for value, (bad, of) in sorted(counts.items()) if of}


@dataclass(frozen=True)
class DecisionLimits:
    """What has to hold besides the guarantee; where it does not, a check ends with exit status 1."""

    distance: float | None = None
    """Largest distance of the probabilities from those of the fit, in [0, 1]; the lower end of its interval counts."""
    accepted: float | None = None
    """Smallest share that is accepted, in [0, 1]; the upper end of its interval counts."""
    undecided: bool | None = None
    """False: labels that cannot tell are not enough."""
