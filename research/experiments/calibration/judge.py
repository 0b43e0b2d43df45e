"""Do promises come where few answers deserve to pass, are they kept, and how often does a watch or an audit err?

    python judge.py power      # -> judge_power.csv: how often a promise comes, its coverage, how often it is broken
    python judge.py levels     # -> judge_levels.csv: false alarms and power of the watch and of one audit
    python judge.py kinds      # -> judge_kinds.csv: missed and joint with confidence beside on average

The worlds' chances are known for every score, so that whether a promise is kept is computed and not estimated. MAPIE
and deferguard are compared where they are installed (`pip install mapie deferguard`, in an environment of their own).
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

import semtoken as st
from semtoken.calibration import promises
from semtoken.calibration.betting import change_evidence
from semtoken.calibration.judge import Share, judge
from semtoken.decisions.answers import DecisionRecord
from semtoken.decisions.auditing import audit
from semtoken.decisions.calibrating import DecisionCalibrator

HERE = Path(__file__).parent
ALPHA = DELTA = 0.1
MANY = 400_000
Draw = Callable[[np.random.Generator, int], tuple[Any, Any]]


@dataclass(frozen=True)
class World:
    """Uncertainties, and the chance of being wrong at each."""

    name: str
    draw: Draw

    @property
    def many(self) -> tuple[Any, Any]:
        """Very many answers, surest first: uncertainties and chances of being wrong."""
        return _many(self.name)

    def truth(self, promise: str, accepts: Callable[[Any], Any]) -> float:
        """The true share that a promise bounds, for what a threshold accepts."""
        uncertainty, risk = self.many
        inside = accepts(-uncertainty)
        wrong = float(risk[inside].sum())
        of = {"selective": float(inside.sum()), "missed": float(risk.sum()), "joint": float(risk.size)}[promise]
        return wrong / of if of else 0.0


@cache
def _many(name: str) -> tuple[Any, Any]:
    uncertainty, risk = WORLDS[name].draw(np.random.default_rng(1), MANY)
    order = np.argsort(uncertainty, kind="stable")
    return uncertainty[order], risk[order]


def typed(n_options: int) -> Draw:
    """Typed decisions: the model's probabilities are the true ones sharpened by 1.8 and rounded to two decimals."""

    def draw(generator: np.random.Generator, n: int) -> tuple[Any, Any]:
        logits = generator.normal(0, 2.0, (n, n_options))
        if n_options == 2:
            z = generator.normal(0, 1.5, n)
            logits = np.stack([z / 2, -z / 2], axis=1)
        true, told = (np.exp(scale * logits) for scale in (1.0, 1.8))
        true, told = (p / p.sum(axis=1, keepdims=True) for p in (true, told))
        told = np.round(told, 2)
        told = told / told.sum(axis=1, keepdims=True)
        best = told.argmax(axis=1)
        rows = np.arange(n)
        return -np.log(told[rows, best]), 1 - true[rows, best]

    return draw


def ranked(accuracy: float, separation: float) -> Draw:
    """Scores that are normal among right and among wrong answers, so far apart."""

    def draw(generator: np.random.Generator, n: int) -> tuple[Any, Any]:
        z = generator.normal(size=n) + separation * (generator.random(n) < accuracy)
        odds = accuracy * np.exp(separation * z - separation**2 / 2)
        return np.log1p(np.exp(-z)), (1 - accuracy) / (1 - accuracy + odds)

    return draw


def flat(risk: float) -> Draw:
    """The score says nothing: every answer is wrong with the same chance."""
    return lambda generator, n: (generator.random(n), np.full(n, risk))


WORLDS = {
    world.name: world
    for world in (
        World("yes or no, 29 % deserve", typed(2)),
        World("one of five, 22 % deserve", typed(5)),
        World("60 % right, AUROC 0.85", ranked(0.60, 1.466)),
        World("75 % right, AUROC 0.85", ranked(0.75, 1.466)),
        World("75 % right, AUROC 0.92", ranked(0.75, 1.987)),
        World("90 % right, AUROC 0.85", ranked(0.90, 1.466)),
        World("flat, just above alpha", flat(ALPHA + 0.0005)),
    )
}


