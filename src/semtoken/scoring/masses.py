"""One decoding step, reduced from V probabilities to the few numbers that can still matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from semtoken._arrays import FloatArray, IdArray, log_sum_exp
from semtoken.scoring.endings import EndRequest, endings_of
from semtoken.scoring.prefixes import NO_IDS
from semtoken.scoring.scorer import Scorer

LISTED = 8  # other tokens of a step that are listed with an answer
LEAST_LISTED = 0.01  # the probability from which on they are


@dataclass(frozen=True, eq=False)
class StepRequest:
    """Which columns of a row of logits are needed to reduce it, given the token that was chosen."""

    token: int
    """The chosen token y_i."""
    opening: bool
    """Only blanks come before."""
    members: IdArray
    """Other members of y_i's cluster that the paper does not call neutral."""
    neutrals: IdArray
    """All tokens that the paper calls neutral."""
    neutral_members: IdArray
    """Those of them that are in y_i's cluster."""
    alike: IdArray
    """Other tokens that are spelled as y_i is, up to case and blanks."""
    end: EndRequest
    """Which values may end here, and the tokens that tell."""
    candidates: IdArray
    """Ascending ids of tokens that may turn out to spell the beginning of what follows."""
    needs_row: bool
    """Nothing is known yet of what follows, so the whole row must be kept for now."""

    @property
    def columns(self) -> IdArray:
        """Column ids to take from the row: the token's own, then the groups in the order of the fields."""
        own = np.array([self.token], dtype=np.int64)
        groups = (self.members, self.neutrals, self.neutral_members, self.alike, self.end.ids, self.candidates)
        return np.concatenate([own, *groups])


@dataclass(frozen=True, eq=False)
class StepMass:
    """What is kept of a step: natural logs of probability masses, all <= 0 up to rounding."""

    token: int
    opening: bool
    neutral: bool
    """y_i is neutral under the rules."""
    own: float
    """log p(y_i)."""
    cluster: float
    """Other tokens of the cluster that count and are not neutral."""
    cluster_neutral: float
    """Other tokens of the cluster that count and are neutral."""
    neutrals: float
    """All neutral tokens."""
    alike: float
    """Other tokens that are spelled as y_i is."""
    alike_apart: float
    """Those of them that count and are neither neutral nor in a cluster that counts."""
    alike_neutral: float
    """Those of them that count, are neutral, and not in a cluster that counts."""
    meaning: float
    """What agrees under the paper's rules, prefixes left out: 0 if y_i is neutral there."""
    ends: Mapping[str, float]
    """How probable it was that a value ends here, by what it ends."""
    likely: tuple[tuple[int, float], ...]
    """Other tokens of at least `LEAST_LISTED`, the most probable first, with their log-probabilities."""


class PrefixSet(NamedTuple):
    """The tokens that spell the beginning of what follows a step, ascending, and their log-probabilities."""

    ids: IdArray
    log_probs: FloatArray


NO_PREFIXES = PrefixSet(NO_IDS, np.empty(0))


class Masses(NamedTuple):
    """Natural logs of what agrees with a chosen token."""

    cluster: float
    """The token's own and its cluster's mass, as far as the rules count it."""
    prefix: float
    """Further tokens that spell the beginning of what follows."""
    neutral: float
    """Further neutral tokens."""
    surface: float
    """What agrees under the equality `surface`."""
    meaning: float
    """What agrees under the paper's rules."""


def step_request(
    scorer: Scorer, token: int, candidates: IdArray, *, before: int | None, opening: bool, needs_row: bool
) -> StepRequest:
    """What is needed of the row from which `token` was chosen, after the token `before`."""
    paper = scorer.paper
    members = paper.cluster_of(token)
    members = members[members != token]
    neutral = paper.neutral_mask(opening)[members]
    alike = scorer.index.spelled_alike(token)
    return StepRequest(
        token=token,
        opening=opening,
        members=members[~neutral],
        neutrals=paper.neutral_ids(opening),
        neutral_members=members[neutral],
        alike=alike[alike != token],
        end=endings_of(scorer.vocabulary).request(before, token),
        candidates=candidates,
        needs_row=needs_row,
    )


