"""The mass that agrees with the chosen tokens of some steps, at least and at most: sums, and one interval for all.

The mass of the entries that agree is certain. What is not listed can add at most the mass that is missing from the
list, and at most as many times the smallest listed probability as tokens agree that are not listed. Engines round their
numbers, so each log may be off a little. Where all logits are known nothing is missing, and the interval is a point.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from semtoken.core.columns import Columns, joined, no_steps, of_lists
from semtoken.core.engine_tokens.checked_list import Doubts, ListedStep
from semtoken.core.engine_tokens.precision import IN_FULL, ROUNDING, Rounding
from semtoken.core.prefixes import NO_IDS
from semtoken.core.scorer import NEUTRAL, PREFIX, SOURCES, Scorer, among
from semtoken.support.arrays import BoolArray, FloatArray, IdArray


class LogMass(NamedTuple):
    """The natural log of a step's agreeing probability: lower bound, estimate and upper bound."""

    lower: float
    estimate: float
    upper: float

    @staticmethod
    def total(masses: Sequence[LogMass]) -> LogMass:
        """The log-probabilities of some steps added up, each end of the interval and the estimate by itself."""
        return LogMass(*map(math.fsum, zip(*masses, strict=True))) if masses else CERTAIN


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

    def masses(self) -> list[LogMass]:
        """The bounds step by step."""
        return list(map(LogMass, self.lower.tolist(), self.estimate.tolist(), self.upper.tolist()))

    def intervals(self) -> list[tuple[float, float]]:
        """Lower and upper bound of the log agreeing probability of each step."""
        return list(zip(self.lower.tolist(), self.upper.tolist(), strict=True))


class StepMass(NamedTuple):
    """The mass that a list shows of one step: a row of `Bounds`, whose columns say what each number is."""

    log_mass: LogMass
    """Its `lower`, `estimate` and `upper`."""
    shares: list[float]
    ambiguous: float
    certain: bool = False


def columns_of(masses: Sequence[StepMass]) -> Bounds:
    """The steps of lists in columns."""
    lower, estimate, upper = np.array([step.log_mass for step in masses], dtype=np.float64).reshape(-1, 3).T
    shares = np.array([step.shares for step in masses], dtype=np.float64).reshape(-1, len(SOURCES))
    certain, ambiguous = [step.certain for step in masses], [step.ambiguous for step in masses]
    return Bounds(lower, estimate, upper, np.array(certain, dtype=bool), np.minimum(shares, 1.0), np.array(ambiguous))


def interval(mass: float, more: float, slack: float) -> LogMass:
    """Lower bound, estimate and upper bound of a log agreeing probability, all <= 0.

    `mass` surely agrees, `more` may agree beside it, listed or not, and by `slack` a log may be off, since numbers are
    rounded.
    """
    # Clamped to 0, since rounded numbers may add up to more than 1.
    low = min(math.log(mass), 0.0) if mass > 0 else -math.inf
    high = math.log(min(mass + more, 1.0)) if more > 0 else low
    # The estimate is what is listed, the cautious end of the interval, which ranks answers best.
    return LogMass(low - slack, low, min(high + slack, 0.0))


