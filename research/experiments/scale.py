"""Why a threshold does not carry over: the same uncertainty on seven sets of answers, as in docs/choosing.md.

    python research/experiments/scale.py

Greedy answers, judged by exact match. The second table compares the presets with each other, and `default` with the
plain probability of the answer, on the same answers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

HERE = Path(__file__).parent
SETS = {
    "embedded model, its test questions": "calibration/scores/almanac-test",
    "SmolLM2, NQ": "default_rule/scores/smollm2-nq",
    "SmolLM2, WQ": "default_rule/scores/smollm2-wq",
    "SmolLM2, TriviaQA": "default_rule/scores/smollm2-tqa",
    "Gemma, NQ": "default_rule/scores/gemma3-nq",
    "Gemma, WQ": "default_rule/scores/gemma3-wq",
    "Gemma, TriviaQA": "calibration/scores/gemma3-tqa",
}
"""Files of minus log scores under each rule, one line an answer."""
LIMITS = (0.5, 0.9)


def thresholds(scores: pd.DataFrame) -> list[str]:
    """Share of right answers, and for each limit the share accepted and how many of these are right."""
    uncertainty, right = -np.expm1(-scores["default"]), scores["right"].astype(bool)
    cells = [f"{right.mean():.1%}"]
    for limit in LIMITS:
        accepted = uncertainty <= limit
        cells += [f"{accepted.mean():.1%}", f"{right[accepted].sum():,} of {accepted.sum():,}"]
    return cells


def presets(scores: pd.DataFrame) -> list[str]:
    """Median uncertainty under both presets; rank correlation of `default` with `paper` and with the probability."""
    medians = [f"{-np.expm1(-scores[name].median()):.3f}" for name in ("default", "paper")]
    return medians + [f"{spearmanr(scores['default'], scores[name])[0]:.3f}" for name in ("paper", "probability")]


def main() -> None:
    """Print both tables; the second where both presets and the probability were kept."""
    sets = {name: pd.read_parquet(HERE / f"{path}.parquet") for name, path in SETS.items()}
    for name, scores in sets.items():
        print(f"| {name} | {' | '.join(thresholds(scores))} |")
    print()
    for name, scores in sets.items():
        if {"paper", "probability"} <= {*scores}:
            print(f"| {name} | {' | '.join(presets(scores))} |")


if __name__ == "__main__":
    main()
