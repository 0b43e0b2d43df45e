"""Does a calibrator of decisions hold behind another server? And how far apart are two servers, without labels?

`semtoken.yaml` beside the questions: which server is asked, which calibrator decides, and what has to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from semtoken.calibration.measures import RESAMPLES, Drift, Interval
from semtoken.calibration.promises import percent, upper_error_bound
from semtoken.choices import Promise
from semtoken.decisions.answers import DecisionRecord
from semtoken.decisions.calibrating import DecisionCalibrator, DecisionSide
from semtoken.decisions.options import PredictionSets
from semtoken.errors import InvalidInput
from semtoken.files.texts import read_yaml
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require

Verdict = Literal["holds", "does not hold", "cannot be told", "nothing was promised", "no difference is shown"]
CONFIDENCE = 0.95
OF_WHAT: Mapping[Promise, str] = {
    "selective": "Wrong among them",
    "missed": "Accepted among the wrong ones",
    "joint": "Accepted and wrong, of all on this side,",
}


@dataclass(frozen=True)
class Share:
    """How many of some answers, with the exact (Clopper-Pearson) 95 % interval of the share."""

    count: int
    of: int

    @property
    def interval(self) -> tuple[float, float]:
        """The exact interval (Clopper and Pearson) of the share; 0 to 1 if nothing was counted."""
        beta, tail = require("scipy.stats", extra="calibrate").beta, (1 - CONFIDENCE) / 2
        k, n = self.count, self.of
        low = float(beta.ppf(tail, k, n - k + 1)) if k else 0.0
        return low, float(beta.ppf(1 - tail, k + 1, n - k)) if k < n else 1.0

    def __str__(self) -> str:
        if not self.of:
            return "0 of 0"
        low, high = self.interval
        return f"{self.count} of {self.of} ({percent(self.count / self.of)}, {percent(low)} to {percent(high)})"


@dataclass(frozen=True)
class SideAudit:
    """Whether the promise of one side of a question holds behind another server, with the same counts from its fit."""

    fitted: DecisionSide
    fired_fitted: Share
    """Accepted on this side, of all labelled answers of the question, where it was fitted."""
    wrong_fitted: Share
    """Accepted and wrong, of those that the promise speaks of: the accepted (`selective`), the wrong ones (`missed`),
    all of this side (`joint`). They chose the threshold, so the share flatters."""
    fired: Share
    """Accepted on this side behind the other server, of all its answers to the question."""
    wrong: Share
    """Accepted and wrong behind the other server, of its labelled answers that the promise speaks of."""
    drift: Drift | None
    """How far the log-probabilities of what was chosen have moved, which needs no labels; None where this side is never
    chosen there, or has no calibrator."""
    order_spread: float | None
    """Mean of `order_spread` over the answers there on this side, in [0, 1]; None where one order was read."""

    @property
    def verdict(self) -> Verdict:
        """Whether the promise holds there, by exact one-sided bounds at the promise's own confidence, or at 90 % for a
        promise that holds on average.
        """
        threshold = self.fitted.threshold
        if threshold is None or not self.fitted.promises:
            return "nothing was promised"
        delta, wrong, of = threshold.delta or 0.1, self.wrong.count, self.wrong.of
        if of and upper_error_bound(wrong, of, delta) <= threshold.alpha:
            return "holds"
        if of and 1 - upper_error_bound(of - wrong, of, delta) > threshold.alpha:
            return "does not hold"
        return "cannot be told"

    @property
    def statement(self) -> str:
        """The verdict as a sentence."""
        n = self.wrong.of
        told = f"cannot be told from {n} labels" if self.verdict == "cannot be told" else self.verdict
        lines = [f"{self.fitted.what}: {told}."]
        if self.verdict != "nothing was promised":
            lines.append(f"Accepted {self.fired}, where it was fitted {self.fired_fitted}.")
            lines.append(f"{OF_WHAT[_promise(self.fitted)]} {self.wrong}, where it was fitted {self.wrong_fitted}.")
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


def exceeded(side: SideAudit, limits: DecisionLimits) -> list[str]:
    """The limits that a side does not keep, each as a sentence; none where nothing was promised for it."""
    if side.verdict == "nothing was promised":
        return []
    sentences = []
    if limits.distance is not None and side.drift is not None and side.drift.low > limits.distance:
        sentences.append(f"The distance exceeds the limit of {limits.distance:g}.")
    if limits.accepted is not None and side.fired.interval[1] < limits.accepted:
        sentences.append(f"It accepts fewer than the limit of {percent(limits.accepted)}.")
    if not limits.undecided and side.verdict == "cannot be told":
        sentences.append("The limits ask for labels that can tell.")
    return sentences


def audit(calibrator: DecisionCalibrator, records: Sequence[DecisionRecord]) -> list[SideAudit]:
    """Whether the promises of a calibrator hold for another server's answers to the same questions.

    They are about states that no calibrator was fitted on. The verdict needs labels; the accepted share and the drift
    do not. `InvalidInput` if none of the answers is to a question of the calibrator.
    """
    known = {fingerprint for fingerprint, _ in calibrator.sides}
    if not any(record.fingerprint in known for record in records):
        raise InvalidInput(
            "No answer belongs to a question of this calibrator: instructions, options and their order, reading and "
            "orders have to be the same."
        )
    return [
        _audited(side, [record for record in records if record.fingerprint == fingerprint])
        for (fingerprint, _), side in calibrator.sides.items()
    ]


def _audited(side: DecisionSide, records: Sequence[DecisionRecord]) -> SideAudit:
    chosen = [record for record in records if record.side == side.side]
    accepted = [record for record in chosen if side.accepts(record)]
    judged = [record for record in chosen if record.label is not None]
    judged_accepted = [record for record in accepted if record.label is not None]
    wrong, wrong_accepted = (sum(not record.correct for record in some) for some in (judged, judged_accepted))
    wrong_fitted = 0 if side.threshold is None else side.threshold.n_wrong
    spreads = [record.order_spread for record in chosen if record.order_spread is not None]
    return SideAudit(
        side,
        Share(side.n_accepted, side.asked),
        _of_promise(side, side.n_accepted, side.n_wrong_accepted, side.n, wrong_fitted),
        Share(len(accepted), len(records)),
        _of_promise(side, len(judged_accepted), wrong_accepted, len(judged), wrong),
        side.calibrator.compare([record.log_score for record in chosen]) if side.calibrator and chosen else None,
        float(np.mean(spreads)) if spreads else None,
    )


def _of_promise(side: DecisionSide, accepted: int, wrong_accepted: int, judged: int, wrong: int) -> Share:
    """The share that the promise is about."""
    return Share(wrong_accepted, {"selective": accepted, "missed": wrong, "joint": judged}[_promise(side)])


def _promise(side: DecisionSide) -> Promise:
    return "selective" if side.threshold is None else side.threshold.promise


@dataclass(frozen=True)
class SetAudit:
    """Whether the sets of a question's options hold the right one often enough behind another server."""

    name: str
    sets: PredictionSets
    held: Share
    """Labelled answers whose set has the right option."""
    size: float
    """Mean number of options in a set."""

    @property
    def verdict(self) -> Verdict:
        """`does not hold` where so many sets that lack the right option would come in fewer than 5 % of all fits and
        audits if the labels were alike: the share that a fit misses is itself drawn (Beta), so the test is
        beta-binomial.
        """
        missed, n, fitted = self.held.of - self.held.count, self.held.of, self.sets.shared + sum(self.sets.labels)
        rank = max(self.sets.alpha * (fitted + 1), 1e-9)
        tail = require("scipy.stats", extra="calibrate").betabinom.sf(missed - 1, n, rank, fitted + 1 - rank)
        return "does not hold" if tail < 1 - CONFIDENCE else "no difference is shown"

    @property
    def statement(self) -> str:
        """The verdict as a sentence."""
        return (
            f"{self.name}, sets of options: {self.verdict}. The right option is in {self.held}, where "
            f"{percent(1 - self.sets.alpha)} are promised on average; {self.size:.2f} options in a set."
        )


