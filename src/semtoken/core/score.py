"""The mass that agrees with the chosen tokens of some steps, at least and at most: sums, and one interval for all.

The mass of the entries that agree is certain. What is not listed can add at most the mass that is missing from the
list, and at most as many times the smallest listed probability as tokens agree that are not listed. Engines round their
numbers, so each log may be off a little. Where all logits are known nothing is missing, and the interval is a point.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from semtoken.core.columns import Columns, joined, no_steps, of_lists
from semtoken.core.engine_tokens.checked_list import ListedStep
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


def interval(mass: float, more: float, slack: float) -> tuple[float, float, float]:
    """Lower bound, estimate and upper bound of a log agreeing probability, all <= 0.

    `mass` surely agrees, `more` may agree beside it, listed or not, and by `slack` a log may be off, since numbers are
    rounded.
    """
    # Clamped to 0, since rounded numbers may add up to more than 1.
    low = min(math.log(mass), 0.0) if mass > 0 else -math.inf
    high = math.log(min(mass + more, 1.0)) if more > 0 else low
    # The estimate is what is listed, the cautious end of the interval, which ranks answers best.
    return low - slack, low, min(high + slack, 0.0)


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
    """Whether neutral tokens count as consistent."""
    rounding: Rounding = IN_FULL
    """The error that each log-probability may have. A complete list in full precision is taken as exact."""
    listed: Sequence[ListedStep] = ()
    """The engine's list of each step; nothing where all logits are known."""
    opening: Sequence[bool] = ()
    """Whether only blanks come before each of these steps."""

    @cached_property
    def steps(self) -> Columns:
        """The steps in columns, to which lists are brought when somebody asks for them."""
        return of_lists(self.listed, self.opening) if self.rows is None else self.rows

    @cached_property
    def bounds(self) -> Bounds:
        """The bounds of the steps' masses under the rules of the scorer."""
        return self.bounds_under(self.scorer, neutrality=self.neutrality)

    @cached_property
    def prefix_entries(self) -> tuple[IdArray, IdArray]:
        """Step and token of each entry of the prefix sets, ascending."""
        counts = np.fromiter(map(len, self.prefixes), dtype=np.int64, count=len(self.prefixes))
        return np.repeat(np.arange(len(counts)), counts), np.concatenate([NO_IDS, *self.prefixes])

    @cached_property
    def begins(self) -> BoolArray:
        """Whether each entry is in the prefix set of its step, bool [m]."""
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
        places = range(len(self.listed))
        return [self.kinds_of(scorer, i, self.listed[i].ids, neutrality=neutrality) for i in places]

    def kinds_of(self, scorer: Scorer, place: int, ids: Iterable[int], *, neutrality: bool) -> list[int]:
        """The same for some tokens at the step with this place among the lists."""
        step, prefix_set, opening = self.listed[place], self.prefixes[place], self.opening[place]
        return scorer.kinds_listed(step.token, ids, prefix_set, opening, neutrality=neutrality, spelled=step.spelled)

    def bounds_under(self, scorer: Scorer, *, neutrality: bool) -> Bounds:
        """The bounds of the steps' masses under the rules of another scorer of the same vocabulary."""
        if self.rows is not None:
            return _bounds_of_rows(self, scorer, neutrality=neutrality)
        bounds = _bounds_of_lists(self, scorer, neutrality=neutrality)
        for i, step in enumerate(self.listed):
            if step.stands_for and not bounds.certain[i]:
                may_be = [_as_if(step, token) for token in _one_a_cluster(scorer, step)]
                n = len(may_be)
                each = replace(self, prefixes=[self.prefixes[i]] * n, listed=may_be, opening=[self.opening[i]] * n)
                cases = _bounds_of_lists(each, scorer, neutrality=neutrality)
                # The numbers shown are those of the worst case, and the interval holds all cases.
                cautious = int(cases.estimate.argmin())
                for values, others in zip(bounds, cases, strict=True):
                    values[i] = others[cautious]
                bounds.lower[i], bounds.upper[i] = cases.lower.min(), cases.upper.max()
        return bounds

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


