"""The one judge of guarantees: what each kind bounds, how new labels test it, its sentence. `fitting` fits them.

| kind | bounds the share of | holds |
| --- | --- | --- |
| `selective_risk` | wrong answers among the accepted | for this label set, with confidence 1 - delta |
| `miss_rate` | accepted answers among the wrong | for this label set, with confidence 1 - delta |
| `joint_risk` | accepted and wrong answers among all | for this label set, with confidence 1 - delta |
| `discarded` | right answers among the discarded (`Bands`) | for this label set, with confidence 1 - delta |
| `set` | sets of options that lack the right one (`PredictionSets`) | on average over label sets |

Groups have one of the first three each, with delta divided by their number.

New labels are counted by `Kind.counted`, and tested in two ways. `judge` looks once, at all guarantees of an audit
together: the probability that it finds any of them broken while all are kept is at most its level (Holm 1979).
`watched` may look after every label (`betting`). A guarantee on average says nothing of one label set, so its share is
itself drawn: the number of sets that lack the right option is beta-binomial (`AverageClaim`), and nothing watches it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.guarantees.betting import LEVEL, Change, find_change, wrong_share
from semtoken.guarantees.exact import binomial_p_value, check_level, labels_needed, percent
from semtoken.methods.metrics import holm
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require

SAME = "as long as model, prompts, questions and judging stay the same"
"""The assumption of every guarantee."""
CONFIDENCE = 0.95
"""Confidence of the intervals that are shown beside a verdict."""

Verdict: TypeAlias = Literal[
    "holds",
    "does not hold",
    "cannot be told",
    "no difference is shown",
    "nothing was guaranteed",
    "nothing was measured",
]
"""`no difference is shown` is the best that can be said of a guarantee on average."""
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Kind:
    """A kind of guarantee: what it bounds, in numbers and in words."""

    name: str
    claim: str
    """The guarantee, with {alpha} in place of the share."""
    answers: str
    """The answers that it is about, as a count is followed by them: "of 30 labeled accepted answers"."""
    limited: str
    """The property that it limits, in words that follow them: "are wrong"."""
    among: str
    """The same in a heading before a share: "Wrong among the accepted"."""
    about: Callable[[Mask, Mask], Mask]
    """A function that finds the answers it is about, by whether they were accepted and whether they are right."""

    def counted(self, accepted: npt.ArrayLike, right: npt.ArrayLike) -> tuple[Mask, Mask]:
        """Two masks bool [n] of labeled answers: those that the guarantee is about, and those that count against it."""
        passed, correct = np.asarray(accepted, dtype=bool), np.asarray(right, dtype=bool)
        against = passed & (correct if self.name == "discarded" else ~correct)
        return self.about(passed, correct), against

    def count(self, accepted: npt.ArrayLike, right: npt.ArrayLike) -> Share:
        """The share that counts against the guarantee, of the answers that it is about."""
        about, against = self.counted(accepted, right)
        return Share(int(against.sum()), int(about.sum()))

    def allowed_risk(self, coverage: FloatArray, alpha: float, wrong_share: float) -> FloatArray:
        """The largest share of wrong answers among the accepted that a guarantee allows, by coverage in (0, 1].

        `wrong_share` is that of all answers. `selective_risk`: alpha; `miss_rate`: alpha wrong_share / coverage;
        `joint_risk`: alpha / coverage.
        """
        of = {
            "selective_risk": coverage,
            "miss_rate": np.full_like(coverage, wrong_share),
            "joint_risk": np.ones_like(coverage),
        }
        return np.minimum(1.0, alpha * of[self.name] / coverage)


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "selective_risk",
            "at most {alpha} of the accepted answers are wrong",
            "labeled accepted answers",
            "are wrong",
            "Wrong among the accepted",
            lambda accepted, right: accepted,
        ),
        Kind(
            "miss_rate",
            "at most {alpha} of the wrong answers are accepted",
            "labeled wrong answers",
            "were accepted",
            "Accepted among the wrong ones",
            lambda accepted, right: ~right,
        ),
        Kind(
            "joint_risk",
            "at most {alpha} of all questions get a wrong answer",
            "labeled answers",
            "were accepted and are wrong",
            "Accepted and wrong, of all,",
            lambda accepted, right: np.ones_like(accepted),
        ),
        Kind(
            "discarded",
            "at most {alpha} of the discarded answers are right",
            "labeled discarded answers",
            "are right",
            "Right among the discarded",
            lambda accepted, right: accepted,
        ),
        Kind(
            "set",
            "at most {alpha} of the sets lack the right option",
            "labeled sets of options",
            "lack the right one",
            "Sets without the right option",
            lambda accepted, right: np.ones_like(accepted),
        ),
    )
}
"""The kinds of guarantees by name; see the head of the module."""


@dataclass(frozen=True)
class Share:
    """A count out of a number of answers, with the exact (Clopper-Pearson) 95% interval of the share."""

    count: int
    of: int

    @property
    def interval(self) -> tuple[float, float]:
        """The exact interval (Clopper and Pearson) of the share; 0 to 1 if nothing was counted."""
        return self.within(CONFIDENCE)

    def within(self, confidence: float) -> tuple[float, float]:
        """The exact two-sided interval of the share at a confidence in (0, 1)."""
        if not self.of:
            return 0.0, 1.0
        test = require("scipy.stats", extra="calibrate").binomtest(self.count, self.of)
        low, high = test.proportion_ci(confidence, method="exact")
        return float(low), float(high)

    def __str__(self) -> str:
        if not self.of:
            return "0 of 0"
        low, high = self.interval
        return f"{self.count:,} of {self.of:,} ({percent(self.count / self.of)}, {percent(low)} to {percent(high)})"


@dataclass(frozen=True)
class Claim:
    """A guarantee with confidence 1 - delta: labels make it (`fitting`), and new labels test it."""

    kind: Kind
    alpha: float
    """The share that is not to be exceeded, in (0, 1)."""
    delta: float
    """One minus the confidence for one label set, in (0, 1)."""

    @property
    def bound(self) -> str:
        """The claim at its level, such as "at most 10% of the accepted answers are wrong"."""
        return self.kind.claim.format(alpha=percent(self.alpha))

    @property
    def fewest(self) -> int:
        """Fewest answers, of those that it is about, from which labels can make it (`exact.labels_needed`)."""
        return labels_needed(0, self.alpha, self.delta)

    def against(self, seen: Share) -> float:
        """p-value of the guarantee: the probability of as many cases against it, or more, while it is just kept.

        Binomial at alpha.
        """
        # sf(k - 1) is the probability of k or more.
        return float(require("scipy.stats", extra="calibrate").binom.sf(seen.count - 1, seen.of, self.alpha))

    def verdict(self, seen: Share) -> Verdict:
        """The verdict where nothing speaks against it: `holds` if new labels alone show it, with its own confidence."""
        shown = binomial_p_value(seen.count, seen.of, self.alpha) <= self.delta
        return "holds" if shown else "cannot be told"


@dataclass(frozen=True)
class AverageClaim:
    """A guarantee that holds on average over label sets, as new labels test it."""

    kind: Kind
    alpha: float
    """The share that is not to be exceeded on average, in (0, 1)."""
    labels: int
    """The number of labels that it was fitted on."""

    def against(self, seen: Share) -> float:
        """p-value as in `Claim`, beta-binomial: alpha (n + 1) of n + 1 places are drawn by a fit on n labels."""
        places = self.labels + 1
        # The beta distribution takes no zero.
        rank = max(self.alpha * places, 1e-9)
        stats = require("scipy.stats", extra="calibrate")
        return float(stats.betabinom.sf(seen.count - 1, seen.of, rank, places - rank))

    def verdict(self, seen: Share) -> Verdict:
        """The verdict where nothing speaks against it: one label set shows no guarantee on average."""
        return "no difference is shown"


def judge(tested: Sequence[tuple[Claim | AverageClaim, Share]], level: float = LEVEL) -> list[Verdict]:
    """The verdict on each of some guarantees, from new labels that are looked at once.

    Parameters
    ----------
    tested : list of n (Claim or AverageClaim, Share)
        A guarantee, and how many of the new labeled answers that it is about count against it.
    level : float in (0, 1)
        `does not hold` comes for any of the guarantees with a probability of at most this while all are kept.

    Returns
    -------
    list of n verdicts
        `holds` only where the new labels alone show the guarantee with its own confidence.

    Raises
    ------
    InvalidInputError
        The level is outside (0, 1).

    References
    ----------
    Holm 1979, "A simple sequentially rejective multiple test procedure": how the p-values are adjusted together.
    """
    check_level(level, "level")
    adjusted = holm([claim.against(seen) if seen.of else 1.0 for claim, seen in tested])
    verdicts: list[Verdict] = []
    for (claim, seen), p_value in zip(tested, adjusted, strict=True):
        if p_value <= level:
            verdicts.append("does not hold")
        else:
            verdicts.append(claim.verdict(seen) if seen.of else "nothing was measured")
    return verdicts


@dataclass(frozen=True)
class Watched:
    """The state of a guarantee by labels that come one by one, valid however often one looks."""

    state: Literal["kept", "unknown", "broken"]
    seen: Share
    bounds: tuple[float, float]
    """Bounds on the share, averaged over the answers so far, valid at all times together."""
    change: Change | None
    """The place at which the guarantee was found broken, and since when; None if it was not."""


def watched(claim: Claim, against: Sequence[bool], level: float = LEVEL) -> Watched:
    """Test a guarantee after every label: `against` says of each answer that it is about whether it counts against it.

    It is called broken with a probability of at most `level` over all looks while no answer counts against it with a
    probability above alpha, given those before.
    """
    seen = Share(sum(against), len(against))
    low, high = wrong_share(seen.count, seen.of, level)
    change = find_change(against, claim.alpha, level) if seen.of else None
    state: Literal["kept", "unknown", "broken"] = "unknown"
    if change is not None:
        state = "broken"
    elif high <= claim.alpha:
        state = "kept"
    return Watched(state, seen, (low, high), change)


def run_sentence(kind: Kind, alpha: float, accepted: int, n: int) -> str:
    """The answer that a reader wants first: how many run, how many go to a person, and what is guaranteed of it."""
    ends = {
        "selective_risk": f"at most {percent(alpha)} of those that run are wrong",
        "miss_rate": f"at most {percent(alpha)} of the wrong ones run",
        "joint_risk": f"at most {percent(alpha)} of all run and are wrong",
    }
    return f"{accepted:,} of {n:,} run, {n - accepted:,} go to a person; {ends[kind.name]}"
