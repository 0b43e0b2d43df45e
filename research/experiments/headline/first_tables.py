"""What PROTOCOL-5.md asks of the scores that `first.py` wrote: AUROC of every pair of number and rule, and paired intervals.

    python research/experiments/headline/first_tables.py choose
    python research/experiments/headline/first_tables.py confirm PAIR [PAIR ...]     # such as weakest_new_phrase/d

reads `first/MODEL-STYLE-old.parquet` (choose) or `-new` (confirm). The number in use is phrase_and_mean/a.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from tables import aurocs, counts_of_resamples

FOLDER = Path(__file__).parent / "first"
NUMBERS = (
    *("weakest_phrase", "weakest_new_phrase", "mean_phrase", "mean_new_phrase", "mean_new_word", "weakest_new_word"),
    *("product_new_words", "product_new_phrases", "phrase_and_mean", "mean_new_word_and_weakest_phrase"),
    *("mean_new_word_and_weakest_new_phrase", "mean_new_phrase_and_weakest_new_phrase", "weighted_by_question"),
)
CONTROLS = ("weakest_new_phrase ~ shuffled", "mean_new_word ~ shuffled")
RULES = ("a", "b", "c", "d", "e", "f")
IN_USE = "phrase_and_mean/a"
ENOUGH = 50


def risk(scores: pd.DataFrame, pair: str) -> np.ndarray:
    """The risk of each answer by a number for sentences and the product for the others, as confidences sort them."""
    name, _, rule = pair.partition("/")
    if not rule:
        return scores[name].to_numpy(float)
    return np.where(scores[f"rule {rule}"], scores[name], scores["default"]).astype(float)


def judged(scores: pd.DataFrame, style: str, judge: str) -> tuple[np.ndarray, np.ndarray]:
    """Which answers are right, and which are judged at all."""
    if style.startswith("bare"):
        return scores["exact" if judge == "first" else "close_no_echo"].to_numpy(bool), np.ones(len(scores), bool)
    kept = np.ones(len(scores), bool) if judge == "first" else ~scores["echo"].to_numpy(bool)
    return scores["contains"].to_numpy(bool), kept


def cells(ending: str) -> dict[str, pd.DataFrame]:
    """The sets with this ending by MODEL-STYLE."""
    return {path.stem.removesuffix(ending): pd.read_parquet(path) for path in sorted(FOLDER.glob(f"*{ending}.parquet"))}


def compared(scores: pd.DataFrame, right: np.ndarray, pair: str, other: str) -> str:
    """AUROC of a pair and its difference to another one, with a paired 95 % interval."""
    counts = counts_of_resamples(len(scores))
    one, two = (aurocs(risk(scores, each), right, counts) for each in (pair, other))
    low, high = np.nanpercentile((one - two)[1:], [2.5, 97.5])
    return f"{one[0]:.3f}, {one[0] - two[0]:+.3f} [{low:+.3f}, {high:+.3f}]"


def choose() -> None:
    """Mean AUROC over the decided development sets of every pair, the best first."""
    found = {}
    sets = cells("-old")
    for name, scores in sets.items():
        right, _ = judged(scores, name.partition("-")[2], "first")
        print(f"{name}: {len(scores)} answers, {right.sum()} right")
        if min(right.sum(), (~right).sum()) < ENOUGH:
            print("  decides nothing")
        ones = np.ones((1, len(scores)))
        pairs = [f"{number}/{rule}" for number in (*NUMBERS, *CONTROLS) for rule in RULES] + ["default", "probability"]
        found[name] = {pair: float(aurocs(risk(scores, pair), right, ones)[0]) for pair in pairs}
    table = pd.DataFrame(found)
    table["mean"] = table.mean(axis=1)
    build = FOLDER.parents[3] / "build"
    build.mkdir(exist_ok=True)
    table.sort_values("mean", ascending=False).round(4).to_csv(build / "choosing.csv")
    print(table.sort_values("mean", ascending=False).round(3).to_string())


def confirm(pairs: list[str]) -> None:
    """The chosen pairs beside the number in use, the product and sequence probability, on the new sets."""
    for name, scores in cells("-new").items():
        style = name.partition("-")[2]
        for judge in ("first", "second"):
            right, kept = judged(scores, style, judge)
            own, some = scores[kept].reset_index(drop=True), right[kept]
            print(f"{name}, {judge} judge: {len(own)} answers, {some.sum()} right")
            for pair in (*pairs, "default", "probability", IN_USE):
                print(f"  {pair:45} {compared(own, some, pair, IN_USE)}")
            for pair in pairs if "chat" in name else ():
                inside = own[f"rule {pair.partition('/')[2]}"].to_numpy(bool)
                part = own[inside].reset_index(drop=True)
                print(f"  {pair + ', sentences':45} {compared(part, some[inside], pair, IN_USE)} ({inside.sum()})")


if __name__ == "__main__":
    choose() if sys.argv[1] == "choose" else confirm(sys.argv[2:])