def labelled(world: World, generator: np.random.Generator, n: int) -> tuple[Any, Any]:
    """Uncertainties and whether each answer is right."""
    uncertainty, risk = world.draw(generator, n)
    return uncertainty, generator.random(n) >= risk


def interval(count: int, of: int) -> str:
    """A count as a share with its exact 95 % interval."""
    low = beta.ppf(0.025, count, of - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, of - count) if count < of else 1.0
    return f"{count / of:.3f} [{low:.3f}, {high:.3f}]"


def ours(uncertainty: Any, right: Any, start: float | None = None) -> float | None:
    """The threshold by default, or by one start."""
    return st.Threshold.fit(-uncertainty, right, alpha=ALPHA, delta=DELTA, start=start).uncertainty


def one_start(uncertainty: Any, right: Any) -> float | None:
    """The one start that was the default before: from n, alpha and delta."""
    return ours(uncertainty, right, promises.starting_share(right.size, ALPHA, DELTA))


def by_deferguard(uncertainty: Any, right: Any) -> float | None:
    """Deferguard's search: six sizes, Bonferroni."""
    from deferguard.core.risk_control import ConformalRiskControl

    found = ConformalRiskControl().select_threshold(-uncertainty, (~right).astype(float), ALPHA)
    return -float(found.threshold) if found.achieved else None


def peers() -> dict[str, Callable[[Any, Any], float | None]]:
    """The ways to choose a threshold that are installed here."""
    ways: dict[str, Callable[[Any, Any], float | None]] = {
        "several starts (default)": ours,
        "one start (before)": one_start,
        "start=0.1": lambda u, r: ours(u, r, 0.1),
    }
    try:
        import deferguard  # noqa: F401

        ways["deferguard 0.3.0"] = by_deferguard
    except ImportError:
        print("deferguard is not installed here: left out")
    return ways


def power(sets: int) -> Iterator[dict[str, Any]]:
    """How often a promise comes from n labels, what it covers and how often it is broken."""
    for n in (200, 500, 1000, 5000):
        for world in WORLDS.values():
            for name, way in peers().items():
                generator = np.random.default_rng([n, 7])
                came, broken, covered = 0, 0, 0.0
                uncertainty, _ = world.many
                for _ in range(sets):
                    threshold = way(*labelled(world, generator, n))
                    if threshold is None:
                        continue
                    came += 1
                    covered += float(np.searchsorted(uncertainty, threshold, side="right")) / MANY
                    risk = world.truth("selective", lambda scores, t=threshold: -scores <= t)
                    broken += risk > ALPHA
                yield {
                    "world": world.name,
                    "labels": n,
                    "way": name,
                    "came": interval(came, sets),
                    "coverage": round(covered / sets, 3),
                    "broken": interval(broken, sets),
                }


def kinds(sets: int) -> Iterator[dict[str, Any]]:
    """`missed` and `joint` with confidence 1 - delta beside on average: above alpha, and what they cover."""
    for promise, n in (("missed", 200), ("missed", 1000), ("joint", 200), ("joint", 1000)):
        for world in list(WORLDS.values())[:6]:
            for how, delta in (("with confidence 90 %", DELTA), ("on average", None)):
                generator = np.random.default_rng([n, 11])
                above, covered, none = 0, 0.0, 0
                for _ in range(sets):
                    uncertainty, right = labelled(world, generator, n)
                    if promise == "missed":
                        limit, _, _ = promises.wrong_answers_caught(uncertainty, right.astype(float), ALPHA, delta)
                        limit = None if limit is None else np.nextafter(limit, -math.inf)
                    else:
                        limit = promises.joint_risk(uncertainty, right.astype(float), ALPHA, delta)
                    if limit is None:
                        none += 1
                        continue
                    above += world.truth(promise, lambda scores, t=limit: -scores <= t) > ALPHA
                    covered += float(np.searchsorted(world.many[0], limit, side="right")) / MANY
                yield {
                    "promise": promise,
                    "labels": n,
                    "world": world.name,
                    "holds": how,
                    "above alpha": interval(above, sets),
                    "coverage": round(covered / sets, 3),
                    "no threshold": none,
                }


