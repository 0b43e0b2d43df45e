"""How often is a kept promise called broken, and how soon is a broken one noticed? Streams of labels, simulated.

    python research/experiments/watch/level.py [--streams 1000] [--labels 5000] > build/level.csv

The promise is alpha = 0.1, looked at after every label at level 0.05. Worlds: the share of wrong answers stays at the
limit, below it, or moves about below it; or it rises from 7 % to another share at a label, suddenly or slowly.
Beside the test of `semtoken audit` stand two others. `once`: a bet that begins with the first label only, without new
ones. `daily z-test`: what people do by hand, a one-sided z-test of all labels so far at level 0.05, after every tenth.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from semtoken.guarantees.betting import LEVEL, change_evidence, find_change
from semtoken.guarantees.betting import _log_factors as log_factors
from semtoken.guarantees.measures import wilson

ALPHA, BEFORE = 0.1, 0.07
FIELDS = ("world", "change_at", "test", "streams", "labels", "alarms_before", "low", "high", "noticed", "median_delay",
          "delay_90", "since_error_median")  # fmt: skip
Booleans = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def worlds(n: int) -> dict[str, tuple[Floats, int | None]]:
    """By name: the chance of a wrong answer at each label, and where it first exceeds alpha."""
    at = np.arange(n)
    found: dict[str, tuple[Floats, int | None]] = {
        "always at the limit (10 %)": (np.full(n, ALPHA), None),
        "always 7 %": (np.full(n, BEFORE), None),
        "moves between 0 and 10 %": (ALPHA * (1 + np.sin(at / 200)) / 2, None),
    }
    for change in (0, n // 10, n // 2):
        for after in (0.15, 0.2, 0.3, 0.5):
            found[f"7 % to {after:.0%} at {change}"] = (np.where(at < change, BEFORE, after), change)
    slope = BEFORE + (0.2 - BEFORE) * np.clip((at - n // 2) / (n // 10), 0, 1)
    found["7 % to 20 %, over a tenth of the stream"] = (slope, int(np.flatnonzero(slope > ALPHA)[0]))
    return found


def by_watch(wrong: Booleans) -> Floats:
    """Log evidence of the test in use, [streams, n]."""
    return change_evidence(wrong, ALPHA)


def once(wrong: Booleans) -> Floats:
    """The same bets, all begun with the first label."""
    gains, losses = log_factors(ALPHA)
    logs = np.cumsum(np.where(wrong[..., None], gains, losses), axis=1)
    return np.asarray(np.logaddexp.reduce(logs, axis=-1) - np.log(gains.size))


def daily_z(wrong: Booleans) -> Floats:
    """Infinite where the z-test rejects at a look after every tenth label, from the 30th on."""
    n = np.arange(1, wrong.shape[1] + 1)
    share = np.cumsum(wrong, axis=1) / n
    z = (share - ALPHA) / np.sqrt(ALPHA * (1 - ALPHA) / n)
    return np.where((z > 1.645) & (n % 10 == 0) & (n >= 30), np.inf, -np.inf)


TESTS: dict[str, Callable[[Booleans], Floats]] = {"watch": by_watch, "once": once, "daily z-test": daily_z}


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--labels", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first world to run, to go on with a table")
    options = parser.parse_args()
    table = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    if options.first == 0:
        table.writeheader()
    for number, (name, (chance, change)) in enumerate(worlds(options.labels).items()):
        if number < options.first:
            continue
        wrong = np.random.default_rng([options.seed, number]).random((options.streams, options.labels)) < chance
        for test, evidence in TESTS.items():
            found = np.concatenate([evidence(some) for some in np.array_split(wrong, max(1, len(wrong) // 100))])
            table.writerow(
                {"world": name, "test": test, **measured(wrong, found, change), **dated(test, wrong, change)}
            )
            sys.stdout.flush()


def measured(wrong: Booleans, evidence: Floats, change: int | None) -> dict[str, object]:
    """Alarms while the promise was kept, and delays of the others, of one test in one world."""
    streams, labels = wrong.shape
    passed = evidence >= -np.log(LEVEL)
    first = np.where(passed.any(axis=1), passed.argmax(axis=1), labels)
    early = int((first < (labels if change is None else change)).sum())
    low, high = wilson(early, streams)
    row: dict[str, object] = {
        "change_at": "" if change is None else change,
        "streams": streams,
        "labels": labels,
        "alarms_before": early,
        "low": round(low, 4),
        "high": round(high, 4),
    }
    if change is None:
        return row
    noticed = first[(first >= change) & (first < labels)]
    delays = noticed - change + 1
    if delays.size:
        row |= {
            "noticed": delays.size,
            "median_delay": int(np.median(delays)),
            "delay_90": int(np.quantile(delays, 0.9)),
        }
    return row


def dated(test: str, wrong: Booleans, change: int | None) -> dict[str, object]:
    """How far the date that `semtoken audit` names is from the change, in labels, over the first hundred streams."""
    if test != "watch" or change is None:
        return {}
    some = [found for one in wrong[:100] if (found := find_change(one, ALPHA)) and found.noticed >= change]
    return {"since_error_median": int(np.median([abs(one.since - change) for one in some]))} if some else {}


if __name__ == "__main__":
    main()
