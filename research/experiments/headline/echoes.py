"""Answers without one new content word in the nine sets of `first/`, and what it is worth to put them last.

    python research/experiments/headline/echoes.py            # AUROC with intervals, and how many echoes are right
    python research/experiments/headline/echoes.py --list     # every sentence that only repeats its question, to read by hand

An echo is an answer in which `semtoken.core.parts.newness.new_phrases` finds nothing. The number is the one in use but for echoes: of
a sentence half the sum of its least sure and of a typical new phrase, of a short answer the product.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from first_tables import FOLDER, judged
from tables import aurocs, counts_of_resamples

from semtoken.core.parts.newness import new_phrases

SUM = "mean_new_phrase_and_weakest_new_phrase"
"""The number in use is half of it; short answers are ranked among sentences, so the half counts."""


def echoes(scores: pd.DataFrame) -> np.ndarray:
    """Which answers only repeat their question; a blank one is none."""
    pairs = zip(scores["text"], scores["question"], strict=True)
    return np.array([bool(text.strip()) and not new_phrases(text, question) for text, question in pairs])


def in_use(scores: pd.DataFrame) -> np.ndarray:
    """The risk of each answer by the number in use, echoes ranked as others are."""
    return np.where(scores["rule c"], scores[SUM] / 2, scores["default"]).astype(float)


def gain(scores: pd.DataFrame, right: np.ndarray, last: np.ndarray) -> str:
    """AUROC with some answers put last, and the difference to AUROC without, with a paired 95 % interval."""
    counts = counts_of_resamples(len(scores))
    before = in_use(scores)
    one, two = (aurocs(each, right, counts) for each in (np.where(last, np.inf, before), before))
    low, high = np.nanpercentile((one - two)[1:], [2.5, 97.5])
    return f"{two[0]:.3f} to {one[0]:.3f}, {one[0] - two[0]:+.3f} [{low:+.3f}, {high:+.3f}]"


def main() -> None:
    """The command."""
    for path in sorted(FOLDER.glob("*-*.parquet")):
        scores = pd.read_parquet(path)
        style = path.stem.split("-", 1)[1]
        echo, sentence = echoes(scores), scores["rule c"].to_numpy(bool)
        if "--list" in sys.argv:
            for line in scores[echo & sentence].itertuples():
                print(f"{path.stem}\t{line.id}\t{line.question!r}\t{line.text.strip()!r}")
            continue
        for judge in ("first", "second") if style.startswith("bare") else ("first",):
            right, _ = judged(scores, style, judge)
            print(f"{path.stem}, {judge} judge: {len(scores):,} answers, {right.sum()} right")
            for name, some in (("sentences", echo & sentence), ("short", echo & ~sentence), ("all", echo)):
                if some.any():
                    told = gain(scores, right, some)
                    print(f"  {name + ' last':15} {some.sum():4} echoes, {right[some].sum()} right   {told}")


if __name__ == "__main__":
    main()