def _bounds_of_lists(agreed: Agreeing, scorer: Scorer, *, neutrality: bool) -> Bounds:
    """The bounds of the steps' masses under the rules of a scorer, as if it were clear which token was chosen."""
    alike, off = scorer.by_spelling, agreed.rounding.off
    kinds = agreed.kinds_by_step(scorer, neutrality=neutrality)
    sizes = _sizes(agreed, scorer, neutrality=neutrality)
    errors = itertools.repeat((0.0, 0.0, None)) if agreed.rounding.even else _errors(agreed, kinds)
    ends, shares, ambiguous = [], [], []
    for i, (step, each, size, (own, whole, most)) in enumerate(zip(agreed.listed, kinds, sizes, errors, strict=False)):
        by_kind = [0.0] * len(SOURCES)
        for kind, probability in zip(each, step.probabilities, strict=True):
            by_kind[kind] += probability
        by_kind[0] = 0.0  # those that do not count
        mass, unseen = sum(by_kind), size - len(each) + each.count(0)
        inside, unclear = _unclear_mass(agreed, i, scorer, neutrality=neutrality) if step.ambiguous else (0.0, 0.0)
        # Another id of the chosen token's text is spelled alike, but need not be the chosen token or of its cluster.
        mass += inside + step.alike if alike else inside
        perhaps = step.perhaps if alike else step.alike
        # The log of the upper end is off by as much as the mass that may be added to it is.
        slack = off + max(own, whole if unclear + step.unmapped + step.perhaps > 0 else 0.0)
        # Listed probabilities may have been rounded up, so that more is missing than they leave of 1.
        missing = max(1.0 - step.total, 0.0) + off + whole * step.total
        # A list of all tokens in full precision is as good as a row of logits.
        if step.complete:
            missing, slack = 0.0, 0.0 if slack <= ROUNDING else slack
        missing = min(missing, max(unseen, 0) * (step.smallest if most is None else most))
        more = unclear + step.unmapped + step.doubtful + perhaps + missing
        ends.append(interval(mass, more, slack))
        shares.append(by_kind)
        ambiguous.append(min(unclear + perhaps if alike else unclear, 1.0))
    certain = np.zeros(len(ends), dtype=bool)
    lower, estimate, upper = np.array(ends, dtype=np.float64).reshape(-1, 3).T
    masses = np.array(shares, dtype=np.float64).reshape(-1, len(SOURCES))
    if neutrality and scorer.knows_neutral:
        certain = scorer.are_neutral(agreed.steps.tokens, agreed.steps.opening)
        lower[certain] = estimate[certain] = upper[certain] = masses[certain, PREFIX] = 0.0
        # So that it counts among the neutral tokens, as in the sum that rows bring.
        masses[certain, NEUTRAL] += np.exp(agreed.steps.log_probs[certain])
    return Bounds(lower, estimate, upper, certain, np.minimum(masses, 1.0), np.array(ambiguous, dtype=np.float64))


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


def _errors(agreed: Agreeing, kinds: Sequence[Sequence[int]]) -> Iterator[tuple[float, float, float]]:
    """The effect that rounding may have had on each step, where it depends on the size of a number.

    Of each step: by how much the log of the mass that counts may be higher, and that of the whole list, and the most
    that its smallest probability may have been.
    """
    steps, rounding, n = agreed.steps, agreed.rounding, len(agreed.listed)
    probabilities, counted = np.exp(steps.logs), np.array(list(chain.from_iterable(kinds)), dtype=np.int64) > 0
    higher = _highest(probabilities, rounding)
    whole = _shares_off(probabilities, higher, steps.owners, n)
    own = _shares_off(probabilities[counted], higher[counted], steps.owners[counted], n)
    most = np.minimum(_highest(np.array([step.smallest for step in agreed.listed]), rounding), 1.0)
    return zip(own.tolist(), whole.tolist(), most.tolist(), strict=True)


def _one_a_cluster(scorer: Scorer, step: ListedStep) -> list[int]:
    """Tokens that the chosen one may be: one for each cluster, and one for all tokens that are alone in theirs."""
    members = ((token, scorer.cluster.listed(token)) for token in step.stands_for)
    return list({ids[0] if len(ids) > 1 else None: token for token, ids in members}.values())


def _as_if(step: ListedStep, token: int) -> ListedStep:
    """The step as if `token` were the chosen one; the stand-in takes its place among the candidates of other names."""
    swap = {step.token: token, token: step.token}
    return step._replace(
        token=token,
        ids=[token if listed == step.token else listed for listed in step.ids],
        ambiguous=tuple((tuple(swap.get(c, c) for c in candidates), p) for candidates, p in step.ambiguous),
    )


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
        return [ANY_NUMBER if scorer.by_spelling and step.many else 1 for step in agreed.listed]
    pairs = zip(agreed.listed, agreed.opening, strict=True)
    sizes = [scorer.related_count(step.token, opening, neutrality) for step, opening in pairs]
    owners, ids = agreed.prefix_entries
    if not scorer.rules.prefix_matching or not len(ids):
        return sizes
    tokens, opening = agreed.steps.tokens[owners], agreed.steps.opening[owners]
    further = scorer.in_prefix_set(ids)
    # Tokens of the cluster and of the same spelling are in `related_count` already.
    further &= ~(scorer.cluster.agree(tokens, ids) | scorer.alike.agree(tokens, ids))
    if neutrality:
        further &= ~scorer.are_neutral(ids, opening)
    more: list[int] = np.bincount(owners[further], minlength=len(sizes)).tolist()
    return [size + added for size, added in zip(sizes, more, strict=True)]


def _unclear_mass(agreed: Agreeing, i: int, scorer: Scorer, *, neutrality: bool) -> tuple[float, float]:
    """Mass of the entries of a step whose possible tokens all count, and of those of which only some do."""
    inside, mixed = 0.0, 0.0
    for candidates, probability in agreed.listed[i].ambiguous:
        kinds = agreed.kinds_of(scorer, i, candidates, neutrality=neutrality)
        inside += probability * all(kinds)
        mixed += probability * (any(kinds) and not all(kinds))
    return inside, mixed
