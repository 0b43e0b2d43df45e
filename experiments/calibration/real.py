"""Chances and promises on real answers: half of the answered questions to fit, half to check.

    semtoken score questions.jsonl --questions --model MODEL -o answers.jsonl
    python experiments/calibration/real.py answers.jsonl NAME >> experiments/calibration/real.csv

The file has `log_score`, `question`, `response` and `answers` (accepted ones) in each line. One split decides the
figures of the chances; promises are also tried on 200 further splits, to see how often the checked half breaks them.
"""

from __future__ import annotations

import csv
import sys
from itertools import product
from pathlib import Path

import numpy as np

import semtoken as st
from semtoken.almanac import Question
from semtoken.bench.judges import Judged, correctness
from semtoken.bench.judges.texts import ContainsJudge, ExactJudge
from semtoken.calibration.measures import wilson
from semtoken.calibration.records import Answer, read_answers

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
STARTS = (None, 0.05)
"""Share that the strictest threshold accepts: by the rule, and a small one for models that are seldom right."""
SPLITS = 200
FIELDS = (
    *("answers", "judge", "n_fit", "n_check", "accuracy", "auroc", "row", "value", "low", "high"),
    *("coverage", "checked_accepted", "splits_with_threshold", "splits_broken", "mean_error"),
)


def judged(answers: list[Answer], judge: ExactJudge | ContainsJudge) -> np.ndarray:
    """Labels of a judge by words; the answer is the first line."""
    items = [
        Judged(Question(str(i), a.question, a.references), a.text.partition("\n")[0]) for i, a in enumerate(answers)
    ]
    return correctness(judge.judge(items))


def promise(
    scores: np.ndarray, correct: np.ndarray, alpha: float, order: np.ndarray, start: float | None
) -> tuple[st.Threshold, np.ndarray]:
    """A threshold from the first half of an order, placed by the scores of the other; what it accepts there."""
    half = order.size // 2
    fit, check = order[:half], order[half:]
    threshold = st.Threshold.fit(scores[fit], correct[fit], alpha=alpha, unlabelled=scores[check], start=start)
    return threshold, check[threshold.accepts(scores[check])]


def main(path: Path, name: str) -> None:
    """Write one row for each figure."""
    answers = [answer for answer in read_answers(path) if answer.log_score is not None]
    scores = np.array([answer.log_score for answer in answers])
    out = csv.DictWriter(sys.stdout, FIELDS)
    if "--header" in sys.argv:
        out.writeheader()
    for judge in (ExactJudge(), ContainsJudge()):
        correct = judged(answers, judge)
        order = np.random.default_rng(0).permutation(scores.size)
        half = order.size // 2
        fit, check = order[:half], order[half:]
        facts = {
            "answers": name,
            "judge": judge.name,
            "n_fit": half,
            "n_check": check.size,
            "accuracy": f"{correct.mean():.4f}",
            "auroc": f"{st.metrics.auroc(-scores, correct):.4f}",
        }
        report = st.Calibrator.fit(scores[fit], correct[fit]).report(scores[check], correct[check])
        for row in ("brier", "brier_gain", "log_loss", "log_loss_gain"):
            found = getattr(report, row)
            interval = {"value": f"{found.value:.4f}", "low": f"{found.low:.4f}", "high": f"{found.high:.4f}"}
            out.writerow(facts | {"row": row, **interval})
        out.writerow(facts | {"row": "ece", "value": f"{report.calibration_error:.4f}"})
        for alpha, start in product(LEVELS, STARTS):
            _, accepted = promise(scores, correct, alpha, order, start)
            named = f"error at alpha {alpha}" + ("" if start is None else f", start {start}")
            row = facts | {"row": named, "checked_accepted": accepted.size}
            row["coverage"] = f"{accepted.size / check.size:.4f}"
            if accepted.size:
                wrong = accepted.size - int(correct[accepted].sum())
                low, high = wilson(wrong, accepted.size)
                row |= {"value": f"{wrong / accepted.size:.4f}", "low": f"{low:.4f}", "high": f"{high:.4f}"}
            generator, errors = np.random.default_rng(1), []
            for _ in range(SPLITS):
                _, kept = promise(scores, correct, alpha, generator.permutation(scores.size), start)
                errors += [1 - correct[kept].mean()] if kept.size else []
            row["splits_with_threshold"] = f"{len(errors)}/{SPLITS}"
            row["splits_broken"] = f"{sum(error > alpha for error in errors)}/{SPLITS}"
            row["mean_error"] = f"{np.mean(errors):.4f}" if errors else ""
            out.writerow(row)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
