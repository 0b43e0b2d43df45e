"""What raw probabilities are worth, what calibration buys, and what becomes of a threshold behind the other model.

    python research/experiments/decisions/figures.py [FOLDER]

Reads smollm2.parquet and qwen.parquet, writes figures.csv beside them, and prints the verdicts of the audits.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import rankdata

from semtoken.decisions import Choice, Predicate
from semtoken.decisions.answers import Answer, OptionMasses, answer_from_masses
from semtoken.decisions.auditing import Share, audit
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import DecisionRecord
from semtoken.errors import InvalidInputError

MODELS = ("smollm2", "qwen")
READINGS = ("labels", "words")
QUESTIONS = {"predicate": Predicate("?", name="predicate"), "choice": Choice("?", ["1", "2", "3", "4"], "choice")}
ALPHAS = (0.1, 0.2, 0.3)
RESAMPLES, SEED = 2000, 0


@dataclass(frozen=True)
class Item:
    """One item, read in one way."""

    name: str
    split: str
    label: int
    low: np.ndarray
    """[orders, options]"""
    high: np.ndarray

    @property
    def kind(self) -> str:
        """Predicate or choice."""
        return self.name.partition("-")[0]


@dataclass(frozen=True)
class Setting:
    """Whose answers, to what, read how."""

    model: str
    kind: str
    reading: str
    orders: str
    """"1", "2" or "all"."""

    def rows(self, read: int) -> list[int] | None:
        """Which of the orders that were read are averaged; None where there are not so many."""
        n = len(QUESTIONS[self.kind].options)
        wanted = {"1": 1, "2": 2, "all": n}[self.orders]
        if self.orders == "2" and (self.kind == "predicate" or read < 2):
            return None  # two orders of a predicate are all
        if wanted > read:
            return None
        return [0, 2] if (wanted, read) == (2, 4) else list(range(wanted))


def items_of(path: Path) -> dict[str, list[Item]]:
    """The items of a model by reading; refused ones are left out."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in pq.read_table(path).to_pylist():
        if row["low"] is not None:
            groups.setdefault((row["reading"], row["item"]), []).append(row)
    found: dict[str, list[Item]] = {reading: [] for reading in READINGS}
    for (reading, name), rows in groups.items():
        rows.sort(key=lambda row: row["row"])
        low, high = (np.array([row[side] for row in rows], dtype=np.float64) for side in ("low", "high"))
        found[reading].append(Item(name, rows[0]["split"], rows[0]["label"], low, high))
    return found


def answers_of(setting: Setting, items: Sequence[Item]) -> list[tuple[Item, Answer]]:
    """The items of the setting's kind with their answers; none where these orders were not read."""
    found = []
    for item in items:
        rows = setting.rows(len(item.low)) if item.kind == setting.kind else None
        if rows is not None:
            masses = OptionMasses(item.low[rows], item.high[rows])
            answer = answer_from_masses(QUESTIONS[setting.kind], masses)
            if answer.refusal is None:
                found.append((item, answer))
    return found


def records(pairs: Sequence[tuple[Item, Answer]], split: str) -> list[DecisionRecord]:
    """The answers of one half as `semtoken decide` keeps them."""
    return [DecisionRecord(answer, label=item.label, state=item.name) for item, answer in pairs if item.split == split]


def interval(statistic: Callable[[np.ndarray], float], n: int) -> tuple[float, float, float]:
    """A statistic of items given by their places, with its 95 % interval by a percentile bootstrap."""
    drawn = np.random.default_rng(SEED).integers(0, n, (RESAMPLES, n))
    low, high = np.quantile([statistic(places) for places in drawn], [0.025, 0.975])
    return statistic(np.arange(n)), float(low), float(high)


def losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """-ln of what the right option was given; 1e-12 at least."""
    return -np.log(np.maximum(probabilities[np.arange(len(labels)), labels], 1e-12))


