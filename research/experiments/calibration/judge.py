"""Do promises come where few answers deserve to pass, are they kept, and how often does a watch or an audit err?

    python judge.py power      # -> build/judge_power.csv: how often a promise comes, its coverage, how often it is broken
    python judge.py levels     # -> build/judge_levels.csv: false alarms and power of the watch and of one audit
    python judge.py kinds      # -> build/judge_kinds.csv: missed and joint with confidence beside on average
    python judge.py lenient    # -> build/judge_lenient.csv: how often labels that call wrong answers right break a promise

The worlds' chances are known for every score, so that whether a promise is kept is computed and not estimated. MAPIE,
deferguard and judge-audit are compared where they are installed (`pip install mapie deferguard kunko-judge-audit`, in an
environment of their own).
"""

from __future__ import annotations

import csv
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

import semtoken as st
from semtoken.decisions.options import PredictionSets
from semtoken.guarantees import exact
from semtoken.guarantees.betting import change_evidence
from semtoken.guarantees.judge import KINDS, AverageClaim, Claim, Share, judge
from semtoken.guarantees.threshold import other_sign

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
        of = {"selective_risk": float(inside.sum()), "miss_rate": float(risk.sum()), "joint_risk": float(risk.size)}[
            promise
        ]
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


def labeled(world: World, generator: np.random.Generator, n: int) -> tuple[Any, Any]:
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
    return other_sign(st.Threshold.fit(-uncertainty, right, alpha=ALPHA, delta=DELTA, start=start).min_log_score)


def one_start(uncertainty: Any, right: Any) -> float | None:
    """The one start that was the default before: from n, alpha and delta."""
    return ours(uncertainty, right, exact.starting_share(right.size, ALPHA, DELTA))


def by_deferguard(uncertainty: Any, right: Any) -> float | None:
    """Deferguard's search: six sizes, Bonferroni."""
    from deferguard.core.risk_control import ConformalRiskControl

    found = ConformalRiskControl().select_threshold(-uncertainty, (~right).astype(float), ALPHA)
    return -float(found.threshold) if found.achieved else None


def by_judge_audit(uncertainty: Any, right: Any) -> float | None:
    """judge-audit's threshold, at the same delta."""
    from judge_audit.metrics.selective import certify_threshold

    found = certify_threshold(np.exp(-uncertainty).tolist(), right.tolist(), ALPHA, DELTA)["threshold"]
    return None if found is None else -math.log(found)


