"""What agrees with the tokens of some steps, from the few numbers that each step was reduced to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from semtoken.scoring.scorer import Scorer
from semtoken.scoring.steps import ReducedSteps
from semtoken.support.arrays import BoolArray, FloatArray, IdArray


class PrefixSet(NamedTuple):
    """The tokens that spell the beginning of the text from a step on, ascending, with their log-probabilities."""

    ids: IdArray
    log_probs: FloatArray


class PrefixSets(NamedTuple):
    """The prefix sets of several steps, concatenated."""

    steps: IdArray
    """Which step each of the tokens belongs to, ascending."""
    ids: IdArray
    log_probs: FloatArray


class Masses(NamedTuple):
    """Natural logs of the agreeing probabilities of n steps, in total and by source, float64 [n] each."""

    own: FloatArray
    """The chosen tokens alone, <= 0."""
    cluster: FloatArray
    """The token's own and its cluster's mass, as far as the rules count it."""
    prefix: FloatArray
    """Further tokens of the same spelling, and those that spell the beginning of the text from the token on, as far as
    the rules count them."""
    neutral: FloatArray
    """Further neutral tokens; -inf where they do not count."""
    agreeing: FloatArray
    """Everything that agrees, in total, <= 0; 0 for a neutral chosen token if neutrality counts."""
    surface: FloatArray
    """What agrees under the equality `surface`."""
    meaning: FloatArray
    """What agrees under the paper's rules; not to be used where there are no clusters."""


def masses(scorer: Scorer, steps: ReducedSteps, prefixes: PrefixSets, neutrality: BoolArray) -> Masses:
    """The agreeing probabilities of some steps, once their prefix sets are known.

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
    """What means the same under the paper's rules."""
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
        beyond = ~(scorer.paper.cluster.agree(tokens, ids) | scorer.paper.are_neutral(ids, opening))
        beginnings.meaning[some] = _log_sums(log_probs, beyond, starts)
    if scorer.rules.prefix_matching:
        counted = scorer.in_prefix_set(ids) & ~scorer.cluster.agree(tokens, ids) & ~scorer.alike.agree(tokens, ids)
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
