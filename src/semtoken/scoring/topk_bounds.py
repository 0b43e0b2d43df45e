"""The mass consistent with a chosen token where only the best tokens are listed: at least and at most.

The lists of all steps stand one after the other in one array, and all of them are summed together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from semtoken.engine_tokens.checked_list import ListedStep
from semtoken.engine_tokens.top_steps import ROUNDING, Rounding
from semtoken.scoring.prefixes import NO_IDS
from semtoken.scoring.running import LogMass
from semtoken.scoring.scorer import Scorer, among
from semtoken.support.arrays import BoolArray, FloatArray, IdArray

VERY_FEW = 8
FEW = 64
"""Up to this many steps are scored one by one, more of them in arrays."""


class PlacedStep(NamedTuple):
    """The list of one step, with whether the step opens the answer and whether its token is neutral."""

    listed: ListedStep
    opening: bool
    """Whether only blanks come before the step."""
    neutral: bool
    """Whether the chosen token is neutral there under the rules."""

    @property
    def token(self) -> int:
        """The id of the chosen token."""
        return self.listed.token


class Bounds(NamedTuple):
    """The bounds of n steps in columns [n]: natural logs of the agreeing probabilities, and masses by source."""

    lower: FloatArray
    estimate: FloatArray
    upper: FloatArray
    certain: BoolArray
    """[n] whether the chosen token is neutral, so that the step counts as 1."""
    cluster: FloatArray
    prefix: FloatArray
    neutral: FloatArray
    ambiguous: FloatArray
    """[n] mass of the entries whose names fit both tokens that count and tokens that do not."""

    def intervals(self) -> list[tuple[float, float]]:
        """Lower and upper bound of the log agreeing probability of each step."""
        return list(zip(self.lower.tolist(), self.upper.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Entries:
    """Tokens in the lists or prefix sets of n steps, concatenated, with the step of each."""

    steps: IdArray
    """The step that each token belongs to."""
    ids: IdArray

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> Entries:
        """Concatenate the ids of several lists."""
        return cls(_numbers(lists), np.fromiter(chain.from_iterable(lists), dtype=np.int64))

    @classmethod
    def of_arrays(cls, arrays: Sequence[IdArray]) -> Entries:
        """Concatenate several arrays of ids."""
        return cls(_numbers(arrays), np.concatenate([NO_IDS, *arrays]))


def _numbers(lists: Sequence[Sequence[int]] | Sequence[IdArray]) -> IdArray:
    """The number of the list for each of its entries."""
    return np.repeat(np.arange(len(lists)), np.fromiter(map(len, lists), dtype=np.int64, count=len(lists)))


@dataclass(frozen=True, eq=False)
class StepLists:
    """The lists of n steps in columns, with their prefix sets."""

    tokens: IdArray
    """[n] the chosen tokens."""
    opening: BoolArray
    """Whether only blanks come before the step, [n]."""
    listed: Entries
    """The listed tokens whose names fit one token alone."""
    probabilities: FloatArray
    """The probabilities of these tokens."""
    begins: BoolArray
    """Which of them are in the prefix set of their step."""
    beginnings: Entries
    """The tokens of the prefix sets."""
    log_probs: FloatArray
    """[n] the log-probabilities of the chosen tokens."""
    totals: FloatArray
    """The sum of all listed probabilities, [n]."""
    smallest: FloatArray
    """The highest probability that a token outside the list can have, [n]."""
    unmapped: FloatArray
    """The mass of names that fit no token, [n]."""
    alike: FloatArray
    """The mass of other tokens that are written as the chosen one is, [n]."""
    doubtful: FloatArray
    """The mass of entries that seem to be the chosen token and have another number, [n]."""
    complete: BoolArray
    """Whether the list holds the whole vocabulary, [n]."""
    unclear: Entries
    """Tokens that the unclear entries may mean, by the number of the entry instead of the step."""
    unclear_steps: IdArray
    """The step of each unclear entry."""
    unclear_probabilities: FloatArray
    """The probability of each unclear entry."""

    @property
    def size(self) -> int:
        """The number of steps."""
        return len(self.tokens)


def step_lists(steps: Sequence[PlacedStep], prefixes: Sequence[IdArray], size: int) -> StepLists:
    """The lists of some steps in columns, with the prefix set of each; `size` is V."""
    lists = [step.listed for step in steps]
    listed, beginnings = Entries.of([row.ids for row in lists]), Entries.of_arrays(prefixes)
    columns = np.array(
        [(row.log_prob, row.total, row.smallest, row.unmapped, row.complete, row.alike, row.doubtful) for row in lists],
        dtype=np.float64,
    ).reshape(-1, 7)
    unclear = [(i, candidates, probability) for i, row in enumerate(lists) for candidates, probability in row.ambiguous]
    return StepLists(
        tokens=np.array([row.token for row in lists], dtype=np.int64),
        opening=np.array([step.opening for step in steps], dtype=bool),
        listed=listed,
        probabilities=np.fromiter(chain.from_iterable(row.probabilities for row in lists), np.float64, len(listed.ids)),
        begins=among(listed.steps * size + listed.ids, beginnings.steps * size + beginnings.ids),
        beginnings=beginnings,
        log_probs=columns[:, 0],
        totals=columns[:, 1],
        smallest=columns[:, 2],
        unmapped=columns[:, 3],
        complete=columns[:, 4] > 0,
        alike=columns[:, 5],
        doubtful=columns[:, 6],
        unclear=Entries.of([candidates for _, candidates, _ in unclear]),
        unclear_steps=np.array([i for i, _, _ in unclear], dtype=np.int64),
        unclear_probabilities=np.array([probability for _, _, probability in unclear], dtype=np.float64),
    )


@dataclass(eq=False)
class ListedSteps:
    """Some steps of an answer that is scored from lists, with the scorer and their prefix sets."""

    scorer: Scorer
    steps: Sequence[PlacedStep]
    prefixes: Sequence[IdArray]
    """The prefix set of each step; without ids while it is open, which leaves the upper bound too low, and where the
    rules do not ask for it."""
    neutrality: bool
    """Whether neutral tokens count as consistent."""
    rounding: Rounding
    """How far each log-probability may be off. A complete list in full precision is taken as exact."""

    @cached_property
    def lists(self) -> StepLists:
        """The lists of the steps in columns."""
        return step_lists(self.steps, self.prefixes, self.scorer.vocabulary.size)

    @cached_property
    def bounds(self) -> Bounds:
        """The bounds of the steps' masses under the rules of the scorer."""
        return self.bounds_under(self.scorer, neutrality=self.neutrality)

    def bounds_under(self, scorer: Scorer, *, neutrality: bool) -> Bounds:
        """The bounds of the steps' masses under the rules of another scorer of the same vocabulary."""
        bounds = _bounds(scorer, self.lists, neutrality=neutrality, rounding=self.rounding)
        for i, step in enumerate(self.steps):
            if step.listed.stands_for and not bounds.certain[i]:
                may_be = _one_a_cluster(scorer, step.listed)
                each = [step._replace(listed=_as_if(step.listed, token)) for token in may_be]
                columns = step_lists(each, [self.prefixes[i]] * len(each), scorer.vocabulary.size)
                case_bounds = _bounds(scorer, columns, neutrality=neutrality, rounding=self.rounding)
                cautious = int(case_bounds.estimate.argmin())
                for values, others in zip(bounds, case_bounds, strict=True):
                    values[i] = others[cautious]
                bounds.lower[i], bounds.upper[i] = case_bounds.lower.min(), case_bounds.upper.max()
        return bounds

    def without_numbers(self, positions: Sequence[int]) -> ListedSteps:
        """The same steps, some of which do not tell the probability of their token."""
        steps = list(self.steps)
        for i in positions:
            listed = steps[i].listed._replace(log_prob=-math.inf, ids=[], probabilities=[], total=0.0)
            steps[i] = steps[i]._replace(listed=listed)
        return replace(self, steps=steps)

    def at(self, places: Sequence[int]) -> ListedSteps:
        """Some of the steps."""
        steps, prefixes = [self.steps[place] for place in places], [self.prefixes[place] for place in places]
        return replace(self, steps=steps, prefixes=prefixes)

    def masses(self) -> list[LogMass]:
        """The agreeing probabilities, equal to those of `bounds` but faster for few steps."""
        few = self.usual_masses() if len(self.steps) <= FEW else None
        if few is not None:
            return few
        bounds = self.bounds
        return list(map(LogMass, bounds.lower.tolist(), bounds.estimate.tolist(), bounds.upper.tolist()))

    def usual_masses(self) -> list[LogMass] | None:
        """The same computed one by one; None if the name of a token is unclear, or errors depend on the numbers.

        For few steps at a time, such as those of answers in progress, arrays would cost ten times as much.
        """
        if not self.rounding.even:
            return None
        scorer, off = self.scorer, self.rounding.off
        sums: list[tuple[float, float, float]] = []
        neutrality = self.neutrality and scorer.knows_neutral
        for step, prefix_set in zip(self.steps, self.prefixes, strict=True):
            listed = step.listed
            if listed.ambiguous or listed.unmapped or listed.stands_for or listed.alike or listed.doubtful:
                return None
            certain = step.neutral and neutrality
            sums.append((1.0, 1.0, 0.0) if certain else _usual_sums(scorer, step, prefix_set, neutrality, off))
        logs = _logs_of([bound for lower, upper, _ in sums for bound in (lower, upper)])
        bounds = zip(logs[::2], logs[1::2], sums, strict=True)
        return [LogMass(low - slack, low, min(high + slack, 0.0)) for low, high, (_, _, slack) in bounds]