def mean(setting: Setting, name: str, values: np.ndarray) -> dict[str, Any]:
    """A row of the table for a mean over items, with its 95 % interval by a percentile bootstrap."""
    drawn = np.random.default_rng(SEED).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    value = float(values.mean())
    return {**vars(setting), "figure": name, "value": value, "low": float(low), "high": float(high), "n": len(values)}


def figure(setting: Setting, name: str, n: int, statistic: Callable[[np.ndarray], float]) -> dict[str, Any]:
    """A row of the table."""
    value, low, high = interval(statistic, n)
    return {**vars(setting), "figure": name, "value": value, "low": low, "high": high, "n": n}


def share_row(setting: Setting, name: str, share: Share, **more: Any) -> dict[str, Any]:
    """A row of the table for a share."""
    low, high = share.interval
    value = share.count / share.of if share.of else None
    return {**vars(setting), "figure": name, "value": value, "low": low, "high": high, "n": share.of, **more}


def ece(chances: np.ndarray, right: np.ndarray) -> float:
    """Mean distance between chance and share right over ten bins of equal count; equal chances stay together.

    As `semtoken.guarantees.measures` has it, without the bins' intervals, which take their time.
    """
    cuts = np.unique(np.quantile(chances, np.arange(1, 10) / 10, method="higher"))
    bins = np.searchsorted(cuts, chances, side="right")
    return float(np.abs(np.bincount(bins, chances - right)).sum() / len(chances))


def raw(setting: Setting, pairs: Sequence[tuple[Item, Answer]]) -> Iterator[dict[str, Any]]:
    """Section 1: raw probabilities on the half kept apart."""
    kept = [(item, answer) for item, answer in pairs if item.split == "check"]
    p = np.array([answer.probabilities for _, answer in kept])
    labels = np.array([item.label for item, _ in kept])
    best, right = p.max(axis=1), (p.argmax(axis=1) == labels).astype(float)
    loss, n = losses(p, labels), len(kept)
    yield mean(setting, "accuracy", right)
    yield mean(setting, "log loss", loss)
    yield figure(setting, "ECE", n, lambda at: ece(best[at], right[at]))
    yield mean(setting, "mean of the highest probability", best)
    if setting.kind == "predicate":
        yield figure(setting, "AUROC", n, lambda at: auroc(p[at, 0], labels[at] == 0))
    mass = np.array([answer.option_mass for _, answer in kept])
    yield mean(setting, "allowed mass", mass)
    spread = np.array([answer.order_spread for _, answer in kept if answer.order_spread is not None])
    if len(spread):
        yield mean(setting, "spread over orders", spread)


def auroc(score: np.ndarray, positive: np.ndarray) -> float:
    """Chance that a true one has the higher score; ties count half."""
    n, m = int(positive.sum()), int((~positive).sum())
    if not n or not m:
        return float("nan")
    return float((rankdata(score)[positive].sum() - n * (n + 1) / 2) / (n * m))


def calibrated(setting: Setting, pairs: Sequence[tuple[Item, Answer]]) -> Iterator[dict[str, Any]]:
    """Section 2: chances and scaled probabilities, fitted on one half, on the other."""
    fit, check = records(pairs, "fit"), records(pairs, "check")
    try:
        made = DecisionCalibrator.fit(fit)
    except InvalidInputError as error:
        print(setting, error)
        return
    labels = np.array([one.label for one in check])
    p = np.array([one.answer.probabilities for one in check])
    scale = made.questions[check[0].fingerprint].scale
    scaled = scale(p)
    before, after = losses(p, labels), losses(scaled, labels)
    yield {**vars(setting), "figure": "temperature", "value": scale.temperature, "n": scale.n, "note": scale.statement}
    yield mean(setting, "log loss, scaled", after)
    yield mean(setting, "log loss, scaled minus raw", after - before)
    yield mean(setting, "log loss, scaled minus uniform", after - np.log(len(p[0])))
    told = [(one, made.block(one).get("chance")) for one in check]
    chances = np.array([chance for _, chance in told if chance is not None])
    right = np.array([one.correct for one, chance in told if chance is not None], dtype=float)
    if len(chances) >= 10:
        yield figure(setting, "ECE, probability", len(right), lambda at: ece(chances[at], right[at]))


