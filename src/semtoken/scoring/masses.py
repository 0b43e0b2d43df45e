"""One decoding step, reduced from V probabilities to the few numbers that can still matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from semtoken._arrays import FloatArray, IdArray, log_sum_exp
from semtoken.results import Source
from semtoken.vocabulary import BoolArray

STRONGEST = 5  # alternatives kept a step


class Candidate(NamedTuple):
    """A consistent token other than the chosen one."""

    id: int
    log_probability: float
    source: Source
    neutral: bool


@dataclass(frozen=True, eq=False)
class StepRequest:
    """Which columns of a row of logits are needed to reduce it, given the token that was chosen."""

    token: int
    """The chosen token y_i."""
    neutral: bool
    """y_i is neutral at this step."""
    cluster: IdArray
    """Other members of y_i's cluster that are not neutral."""
    cluster_neutral: IdArray
    """Other members of y_i's cluster that are neutral."""
    neutrals: IdArray
    """All neutral tokens."""
    candidates: IdArray
    """Ascending ids of tokens that may turn out to spell the beginning of what follows."""
    needs_row: bool
    """Nothing is known yet of what follows, so the whole row must be kept for now."""

    @property
    def columns(self) -> IdArray:
        """Column ids to take from the row: the token's own, then the groups in the order of the fields."""
        own = np.array([self.token], dtype=np.int64)
        return np.concatenate([own, self.cluster, self.cluster_neutral, self.neutrals, self.candidates])


@dataclass(frozen=True, eq=False)
class StepMass:
    """What is kept of a step: natural logs of probability masses, all <= 0 up to rounding."""

    token: int
    neutral: bool
    own: float
    """log p(y_i)."""
    cluster: float
    """Other tokens of the cluster that are not neutral."""
    cluster_neutral: float
    """Other tokens of the cluster that are neutral."""
    neutrals: float
    """All neutral tokens."""
    strongest: tuple[Candidate, ...]
    """The most probable other members of the cluster and neutral tokens."""


@dataclass(frozen=True, eq=False)
class PrefixMass:
    """Mass of the prefix set beyond the cluster."""

    content: float
    neutral: float
    strongest: tuple[Candidate, ...]


NO_PREFIXES = PrefixMass(-np.inf, -np.inf, ())


def reduce_step(request: StepRequest, log_probs: FloatArray) -> StepMass:
    """Reduce the log-probabilities of `request.columns` (candidates may be left out) to a `StepMass`."""
    first = 1 + len(request.cluster)  # log_probs[0] is the chosen token's own
    second = first + len(request.cluster_neutral)
    third = second + len(request.neutrals)
    cluster, cluster_neutral, neutrals = log_probs[1:first], log_probs[first:second], log_probs[second:third]
    strongest = (
        *top_candidates(request.cluster, cluster, "cluster", neutral=False),
        *top_candidates(request.cluster_neutral, cluster_neutral, "cluster", neutral=True),
        *top_candidates(request.neutrals, neutrals, "neutral", neutral=True),
    )
    return StepMass(
        token=request.token,
        neutral=request.neutral,
        own=float(log_probs[0]),
        cluster=log_sum_exp(cluster),
        cluster_neutral=log_sum_exp(cluster_neutral),
        neutrals=log_sum_exp(neutrals),
        strongest=strongest,
    )


def reduce_prefixes(ids: IdArray, log_probs: FloatArray, neutral: BoolArray) -> PrefixMass:
    """Mass of the tokens `ids` of a prefix set that are not in the cluster, neutral ones apart."""
    if not len(ids):
        return NO_PREFIXES
    return PrefixMass(
        content=log_sum_exp(log_probs[~neutral]),
        neutral=log_sum_exp(log_probs[neutral]),
        strongest=(
            *top_candidates(ids[~neutral], log_probs[~neutral], "prefix", neutral=False),
            *top_candidates(ids[neutral], log_probs[neutral], "prefix", neutral=True),
        ),
    )


def top_candidates(ids: IdArray, log_probs: FloatArray, source: Source, *, neutral: bool) -> list[Candidate]:
    """The `STRONGEST` most probable of some tokens."""
    if len(ids) > STRONGEST:
        kept = log_probs.argpartition(-STRONGEST)[-STRONGEST:]
        ids, log_probs = ids[kept], log_probs[kept]
    return [Candidate(i, p, source, neutral) for i, p in zip(ids.tolist(), log_probs.tolist(), strict=True)]


def consistent_mass(step: StepMass, prefixes: PrefixMass, *, neutrality: bool) -> tuple[float, float, float]:
    """Logs of the masses of cluster, further prefixes and further neutral tokens.

    Without neutrality the neutral tokens count only where they are in the cluster or the prefix set.
    """
    if neutrality:
        return float(np.logaddexp(step.own, step.cluster)), prefixes.content, step.neutrals
    cluster = np.logaddexp(np.logaddexp(step.own, step.cluster), step.cluster_neutral)
    return float(cluster), float(np.logaddexp(prefixes.content, prefixes.neutral)), -np.inf


def strongest_candidates(step: StepMass, prefixes: PrefixMass, *, neutrality: bool) -> list[Candidate]:
    """The most probable consistent tokens other than the chosen one, each once."""
    if neutrality:  # a neutral token is listed as such, whatever cluster it is in
        pool = [c for c in (*step.strongest, *prefixes.strongest) if not c.neutral or c.source == "neutral"]
    else:
        pool = [c for c in (*step.strongest, *prefixes.strongest) if c.source != "neutral"]
    pool = [c for c in pool if c.id != step.token and c.log_probability > -np.inf]
    return sorted(pool, key=lambda c: (-c.log_probability, c.id))[:STRONGEST]