def _usual_sums(
    scorer: Scorer, step: PlacedStep, prefixes: IdArray, neutrality: bool, off: float
) -> tuple[float, float, float]:
    """Bounds of the agreeing probability of a step, and by how much their logs may be off."""
    listed, token = step.listed, step.token
    if listed.others is not None:  # none of them counts
        [lower], more = listed.probabilities, scorer.related_count(token, step.opening, neutrality) - 1
        return lower, lower + min(max(1.0 - listed.total, 0.0) + off, max(more, 0) * listed.smallest), off
    related, neutral = scorer.related_kinds(token), scorer.neutral_bytes[0 if step.opening else 1]
    begins = prefixes[scorer.in_prefix_set(prefixes)].tolist() if scorer.rules.prefix_matching else []
    masses, seen, further, why = [0.0, 0.0, 0.0, 0.0], 0, 0, related.get
    if begins:
        further = sum(candidate not in related and not (neutrality and neutral[candidate]) for candidate in begins)
        why = (dict.fromkeys(begins, 2) | dict(related)).get
    if neutrality:
        kinds = [3 if neutral[candidate] and candidate != token else why(candidate) for candidate in listed.ids]
    else:
        kinds = list(map(why, listed.ids))
    for kind, probability in zip(kinds, listed.probabilities, strict=True):
        if kind:
            masses[kind] += probability
            seen += 1
    unseen = scorer.related_count(token, step.opening, neutrality) + further - seen
    lower = masses[1] + masses[2] + masses[3]
    missing = 0.0 if listed.complete else max(1.0 - listed.total, 0.0) + off
    upper = lower + min(missing, max(unseen, 0) * listed.smallest)
    return lower, upper, 0.0 if listed.complete and off <= ROUNDING else off


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