def audited_sets(calibrator: DecisionCalibrator, records: Sequence[DecisionRecord]) -> list[SetAudit]:
    """Whether the sets of options hold the right one, for each question with labelled answers."""
    audits = []
    for fingerprint, sets in calibrator.sets.items():
        own = [record for record in records if record.fingerprint == fingerprint and record.label is not None]
        if own:
            chosen = [sets(record.probabilities) for record in own]
            held = sum(record.label in options for record, options in zip(own, chosen, strict=True))
            size = float(np.mean([len(options) for options in chosen]))
            audits.append(SetAudit(own[0].name, sets, Share(held, len(own)), size))
    return audits


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
    """95 % interval, by a percentile bootstrap over the states."""
    open_pairs: Share
    """Pairs in which a server rounds, or lists too few options, so that its probability is known within bounds only."""
    shift_range: tuple[float, float]
    """Least and greatest shift that the bounds of these answers allow."""

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
        return sentence


def compare(
    first: Sequence[DecisionRecord], second: Sequence[DecisionRecord], *, seed: int = 0
) -> list[ServerComparison]:
    """How far two servers' answers to the same lines lie apart; `InvalidInput` if their questions or numbers differ."""
    if [(record.fingerprint, record.state) for record in first] != [
        (record.fingerprint, record.state) for record in second
    ]:
        raise InvalidInput("The two files hold answers to other questions, or not to the same states in one order.")
    groups: dict[str, list[tuple[DecisionRecord, DecisionRecord]]] = {}
    for pair in zip(first, second, strict=True):
        groups.setdefault(pair[0].fingerprint, []).append(pair)
    return [_comparison(pairs, seed) for pairs in groups.values()]