@dataclass(eq=False)
class Agreeing:
    """The tokens that agree at some steps of an answer, and their mass under any rules."""

    scorer: Scorer
    rows: Columns | None
    """The steps, where all logits are known."""
    prefixes: Sequence[IdArray]
    """The prefix set of each step; without ids while it is open, which leaves the upper bound too low, and where the
    rules do not ask for it."""
    neutrality: bool
    """True if neutral tokens count as consistent."""
    rounding: Rounding = IN_FULL
    """The error that each log-probability may have. A complete list in full precision is taken as exact."""
    listed: Sequence[ListedStep] = ()
    """The engine's list of each step; nothing where all logits are known."""
    opening: Sequence[bool] = ()
    """For each of these steps, True if only blanks come before it."""

    @cached_property
    def steps(self) -> Columns:
        """The steps in columns, to which lists are brought when somebody asks for them."""
        return of_lists(self.listed, self.opening) if self.rows is None else self.rows

    @cached_property
    def masses(self) -> list[LogMass]:
        """The log masses of the steps under the rules of the scorer."""
        return [step.log_mass for step in self._listed_masses] if self.rows is None else self.bounds.masses()

    @cached_property
    def bounds(self) -> Bounds:
        """The bounds of the steps' masses under the rules of the scorer, in columns."""
        if self.rows is None:
            return columns_of(self._listed_masses)
        return self.bounds_under(self.scorer, neutrality=self.neutrality)

    @cached_property
    def _listed_masses(self) -> list[StepMass]:
        return _masses_of_lists(self, self.scorer, neutrality=self.neutrality)

    @cached_property
    def prefix_entries(self) -> tuple[IdArray, IdArray]:
        """Step and token of each entry of the prefix sets, ascending."""
        counts = np.fromiter(map(len, self.prefixes), dtype=np.int64, count=len(self.prefixes))
        return np.repeat(np.arange(len(counts)), counts), np.concatenate([NO_IDS, *self.prefixes])

    @cached_property
    def begins(self) -> BoolArray:
        """For each entry, True if it is in the prefix set of its step, bool [m]."""
        owners, tokens = self.prefix_entries
        size = self.scorer.vocabulary.size
        return among(self.steps.owners * size + self.steps.ids, owners * size + tokens)

    def kinds(self, scorer: Scorer, *, neutrality: bool) -> IdArray:
        """The reason why each entry counts, see `Scorer.kinds`; 0 for those that do not."""
        if self.rows is None:
            listed = self.kinds_by_step(scorer, neutrality=neutrality)
            return np.array(list(chain.from_iterable(listed)), dtype=np.int64)
        steps = self.rows
        tokens, opening = steps.tokens[steps.owners], steps.opening[steps.owners]
        begins = self.begins if scorer.rules.prefix_matching else NO_ENTRIES
        return scorer.kinds(tokens, steps.ids, begins, opening, neutrality=neutrality)

    def kinds_by_step(self, scorer: Scorer, *, neutrality: bool) -> list[list[int]]:
        """The same for the tokens of each list, in their order."""
        steps = zip(self.listed, self.prefixes, self.opening, strict=True)
        return [scorer.kinds_listed(step, step.ids, prefixes, opening, neutrality) for step, prefixes, opening in steps]

    def bounds_under(self, scorer: Scorer, *, neutrality: bool) -> Bounds:
        """The bounds of the steps' masses under the rules of another scorer of the same vocabulary."""
        if self.rows is not None:
            return _bounds_of_rows(self, scorer, neutrality=neutrality)
        return columns_of(_masses_of_lists(self, scorer, neutrality=neutrality))

    def at(self, places: Sequence[int]) -> Agreeing:
        """The steps at some places alone."""
        prefixes = [self.prefixes[place] for place in places]
        if self.rows is not None:
            parts = [self.rows.part(place, place + 1) for place in places]
            return replace(self, rows=joined(parts) if parts else no_steps(), prefixes=prefixes)
        listed, opening = [self.listed[place] for place in places], [self.opening[place] for place in places]
        return replace(self, listed=listed, prefixes=prefixes, opening=opening)

    def without_numbers(self, positions: Sequence[int]) -> Agreeing:
        """The same steps, some of which do not give the probability of their token."""
        listed = list(self.listed)
        for i in positions:
            listed[i] = listed[i]._replace(log_prob=-math.inf, ids=[], probabilities=[], total=0.0)
        return replace(self, listed=listed)


