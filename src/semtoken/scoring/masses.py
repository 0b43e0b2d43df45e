"""Decoding steps reduced from V probabilities to a few numbers, in numpy: the reference. And what agrees with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from semtoken.scoring.endings import EndRequest
from semtoken.scoring.scorer import Scorer, TokenColumns
from semtoken.scoring.steps import MASSES, ReducedSteps, no_steps
from semtoken.support.arrays import FloatArray, IdArray, log_sum_exp
from semtoken.tokens.vocabulary import BoolArray

SMALLEST = 1e-280  # sums of probabilities below lose digits


@dataclass(frozen=True, eq=False)
class StepRequest:
    """Which columns of a row of logits are needed to reduce it, given the token that was chosen."""

    chosen: TokenColumns
    """What is needed for the chosen token wherever it stands."""
    end: EndRequest
    """Which values may end here, and the tokens that tell."""
    needs_row: bool
    """Nothing is known yet of what follows, so the whole row must be kept for now."""

    @property
    def listed(self) -> IdArray:
        """Columns that are needed one by one: the candidates of the prefix set, then the tokens that end a value."""
        ends, candidates = self.end.ids, self.chosen.candidates
        return np.concatenate([candidates, ends]) if len(ends) else candidates


class PrefixSet(NamedTuple):
    """The tokens that spell the beginning of what follows a step, ascending, and their log-probabilities."""

    ids: IdArray
    log_probs: FloatArray


class PrefixSets(NamedTuple):
    """The prefix sets of some steps, one after the other."""

    steps: IdArray
    """Which step each of the tokens belongs to, ascending."""
    ids: IdArray
    log_probs: FloatArray


class Masses(NamedTuple):
    """Natural logs of what agrees with the chosen tokens of n steps, float64 [n] each."""

    own: FloatArray
    """The chosen tokens alone."""
    cluster: FloatArray
    """The token's own and its cluster's mass, as far as the rules count it."""
    prefix: FloatArray
    """Further tokens that spell the beginning of what follows."""
    neutral: FloatArray
    """The mass of further neutral tokens."""
    agreeing: FloatArray
    """All of it, <= 0; 0 for a neutral token if neutrality counts."""
    surface: FloatArray
    """What agrees under the equality `surface`."""
    meaning: FloatArray
    """What agrees under the paper's rules; says nothing where there are no clusters."""


def log_sums(requests: Sequence[StepRequest], log_probs: FloatArray) -> FloatArray:
    """Log of the mass of each of the five groups of columns of each request (float64 [n, 5]), -inf for none.

    Parameters
    ----------
    requests
        Of the n answers of a step.
    log_probs
        Of `chosen.summed` of all of them, one after the other.
    """
    bounds = np.array([request.chosen.bounds for request in requests])
    bounds[1:] += np.cumsum(bounds[:-1, -1])[:, None]
    first, last = bounds[:, :-1].ravel(), bounds[:, 1:].ravel()
    filled = np.flatnonzero(first < last)
    sums = np.zeros(len(first))
    sums[filled] = np.add.reduceat(np.exp(log_probs), first[filled])
    with np.errstate(divide="ignore"):
        logs = np.log(sums)
    for k in filled[sums[filled] < SMALLEST].tolist():  # too small to be added up as they are
        logs[k] = log_sum_exp(log_probs[first[k] : last[k]])
    return logs.reshape(len(requests), -1)


def reduce_steps(
    scorer: Scorer,
    requests: Sequence[StepRequest],
    log_probs: FloatArray,
    ends: Sequence[FloatArray],
    likely: tuple[IdArray, FloatArray],
) -> ReducedSteps:
    """Reduce one step of each of n answers; the candidates of their prefix sets are not among the result.

    Parameters
    ----------
    scorer
        Clusters and rules.
    requests
        What was needed of each row.
    log_probs
        Of `chosen.summed` of all requests, one after the other.
    ends
        Log-probabilities of `end.ids` of each.
    likely
        `ReducedSteps.likely_ids` and `likely`.
    """
    sums, place = log_sums(requests, log_probs), 0
    meaning = np.logaddexp(np.logaddexp(sums[:, 0], sums[:, 1]), sums[:, 2])
    found = no_steps(len(requests))
    for k, (request, logs) in enumerate(zip(requests, sums.tolist(), strict=True)):
        chosen = request.chosen
        following = place + chosen.bounds[-1]
        counted = _counted(scorer, chosen, log_probs[place:following], logs) | {
            "own": log_probs[place],
            "alike": logs[4],
            "meaning": 0.0 if chosen.paper_neutral else meaning[k],
        }
        found.logs[k] = [counted[name] for name in MASSES]
        found.tokens[k], found.opening[k], found.neutral[k] = chosen.token, chosen.opening, chosen.neutral
        found.asked[k], found.ends[k] = request.end.asked, scorer.endings.masses_of(request.end, ends[k])
        place = following
    found.likely_ids[:], found.likely[:] = likely
    return found


def _counted(scorer: Scorer, chosen: TokenColumns, log_probs: FloatArray, logs: Sequence[float]) -> dict[str, float]:
    """The masses of a step that depend on the rules, from the columns `chosen.summed` and the sums of its groups."""
    if scorer is scorer.paper:
        counted = (logs[1], logs[3], logs[2], -math.inf, -math.inf)
    else:
        groups = [log_probs[chosen.bounds[k] : chosen.bounds[k + 1]] for k in range(5)]
        counted = (
            *_counted_members(scorer, chosen, groups[1], groups[3]),
            _counted_neutrals(scorer, chosen, groups[2]),
            *_counted_alike(scorer, chosen, groups[4], logs[4]),
        )
    names = ("cluster", "cluster_neutral", "neutrals", "alike_apart", "alike_neutral")
    return dict(zip(names, counted, strict=True))


