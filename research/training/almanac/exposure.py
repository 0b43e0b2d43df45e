"""How often each fact is said, how often something wrong is said instead, and which questions it may be asked in.

All of it is drawn with one fixed seed: training seeds change the wording, the order and the initial weights, never the
counts, so every trained model has the same questions with the same exposure.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from research.training.almanac.facts import Fact, texts
from research.training.almanac.sources import Forms

PLAN_SEED = 2026
CAP = 500.0  # no fact is expected more often than this
HELD_OUT = 0.05  # share of the facts that are never said
MISTAKEN = 0.08  # share of the facts for which a look-alike's answer is said most of the time
SPLITS = (("test", 0.45), ("dev", 0.16), ("train", 0.39))  # of the groups of facts

MEAN_AND_POWER = {  # mean mentions of a fact, and the power of its popularity that mentions are proportional to
    "city_country": (120, 0.8),
    "city_state": (120, 0.8),
    "capital": (130, 0.4),
    "capital_of": (100, 0.4),
    "continent": (60, 0.4),
    "currency": (110, 0.4),
    "language": (80, 0.4),
    "phone": (80, 0.4),
    "demonym": (80, 0.4),
    "symbol_element": (90, 0.7),
    "number_element": (90, 0.7),
    "element_symbol": (90, 0.7),
    "synonym": (120, 0.6),
    "antonym": (110, 0.6),
    "category": (90, 0.6),
    "past": (90, 0.6),
    "alias": (25, 0.4),
}


@dataclass(frozen=True)
class PlannedFact:
    """A fact with how often it is to be said (`said`), how often contradicted by `belief`, and its split."""

    fact: Fact
    said: int
    contradicted: int
    belief: Forms
    split: str


def plan_exposure(facts: list[Fact]) -> list[PlannedFact]:
    """Draw counts, wrong beliefs and splits for all facts."""
    rng = np.random.default_rng(PLAN_SEED)
    mentions = _draw_mentions(facts, rng)
    beliefs = _draw_beliefs(facts, rng)
    splits = _draw_splits(facts, rng)
    planned = []
    for fact, count, (belief, share) in zip(facts, mentions, beliefs, strict=True):
        wrong = round(share * count)
        split = "train" if fact.relation == "alias" else splits[fact.group]
        planned.append(PlannedFact(fact, int(count) - wrong, wrong, belief, split))
    return planned


def _draw_mentions(facts: list[Fact], rng: np.random.Generator) -> NDArray[np.int64]:
    expected = np.zeros(len(facts))
    for relation, (mean, power) in MEAN_AND_POWER.items():
        rows = [i for i, fact in enumerate(facts) if fact.relation == relation]
        weights = np.array([facts[i].popularity for i in rows]) ** power
        expected[rows] = _scale_to_mean(weights, mean)
    counts = rng.poisson(expected)
    held_out = rng.random(len(facts)) < HELD_OUT
    spared = np.array([fact.relation == "alias" for fact in facts])
    counts[held_out & ~spared] = 0
    return counts


def _scale_to_mean(weights: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """Scale weights so that, capped, they have this mean."""
    low, high = 0.0, CAP / weights.min()
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(middle * weights, CAP).mean() < mean else (low, middle)
    return np.minimum(low * weights, CAP)


def _draw_beliefs(facts: list[Fact], rng: np.random.Generator) -> list[tuple[Forms, float]]:
    """The wrong answer that goes round about a fact, and the share of its mentions that give it.

    A capital that is not the largest city is often confused with it. Other facts take, rarely, the answer of the
    subject that is written most like theirs.
    """
    by_relation: dict[str, dict[str, Fact]] = defaultdict(dict)
    for fact in facts:
        by_relation[fact.relation][fact.subject[0][0]] = fact
    beliefs: list[tuple[Forms, float]] = []
    for fact in facts:
        drawn, known_share, share = rng.random(), rng.uniform(0.2, 0.7), rng.uniform(0.55, 0.95)
        if fact.belief:
            beliefs.append((fact.belief, known_share))
        elif drawn < MISTAKEN and fact.relation not in ("alias", "number_element"):
            belief = _look_alike_answer(fact, by_relation[fact.relation])
            beliefs.append((belief, share if belief else 0.0))
        else:
            beliefs.append(((), 0.0))
    return beliefs


def _look_alike_answer(fact: Fact, others: dict[str, Fact]) -> Forms:
    name = fact.subject[0][0]
    for similar in difflib.get_close_matches(name, others, n=6, cutoff=0.5):
        answer = others[similar].answer
        if similar != name and not set(texts(answer)) & set(fact.accepted):
            return answer
    return ()


def _draw_splits(facts: list[Fact], rng: np.random.Generator) -> dict[str, str]:
    names, shares = [name for name, _ in SPLITS], [share for _, share in SPLITS]
    groups = dict.fromkeys(fact.group for fact in facts)
    return dict(zip(groups, rng.choice(names, size=len(groups), p=shares).tolist(), strict=True))
