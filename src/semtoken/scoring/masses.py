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
        return np.concatenate([own, self.members, self.neutrals, self.neutral_members, self.end.ids, self.candidates])


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
    return StepRequest(
        token=token,
        opening=opening,
        members=members[~neutral],
        neutrals=paper.neutral_ids(opening),
        neutral_members=members[neutral],
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
    fourth = third + len(request.end.ids)
    own = float(log_probs[0])
    if scorer is scorer.paper:
        cluster, neutrals = log_sum_exp(log_probs[1:first]), log_sum_exp(log_probs[first:second])
        cluster_neutral = log_sum_exp(log_probs[second:third])
        meaning = float(np.logaddexp(np.logaddexp(own, cluster), neutrals))
    else:
        cluster, cluster_neutral = _counted_members(scorer, request, log_probs[1:first], log_probs[second:third])
        neutrals = _counted_neutrals(scorer, request, log_probs[first:second])
        meaning = log_sum_exp(log_probs[:second])
    return StepMass(
        token=token,
        opening=opening,
        neutral=bool(scorer.neutral_mask(opening)[token]),
        own=own,
        cluster=cluster,
        cluster_neutral=cluster_neutral,
        neutrals=neutrals,
        meaning=0.0 if scorer.paper.neutral_mask(opening)[token] else meaning,
        ends=endings_of(scorer.vocabulary).from_row(request.end, log_probs[third:fourth]),
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


def masses(scorer: Scorer, step: StepMass, prefixes: PrefixSet, *, neutrality: bool) -> Masses:
    """What agrees with a step's token, once its prefix set is known.

    Without neutrality the neutral tokens count only where they are in the cluster or the prefix set.
    """
    ids, log_probs = prefixes
    other = ids != step.token
    neutral = scorer.paper.neutral_mask(step.opening)[ids]
    beyond = ~(scorer.paper.in_cluster(step.token, ids) | neutral)
    meaning = min(float(np.logaddexp(step.meaning, log_sum_exp(log_probs[beyond]))), 0.0)
    spelled = log_sum_exp(log_probs[other & scorer.surface.in_prefix_set(step.token, ids)])
    surface = min(float(np.logaddexp(step.own, spelled)), 0.0)
    if scorer is scorer.surface:
        return Masses(step.own, spelled, -np.inf, surface, meaning)
    further = scorer.in_prefix_set(step.token, ids) & ~scorer.in_cluster(step.token, ids)
    cluster = float(np.logaddexp(step.own, step.cluster))
    if neutrality:
        content = further & ~scorer.neutral_mask(step.opening)[ids]
        return Masses(cluster, log_sum_exp(log_probs[content]), step.neutrals, surface, meaning)
    cluster = float(np.logaddexp(cluster, step.cluster_neutral))
    return Masses(cluster, log_sum_exp(log_probs[further]), -np.inf, surface, meaning)