def _bounds(scorer: Scorer, lists: StepLists, *, neutrality: bool, rounding: Rounding) -> Bounds:
    n, steps, probabilities = lists.size, lists.listed.steps, lists.probabilities
    spelled = scorer.rules.spelling is not None
    kinds = _kinds(scorer, lists, lists.listed, steps, lists.begins, neutrality=neutrality)
    masses = np.bincount(4 * steps + kinds, probabilities, minlength=4 * n).reshape(n, 4)
    _, cluster, prefix, neutral = masses.T
    certain = scorer.are_neutral(lists.tokens, lists.opening) & neutrality
    inside, ambiguous = _unclear_masses(scorer, lists, neutrality=neutrality)
    lower = cluster + prefix + neutral + inside + lists.alike * spelled
    smallest, slack, missed = lists.smallest, np.full(n, rounding.off), np.full(n, rounding.off)
    if not rounding.even:
        higher, counted = _highest(probabilities, rounding), kinds > 0
        whole = _shares_off(probabilities, higher, steps, n)
        own = _shares_off(probabilities[counted], higher[counted], steps[counted], n)
        slack += np.maximum(own, np.where((ambiguous > 0) | (lists.unmapped > 0), whole, 0.0))
        smallest = np.minimum(_highest(smallest, rounding), 1.0)
        missed += whole * lists.totals
    missing = np.where(lists.complete, 0.0, np.maximum(1.0 - lists.totals, 0.0) + missed)
    unseen = _sizes(scorer, lists, neutrality=neutrality) - np.bincount(steps[kinds > 0], minlength=n)
    unsure = ambiguous + lists.unmapped + lists.doubtful + lists.alike * (not spelled)
    upper = lower + unsure + np.minimum(missing, np.maximum(unseen, 0) * smallest)
    slack = np.where(lists.complete & (slack <= ROUNDING), 0.0, slack)
    low, high = _logs(lower), _logs(upper)
    return Bounds(
        lower=np.where(certain, 0.0, low - slack),
        estimate=np.where(certain, 0.0, low),
        upper=np.where(certain, 0.0, np.minimum(high + slack, 0.0)),
        certain=certain,
        cluster=np.minimum(cluster, 1.0),
        prefix=np.where(certain, 0.0, np.minimum(prefix, 1.0)),
        neutral=np.minimum(neutral + np.where(certain, np.exp(lists.log_probs), 0.0), 1.0),
        ambiguous=np.minimum(ambiguous, 1.0),
    )