def reduce_step(
    scorer: Scorer, request: StepRequest, log_probs: FloatArray, likely: tuple[tuple[int, float], ...]
) -> StepMass:
    """Reduce the log-probabilities of `request.columns` (candidates may be left out) to a `StepMass`."""
    token, opening = request.token, request.opening
    first = 1 + len(request.members)  # log_probs[0] is the chosen token's own
    second = first + len(request.neutrals)
    third = second + len(request.neutral_members)
    fourth = third + len(request.alike)
    fifth = fourth + len(request.end.ids)
    own = float(log_probs[0])
    if scorer is scorer.paper:
        cluster, neutrals = log_sum_exp(log_probs[1:first]), log_sum_exp(log_probs[first:second])
        cluster_neutral = log_sum_exp(log_probs[second:third])
        meaning = float(np.logaddexp(np.logaddexp(own, cluster), neutrals))
    else:
        cluster, cluster_neutral = _counted_members(scorer, request, log_probs[1:first], log_probs[second:third])
        neutrals = _counted_neutrals(scorer, request, log_probs[first:second])
        meaning = log_sum_exp(log_probs[:second])
    alike = log_sum_exp(log_probs[third:fourth])
    alike_apart, alike_neutral = _counted_alike(scorer, request, log_probs[third:fourth], alike)
    return StepMass(
        token=token,
        opening=opening,
        neutral=bool(scorer.neutral_mask(opening)[token]),
        own=own,
        cluster=cluster,
        cluster_neutral=cluster_neutral,
        neutrals=neutrals,
        alike=alike,
        alike_apart=alike_apart,
        alike_neutral=alike_neutral,
        meaning=0.0 if scorer.paper.neutral_mask(opening)[token] else meaning,
        ends=endings_of(scorer.vocabulary).from_row(request.end, log_probs[fourth:fifth]),
        likely=likely,
    )


def _counted_members(
    scorer: Scorer, request: StepRequest, members: FloatArray, neutral_members: FloatArray
) -> tuple[float, float]:
    """Logs of the masses of the cluster's other members that count under the rules: not neutral there, and neutral."""
    if not scorer.rules.clustering:
        return -np.inf, -np.inf
    ids = np.concatenate([request.members, request.neutral_members])
    log_probs = np.concatenate([members, neutral_members])
    counted = scorer.in_cluster(request.token, ids)
    neutral = scorer.neutral_mask(request.opening)[ids]
    return log_sum_exp(log_probs[counted & ~neutral]), log_sum_exp(log_probs[counted & neutral])


def _counted_neutrals(scorer: Scorer, request: StepRequest, log_probs: FloatArray) -> float:
    """Log of the mass of the tokens that are neutral under the rules."""
    if scorer.rules.effective_function_words == "off":
        return -np.inf
    return log_sum_exp(log_probs[scorer.neutral_mask(request.opening)[request.neutrals]])


def _counted_alike(scorer: Scorer, request: StepRequest, log_probs: FloatArray, mass: float) -> tuple[float, float]:
    """Logs of the masses that count for their spelling and not for their cluster: not neutral, and neutral."""
    if not scorer.rules.same_spelling:
        return -np.inf, -np.inf
    if not scorer.rules.clustering and scorer.rules.effective_function_words == "off":
        return mass, -np.inf
    apart = ~scorer.in_cluster(request.token, request.alike)
    neutral = scorer.neutral_mask(request.opening)[request.alike]
    return log_sum_exp(log_probs[apart & ~neutral]), log_sum_exp(log_probs[apart & neutral])


def masses(scorer: Scorer, step: StepMass, prefixes: PrefixSet, *, neutrality: bool) -> Masses:
    """What agrees with a step's token, once its prefix set is known.

    Without neutrality the neutral tokens count only where they are in the cluster or the prefix set.
    """
    ids, log_probs = prefixes
    token, opening = step.token, step.opening
    beyond = ~(scorer.paper.in_cluster(token, ids) | scorer.paper.neutral_mask(opening)[ids])
    meaning = min(float(np.logaddexp(step.meaning, log_sum_exp(log_probs[beyond]))), 0.0)
    longer = ~scorer.surface.alike(token, ids) & scorer.surface.in_prefix_set(ids)
    begun = log_sum_exp(log_probs[longer])
    surface = min(float(np.logaddexp(np.logaddexp(step.own, step.alike), begun)), 0.0)
    cluster = float(np.logaddexp(step.own, step.cluster))
    counted = scorer.in_prefix_set(ids) & ~scorer.in_cluster(token, ids) & ~scorer.alike(token, ids)
    if neutrality:
        counted &= ~scorer.neutral_mask(opening)[ids]
        prefix = float(np.logaddexp(step.alike_apart, log_sum_exp(log_probs[counted])))
        return Masses(cluster, prefix, step.neutrals, surface, meaning)
    cluster = float(np.logaddexp(cluster, step.cluster_neutral))
    alike = np.logaddexp(step.alike_apart, step.alike_neutral)
    prefix = float(np.logaddexp(alike, log_sum_exp(log_probs[counted])))
    return Masses(cluster, prefix, -np.inf, surface, meaning)
