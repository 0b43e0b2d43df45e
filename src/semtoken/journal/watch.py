"""What a journal says of a promise now: whether it is kept, by labels, and how far scores have moved since the fit.

Tests of "at most alpha of the accepted answers are wrong" that may be looked at after every label.

Each is a bet against a claim about the chance that the next answer is wrong, given all before. If the claim is true,
the bet wins nothing on average, so its wealth exceeds 1/level with probability at most `level` over all times together
(Ville's inequality): looking every day costs nothing, and nobody has to say beforehand when to stop.

A bet on a claim "at most m" multiplies the wealth by 1 + c (X - m) / m at an answer that is wrong (X = 1) or right
(X = 0), with c in (0, 1); on "at least m" by 1 - c (X - m) / (1 - m). Bets of several sizes c are averaged.

- Interval: Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting", JRSS B 86(1).
- Change: new bets begin at all times, with shares of the wealth that sum to one (`START_SHARES`); their sum is again a
  bet, which stays worth 1 on average. Shin, Ramdas and Rinaldo 2024, "E-detectors: a nonparametric framework for
  sequential change detection", New England Journal of Statistics in Data Science 2(2), sum such bets without shares,
  which limits how often an alarm comes on average and not whether there is ever one; see also Volkhonskiy et al. 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.calibration.measures import Drift
from semtoken.errors import InvalidInput, SemtokenError
from semtoken.journal.database import entries
from semtoken.journal.entries import answer_of
from semtoken.journal.labels import LabelledEntry, labelled_sample, open_before
from semtoken.journal.store import InUse, Journal, Row
from semtoken.support.arrays import FloatArray, real_numbers

SIZES: FloatArray = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9])
"""Sizes c of bets on intervals, from small differences that many labels show to large ones."""
RATIOS: FloatArray = np.array([1.25, 1.5, 2.0, 3.0, 5.0, 8.0])
"""Each bet on a change wins most if the share of wrong answers becomes this many times alpha, or (1 + alpha) / 2 where
that is less.
"""
LEVEL = 0.05
"""How likely an interval may ever miss the truth, and how likely a kept promise may ever be called broken."""
BLOCK = 10
"""New bets begin each time so many labels more have come."""
_BISECTIONS = 50


def wrong_share(wrong: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Bounds on the chance of a wrong answer, averaged over the answers so far: a confidence sequence.

    Over all n together it misses the truth with probability at most `level`, in (0, 1), a half of it for each end. It
    holds where the chance changes from answer to answer, too: the lower end is then no larger than the largest of them,
    the upper no smaller than the smallest.
    """
    if not 0 <= wrong <= n:
        raise InvalidInput(f"There cannot be {wrong} wrong answers among {n}.")
    limit = math.log(2 / check_level(level))
    low = _largest(lambda m: _log_wealth_above(wrong, n, m) >= limit)
    high = 1 - _largest(lambda m: _log_wealth_above(n - wrong, n, m) >= limit)
    return low, high