def loosest(fit: Sequence[DecisionRecord], alpha: float) -> float:
    """The control: the largest -log p up to which at most alpha are wrong on these very labels; -1 for none."""
    ordered = sorted(fit, key=lambda one: -one.answer.log_confidence)
    wrong = np.cumsum([not one.correct for one in ordered])
    passed = np.flatnonzero(wrong <= alpha * np.arange(1, len(ordered) + 1)) if ordered else []
    return -ordered[passed[-1]].answer.log_confidence if len(passed) else -1.0


def promises(setting: Setting, own: Sequence[Any], other: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Sections 3 and 4: the promise on the other half, and on the other model's answers, with the audit's verdict."""
    fit, check, there = records(own, "fit"), records(own, "check"), records(other, "check")
    for alpha in ALPHAS:
        try:
            made = DecisionCalibrator.fit(fit, alpha=alpha)
        except InvalidInputError:
            return
        places = [("kept apart", check), *([("other model", there)] if there else [])]
        for where, asked in places:
            for one in (side for question in audit(made, asked).questions for side in question.sides):
                about = {"alpha": alpha, "side": one.fitted.side, "where": where, "note": one.verdict}
                yield share_row(setting, "accepted", one.fired, **about)
                yield share_row(setting, "wrong among accepted", one.wrong, **about)
                print(f"\n{setting}, alpha {alpha}, {where}\n  {one.fitted.statement}\n  {one.statement}")
        for side in sorted({one.answer.side for one in fit}):
            level = loosest([one for one in fit if one.answer.side == side], alpha)
            taken = [one for one in check if one.answer.side == side and -one.answer.log_confidence <= level]
            about = {"alpha": alpha, "side": side, "where": "kept apart"}
            yield share_row(setting, "accepted, control", Share(len(taken), len(check)), **about)
            wrong = Share(sum(not one.correct for one in taken), len(taken))
            yield share_row(setting, "wrong among accepted, control", wrong, **about)


def default_reading(read: dict[str, dict[str, list[Item]]]) -> Iterator[dict[str, Any]]:
    """The rule: which reading has the lower log loss of raw probabilities, in one order, paired over items."""
    for model, by_reading in read.items():
        for kind in QUESTIONS:
            loss = {}
            for reading in READINGS:
                setting = Setting(model, kind, reading, "1")
                kept = [pair for pair in answers_of(setting, by_reading[reading]) if pair[0].split == "check"]
                loss[reading] = {
                    item.name: float(losses(np.array([a.probabilities]), np.array([item.label]))[0]) for item, a in kept
                }
            both = sorted(set(loss["labels"]) & set(loss["words"]))
            gap = np.array([loss["words"][name] - loss["labels"][name] for name in both])
            if len(gap):
                setting = Setting(model, kind, "words minus labels", "1")
                yield mean(setting, "log loss", gap)


def main() -> None:
    """Write the table."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    read = {model: items_of(path) for model in MODELS if (path := folder / f"{model}.parquet").exists()}
    rows: list[dict[str, Any]] = []
    for model, by_reading in read.items():
        others = [other for other in read if other != model]
        for kind in QUESTIONS:
            for reading in READINGS:
                for orders in ("1", "2", "all"):
                    setting = Setting(model, kind, reading, orders)
                    pairs = answers_of(setting, by_reading[reading])
                    if not pairs:
                        continue
                    rows += raw(setting, pairs)
                    rows += calibrated(setting, pairs)
                    there = replace(setting, model=others[0]) if others else setting
                    other = answers_of(there, read[others[0]][reading]) if others else []
                    if orders == "1":
                        rows += promises(setting, pairs, other)
    rows += default_reading(read)
    names = [
        "model",
        "kind",
        "reading",
        "orders",
        "figure",
        "alpha",
        "side",
        "where",
        "value",
        "low",
        "high",
        "n",
        "note",
    ]
    with (folder / "figures.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{one:.4f}" if isinstance(one, float) else one for key, one in row.items()})


if __name__ == "__main__":
    main()
