"""What PROTOCOL-6.md decides, from the scores of its answers that `first.py` wrote.

    python research/experiments/headline/sixth.py

reads `sixth/MODEL-STYLE-six.parquet`. Each model's answers to both prompts are one set. Echoes, sentences without a new
content word, come last in every number but the last one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from echoes import SUM, in_use
from tables import aurocs, counts_of_resamples, interval

FOLDER = Path(__file__).parent / "sixth"
ENOUGH = 50
MODELS = ("smollm2", "qwen1.5b")
CANDIDATES = ("half of mean new word + weakest phrase", "mean new phrase")
REPORTED = ("mean new word", "product", "probability", "in use, echoes not last")

Floats = npt.NDArray[np.float64]


def risks(scores: pd.DataFrame) -> dict[str, Floats]:
    """Each number's risk of every answer: of sentences as named, of short answers the product; echoes last."""
    sentence = scores["rule c"].to_numpy(bool)
    last = repeats(scores)
    of_sentences = {
        "in use": scores[SUM] / 2,
        "half of mean new word + weakest phrase": scores["mean_new_word_and_weakest_phrase"] / 2,
        "mean new phrase": scores["mean_new_phrase"],
        "mean new word": scores["mean_new_word"],
        "product": scores["default"],
    }
    risk = {name: np.where(sentence, number, scores["default"]) for name, number in of_sentences.items()}
    risk["probability"] = scores["probability"].to_numpy()
    found = {name: np.where(last, np.inf, number).astype(float) for name, number in risk.items()}
    return found | {"in use, echoes not last": in_use(scores)}


def repeats(scores: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which answers are echoes: sentences without a new content word."""
    return scores["repeats"].to_numpy(bool) & scores["rule c"].to_numpy(bool)


def areas(scores: pd.DataFrame, random: np.random.Generator) -> dict[str, Floats]:
    """[1 + resamples] AUROC of each number in the sample itself and in the same resamples of its answers."""
    right, counts = scores["contains"].to_numpy(bool), counts_of_resamples(len(scores), random)
    return {name: aurocs(risk, right, counts) for name, risk in risks(scores).items()}


def shown(values: Floats) -> str:
    """A difference with its interval."""
    middle, low, high = interval(values)
    return f"{middle:+.3f} [{low:+.3f}, {high:+.3f}]"


def main() -> None:
    """The command."""
    random, found, decides = np.random.default_rng(0), {}, True
    for model in MODELS:
        sets = [pd.read_parquet(path) for path in sorted(FOLDER.glob(f"{model}-*.parquet"))]
        scores = pd.concat(sets, ignore_index=True)
        right = int(scores["contains"].sum())
        last = repeats(scores)
        lengths = " + ".join(str(len(one)) for one in sets)
        print(f"{model}: {lengths} answers, {right} right, {last.sum()} echoes, {scores['contains'][last].sum()} right")
        decides = decides and right >= ENOUGH
        found[model] = areas(scores, random)
    passing = {}
    for name in (*CANDIDATES, *REPORTED):
        apart = {model: values[name] - values["in use"] for model, values in found.items()}
        both = np.mean(list(apart.values()), axis=0)
        parts = "; ".join(f"{m} {found[m][name][0]:.3f}, {shown(values)}" for m, values in apart.items())
        print(f"{name}: {parts}; averaged {shown(both)}")
        if name in CANDIDATES and interval(both)[1] > 0 and min(values[0] for values in apart.values()) >= -0.01:
            passing[name] = both[0]
    print("in use: " + "; ".join(f"{model} {values['in use'][0]:.3f}" for model, values in found.items()))
    if not decides:
        print("A model has too few right answers: nothing changes.")
    else:
        print(f"By the rule: {max(passing, key=lambda name: passing[name]) if passing else 'nothing changes'}.")


if __name__ == "__main__":
    main()