def by_mapie(uncertainty: Any, right: Any) -> float | None:
    """MAPIE's thresholds on the probability, by default: a hundred of them, Bonferroni and Holm."""
    from mapie.risk_control import BinaryClassificationController

    def told(p: Any) -> Any:
        return np.stack([1 - p[:, 0], p[:, 0]], axis=1)

    found = BinaryClassificationController(told, "precision", 1 - ALPHA, confidence_level=1 - DELTA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.calibrate(np.exp(-uncertainty)[:, None], right.astype(int))
    best = found.best_predict_param
    return None if best is None else math.inf if best <= 0 else -math.log(best)


def peers() -> dict[str, Callable[[Any, Any], float | None]]:
    """The ways to choose a threshold that are installed here."""
    ways: dict[str, Callable[[Any, Any], float | None]] = {
        "several starts (default)": ours,
        "one start (before)": one_start,
        "start=0.1": lambda u, r: ours(u, r, 0.1),
    }
    packages = (
        ("kunko-judge-audit", "judge_audit", by_judge_audit),
        ("deferguard", "deferguard", by_deferguard),
        ("mapie", "mapie", by_mapie),
    )
    for package, module, way in packages:
        if find_spec(module) is None:
            print(f"{package} is not installed here: left out")
        else:
            ways[f"{package} {version(package)}"] = way
    return ways


def power(sets: int) -> Iterator[dict[str, Any]]:
    """How often a promise comes from n labels, what it covers and how often it is broken."""
    for n in (1000, 5000):
        for world in list(WORLDS.values())[:6]:
            for name, way in peers().items():
                generator = np.random.default_rng([n, 7])
                came, broken, covered = 0, 0, 0.0
                uncertainty, _ = world.many
                for _ in range(sets):
                    threshold = way(*labeled(world, generator, n))
                    if threshold is None:
                        continue
                    came += 1
                    covered += float(np.searchsorted(uncertainty, threshold, side="right")) / MANY
                    risk = world.truth("selective_risk", lambda scores, t=threshold: -scores <= t)
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
    """`miss_rate` and `joint_risk` with confidence 1 - delta beside on average: above alpha, and what they cover."""
    for promise, n in (("miss_rate", 200), ("miss_rate", 1000), ("joint_risk", 200), ("joint_risk", 1000)):
        for world in list(WORLDS.values())[:6]:
            for how, delta in (("with confidence 90 %", DELTA), ("on average", None)):
                generator = np.random.default_rng([n, 11])
                above, covered, none = 0, 0.0, 0
                for _ in range(sets):
                    uncertainty, right = labeled(world, generator, n)
                    if promise == "miss_rate":
                        limit, _, _ = exact.wrong_answers_caught(uncertainty, right.astype(float), ALPHA, delta)
                        limit = None if limit is None else np.nextafter(limit, -math.inf)
                    else:
                        limit = exact.joint_risk(uncertainty, right.astype(float), ALPHA, delta)
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


def lenient(sets: int) -> Iterator[dict[str, Any]]:
    """How often a promise from 500 labels is broken if so many of the wrong answers were called right."""
    for share in (0.0, 0.05, 0.1, 0.2):
        for world in list(WORLDS.values())[:6]:
            generator = np.random.default_rng(19)
            came, broken = 0, 0
            for _ in range(sets):
                uncertainty, right = labeled(world, generator, 500)
                right = right | (generator.random(500) < share)
                threshold = ours(uncertainty, right)
                if threshold is not None:
                    came += 1
                    broken += world.truth("selective_risk", lambda scores, t=threshold: -scores <= t) > ALPHA
            yield {"called right": share, "world": world.name, "came": came, "broken": interval(broken, sets)}


def levels(sets: int) -> Iterator[dict[str, Any]]:
    """The watch over 2,000 labels and one audit of 1,000, after fits of all kinds: nothing changed, and risks doubled."""
    for promise, n in (("selective_risk", 500), ("miss_rate", 500), ("joint_risk", 200), ("joint_risk", 500)):
        for world in list(WORLDS.values())[:6]:
            generator = np.random.default_rng([n, 13])
            shares = []
            for _ in range(sets):
                uncertainty, right = labeled(world, generator, n)
                threshold = st.Threshold.fit(-uncertainty, right, guarantee=promise, alpha=ALPHA, delta=DELTA)
                if threshold.min_log_score is not None and threshold.accepts(-uncertainty).any():
                    shares.append(world.truth(promise, threshold.accepts))
            if not shares:
                continue
            share, fits = np.array(shares), len(shares)
            claim, above = Claim(KINDS[promise], ALPHA, DELTA), share > ALPHA
            found = {}
            for chance in (share, np.minimum(1, np.maximum(2 * share, 2 * ALPHA))):
                against = generator.random((fits, 2000)) < chance[:, None]
                watch = (change_evidence(against, ALPHA) >= -math.log(0.05)).any(axis=1)
                seen = [Share(int(count), 1000) for count in against[:, :1000].sum(axis=1)]
                found[len(found)] = watch, np.array([judge([(claim, one)]) == ["does not hold"] for one in seen])
            (watch, once), (watch_noticed, once_noticed) = found.values()
            yield {
                "promise": promise,
                "labels": n,
                "world": world.name,
                "fits": fits,
                "true share above alpha": interval(int(above.sum()), fits),
                "watch: broken, nothing changed": interval(int(watch.sum()), fits),
                "of these the promise was kept": int((watch & ~above).sum()),
                "audit: does not hold, nothing changed": interval(int(once.sum()), fits),
                "of these the promise was kept ": int((once & ~above).sum()),
                "watch: share doubled, noticed": interval(int(watch_noticed.sum()), fits),
                "audit: share doubled, noticed": interval(int(once_noticed.sum()), fits),
            }
    yield from whole_audits(sets)


def predicates(generator: np.random.Generator, n: int, sharpened: float = 1.8) -> tuple[Any, Any]:
    """Told probabilities of true and false, [n, 2], and the right option, [n]: 0 is true."""
    true = 1 / (1 + np.exp(-generator.normal(0, 2.0, n)))
    label = (generator.random(n) >= true).astype(int)
    told = true**sharpened / (true**sharpened + (1 - true) ** sharpened)
    return np.stack([told, 1 - told], axis=1), label


def whole_audits(sets: int) -> Iterator[dict[str, Any]]:
    """One audit of three predicates: six thresholds and three kinds of sets, all tests together.

    The fits, counts and tests are those of `audit`, without its drift, which is no test of a promise.
    """
    for promise in ("selective_risk", "miss_rate", "joint_risk"):
        generator = np.random.default_rng(17)
        said = noticed = 0
        for _ in range(sets):
            tested: dict[float, list[tuple[Claim | AverageClaim, Share]]] = {1.8: [], 4.0: []}
            for _ in range(3):
                probabilities, labels = predicates(generator, 500)
                fitted = PredictionSets.fit(probabilities.tolist(), labels.tolist(), ALPHA)
                sides = [fitted_side(probabilities, labels, side, promise) for side in (0, 1)]
                for sharpened, tests in tested.items():
                    found, right = predicates(generator, 1000, sharpened)
                    for side, threshold in enumerate(sides):
                        if threshold.min_log_score is None:
                            continue
                        own = found.argmax(axis=1) == side
                        accepted = threshold.accepts(np.log(found[own, side]))
                        tests.append((threshold.claim, KINDS[promise].count(accepted, right[own] == side)))
                    lacking = sum(label not in fitted(p) for p, label in zip(found, right, strict=True))
                    own_labels = fitted.shared + sum(fitted.labels)
                    tests.append((AverageClaim(KINDS["set"], ALPHA, own_labels), Share(lacking, 1000)))
            said += "does not hold" in judge(tested[1.8])
            noticed += "does not hold" in judge(tested[4.0])
        yield {
            "promise": promise,
            "labels": 500,
            "world": "whole audit of three predicates",
            "fits": sets,
            "audit: does not hold, nothing changed": interval(said, sets),
            "audit: share doubled, noticed": interval(noticed, sets),
        }


def fitted_side(probabilities: Any, labels: Any, side: int, promise: Any) -> st.Threshold:
    """The threshold for what is called true (0) or false (1)."""
    own = probabilities.argmax(axis=1) == side
    right = labels[own] == side
    return st.Threshold.fit(np.log(probabilities[own, side]), right, guarantee=promise, alpha=ALPHA, delta=DELTA)


if __name__ == "__main__":
    part, sets = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
    rows = list({"power": power, "levels": levels, "kinds": kinds, "lenient": lenient}[part](sets))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    target = HERE.parents[2] / "build" / f"judge_{part}.csv"
    target.parent.mkdir(exist_ok=True)
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(row)