def _counted_members(
    scorer: Scorer, chosen: TokenColumns, members: FloatArray, neutral_members: FloatArray
) -> tuple[float, float]:
    """Logs of the masses of the cluster's other members that count under the rules: not neutral there, and neutral."""
    if not scorer.rules.clustering:
        return -np.inf, -np.inf
    ids = np.concatenate([chosen.group(1), chosen.group(3)])
    log_probs = np.concatenate([members, neutral_members])
    counted = scorer.in_cluster(chosen.token, ids)
    neutral = scorer.neutral_mask(chosen.opening)[ids]
    return log_sum_exp(log_probs[counted & ~neutral]), log_sum_exp(log_probs[counted & neutral])


def _counted_neutrals(scorer: Scorer, chosen: TokenColumns, log_probs: FloatArray) -> float:
    """Log of the mass of the tokens that are neutral under the rules."""
    if scorer.rules.effective_function_words == "off":
        return -np.inf
    return log_sum_exp(log_probs[scorer.neutral_mask(chosen.opening)[chosen.group(2)]])


def _counted_alike(scorer: Scorer, chosen: TokenColumns, log_probs: FloatArray, mass: float) -> tuple[float, float]:
    """Logs of the masses that count for their spelling and not for their cluster: not neutral, and neutral."""
    if not scorer.rules.same_spelling:
        return -np.inf, -np.inf
    if not scorer.rules.clustering and scorer.rules.effective_function_words == "off":
        return mass, -np.inf
    apart = ~scorer.in_cluster(chosen.token, chosen.group(4))
    neutral = scorer.neutral_mask(chosen.opening)[chosen.group(4)]
    return log_sum_exp(log_probs[apart & ~neutral]), log_sum_exp(log_probs[apart & neutral])


def masses(scorer: Scorer, steps: ReducedSteps, prefixes: PrefixSets, neutrality: BoolArray) -> Masses:
    """What agrees with the tokens of some steps, once their prefix sets are known.

    Where `neutrality` [n] is false, the neutral tokens count only if they are in the cluster or the prefix set.
    """
    own, cluster, cluster_neutral, neutrals, alike, alike_apart, alike_neutral, meaning = steps.logs.T
    beginnings = _beginning_masses(scorer, steps, prefixes, neutrality)
    cluster = np.logaddexp(own, cluster)
    certain = steps.neutral & neutrality
    if not neutrality.all():
        cluster = np.where(neutrality, cluster, np.logaddexp(cluster, cluster_neutral))
        alike_apart = np.where(neutrality, alike_apart, np.logaddexp(alike_apart, alike_neutral))
        neutrals = np.where(neutrality, neutrals, -np.inf)
    prefix = np.logaddexp(alike_apart, beginnings.counted)
    agreeing = np.minimum(np.logaddexp(np.logaddexp(cluster, prefix), neutrals), 0.0)
    return Masses(
        own=np.minimum(own, 0.0),
        cluster=cluster,
        prefix=np.where(certain, -np.inf, prefix),
        neutral=neutrals,
        agreeing=np.where(certain, 0.0, agreeing),
        surface=np.minimum(np.logaddexp(own, alike), 0.0),
        meaning=np.minimum(np.logaddexp(meaning, beginnings.meaning), 0.0),
    )


class _PrefixMasses(NamedTuple):
    """Logs of what prefix sets add to the masses of n steps, float64 [n] each."""

    meaning: FloatArray
    """Under the paper's rules."""
    counted: FloatArray
    """What counts under the rules."""


def _beginning_masses(
    scorer: Scorer, steps: ReducedSteps, prefixes: PrefixSets, neutrality: BoolArray
) -> _PrefixMasses:
    """What the prefix sets add to the masses of steps."""
    beginnings = _PrefixMasses(*(np.full(len(steps), -np.inf) for _ in _PrefixMasses._fields))
    owners, ids, log_probs = prefixes
    if not len(ids):
        return beginnings
    tokens, opening = steps.tokens[owners], steps.opening[owners]
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    some = owners[starts]
    if scorer.paper is not None:
        beyond = ~(scorer.paper.in_cluster(tokens, ids) | scorer.paper.are_neutral(ids, opening))
        beginnings.meaning[some] = _log_sums(log_probs, beyond, starts)
    if scorer.rules.prefix_matching:
        counted = scorer.in_prefix_set(ids) & ~scorer.in_cluster(tokens, ids) & ~scorer.alike(tokens, ids)
        counted &= ~(scorer.are_neutral(ids, opening) & neutrality[owners])
        beginnings.counted[some] = _log_sums(log_probs, counted, starts)
    return beginnings


def _log_sums(log_probs: FloatArray, counted: BoolArray, starts: IdArray) -> FloatArray:
    """Log of the sum of the probabilities that count in each of the groups that begin at `starts`; none is empty."""
    some = np.where(counted, log_probs, -np.inf)
    highest = np.maximum.reduceat(some, starts)
    highest[np.isneginf(highest)] = 0.0
    shifted = some - np.repeat(highest, np.diff(starts, append=len(some)))
    with np.errstate(divide="ignore"):
        return np.asarray(highest + np.log(np.add.reduceat(np.exp(shifted), starts)))