def _bounds_of_rows(agreed: Agreeing, scorer: Scorer, *, neutrality: bool) -> Bounds:
    """The bounds of the steps' masses under the rules of a scorer, which are exact."""
    steps = agreed.steps
    kinds = agreed.kinds(scorer, neutrality=neutrality)
    # A neutral chosen token counts as 1 (the published code), whatever its probability is.
    certain = scorer.are_neutral(steps.tokens, steps.opening) & neutrality
    low, shares = _sums(steps, np.where(kinds == NEUTRAL, 0, kinds))  # they are in the sum of all neutral tokens
    if neutrality:
        # The second column is the sum under the paper's rules, which may call other tokens neutral than the scorer's
        # own.
        all_neutral = steps.neutrals[:, 1 if scorer is agreed.scorer.paper else 0]
        low, shares[:, NEUTRAL] = np.logaddexp(low, all_neutral), np.exp(all_neutral)
    # A step that counts as 1 has no use for its prefix set.
    shares[certain, PREFIX] = 0.0
    low = np.where(certain, 0.0, np.minimum(low, 0.0))
    return Bounds(low, low, low, certain, np.minimum(shares, 1.0), np.zeros(len(low)))


def _masses_of_lists(agreed: Agreeing, scorer: Scorer, *, neutrality: bool) -> list[StepMass]:
    """The masses of the steps under the rules of a scorer, step by step."""
    masses = _as_chosen(agreed, scorer, neutrality=neutrality)
    for i, step in enumerate(agreed.listed):
        if step.doubts is not None and step.doubts.stands_for and not masses[i].certain:
            may_be = [_as_if(step, step.doubts, token) for token in _one_a_cluster(scorer, step.doubts.stands_for)]
            n = len(may_be)
            each = replace(agreed, prefixes=[agreed.prefixes[i]] * n, listed=may_be, opening=[agreed.opening[i]] * n)
            cases = _as_chosen(each, scorer, neutrality=neutrality)
            # The numbers shown are those of the worst case, and the interval holds all cases.
            cautious = min(cases, key=lambda case: case.log_mass.estimate)
            lower, upper = min(case.log_mass.lower for case in cases), max(case.log_mass.upper for case in cases)
            masses[i] = cautious._replace(log_mass=LogMass(lower, cautious.log_mass.estimate, upper))
    return masses


def _as_chosen(agreed: Agreeing, scorer: Scorer, *, neutrality: bool) -> list[StepMass]:
    """The masses of the steps under the rules of a scorer, as if it were clear which token was chosen."""
    off, masses = agreed.rounding.off, []
    kinds = agreed.kinds_by_step(scorer, neutrality=neutrality)
    sizes = _sizes(agreed, scorer, neutrality=neutrality)
    effects = itertools.repeat(NO_EFFECT) if agreed.rounding.even else _effects_of_rounding(agreed, kinds)
    for i, (step, each, size, (own, whole, most)) in enumerate(zip(agreed.listed, kinds, sizes, effects, strict=False)):
        shares = [0.0] * len(SOURCES)
        for place, kind in enumerate(each):
            if kind:
                shares[kind] += step.probabilities[place]
        mass, more, ambiguous, slack = sum(shares), 0.0, 0.0, off + own
        if step.doubts is not None:
            doubtful = _doubtful_mass(agreed, i, step.doubts, scorer, neutrality=neutrality)
            shares = [listed + unclear for listed, unclear in zip(shares, doubtful.shares, strict=True)]
            mass, more, ambiguous = sum(shares), doubtful.more, doubtful.ambiguous
            # The log of the upper end is off by as much as the mass that may be added to it is.
            slack = off + max(own, whole if doubtful.is_open else 0.0)
        if step.complete:  # a list of all tokens in full precision is as good as a row of logits
            slack = 0.0 if slack <= ROUNDING else slack
        elif (unseen := size - len(each) + each.count(0)) > 0:
            # Listed probabilities may have been rounded up, so that more is missing than they leave of 1.
            missing = max(1.0 - step.total, 0.0) + off + whole * step.total
            more += min(missing, unseen * (step.smallest if most is None else most))
        masses.append(StepMass(interval(mass, more, slack), shares, ambiguous))
    if neutrality and scorer.knows_neutral:
        neutral = scorer.are_neutral(agreed.steps.tokens, agreed.steps.opening)
        for i in np.flatnonzero(neutral).tolist():
            masses[i] = _as_neutral(masses[i], agreed.listed[i])
    return masses