def _largest(rejected: Callable[[float], bool]) -> float:
    """The largest m in [0, 1] that is rejected; those below are, too. 0 if none is."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def _log_wealth_above(wrong: int, n: int, m: float) -> float:
    """Log of the mean wealth of bets against "the chance is at most m" after `wrong` of n."""
    logs = wrong * np.log1p(SIZES * (1 - m) / m) + (n - wrong) * np.log1p(-SIZES)
    return float(np.logaddexp.reduce(logs) - math.log(SIZES.size))


def change_evidence(wrong: npt.ArrayLike, alpha: float) -> FloatArray:
    """Log wealth of the bet that the share of wrong answers is, or has become, larger than alpha, [..., n].

    If every answer is wrong with a chance of at most alpha, given those before, the wealth ever exceeds 1/level with
    probability at most `level`. `wrong`, [..., n] of true and false, labels accepted answers in the order in which they
    came; leading dimensions are other streams of them.
    """
    labels = _labels(wrong)
    gains, losses = _log_factors(alpha)
    wealth = np.full((*labels.shape[:-1], gains.size), -np.inf)  # of the bets that have begun
    evidence = np.empty(labels.shape)
    shares = _start_shares(labels.shape[-1])
    left = 0.0  # log of the share of those that have not, which is worth what it was
    for t in range(labels.shape[-1]):
        if t % BLOCK == 0:
            wealth = np.logaddexp(wealth, math.log(shares[t // BLOCK]))
            left = math.log(1.0 - shares[: t // BLOCK + 1].sum())
        wealth = wealth + np.where(labels[..., t, None], gains, losses)
        mean = np.logaddexp.reduce(wealth, axis=-1) - math.log(gains.size)
        evidence[..., t] = np.logaddexp(mean, left)
    return evidence


def _start_shares(n: int) -> FloatArray:
    """Shares of the wealth for bets that begin at block 0, 1, 2 ...: half at once, the rest as 1 / (j log(j)^2), whose
    sum over all j from 3 on is below 1.1: late changes cost little.
    """
    blocks = np.arange(n // BLOCK + 1, dtype=np.float64) + 2
    shares: FloatArray = 0.5 / 1.1 / (blocks * np.log(blocks) ** 2)
    shares[0] = 0.5
    return shares


def _log_factors(alpha: float) -> tuple[FloatArray, FloatArray]:
    """Log factors of the wealth at a wrong and at a right answer, [bets] each: likelihood ratios of larger shares of
    wrong answers against alpha, that is bets of the sizes (share - alpha) / (1 - alpha).
    """
    check_level(alpha, "alpha")
    larger = np.unique(np.minimum(RATIOS * alpha, (1 + alpha) / 2))
    return np.log(larger / alpha), np.log((1 - larger) / (1 - alpha))


@dataclass(frozen=True)
class Change:
    """The answer at which a promise was found broken, and the one since which it has been broken."""

    noticed: int
    """Position of the label at which it was noticed."""
    since: int
    """Position of the first answer after the change, as the labels up to then suggest; 0: from the beginning."""


def find_change(wrong: npt.ArrayLike, alpha: float, level: float = LEVEL) -> Change | None:
    """When the promise was found to be broken, and since when it may be; None where it was not.

    The rest is as for `change_evidence`. `InvalidInput` if these are not labels of one stream, each true or false, or
    alpha or level is outside (0, 1).
    """
    labels = _labels(wrong)
    if labels.ndim != 1:
        raise InvalidInput("Give the labels of one stream of answers.")
    passed = np.flatnonzero(change_evidence(labels, alpha) >= -math.log(check_level(level)))
    if not passed.size:
        return None
    noticed = int(passed[0])
    # The start at which the labels up to now favour a larger share most, over all bets: as in CUSUM.
    factors = np.where(labels[noticed::-1, None], *_log_factors(alpha))
    sums = np.cumsum(factors, axis=0)[::-1]
    return Change(noticed, int(np.unravel_index(int(sums.argmax()), sums.shape)[0]))


def _labels(wrong: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    values = real_numbers(wrong, "wrong", booleans=True).astype(np.float64)
    if values.ndim < 1 or not np.isin(values, (0, 1)).all():
        raise InvalidInput("Labels must be true (wrong) or false (right), one for each accepted answer.")
    labels: npt.NDArray[np.bool_] = values.astype(bool)
    return labels


def check_level(level: float, name: str = "level") -> float:
    """Return a share as a float; raise `InvalidInput` if it is not strictly between 0 and 1."""
    if not 0 < level < 1:
        raise InvalidInput(f"{name} must be between 0 and 1, got {level}.")
    return level


State: TypeAlias = Literal["kept", "unknown", "broken", "no_promise"]
RECENT_SCORES = 2_000
"""How many of the newest answers have their scores compared with those of the labelled ones."""
FEWEST_QUESTIONS = 12
"""Scores are compared only if the newest answers are to so many different questions: with fewer the interval of the
distance is too narrow.
"""
WHAT = {
    "selective": ("labelled accepted answers", "are wrong"),
    "missed": ("labelled wrong answers", "were accepted"),
    "joint": ("labelled answers", "were accepted and are wrong"),
}
"""The answers that each promise is about, and what it limits."""


@dataclass(frozen=True)
class PromiseReport:
    """Whether the calibrator in use keeps its promise, from the labels so far."""

    state: State
    """`unknown`: the labels do not tell yet; `no_promise`: there is no calibrator, or it promises nothing."""
    sentence: str
    calibrator: str | None = None
    """SHA-256 of the calibrator's file; None where there is no calibrator."""
    alpha: float | None = None
    """The share that is promised not to be exceeded; None where nothing is promised."""
    level: float = LEVEL
    """How likely a kept promise is ever called broken."""
    n: int = 0
    """Labelled answers that the promise is about."""
    wrong: int = 0
    """Those of them that count against the promise."""
    low: float = 0.0
    """Bounds on the share, averaged over these answers, valid however often one looks."""
    high: float = 1.0
    broken_since: float | None = None
    """When the first answer after the change was given, in seconds since 1970; None where nothing is broken."""
    order: Literal["draw", "labels"] = "labels"
    """In which order the labels count: that of the answers, as the random draw took them, or that of first labels."""
    without_label: int = 0
    """Answers of the sample before the last labelled one that have no label; with 0 the order is that of the draw."""
    undecided: int = 0
    """Answers that nobody could tell right from wrong, though people tried."""
    moved: Drift | None = None
    """How far the newest scores are from those of the labelled answers."""
    moved_sentence: str = ""
    states_moved: Drift | None = None
    """How far the newest hidden states are from those that a number was learned on; None where none was."""
    states_sentence: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)


