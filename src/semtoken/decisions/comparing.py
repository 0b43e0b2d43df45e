"""Two ways of asking on one set of items: another server, other words, another order of the options.

Without labels: how far the answers lie apart. With labels: which way is more often right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from semtoken.decisions.answers import Answer
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import DecisionRecord
from semtoken.errors import InvalidInputError
from semtoken.guarantees.judge import Share
from semtoken.guarantees.measures import Interval, mean_intervals
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require


@dataclass(frozen=True)
class BothRight:
    """The shares of right answers of two ways of asking, about the same labeled items."""

    first: Share
    second: Share
    gain: Interval
    """The second share minus the first, in [-1, 1], with a 95% interval by a paired percentile bootstrap."""

    @classmethod
    def of(cls, pairs: Sequence[tuple[DecisionRecord, DecisionRecord]], seed: int = 0) -> BothRight | None:
        """Count the pairs of which at least one answer has a label; None if there is none."""
        labeled = [(a.answer, b.answer, b.label if a.label is None else a.label) for a, b in pairs]
        right = np.array([(a.best == label, b.best == label) for a, b, label in labeled if label is not None], float)
        if not right.size:
            return None
        first, second = (Share(int(column.sum()), len(right)) for column in right.T)
        return cls(first, second, _mean(right[:, 1] - right[:, 0], seed))

    @property
    def statement(self) -> str:
        """The figures as a sentence."""
        g = self.gain
        verdict = "no difference is shown" if g.low <= 0 <= g.high else "the second is better" if g.low > 0 else ""
        return (
            f"Right by the labels: {self.first} first, {self.second} second, {g.value:+.3f} ({g.low:+.3f} to "
            f"{g.high:+.3f}): {verdict or 'the first is better'}."
        )


@dataclass(frozen=True)
class ServerComparison:
    """Two servers' answers to one question about the same states, without labels."""

    name: str
    agreement: Share
    """Pairs of answers that chose the same option."""
    rank_correlation: float
    """Spearman's correlation of the two servers' probabilities, in [-1, 1]: of yes for a predicate, else of the option
    that the first server chose. NaN where a server always gives the same probability."""
    shift: float
    """Mean of the second server's probability of that option minus the first's, in [-1, 1]."""
    shift_bounds: tuple[float, float]
    """95% interval, by a percentile bootstrap over the states."""
    open_pairs: Share
    """Pairs in which a server rounds, or lists too few options, so that its probability is known within bounds only."""
    shift_range: tuple[float, float]
    """Least and greatest shift that the bounds of these answers allow."""
    right: BothRight | None = None
    """The share of right answers of each; None without labels."""

    @property
    def statement(self) -> str:
        """The figures as a sentence."""
        low, high = self.shift_bounds
        sentence = (
            f"{self.name}: the same choice in {self.agreement}; rank correlation {self.rank_correlation:.2f}; "
            f"probabilities shifted by {self.shift:+.3f} ({low:+.3f} to {high:+.3f})."
        )
        if self.open_pairs.count:
            low, high = self.shift_range
            sentence += (
                f" In {self.open_pairs} a server rounds, or did not list all options: with that, the shift may be "
                f"anything from {low:+.3f} to {high:+.3f}."
            )
        return sentence if self.right is None else f"{sentence} {self.right.statement}"


def compare(
    first: Sequence[DecisionRecord], second: Sequence[DecisionRecord], *, seed: int = 0
) -> list[ServerComparison]:
    """The differences of two servers' answers to the same lines; `InvalidInputError` if their questions or numbers
    differ.
    """
    if [(record.fingerprint, record.state) for record in first] != [
        (record.fingerprint, record.state) for record in second
    ]:
        raise InvalidInputError(
            "The two files hold answers to other questions, or not to the same states in one order."
        )
    groups: dict[str, list[tuple[DecisionRecord, DecisionRecord]]] = {}
    for pair in zip(first, second, strict=True):
        groups.setdefault(pair[0].fingerprint, []).append(pair)
    return [_comparison(pairs, seed) for pairs in groups.values()]