def _comparison(pairs: Sequence[tuple[DecisionRecord, DecisionRecord]], seed: int) -> ServerComparison:
    places = [0 if a.kind == "predicate" else a.best for a, _ in pairs]
    p = np.array([[a.probabilities[k], b.probabilities[k]] for k, (a, b) in zip(places, pairs, strict=True)])
    same = Share(sum(a.best == b.best for a, b in pairs), len(pairs))
    flat = bool((p == p[0]).all(axis=0).any())
    correlation = np.nan if flat else require("scipy.stats", extra="calibrate").spearmanr(p[:, 0], p[:, 1]).statistic
    shift = _mean(p[:, 1] - p[:, 0], seed)
    ends = np.array([[_ends(a, k), _ends(b, k)] for k, (a, b) in zip(places, pairs, strict=True)])
    down, up = ends[:, 1, 0] - ends[:, 0, 1], ends[:, 1, 1] - ends[:, 0, 0]
    return ServerComparison(
        pairs[0][0].name,
        same,
        float(correlation),
        shift.value,
        (shift.low, shift.high),
        Share(sum(a.bounds is not None or b.bounds is not None for a, b in pairs), len(pairs)),
        (float(down.mean()), float(up.mean())),
    )


def _ends(record: DecisionRecord, place: int) -> tuple[float, float]:
    """Least and greatest probability of an option."""
    known = record.probabilities[place]
    return (known, known) if record.bounds is None else record.bounds[place]


def _mean(values: FloatArray, seed: int) -> Interval:
    """The mean of some values with its 95 % interval, by a percentile bootstrap."""
    draws = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
    return Interval(float(values.mean()), float(low), float(high))