def watch(journal: Journal, *, level: float = LEVEL) -> PromiseReport:
    """Test whether the calibrator that came into use last keeps its promise.

    Only labels of the random sample count, and only of answers that this calibrator decided. They count in the order of
    the answers, which the random draw gives, where every answer up to the last labelled one has a label; else in the
    order of their first labels. In either order a promise is called broken with a probability of at most `level`, in
    (0, 1), over all looks if no answer, given those before, is wrong with a chance above alpha. That is more than the
    promise, which limits the average. In the order of labels it also takes that when a label comes does not depend on
    what it says.
    """
    used = journal.in_use()
    if not used:
        return PromiseReport("no_promise", "No calibrator has decided anything in this journal: nothing is promised.")
    newest = used[0]
    about: dict[str, Any] = {"calibrator": newest.checksum, "level": level, **_moved(journal, newest)}
    threshold = newest.calibrator.threshold
    if threshold is None or threshold.uncertainty is None:
        return PromiseReport("no_promise", "The calibrator that decides promises nothing.", **about)
    labelled = labelled_sample(journal, newest.checksum, columns=("decision",))
    about["undecided"] = sum(entry.correct is None for entry in labelled)
    last = max((entry.row["n"] for entry in labelled), default=0)
    missing = open_before(journal, newest.checksum, last, accepted=threshold.promise == "selective")
    if not missing:
        labelled = sorted(labelled, key=lambda entry: int(entry.row["n"]))
    about |= {"order": "labels" if missing else "draw", "without_label": missing}
    counted = _counted(labelled, threshold.promise)
    return promise_report(
        [bad for _, bad in counted], [at for at, _ in counted], threshold.alpha, threshold.promise, level, about
    )


def _counted(labelled: Sequence[LabelledEntry], promise: str) -> list[tuple[float, bool]]:
    """The labelled answers that a promise is about: when each was given, and whether it counts against the promise."""
    told = [entry for entry in labelled if entry.correct is not None]
    accepted = [entry.row["decision"] == "answer" for entry in told]
    match promise:
        case "selective":
            return [(entry.row["at"], not entry.correct) for entry, a in zip(told, accepted, strict=True) if a]
        case "missed":
            return [(entry.row["at"], a) for entry, a in zip(told, accepted, strict=True) if not entry.correct]
        case _:
            return [(entry.row["at"], a and not entry.correct) for entry, a in zip(told, accepted, strict=True)]