def _comparison(pairs: Sequence[tuple[DecisionRecord, DecisionRecord]], seed: int) -> ServerComparison:
    answers = [(a.answer, b.answer) for a, b in pairs]
    places = [0 if a.question.kind == "predicate" else a.best for a, _ in answers]
    p = np.array([[a.probabilities[k], b.probabilities[k]] for k, (a, b) in zip(places, answers, strict=True)])
    same = Share(sum(a.best == b.best for a, b in answers), len(pairs))
    # scipy warns and gives NaN where a column is constant.
    flat = bool((p == p[0]).all(axis=0).any())
    correlation = np.nan if flat else require("scipy.stats", extra="calibrate").spearmanr(p[:, 0], p[:, 1]).statistic
    shift = _mean(p[:, 1] - p[:, 0], seed)
    ends = np.array([[_ends(a, k), _ends(b, k)] for k, (a, b) in zip(places, answers, strict=True)])
    # The difference is least where the second is at its lower end and the first at its upper one.
    down, up = ends[:, 1, 0] - ends[:, 0, 1], ends[:, 1, 1] - ends[:, 0, 0]
    return ServerComparison(
        pairs[0][0].name,
        same,
        float(correlation),
        shift.value,
        (shift.low, shift.high),
        Share(sum(a.bounds is not None or b.bounds is not None for a, b in answers), len(pairs)),
        (float(down.mean()), float(up.mean())),
        BothRight.of(pairs, seed),
    )


def _ends(answer: Answer, place: int) -> tuple[float, float]:
    """Least and greatest probability of an option."""
    known = answer.probabilities[place]
    return (known, known) if answer.bounds is None else answer.bounds[place]


def _mean(values: FloatArray, seed: int) -> Interval:
    """The mean of some values with its 95% interval."""
    return mean_intervals({"mean": values}, seed=seed)["mean"]


@dataclass(frozen=True)
class Sensitivity:
    """The change of the answers to a question that is asked in other words, or with its options in another order."""

    name: str
    how: str
    """The difference of the second way, for example "in other words"."""
    changed: Share
    """Pairs whose second answer chose another option."""
    decided_otherwise: Share
    """Pairs of which the calibrator accepts one answer and not the other."""
    moved: Interval
    """Mean distance between the two probabilities of what was chosen first, in [0, 1]."""
    right: BothRight | None = None
    """The share of right answers of each way; None without labels."""

    @property
    def statement(self) -> str:
        """The figures as a sentence."""
        low, high = (f"{bound:.3f}" for bound in (self.moved.low, self.moved.high))
        sentence = (
            f"{self.name}, asked {self.how}: another choice in {self.changed}, another decision in "
            f"{self.decided_otherwise}; its probability moves by {self.moved.value:.3f} on average ({low} to {high})."
        )
        return sentence if self.right is None else f"{sentence} {self.right.statement}"


def sensitivity(
    calibrator: DecisionCalibrator,
    first: Sequence[DecisionRecord],
    second: Sequence[DecisionRecord],
    how: str,
    *,
    seed: int = 0,
) -> list[Sensitivity]:
    """Compare one server's answers to the same questions asked in two ways, such as with another order of the options.

    The calibrator decides about both as if they were to its own question; `how` says what differed the second time,
    such as "in other words". `InvalidInputError` if no question was asked in both ways about one state, or its options
    are others.
    """
    others = {(record.name, record.state): record for record in second}
    groups: dict[str, list[tuple[DecisionRecord, DecisionRecord]]] = {}
    for record in first:
        if (other := others.get((record.name, record.state))) is not None:
            groups.setdefault(record.name, []).append((record, _as_asked(record, other)))
    if not groups:
        raise InvalidInputError("No question was asked in both ways about one state.")
    return [_sensitivity(calibrator, name, pairs, how, seed) for name, pairs in groups.items()]


def _as_asked(record: DecisionRecord, other: DecisionRecord) -> DecisionRecord:
    """The second answer with its options in the order of the first."""
    pairs = zip(other.answer.question.options, other.answer.probabilities, strict=True)
    known = {(type(option.value), option.value): p for option, p in pairs}
    wanted = [(type(option.value), option.value) for option in record.answer.question.options]
    if set(known) != set(wanted):
        raise InvalidInputError(f"{record.name}: the options are not the same in both ways of asking.")
    probabilities = tuple(known[option] for option in wanted)
    answer = replace(other.answer, question=record.answer.question, probabilities=probabilities)
    return replace(other, answer=answer, options=record.options)


def _sensitivity(
    calibrator: DecisionCalibrator,
    name: str,
    pairs: Sequence[tuple[DecisionRecord, DecisionRecord]],
    how: str,
    seed: int,
) -> Sensitivity:
    decided = [tuple(calibrator.accepts(record) for record in pair) for pair in pairs]
    answers = [(a.answer, b.answer) for a, b in pairs]
    moved = [abs(a.probabilities[a.best] - b.probabilities[a.best]) for a, b in answers]
    return Sensitivity(
        name,
        how,
        Share(sum(a.best != b.best for a, b in answers), len(pairs)),
        Share(sum(a != b for a, b in decided), len(pairs)),
        _mean(np.array(moved), seed),
        BothRight.of(pairs, seed),
    )
