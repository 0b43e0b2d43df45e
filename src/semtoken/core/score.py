"""What agrees with the chosen tokens of some steps, at least and at most: the sums, and the one interval of all steps.

The mass of the entries that agree is certain. What is not listed can add at most the mass that is missing from the
list, and at most as many times the smallest listed probability as tokens agree that are not listed. Engines round their
numbers, so each log may be off a little. Where all logits are known nothing is missing, and the interval is a point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from semtoken.core.columns import Columns, of_lists
from semtoken.core.prefixes import NO_IDS
from semtoken.core.scorer import NEUTRAL, PREFIX, Scorer, among
from semtoken.engine_tokens.checked_list import ListedStep
from semtoken.engine_tokens.top_steps import IN_FULL, ROUNDING, Rounding
from semtoken.support.arrays import BoolArray, FloatArray, IdArray


class LogMass(NamedTuple):
    """The natural log of a step's agreeing probability: lower bound, estimate and upper bound."""

    lower: float
    estimate: float
    upper: float

    @staticmethod
    def total(masses: Sequence[LogMass]) -> LogMass:
        """The log-probabilities of some steps added up, each end of the interval and the estimate by itself."""
        return LogMass(*(math.fsum(logs) for logs in zip(*masses, strict=True))) if masses else CERTAIN


CERTAIN = LogMass(0.0, 0.0, 0.0)


class Bounds(NamedTuple):
    """The bounds of n steps in columns [n]: natural logs of the agreeing probabilities, and masses by source."""

    lower: FloatArray
    estimate: FloatArray
    upper: FloatArray
    certain: BoolArray
    """[n] whether the chosen token is neutral, so that the step counts as 1."""
    shares: FloatArray
    """[n, 4] mass of the entries that count by its source, in the order of `scorer.SOURCES`."""
    ambiguous: FloatArray
    """[n] mass of the entries whose names fit both tokens that count and tokens that do not."""

    @property
    def total(self) -> LogMass:
        """The bounds of all steps added up."""
        return LogMass(*(math.fsum(end.tolist()) for end in (self.lower, self.estimate, self.upper)))

    def masses(self) -> list[LogMass]:
        """The bounds step by step."""
        return list(map(LogMass, self.lower.tolist(), self.estimate.tolist(), self.upper.tolist()))

    def intervals(self) -> list[tuple[float, float]]:
        """Lower and upper bound of the log agreeing probability of each step."""
        return list(zip(self.lower.tolist(), self.upper.tolist(), strict=True))


