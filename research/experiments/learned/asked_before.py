"""Which of the further TriviaQA questions other experiments had asked, and what states add on the others alone.

    python research/experiments/learned/asked_before.py FOLDER_OF_THE_SETS QUESTIONS

FOLDER_OF_THE_SETS holds triviaqa_validation.jsonl.gz; QUESTIONS is what `research/experiments/headline/draw.py` wrote. The gain is that
of the number cross-fitted on all answers over the headline, with its paired 95 % interval.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from semtoken.methods.metrics import paired_difference

HERE = Path(__file__).parent


def ids_of(path: Path) -> list[str]:
    """Of the questions of a file of JSON lines, which may be compressed."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        return [json.loads(line)["id"] for line in lines]


def told(table: pd.DataFrame, kept: npt.NDArray[np.bool_], judge: str, kind: str) -> str:
    """The gain on some of the answers."""
    part = table[kept]
    scores = (part[name].to_numpy(dtype=np.float64) for name in (f"{kind}_{judge}", "headline", judge))
    gain = paired_difference("auroc", *scores)
    return (
        f"{len(part):,} answers, {int(part[judge].sum())} right: {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
    )


def main(sets: Path, questions: Path) -> None:
    """The command."""
    table = pd.read_parquet(HERE / "scores" / "tqa-new.parquet")
    lines = ids_of(sets / "triviaqa_validation.jsonl.gz")
    asked = {
        "of the smaller models (experiments/default_rule)": random.Random(0).sample(lines, 3000),  # noqa: S311
        "as chat, of SmolLM2 (experiments/long_answers)": random.Random(7).sample(lines, 260),  # noqa: S311
        "as chat, of this model and SmolLM2 (experiments/headline)": ids_of(questions / "chat.jsonl"),
        "when the recipe was chosen": random.Random(3).sample(lines, 1500),  # noqa: S311
    }
    before = np.zeros(len(table), dtype=bool)
    for how, ids in asked.items():
        found = table["id"].isin(ids).to_numpy()
        before |= found
        print(f"asked {how}: {found.sum()} of {len(table):,}")
    for judge in ("exact", "close_no_echo"):
        for kind in ("states", "cheap"):
            print(f"{judge}, {kind}: all {told(table, np.ones_like(before), judge, kind)}")
            print(f"{judge}, {kind}: never asked before {told(table, ~before, judge, kind)}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