@dataclass(frozen=True)
class Sensitivity:
    """How the answers to a question change when it is asked in other words, or with its options in another order."""

    name: str
    how: str
    """What was different the second time, for example "in other words"."""
    changed: Share
    """Pairs whose second answer chose another option."""
    decided_otherwise: Share
    """Pairs of which the calibrator accepts one answer and not the other."""
    moved: Interval
    """Mean distance between the two probabilities of what was chosen first, in [0, 1]."""

    @property
    def statement(self) -> str:
        """The figures as a sentence."""
        low, high = (f"{bound:.3f}" for bound in (self.moved.low, self.moved.high))
        return (
            f"{self.name}, asked {self.how}: another choice in {self.changed}, another decision in "
            f"{self.decided_otherwise}; its probability moves by {self.moved.value:.3f} on average ({low} to {high})."
        )


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
    such as "in other words". `InvalidInput` if no question was asked in both ways about one state, or its options are
    others.
    """
    others = {(record.name, record.state): record for record in second}
    groups: dict[str, list[tuple[DecisionRecord, DecisionRecord]]] = {}
    for record in first:
        if (other := others.get((record.name, record.state))) is not None:
            groups.setdefault(record.name, []).append((record, _as_asked(record, other)))
    if not groups:
        raise InvalidInput("No question was asked in both ways about one state.")
    return [_sensitivity(calibrator, name, pairs, how, seed) for name, pairs in groups.items()]


def _as_asked(record: DecisionRecord, other: DecisionRecord) -> DecisionRecord:
    """The second answer with its options in the order of the first."""
    known = {(type(value), value): p for value, p in zip(other.values, other.probabilities, strict=True)}
    wanted = [(type(value), value) for value in record.values]
    if set(known) != set(wanted):
        raise InvalidInput(f"{record.name}: the options are not the same in both ways of asking.")
    probabilities = tuple(known[option] for option in wanted)
    return replace(other, fingerprint=record.fingerprint, values=record.values, probabilities=probabilities)


def _sensitivity(
    calibrator: DecisionCalibrator,
    name: str,
    pairs: Sequence[tuple[DecisionRecord, DecisionRecord]],
    how: str,
    seed: int,
) -> Sensitivity:
    decided = [tuple(calibrator.accepts(record) for record in pair) for pair in pairs]
    moved = [abs(a.probabilities[a.best] - b.probabilities[a.best]) for a, b in pairs]
    return Sensitivity(
        name,
        how,
        Share(sum(a.best != b.best for a, b in pairs), len(pairs)),
        Share(sum(a != b for a, b in decided), len(pairs)),
        _mean(np.array(moved), seed),
    )


NAME = "semtoken.yaml"


@dataclass(frozen=True)
class DecisionLimits:
    """What has to hold besides the promise; where it does not, a check ends with exit status 1."""

    distance: float | None = None
    """Largest distance of the probabilities from those of the fit, in [0, 1]; the lower end of its interval counts."""
    accepted: float | None = None
    """Smallest share that is accepted, in [0, 1]; the upper end of its interval counts."""
    undecided: bool = True
    """Whether it is enough that the labels cannot tell."""


@dataclass(frozen=True)
class DecisionSettings:
    """The settings of one folder of questions; paths are as the file names them, from its own folder on."""

    file: Path | None = None
    upstream: str | None = None
    """Address of the server's API, such as http://127.0.0.1:8000/v1."""
    model: str | None = None
    """The model's name there."""
    questions: Path | None = None
    labelled: Path | None = None
    """Items with labels, by which an audit judges."""
    calibrator: Path | None = None
    alpha: float = 0.1
    delta: float = 0.1
    promise: Promise = "selective"
    require: tuple[str, ...] = ()
    """The questions, or their sides such as "refund, called true", that a fit has to promise and that limits are for.
    Empty: all of them."""
    limits: DecisionLimits = DecisionLimits()

    @property
    def is_of_this_folder(self) -> bool:
        """Whether the file is in the current folder: only then texts may be sent to the server that it names."""
        return self.file is not None and self.file.parent.resolve() == Path.cwd()

    @classmethod
    def beside(cls, *paths: Path | None) -> DecisionSettings:
        """The settings beside the first of some files that has them, else those of this folder, else the defaults."""
        folders = [path if path.is_dir() else path.parent for path in paths if path is not None]
        for folder in (*folders, Path()):
            if (folder / NAME).is_file():
                return cls.read(folder / NAME)
        return cls()

    @classmethod
    def read(cls, path: Path) -> DecisionSettings:
        """Read a file of settings; `InvalidInput` if it cannot be read, or a setting is unknown or has another type."""
        values = _checked(read_yaml(path) or {}, cls, str(path))
        limits = DecisionLimits(**_checked(values.pop("limits", {}), DecisionLimits, f"{path}, limits"))
        for name in ("questions", "labelled", "calibrator"):
            if name in values:
                values[name] = path.parent / values[name]
        return cls(file=path, limits=limits, **values)


def _share(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= 1


_RIGHT: Mapping[str, Callable[[Any], bool]] = {
    "alpha": _share,
    "delta": _share,
    "distance": _share,
    "accepted": _share,
    "undecided": lambda value: isinstance(value, bool),
    "promise": lambda value: value in get_args(Promise),
    "require": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "limits": lambda value: isinstance(value, Mapping),
}
"""What a setting may be; all others are texts."""


def _checked(given: Any, form: type, where: str) -> dict[str, Any]:
    names = [field.name for field in fields(form) if field.name != "file"]
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where} must hold settings by name: {', '.join(names)}.")
    for name, value in given.items():
        if name not in names:
            raise InvalidInput(f"{where}: there is no setting {name!r:.60}. There are {', '.join(names)}.")
        if not _RIGHT.get(str(name), lambda value: isinstance(value, str))(value):
            raise InvalidInput(f"{where}: {name} cannot be {value!r:.60}.")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