def interval(low: FloatArray, more: FloatArray, slack: FloatArray | float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Lower bound, estimate and upper bound of log agreeing probabilities [n], all <= 0.

    `low` are the logs of the mass that surely agrees, `more` the mass that may agree beside it, listed or not, and
    `slack` by how much a log may be off, since numbers are rounded.
    """
    with np.errstate(divide="ignore"):
        high = np.logaddexp(low, np.log(more)) if more.any() else low
    estimate = np.minimum(low, 0.0)
    return estimate - slack, estimate, np.minimum(np.minimum(high, 0.0) + slack, 0.0)


@dataclass(eq=False)
class Agreeing:
    """Which tokens agree at some steps of an answer, and with what mass under any rules."""

    scorer: Scorer
    steps: Columns
    prefixes: Sequence[IdArray]
    """The prefix set of each step; without ids while it is open, which leaves the upper bound too low, and where the
    rules do not ask for it."""
    neutrality: bool
    """Whether neutral tokens count as consistent."""
    rounding: Rounding = IN_FULL
    """How far each log-probability may be off. A complete list in full precision is taken as exact."""
    listed: Sequence[ListedStep] = ()
    """What the engine lists at each step; nothing where all logits are known."""

    @cached_property
    def bounds(self) -> Bounds:
        """The bounds of the steps' masses under the rules of the scorer."""
        return self.bounds_under(self.scorer, neutrality=self.neutrality)

    @cached_property
    def prefix_entries(self) -> tuple[IdArray, IdArray]:
        """Step and token of each entry of the prefix sets, ascending."""
        counts = np.fromiter(map(len, self.prefixes), dtype=np.int64, count=len(self.prefixes))
        return np.repeat(np.arange(len(counts)), counts), np.concatenate([NO_IDS, *self.prefixes])

    def in_prefix_sets(self, owners: IdArray, ids: IdArray) -> BoolArray:
        """Which tokens are in the prefix sets of their steps."""
        steps, tokens = self.prefix_entries
        size = self.scorer.vocabulary.size
        return among(owners * size + ids, steps * size + tokens)

    @cached_property
    def begins(self) -> BoolArray:
        """Which entries are in the prefix sets of their steps."""
        return self.in_prefix_sets(self.steps.owners, self.steps.ids)

    def kinds(self, scorer: Scorer, *, neutrality: bool) -> IdArray:
        """Why each entry counts, see `Scorer.kinds`; 0 for those that do not."""
        steps = self.steps
        tokens, opening = steps.tokens[steps.owners], steps.opening[steps.owners]
        begins = self.begins if scorer.rules.prefix_matching else NO_ENTRIES
        return scorer.kinds(tokens, steps.ids, begins, opening, neutrality=neutrality, spelled=steps.spelled)

    def bounds_under(self, scorer: Scorer, *, neutrality: bool) -> Bounds:
        """The bounds of the steps' masses under the rules of another scorer of the same vocabulary."""
        bounds = _bounds(self, scorer, neutrality=neutrality)
        for i, step in enumerate(self.listed):
            if step.stands_for and not bounds.certain[i]:
                may_be = [_as_if(step, token) for token in _one_a_cluster(scorer, step)]
                columns = of_lists(may_be, [bool(self.steps.opening[i])] * len(may_be))
                each = replace(self, steps=columns, prefixes=[self.prefixes[i]] * len(may_be), listed=may_be)
                cases = _bounds(each, scorer, neutrality=neutrality)
                cautious = int(cases.estimate.argmin())
                for values, others in zip(bounds, cases, strict=True):
                    values[i] = others[cautious]
                bounds.lower[i], bounds.upper[i] = cases.lower.min(), cases.upper.max()
        return bounds

    def without_numbers(self, positions: Sequence[int]) -> Agreeing:
        """The same steps, some of which do not tell the probability of their token."""
        listed = list(self.listed)
        for i in positions:
            listed[i] = listed[i]._replace(log_prob=-math.inf, ids=[], probabilities=[], total=0.0)
        return replace(self, listed=listed, steps=of_lists(listed, self.steps.opening.tolist()))


def _bounds(agreed: Agreeing, scorer: Scorer, *, neutrality: bool) -> Bounds:
    """The bounds of the steps' masses under the rules of a scorer, as if it were clear which token was chosen."""
    steps, spelled = agreed.steps, scorer.rules.spelling is not None
    kinds = agreed.kinds(scorer, neutrality=neutrality)
    certain = scorer.are_neutral(steps.tokens, steps.opening) & neutrality
    if not agreed.listed:
        low, shares = _sums(steps, np.where(kinds == NEUTRAL, 0, kinds))  # they are in the sum of all neutral tokens
        if neutrality:
            all_neutral = steps.neutrals[:, 1 if scorer is agreed.scorer.paper else 0]
            low, shares[:, NEUTRAL] = np.logaddexp(low, all_neutral), np.exp(all_neutral)
        ends, ambiguous = interval(low, np.zeros(len(low)), 0.0), np.zeros(len(low))
    else:
        low, shares = _sums(steps, kinds)
        inside, ambiguous = _unclear_masses(agreed, scorer, neutrality=neutrality)
        if spelled:
            inside = inside + steps.alike
        if inside.any():
            with np.errstate(divide="ignore"):
                low = np.logaddexp(low, np.log(inside))
        slack, missing = _missing(agreed, scorer, kinds, ambiguous, neutrality=neutrality)
        perhaps = steps.perhaps if spelled else steps.alike
        ends = interval(low, ambiguous + steps.unmapped + steps.doubtful + perhaps + missing, slack)
        ambiguous = np.minimum(ambiguous + perhaps, 1.0) if spelled else ambiguous
    if certain.any():
        shares[certain, PREFIX] = 0.0
        if agreed.listed:
            shares[certain, NEUTRAL] += np.exp(steps.log_probs[certain])
        ends = tuple(np.where(certain, 0.0, end) for end in ends)  # type: ignore[assignment]
    return Bounds(*ends, certain, np.minimum(shares, 1.0), ambiguous)


def _sums(steps: Columns, kinds: IdArray) -> tuple[FloatArray, FloatArray]:
    """Log of the mass of the entries that count at each step [n], and that mass by kind [n, 4].

    Sums are made relative to the likeliest entry that counts, so that no probability is too small for them.
    """
    owners, logs, level = steps.owners, steps.logs, np.full(len(steps), -np.inf)
    counted = kinds > 0
    if len(owners) == len(level) and counted.all() and (owners[1:] > owners[:-1]).all():  # one of each step
        each = np.zeros((len(level), 4))
        each[owners, kinds] = np.exp(logs)
        return logs, each
    if not counted.all():
        owners, logs, kinds = owners[counted], logs[counted], kinds[counted]
    np.maximum.at(level, owners, logs)
    level[np.isneginf(level)] = 0.0
    shares = np.bincount(4 * owners + kinds, np.exp(logs - level[owners]), minlength=4 * len(level)).reshape(-1, 4)
    with np.errstate(divide="ignore"):
        return level + np.log(shares.sum(axis=1)), shares * np.exp(level)[:, None]


def _missing(
    agreed: Agreeing, scorer: Scorer, kinds: IdArray, ambiguous: FloatArray, *, neutrality: bool
) -> tuple[FloatArray, FloatArray]:
    """By how much the log of each step's mass may be off, and the mass of tokens that may agree and are not listed."""
    steps, rounding = agreed.steps, agreed.rounding
    n, owners = len(steps), steps.owners
    missed: FloatArray | float = rounding.off
    smallest, slack = steps.smallest, np.full(n, rounding.off)
    if not rounding.even:
        probabilities = np.exp(steps.logs)
        higher, counted = _highest(probabilities, rounding), kinds > 0
        whole = _shares_off(probabilities, higher, owners, n)
        own = _shares_off(probabilities[counted], higher[counted], owners[counted], n)
        slack += np.maximum(own, np.where((ambiguous + steps.unmapped + steps.perhaps) > 0, whole, 0.0))
        smallest = np.minimum(_highest(smallest, rounding), 1.0)
        missed = rounding.off + whole * steps.totals
    missing = np.maximum(1.0 - steps.totals, 0.0) + missed
    if steps.complete.any():
        missing[steps.complete] = 0.0
        slack[steps.complete & (slack <= ROUNDING)] = 0.0
    unseen = _sizes(agreed, scorer, neutrality=neutrality) - np.bincount(owners[kinds > 0], minlength=n)
    return slack, np.minimum(missing, np.maximum(unseen, 0) * smallest)


def _one_a_cluster(scorer: Scorer, step: ListedStep) -> list[int]:
    """Tokens that it may be and that differ in what they count: one a cluster, and one of all that are alone in it."""
    members = ((token, scorer.cluster.listed(token)) for token in step.stands_for)
    return list({ids[0] if len(ids) > 1 else None: token for token, ids in members}.values())


def _as_if(step: ListedStep, token: int) -> ListedStep:
    """The step if `token` were the chosen one, which has no id of its own in it, and the stand-in another."""
    swap = {step.token: token, token: step.token}
    return step._replace(
        token=token,
        ids=[token if listed == step.token else listed for listed in step.ids],
        ambiguous=tuple((tuple(swap.get(c, c) for c in candidates), p) for candidates, p in step.ambiguous),
    )


def _highest(probabilities: FloatArray, rounding: Rounding) -> FloatArray:
    """What probabilities may have been before their logs were rounded, beyond what all logs may be off."""
    with np.errstate(divide="ignore"):
        return np.asarray(probabilities * np.exp(rounding.beyond(np.log(probabilities))))


def _shares_off(probabilities: FloatArray, higher: FloatArray, steps: IdArray, n: int) -> FloatArray:
    """The factor by which the sum of each step's probabilities may be higher, as its log."""
    sums = np.bincount(steps, probabilities, minlength=n)
    wider = np.bincount(steps, higher, minlength=n)
    return np.asarray(np.log(np.divide(wider, sums, out=np.ones(n), where=sums > 0)))


NO_ENTRIES = np.zeros(0, dtype=bool)
ANY_NUMBER = 2**53
"""How many tokens may be spelled as a chosen one where the vocabulary is not known: more than any vocabulary has."""


def _sizes(agreed: Agreeing, scorer: Scorer, *, neutrality: bool) -> IdArray:
    """How many tokens are consistent with the chosen one of each step: cluster, prefix set and neutral tokens."""
    steps = agreed.steps
    if scorer.open_ended:
        return np.where(steps.many & (scorer.rules.spelling is not None), ANY_NUMBER, 1)
    pairs = zip(steps.tokens.tolist(), steps.opening.tolist(), strict=True)
    sizes = np.array([scorer.related_count(token, opening, neutrality) for token, opening in pairs], dtype=np.int64)
    owners, ids = agreed.prefix_entries
    if scorer.rules.prefix_matching and len(ids):
        tokens, opening = steps.tokens[owners], steps.opening[owners]
        further = scorer.in_prefix_set(ids)
        further &= ~(scorer.cluster.agree(tokens, ids) | scorer.alike.agree(tokens, ids))
        if neutrality:
            further &= ~scorer.are_neutral(ids, opening)
        sizes += np.bincount(owners[further], minlength=len(steps))
    return sizes


def _unclear_masses(agreed: Agreeing, scorer: Scorer, *, neutrality: bool) -> tuple[FloatArray, FloatArray]:
    """Mass of the entries whose possible tokens all count, and of those of which only some do, for each step."""
    inside, mixed = np.zeros((2, len(agreed.steps)))
    for i, step in enumerate(agreed.listed):
        for candidates, probability in step.ambiguous:
            ids, tokens = np.array(candidates, dtype=np.int64), np.full(len(candidates), step.token)
            begins = among(ids, agreed.prefixes[i])
            opening = np.full(len(ids), agreed.steps.opening[i])
            counts = scorer.kinds(tokens, ids, begins, opening, neutrality=neutrality, spelled=ids < 0) > 0
            inside[i] += probability * bool(counts.all())
            mixed[i] += probability * bool(counts.any() and not counts.all())
    return inside, mixed