def promise_report(
    bad: Sequence[bool],
    times: Sequence[float],
    alpha: float,
    promise: str = "selective",
    level: float = LEVEL,
    about: dict[str, Any] | None = None,
) -> PromiseReport:
    """Test from labels alone whether a promise is kept; `promise` and `level` are as in `Threshold` and `watch`.

    `bad` says of each answer, in the order of the labels, whether it counts against the promise, and `times` when it
    was answered, in seconds since 1970. `alpha` is the share that was promised; `about` has further fields of the
    report.
    """
    n, wrong = len(bad), sum(bad)
    low, high = wrong_share(wrong, n, level)
    facts: dict[str, Any] = {**(about or {}), "alpha": alpha, "n": n, "wrong": wrong, "low": low, "high": high}
    answers, limited = WHAT[promise]
    told = f"{wrong} of {n} {answers} {limited} (between {percent(low)} and {percent(high)}); promised: at most "
    told += f"{percent(alpha)}."
    change = find_change(bad, alpha, level) if n else None
    if change is not None:
        since = times[change.since]
        if facts.get("without_label"):
            told += (
                " This takes that wrong answers are not labelled sooner than right ones: "
                f"{facts['without_label']} older answers of the sample have no label. Label them, and the order of the "
                "answers decides."
            )
        return PromiseReport(
            "broken",
            f"Broken since about {day(since)}: take the threshold back. {told[0].upper()}{told[1:]}",
            broken_since=since,
            **facts,
        )
    if high <= alpha:
        return PromiseReport("kept", f"Kept so far: {told}", **facts)
    if n == 0:
        return PromiseReport("unknown", f"Cannot be told yet: 0 labels. Promised: at most {percent(alpha)}.", **facts)
    return PromiseReport("unknown", f"Cannot be told yet: {n} labels. {told[0].upper()}{told[1:]}", **facts)


def _moved(journal: Journal, used: InUse) -> dict[str, Any]:
    """Fields of a report: how far the newest scores and states are from those that the calibrator was fitted on."""
    scored = (entries.c.calibrator == used.checksum, entries.c.unscored.is_(None))
    rows = list(journal.entries(*scored, newest_first=True, limit=RECENT_SCORES))
    if not rows:
        return {"moved_sentence": "No answer has been decided by it yet."}
    rows = _one_of_each_question(rows)
    if len(rows) < FEWEST_QUESTIONS:
        told = f"The newest answers are to {len(rows)} different questions: too few to tell whether scores have moved."
        return {"moved_sentence": told}
    answers, calibrator = [answer_of(row) for row in rows], used.calibrator
    fields: dict[str, Any] = {}
    fields["moved"], fields["moved_sentence"] = _compared(lambda: calibrator.compare(answers), "scores")
    if calibrator.learned is not None and calibrator.learned.reads_states:
        fields["states_moved"], fields["states_sentence"] = _compared(
            lambda: calibrator.compare_states(answers), "hidden states"
        )
    return fields


def _one_of_each_question(rows: Sequence[Row]) -> list[Row]:
    """The first answer to each prompt, as calibrators are fitted: repeated ones are evidence that is not there."""
    first: dict[Any, Row] = {}
    for row in rows:
        first.setdefault(row["n"] if row["prompt"] is None else row["prompt"], row)
    return list(first.values())


def _compared(compare: Callable[[], Drift], what: str) -> tuple[Drift | None, str]:
    """The result of a comparison, or None if it was impossible, and a sentence about it."""
    try:
        moved = compare()
    except SemtokenError as error:
        return None, f"The {what} cannot be compared: {error}"
    between = f"{moved.distance:.2f} (95 % interval {moved.low:.2f} to {moved.high:.2f})"
    told = (
        f"The newest {what}, of {moved.n_recent:,} different questions, are at a distance of {between} from the "
        f"{moved.n_fitted:,} labelled ones"
    )
    if moved.low == 0:
        return moved, f"{told}: no difference is shown."
    return moved, f"{told}: questions or model have changed. Labels tell what that does to the promise."


def percent(share: float) -> str:
    """A share as percent."""
    return f"{100 * share:.1f} %".replace(".0 %", " %")


def day(seconds: float) -> str:
    """A day as text in UTC, from seconds since 1970."""
    date = datetime.fromtimestamp(seconds, UTC)
    return f"{date.day} {date:%B %Y}"
