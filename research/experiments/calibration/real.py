"""Chances and promises on real answers: half of the answered questions to fit, half to check.

    python research/experiments/calibration/real.py > build/real.csv

Reads the scores of answers that are kept in this repository (`SETS`): minus log scores under a rule, and verdicts of a
judge. One split decides the figures of the chances; promises are also tried on 200 further splits, to see how often
they are broken: on the checked half, whose errors are a sample too, and on all answers of the set, from which the
fitted half was drawn: there a promise may be broken in one of ten splits and no more. The embedded model is fitted on
its development questions and checked on its test questions.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import semtoken as st
from semtoken.guarantees.measures import Interval, wilson

HERE = Path(__file__).parent
RULES = HERE.parent / "default_rule" / "scores"
SETS = {
    "SmolLM2-135M-Instruct, TriviaQA": RULES / "smollm2-tqa.parquet",
    "Gemma 3 270M, TriviaQA": HERE / "scores" / "gemma3-tqa.parquet",
    "SmolLM2-135M-Instruct, NQ": RULES / "smollm2-nq.parquet",
    "Gemma 3 270M, NQ": RULES / "gemma3-nq.parquet",
    "Gemma 3 270M, WebQuestions": RULES / "gemma3-wq.parquet",
}
EMBEDDED = "embedded model"
JUDGES = {"exact": "right", "contained": "close"}
LEVELS = (0.1, 0.2, 0.3, 0.5, 0.7)
STARTS = (None, 0.05)
"""Share that the strictest threshold accepts: by the rule, and a small one for models that are seldom right."""
SPLITS = 200
FIELDS = (
    *("answers", "judge", "rule", "n_fit", "n_check", "accuracy", "auroc", "row", "value", "low", "high"),
    *(
        "coverage",
        "checked_accepted",
        "splits_with_threshold",
        "splits_broken_on_check",
        "splits_broken_on_all",
        "mean_error",
    ),
)
Half = tuple[np.ndarray, np.ndarray]
"""Log scores and labels."""


def promised(fit: Half, check: Half, alpha: float, start: float | None) -> tuple[st.Threshold, np.ndarray]:
    """A threshold from one half, placed by the scores of the other; whether it accepts each answer there."""
    threshold = st.Threshold.fit(*fit, alpha=alpha, unlabeled=check[0], start=start)
    return threshold, threshold.accepts(check[0])


def chances(fit: Half, check: Half) -> Iterator[dict[str, Any]]:
    """How good the chances of a calibrator of one half are on the other."""
    report = st.Calibrator.fit(*fit).report(*check)
    for row in ("brier", "brier_gain", "log_loss", "log_loss_gain"):
        found: Interval = getattr(report, row)
        yield {"row": row, "value": f"{found.value:.4f}", "low": f"{found.low:.4f}", "high": f"{found.high:.4f}"}
    yield {"row": "ece", "value": f"{report.calibration_error:.4f}"}


def promise(fit: Half, check: Half, alpha: float, start: float | None) -> dict[str, Any]:
    """What a threshold of one half accepts in the other, and how often further splits of all answers break it."""
    named = f"error at alpha {alpha}" + ("" if start is None else f", start {start}")
    _, accepts = promised(fit, check, alpha, start)
    n, wrong = int(accepts.sum()), int((1 - check[1])[accepts].sum())
    row: dict[str, Any] = {"row": named, "checked_accepted": n, "coverage": f"{n / accepts.size:.4f}"}
    if n:
        low, high = wilson(wrong, n)
        row |= {"value": f"{wrong / n:.4f}", "low": f"{low:.4f}", "high": f"{high:.4f}"}
    scores, labels = np.concatenate([fit[0], check[0]]), np.concatenate([fit[1], check[1]])
    generator, errors, broken = np.random.default_rng(1), [], 0
    for _ in range(SPLITS):
        order = generator.permutation(scores.size)
        one, other = order[: fit[0].size], order[fit[0].size :]
        half = scores[other], labels[other]
        threshold, kept = promised((scores[one], labels[one]), half, alpha, start)
        errors += [float((1 - half[1])[kept].mean())] if kept.any() else []
        of_all = threshold.accepts(scores)
        broken += bool(of_all.any()) and float((1 - labels)[of_all].mean()) > alpha
    row["splits_with_threshold"] = f"{len(errors)}/{SPLITS}"
    row["splits_broken_on_check"] = f"{sum(error > alpha for error in errors)}/{SPLITS}"
    row["splits_broken_on_all"] = f"{broken}/{SPLITS}"
    return row | {"mean_error": f"{np.mean(errors):.4f}" if errors else ""}


def halves() -> Iterator[tuple[dict[str, Any], Half, Half]]:
    """What is fitted on what, and checked on what."""
    for (name, path), (judge, column) in product(SETS.items(), JUDGES.items()):
        table = pd.read_parquet(path).sort_values("id", ignore_index=True)
        order = np.random.default_rng(0).permutation(len(table))
        scores, labels = -table["default"].to_numpy(), table[column].to_numpy(dtype=float)
        fit, check = np.array_split(order, 2)
        facts = {"answers": name, "judge": judge, "rule": "default"}
        yield facts, (scores[fit], labels[fit]), (scores[check], labels[check])
    for rule in ("default", "paper"):
        both = [pd.read_parquet(HERE / "scores" / f"almanac-{part}.parquet") for part in ("dev", "test")]
        fit, check = ((-one[rule].to_numpy(), one["right"].to_numpy(dtype=float)) for one in both)
        yield {"answers": EMBEDDED, "judge": "exact", "rule": rule}, fit, check


def main() -> None:
    """Write one row for each figure."""
    out = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    out.writeheader()
    for facts, fit, check in halves():
        scores, labels = np.concatenate([fit[0], check[0]]), np.concatenate([fit[1], check[1]])
        facts |= {"n_fit": fit[0].size, "n_check": check[0].size, "accuracy": f"{labels.mean():.4f}"}
        facts["auroc"] = f"{st.metrics.auroc(-scores, labels):.4f}"
        for row in chances(fit, check):
            out.writerow(facts | row)
        for alpha, start in product(LEVELS, STARTS):
            out.writerow(facts | promise(fit, check, alpha, start))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