def levels(sets: int) -> Iterator[dict[str, Any]]:
    """The watch over 2,000 labels and one audit of 1,000, after fits of all kinds: nothing changed, and risks doubled."""
    for promise, n in (("selective", 500), ("missed", 500), ("joint", 500)):
        for world in (WORLDS[name] for name in list(WORLDS)[1:6:2]):
            generator = np.random.default_rng([n, 13])
            found = {"fits": 0, "above": 0, "watch": 0, "watch kept": 0, "audit": 0, "audit kept": 0}
            noticed = {"watch": 0, "audit": 0}
            for _ in range(sets):
                uncertainty, right = labelled(world, generator, n)
                threshold = st.Threshold.fit(-uncertainty, right, promise=promise, alpha=ALPHA, delta=DELTA)
                if threshold.uncertainty is None or not threshold.accepts(-uncertainty).any():
                    continue
                share = world.truth(promise, threshold.accepts)
                kept = share <= ALPHA
                found["fits"] += 1
                found["above"] += not kept
                for changed, chance in ((False, share), (True, min(1.0, max(2 * share, 2 * ALPHA)))):
                    against = generator.random(2000) < chance
                    watch = bool((change_evidence(against, ALPHA) >= -math.log(0.05)).any())
                    [verdict] = judge([(threshold.claim, Share(int(against[:1000].sum()), 1000))])
                    broken = verdict == "does not hold"
                    if changed:
                        noticed["watch"] += watch
                        noticed["audit"] += broken
                    else:
                        found["watch"] += watch
                        found["audit"] += broken
                        found["watch kept"] += watch and kept
                        found["audit kept"] += broken and kept
            fits = max(found["fits"], 1)
            yield {
                "promise": promise,
                "world": world.name,
                "fits": found["fits"],
                "true share above alpha": interval(found["above"], fits),
                "watch: broken, nothing changed": interval(found["watch"], fits),
                "of these the promise was kept": found["watch kept"],
                "audit: does not hold, nothing changed": interval(found["audit"], fits),
                "of these the promise was kept ": found["audit kept"],
                "watch: share doubled, noticed": interval(noticed["watch"], fits),
                "audit: share doubled, noticed": interval(noticed["audit"], fits),
            }
    yield from whole_audits(sets)


def decisions(generator: np.random.Generator, name: str, n: int, sharpened: float = 1.8) -> list[DecisionRecord]:
    """Predicates with a label, and the probabilities that a server tells for them."""
    true = 1 / (1 + np.exp(-generator.normal(0, 2.0, n)))
    so = generator.random(n) < true
    told = true**sharpened / (true**sharpened + (1 - true) ** sharpened)
    return [
        DecisionRecord(
            name, name, "predicate", (True, False), (p, 1 - p), 0 if one else 1, state=f"{generator.random()}"
        )
        for p, one in zip(told.tolist(), so.tolist(), strict=True)
    ]


def whole_audits(sets: int) -> Iterator[dict[str, Any]]:
    """One audit of three predicates: six thresholds and three kinds of sets, all tests together."""
    for promise in ("selective", "missed", "joint"):
        generator = np.random.default_rng(17)
        said, noticed = 0, 0
        for _ in range(sets):
            names = ("a", "b", "c")
            records = [record for name in names for record in decisions(generator, name, 500)]
            fitted = DecisionCalibrator.fit(records, promise=promise, alpha=ALPHA, delta=DELTA)
            same = [record for name in names for record in decisions(generator, name, 1000)]
            other = [record for name in names for record in decisions(generator, name, 1000, sharpened=4.0)]
            said += audit(fitted, same).is_broken
            noticed += audit(fitted, other).is_broken
        yield {
            "promise": promise,
            "world": "whole audit of three predicates",
            "fits": sets,
            "audit: does not hold, nothing changed": interval(said, sets),
            "audit: share doubled, noticed": interval(noticed, sets),
        }


if __name__ == "__main__":
    part, sets = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
    rows = list({"power": power, "levels": levels, "kinds": kinds}[part](sets))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with (HERE / f"judge_{part}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(row)
