"""Results of an audit of decisions: for a side, for sets of options, for a question and for all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from semtoken.decisions.options import PredictionSets
from semtoken.decisions.sides import DecisionSide
from semtoken.guarantees.auditing import AuditLimits
from semtoken.guarantees.drift import Drift
from semtoken.guarantees.exact import percent
from semtoken.guarantees.judge import CONFIDENCE, KINDS, AverageClaim, Share, Verdict, run_sentence


@dataclass(frozen=True)
class SideAudit:
    """The audit of the guarantee of one side of a question on other answers, with the same counts from its fit."""

    fitted: DecisionSide
    fired: Share
    """Accepted on this side, of all the answers to the question."""
    wrong: Share
    """Answers that count against the guarantee, of the labeled ones that it is about."""
    drift: Drift | None
    """The shift of the log-probabilities of the chosen options, which needs no labels; None where this side is never
    chosen, or has no calibrator."""
    order_spread: float | None
    """Mean of `order_spread` over the answers on this side, in [0, 1]; None where one order was read."""
    verdict: Verdict = "nothing was guaranteed"
    """The verdict on the guarantee, judged together with all others of the audit."""

    @property
    def statement(self) -> str:
        """The verdict as a sentence."""
        n, claim = self.wrong.of, self.fitted.claim
        verdict = f"cannot be told from {n} labels" if self.verdict == "cannot be told" else self.verdict
        lines = [f"{self.fitted.what}: {verdict}."]
        if claim is not None:
            lines.append(f"Accepted {self.fired}, where it was fitted {self.fitted.fired}.")
            lines.append(f"{claim.kind.among} {self.wrong}, where it was fitted {self.fitted.wrong}.")
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
        """True if the intervals of the two shares that are accepted lie apart."""
        (low, high), (low_fitted, high_fitted) = self.fired.interval, self.fitted.fired.interval
        return high < low_fitted or high_fitted < low

    def exceeded(self, limits: AuditLimits) -> list[str]:
        """The limits that this side does not keep, each as a sentence; none where nothing was guaranteed for it."""
        if self.fitted.claim is None:
            return []
        sentences = []
        if self.drift is not None and self.drift.is_beyond(limits.distance):
            sentences.append(f"The distance exceeds the limit of {limits.distance:g}.")
        if limits.accepts_too_few(self.fired):
            sentences.append(f"It accepts fewer than the limit of {percent(limits.accepted)}.")
        if not limits.undecided and self.verdict in ("cannot be told", "nothing was measured"):
            sentences.append("The limits ask for labels that can tell.")
        return sentences


@dataclass(frozen=True)
class SetAudit:
    """The audit of a question's sets on other answers: do they hold the right option often enough?"""

    name: str
    sets: PredictionSets
    held: Share
    """Labeled answers whose set has the right option."""
    size: float
    """Mean number of options in a set."""
    verdict: Verdict = "no difference is shown"
    """The verdict: do more sets lack the right option than were guaranteed on average?"""

    @property
    def claim(self) -> AverageClaim:
        """The guarantee as the judge tests it."""
        return AverageClaim(KINDS["set"], self.sets.alpha, self.sets.shared + sum(self.sets.labels))

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
    """The outcome of another level: how many answers would run, by thresholds fitted to the audit's own labels."""

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
    """Answers that were left out, and why."""
    choices: tuple[LevelOutcome, ...] = ()
    """The outcome of other levels; empty where nothing was measured."""
    slices: Mapping[str, Share] = field(default_factory=dict)
    """By the value of a column: what counts against the guarantee, of the labeled answers that it is about."""

    @property
    def verdict(self) -> Verdict:
        """The verdict on the thresholds of all sides together: the worst of them."""
        found = {side.verdict for side in self.sides if side.fitted.claim is not None}
        # A broken guarantee is reported even if another side could not be measured.
        if "does not hold" in found:
            return "does not hold"
        if self.nothing:
            return "nothing was measured"
        return "holds" if found == {"holds"} else "cannot be told"

    @property
    def answer(self) -> str:
        """The answer that a reader wants first, as a sentence."""
        guaranteed = [(side, claim) for side in self.sides if (claim := side.fitted.claim) is not None]
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
        lines = ["at most wrong        run  to a person  wrong of those that run and have a label"]
        for choice in self.choices:
            wrong = str(choice.wrong) if choice.run.count else "nothing can be guaranteed from these labels"
            run, rest = f"{choice.run.count:,}", f"{choice.run.of - choice.run.count:,}"
            lines.append(f"{percent(choice.alpha):>13}{run:>11}{rest:>13}  {wrong}")
        return lines

    @property
    def slice_lines(self) -> list[str]:
        """The slices, the worst first, with intervals that hold for all of them together."""
        # Bonferroni: the reader looks for the worst slice, which chance alone makes look bad among many.
        confidence = 1 - (1 - CONFIDENCE) / max(len(self.slices), 1)
        worst = sorted(self.slices.items(), key=lambda one: -one[1].count / max(one[1].of, 1))
        lines = []
        for place, (name, seen) in enumerate(worst):
            low, high = seen.within(confidence)
            first = " (the worst)" if not place and len(worst) > 1 else ""
            lines.append(
                f"{name}{first}: {seen.count:,} of {seen.of:,}, {percent(seen.count / seen.of)} ({percent(low)} to "
                f"{percent(high)})"
            )
        return lines


@dataclass(frozen=True)
class Audit:
    """The results of an audit."""

    questions: tuple[QuestionAudit, ...]
    unknown: tuple[str, ...] = ()
    """Names of questions that were answered and that the calibrator does not know as they were asked."""

    @property
    def is_broken(self) -> bool:
        """True if any guarantee does not hold, of thresholds or of sets."""
        sets = [question.sets.verdict for question in self.questions if question.sets is not None]
        return "does not hold" in [*sets, *(question.verdict for question in self.questions)]

    def exceeded(self, limits: AuditLimits, required: Collection[str] = ()) -> dict[str, list[str]]:
        """The limits that the required sides do not keep, each as a sentence, by the name of the side."""
        sides = [side for question in self.questions for side in question.sides if side.fitted.is_required(required)]
        return {side.fitted.what: side.exceeded(limits) for side in sides}

    @property
    def gaps(self) -> list[str]:
        """Everything that was not measured, each as a sentence."""
        unknown = [f"{name}: the calibrator does not know this question as it was asked." for name in self.unknown]
        return [f"{question.name}: {question.nothing}" for question in self.questions if question.nothing] + unknown