def _as_neutral(mass: StepMass, step: ListedStep) -> StepMass:
    """The mass of a step whose token is neutral, so that it counts as 1."""
    shares = list(mass.shares)
    shares[PREFIX] = 0.0
    # So that it counts among the neutral tokens, as in the sum that rows bring.
    shares[NEUTRAL] += math.exp(step.log_prob)
    return StepMass(CERTAIN, shares, mass.ambiguous, certain=True)


def _sums(steps: Columns, kinds: IdArray) -> tuple[FloatArray, FloatArray]:
    """Log of the mass of the entries that count at each step [n], and that mass by kind [n, 4].

    Sums are made relative to the likeliest entry that counts, so that no probability is too small for them.
    """
    owners, logs, level = steps.owners, steps.logs, np.full(len(steps.tokens), -np.inf)
    counted = kinds > 0
    if len(owners) == len(level) and counted.all() and (owners[1:] > owners[:-1]).all():  # one of each step
        each = np.zeros((len(level), 4))
        each[owners, kinds] = np.exp(logs)
        return logs, each
    if not counted.all():
        owners, logs, kinds = owners[counted], logs[counted], kinds[counted]
    np.maximum.at(level, owners, logs)
    # The difference of two minus infinities would be NaN.
    level[np.isneginf(level)] = 0.0
    shares = np.bincount(4 * owners + kinds, np.exp(logs - level[owners]), minlength=4 * len(level)).reshape(-1, 4)
    with np.errstate(divide="ignore"):
        return level + np.log(shares.sum(axis=1)), shares * np.exp(level)[:, None]


class RoundingEffect(NamedTuple):
    """The effect that rounding may have had on one step, where it depends on the size of a number."""

    own: float = 0.0
    """By how much the log of the mass that counts may be higher."""
    whole: float = 0.0
    """The same of the whole list."""
    most: float | None = None
    """The most that its smallest probability may have been; None where that is known."""


NO_EFFECT = RoundingEffect()


def _effects_of_rounding(agreed: Agreeing, kinds: Sequence[Sequence[int]]) -> Iterator[RoundingEffect]:
    """The effect that rounding may have had on each step."""
    steps, rounding, n = agreed.steps, agreed.rounding, len(agreed.listed)
    probabilities, counted = np.exp(steps.logs), np.array(list(chain.from_iterable(kinds)), dtype=np.int64) > 0
    higher = _highest(probabilities, rounding)
    whole = _shares_off(probabilities, higher, steps.owners, n)
    own = _shares_off(probabilities[counted], higher[counted], steps.owners[counted], n)
    most = np.minimum(_highest(np.array([step.smallest for step in agreed.listed]), rounding), 1.0)
    return map(RoundingEffect, own.tolist(), whole.tolist(), most.tolist())


def _one_a_cluster(scorer: Scorer, stands_for: Sequence[int]) -> list[int]:
    """Tokens that the chosen one may be: one for each cluster, and one for all tokens that are alone in theirs."""
    members = ((token, scorer.cluster.listed(token)) for token in stands_for)
    return list({ids[0] if len(ids) > 1 else None: token for token, ids in members}.values())


def _as_if(step: ListedStep, doubts: Doubts, token: int) -> ListedStep:
    """The step as if `token` were the chosen one; the stand-in takes its place among those of other names."""
    swap = {step.token: token, token: step.token}
    ambiguous = tuple((tuple(swap.get(c, c) for c in candidates), p) for candidates, p in doubts.ambiguous)
    ids = [swap.get(listed, listed) for listed in step.ids]
    return step._replace(token=token, ids=ids, doubts=doubts._replace(ambiguous=ambiguous))