def _logs(masses: FloatArray) -> FloatArray:
    """Natural logs of probabilities, which rounding may have lifted above 1."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.minimum(masses, 1.0)))


def _logs_of(masses: Sequence[float]) -> list[float]:
    """Logarithms to all digits, one by one where they are so few that arrays would cost more."""
    if len(masses) > VERY_FEW:
        return _logs(np.array(masses)).tolist()  # type: ignore[no-any-return]
    return [float(np.log(min(mass, 1.0))) if mass else -math.inf for mass in masses]


def _kinds(
    scorer: Scorer, lists: StepLists, entries: Entries, steps: IdArray, begins: BoolArray, *, neutrality: bool
) -> npt.NDArray[np.intp]:
    """Why each entry counts, see `Scorer.kinds`; 0 for those that do not."""
    return scorer.kinds(lists.tokens[steps], entries.ids, begins, opening=lists.opening[steps], neutrality=neutrality)


def _highest(probabilities: FloatArray, rounding: Rounding) -> FloatArray:
    """What probabilities may have been before their logs were rounded, beyond what all logs may be off."""
    with np.errstate(divide="ignore"):
        return np.asarray(probabilities * np.exp(rounding.beyond(np.log(probabilities))))


def _shares_off(probabilities: FloatArray, higher: FloatArray, steps: IdArray, n: int) -> FloatArray:
    """The factor by which the sum of each step's probabilities may be higher, as its log."""
    sums = np.bincount(steps, probabilities, minlength=n)
    wider = np.bincount(steps, higher, minlength=n)
    return np.asarray(np.log(np.divide(wider, sums, out=np.ones(n), where=sums > 0)))


def _sizes(scorer: Scorer, lists: StepLists, *, neutrality: bool) -> IdArray:
    """How many tokens are consistent with the chosen one of each step: cluster, prefix set and neutral tokens."""
    pairs = zip(lists.tokens.tolist(), lists.opening.tolist(), strict=True)
    sizes = np.array([scorer.related_count(token, opening, neutrality) for token, opening in pairs], dtype=np.int64)
    entries = lists.beginnings
    if scorer.rules.prefix_matching and len(entries.ids):
        tokens, opening = lists.tokens[entries.steps], lists.opening[entries.steps]
        further = scorer.in_prefix_set(entries.ids)
        further &= ~(scorer.cluster.agree(tokens, entries.ids) | scorer.alike.agree(tokens, entries.ids))
        if neutrality:
            further &= ~scorer.are_neutral(entries.ids, opening)
        sizes += np.bincount(entries.steps[further], minlength=lists.size)
    return sizes


def _unclear_masses(scorer: Scorer, lists: StepLists, *, neutrality: bool) -> tuple[FloatArray, FloatArray]:
    """Mass of the entries whose possible tokens all count, and of those of which only some do, for each step."""
    n, entries = lists.size, lists.unclear
    if not len(entries.ids):
        return np.zeros(n), np.zeros(n)
    steps = lists.unclear_steps[entries.steps]
    size = scorer.vocabulary.size
    begins = among(steps * size + entries.ids, lists.beginnings.steps * size + lists.beginnings.ids)
    counted = _kinds(scorer, lists, entries, steps, begins, neutrality=neutrality) > 0
    counts = np.bincount(entries.steps[counted], minlength=len(lists.unclear_steps))
    whole = counts == np.bincount(entries.steps, minlength=len(lists.unclear_steps))
    inside, mixed = lists.unclear_probabilities * whole, lists.unclear_probabilities * ((counts > 0) & ~whole)
    return tuple(np.bincount(lists.unclear_steps, masses, minlength=n) for masses in (inside, mixed))  # type: ignore[return-value]
