"""The mass consistent with a chosen token where only the best tokens are listed: at least and at most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from semtoken._arrays import IdArray
from semtoken.engine_tokens.checked_list import ALL_DECIMALS, ListedStep
from semtoken.scoring.prefixes import NO_IDS
from semtoken.scoring.scorer import Scorer, among

ROUNDING = 1e-5  # by which a log-probability may be off: engines compute in float32
FEW_DECIMALS = 1  # so few may be chance where the numbers are few, too
MANY_NUMBERS = 10
MANY_HALVES = 4  # so many numbers do not fit a format of half precision by chance


@dataclass(frozen=True)
class StepBounds:
    """Natural logs of a step's clustered probability, and what it is made of (probabilities)."""

    lower: float
    estimate: float
    upper: float
    certain: bool
    """The chosen token is neutral, so the step counts as 1."""
    cluster: float
    prefix: float
    neutral: float
    ambiguous: float
    """Mass of entries that may be consistent or not."""


def rounding(decimals: int, numbers: int) -> float:
    """By how much each of so many log-probabilities may be off that are written with so many decimals at most."""
    rounded = decimals < ALL_DECIMALS and (decimals > FEW_DECIMALS or numbers >= MANY_NUMBERS)
    return ROUNDING + (10.0**-decimals if rounded else 0.0)  # a whole unit: they may have been cut off


def step_bounds(
    scorer: Scorer,
    step: ListedStep,
    prefixes: IdArray | None,
    *,
    neutrality: bool,
    off: float = ROUNDING,
    relative: float = 0.0,
) -> StepBounds:
    """Bounds of one step.

    Parameters
    ----------
    scorer
        Clusters and rules.
    step
        The list.
    prefixes
        Prefix set of the step; None while it is open, which leaves the upper bound too low.
    neutrality
        Whether neutral tokens count as consistent.
    off
        By how much each log-probability may be off. A complete list in full precision is taken as exact.
    relative
        By what share of itself it may be off besides: numbers in half precision.
    """
    if not step.stands_for or (neutrality and scorer.neutral_mask(step.opening)[step.token]):
        return _bounds(scorer, step, prefixes, neutrality=neutrality, off=off, relative=relative)
    found = [
        _bounds(scorer, _as_if(step, token), prefixes, neutrality=neutrality, off=off, relative=relative)
        for token in _one_a_cluster(scorer, step.stands_for)
    ]
    cautious = min(found, key=lambda bounds: bounds.estimate)
    return replace(cautious, lower=min(b.lower for b in found), upper=max(b.upper for b in found))


def _one_a_cluster(scorer: Scorer, tokens: Sequence[int]) -> list[int]:
    """Tokens that differ in what they count: one of each cluster, and one of all that are alone in theirs."""
    members = ((token, scorer.cluster_of(token)) for token in tokens)
    return list({int(ids[0]) if len(ids) > 1 else None: token for token, ids in members}.values())


def _as_if(step: ListedStep, token: int) -> ListedStep:
    """The step if `token` were the chosen one, which has no id of its own in it, and the stand-in another."""
    swap = {step.token: token, token: step.token}
    return replace(
        step,
        token=token,
        ids=np.where(step.ids == step.token, token, step.ids),
        ambiguous=tuple((tuple(swap.get(c, c) for c in candidates), p) for candidates, p in step.ambiguous),
    )


def _bounds(
    scorer: Scorer, step: ListedStep, prefixes: IdArray | None, *, neutrality: bool, off: float, relative: float
) -> StepBounds:
    union = _Union(scorer, step, NO_IDS if prefixes is None else prefixes, neutrality)
    kinds = union.kinds_of(step.ids)
    _, cluster, prefix, neutral = np.bincount(kinds, step.probabilities, minlength=4).tolist()
    certain = bool(neutrality and scorer.neutral_mask(step.opening)[step.token])
    inside, ambiguous = union.unclear_mass()
    lower = math.fsum([cluster, prefix, neutral, inside])
    smallest = step.smallest
    slack = off
    if relative:
        whole = _share_off(step.probabilities, relative)
        slack += max(_share_off(step.probabilities[kinds > 0], relative), whole if ambiguous or step.unmapped else 0.0)
        smallest = min(1.0, smallest * math.exp(-relative * math.log(smallest))) if smallest else 0.0
        off += whole * step.total
    missing = 0.0 if step.complete else max(0.0, 1.0 - step.total) + off
    unseen = union.size - int(np.count_nonzero(kinds)) if missing else 0
    most = min(missing, max(unseen, 0) * smallest)
    upper = lower + ambiguous + step.unmapped + most
    logs = (0.0, 0.0, 0.0) if certain else _logs(lower, upper, 0.0 if step.complete and slack <= ROUNDING else slack)
    return StepBounds(
        *logs,
        certain=certain,
        cluster=min(cluster, 1.0),
        prefix=0.0 if certain else min(prefix, 1.0),
        neutral=min(neutral + certain * math.exp(step.log_prob), 1.0),
        ambiguous=min(ambiguous, 1.0),
    )


def _share_off(probabilities: npt.NDArray[np.float64], relative: float) -> float:
    """By what share the sum of some probabilities may be off whose logarithms are off by a share of themselves."""
    total = float(probabilities.sum())
    if not total:
        return 0.0
    present = probabilities[probabilities > 0]
    logs = -np.log(present)
    return float(math.log((present * np.exp(relative * logs)).sum() / total))


def _logs(lower: float, upper: float, slack: float) -> tuple[float, float, float]:
    """Lower bound, estimate and upper bound. The listed mass alone estimates best: docs/topk.md has the figures."""
    low, high = (min(math.log(mass), 0.0) if mass > 0 else -math.inf for mass in (lower, upper))
    return low - slack, low, min(high + slack, 0.0)


@dataclass(frozen=True, eq=False)
class _Union:
    """The tokens that are consistent with the chosen one: cluster, prefix set and neutral tokens."""

    scorer: Scorer
    step: ListedStep
    prefixes: IdArray
    neutrality: bool

    def kinds_of(self, ids: IdArray) -> npt.NDArray[np.intp]:
        """Why each token counts, see `Scorer.kinds`; 0 for those that do not."""
        opening, begins = self.step.opening, among(ids, self.prefixes)
        return self.scorer.kinds(self.step.token, ids, begins, opening=opening, neutrality=self.neutrality)

    @property
    def size(self) -> int:
        """Its members."""
        members = self.scorer.consistent_ids(self.step.token, self.prefixes)
        if not self.neutrality:
            return len(members)
        others = int(np.count_nonzero(~self.scorer.neutral_mask(self.step.opening)[members]))
        return others + len(self.scorer.neutral_ids(self.step.opening))

    def unclear_mass(self) -> tuple[float, float]:
        """Mass of entries whose possible tokens are all members, and of those of which only some are."""
        inside = mixed = 0.0
        for candidates, probability in self.step.ambiguous:
            members = self.kinds_of(np.array(candidates, dtype=np.int64)) > 0
            inside += probability * bool(members.all())
            mixed += probability * bool(members.any() and not members.all())
        return inside, mixed