def _highest(probabilities: FloatArray, rounding: Rounding) -> FloatArray:
    """The most that probabilities may have been before their logs were rounded, beyond the error that all logs have."""
    with np.errstate(divide="ignore"):
        return np.asarray(probabilities * np.exp(rounding.beyond(np.log(probabilities))))


def _shares_off(probabilities: FloatArray, higher: FloatArray, steps: IdArray, n: int) -> FloatArray:
    """The factor by which the sum of each step's probabilities may be higher, as its log."""
    sums = np.bincount(steps, probabilities, minlength=n)
    wider = np.bincount(steps, higher, minlength=n)
    return np.asarray(np.log(np.divide(wider, sums, out=np.ones(n), where=sums > 0)))


NO_ENTRIES = np.zeros(0, dtype=bool)
ANY_NUMBER = 2**53
"""The number of tokens that may be spelled as a chosen one in an unknown vocabulary: more than any vocabulary has."""


def _sizes(agreed: Agreeing, scorer: Scorer, *, neutrality: bool) -> list[int]:
    """The number of tokens that agree with the chosen one of each step: cluster, prefix set and neutral tokens."""
    if scorer.open_ended:
        return [ANY_NUMBER if scorer.by_spelling and step.alike.many else 1 for step in agreed.listed]
    pairs = zip(agreed.listed, agreed.opening, strict=True)
    sizes = [scorer.related_count(step.token, opening, neutrality) for step, opening in pairs]
    if not (scorer.rules.prefix_matching and any(map(len, agreed.prefixes))):
        return sizes
    owners, ids = agreed.prefix_entries
    tokens, opening = agreed.steps.tokens[owners], agreed.steps.opening[owners]
    further = scorer.in_prefix_set(ids)
    # Tokens of the cluster and of the same spelling are in `related_count` already.
    further &= ~(scorer.cluster.agree(tokens, ids) | scorer.alike.agree(tokens, ids))
    if neutrality:
        further &= ~scorer.are_neutral(ids, opening)
    more: list[int] = np.bincount(owners[further], minlength=len(sizes)).tolist()
    return [size + added for size, added in zip(sizes, more, strict=True)]


class DoubtfulMass(NamedTuple):
    """The mass of what is not clear about a list."""

    shares: list[float]
    """Mass that surely agrees, by its source, as in `StepMass`."""
    more: float
    """Mass that may agree beside it."""
    ambiguous: float
    """The part of `more` whose names fit both tokens that count and tokens that do not."""
    is_open: bool
    """True if the names of some of it leave open which token it is of."""


def _doubtful_mass(agreed: Agreeing, i: int, doubts: Doubts, scorer: Scorer, *, neutrality: bool) -> DoubtfulMass:
    """The mass of what is not clear about the list of a step."""
    step, prefixes, opening = agreed.listed[i], agreed.prefixes[i], agreed.opening[i]
    shares, mixed = [0.0] * len(SOURCES), 0.0
    for candidates, probability in doubts.ambiguous:
        kinds = scorer.kinds_listed(step, candidates, prefixes, opening, neutrality)
        if all(kinds):
            shares[max(kinds)] += probability  # whichever is meant, it counts
        elif any(kinds):
            mixed += probability
    # Another id of the chosen token's text is spelled alike, but need not be the chosen token or of its cluster.
    perhaps = doubts.perhaps if scorer.by_spelling else doubts.alike
    shares[PREFIX] += doubts.alike if scorer.by_spelling else 0.0
    return DoubtfulMass(
        shares=shares,
        more=mixed + doubts.unmapped + doubts.doubtful + perhaps,
        ambiguous=min(mixed + perhaps if scorer.by_spelling else mixed, 1.0),
        is_open=mixed + doubts.unmapped + doubts.perhaps > 0,
    )
