"""Pairs of a true and a false completion: how often does a score give the true one more confidence?

    python research/experiments/contrast/contrast.py MODEL [--clusters CLUSTERS] [--backend llama-cpp] [--csv OUT.csv] [--scores OUT]

MODEL is whatever `semtoken` takes: a name, a directory, a GGUF file. `pairs.jsonl` holds one pair a line: id, category, prompt, true,
false. The text that is scored is the prompt, a blank and the completion; only the completion's tokens count.
Accuracies have 95 % intervals of a bootstrap over pairs (4,000 resamples, the same for every score).
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import semtoken as st

PAIRS = Path(__file__).with_name("pairs.jsonl")
RESAMPLES = 4000
Floats = npt.NDArray[np.float64]


def read_pairs() -> list[dict[str, str]]:
    """The pairs, in the order of the file."""
    return [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]


def completion_ids(tokenizer: Any, prompt: str, completion: str) -> list[int]:
    """The tokens that a completion adds to its prompt."""
    before, whole = (tokenizer(text)["input_ids"] for text in (prompt, f"{prompt} {completion}"))
    if whole[: len(before)] != before:
        raise ValueError(f"The tokens of {prompt!r} change when {completion!r} follows.")
    return list(whole[len(before) :])


def log_scores(answer: st.ScoredAnswer) -> dict[str, float]:
    """The log score of one completion under each rule: larger is more confident."""
    tokens = answer.tokens
    return {
        "probability (exact)": math.fsum(token.log_probability for token in tokens),
        "surface": math.fsum(token.log_surface_probability for token in tokens),
        "paper (meaning)": math.fsum(token.log_meaning_probability for token in tokens),
        "default": answer.log_confidence,
    }


def right(true: Floats, false: Floats) -> Floats:
    """1 where the true completion has the higher score, one half for a tie."""
    return np.asarray((true > false) + 0.5 * (true == false))


def accuracies(hits: dict[str, Floats], categories: list[str]) -> pd.DataFrame:
    """A line for each score: accuracy, difference to probability, and the accuracy of each category."""
    baseline = hits["probability (exact)"]
    drawn = np.random.default_rng(0).integers(0, len(baseline), (RESAMPLES, len(baseline)))
    lines = []
    for name, hit in hits.items():
        low, high = np.percentile(hit[drawn].mean(1), [2.5, 97.5])
        least, most = np.percentile((hit - baseline)[drawn].mean(1), [2.5, 97.5])
        line = {"score": name, "accuracy": hit.mean(), "low": low, "high": high}
        line |= {"minus_probability": (hit - baseline).mean(), "minus_low": least, "minus_high": most}
        groups = pd.Series(hit).groupby(pd.Series(categories), sort=False)
        lines.append(line | groups.mean().to_dict())
    return pd.DataFrame(lines)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--clusters")
    parser.add_argument("--backend", default="transformers")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--scores", type=Path, help="Log scores of every completion, as CSV.")
    options = parser.parse_args()
    stc = st.ScoredModel.from_pretrained(options.model, clusters=options.clusters, backend=options.backend)
    pairs = read_pairs()
    prompts = [pair["prompt"] for pair in pairs for _ in ("true", "false")]
    completions = [pair[side] for pair in pairs for side in ("true", "false")]
    ids = [completion_ids(stc.tokenizer, *texts) for texts in zip(prompts, completions, strict=True)]
    found = pd.DataFrame([log_scores(answer) for answer in stc.score(prompts, ids)])
    if options.scores:
        sides = [f"{pair['id']} {side}" for pair in pairs for side in ("true", "false")]
        found.round(4).set_axis(sides).to_csv(options.scores, index_label="completion")
    hits = {str(name): right(found[name].to_numpy()[::2], found[name].to_numpy()[1::2]) for name in found}
    table = accuracies(hits, [pair["category"] for pair in pairs])
    print(table.round(3).to_string(index=False))
    if options.csv:
        table.round(5).to_csv(options.csv, index=False)


if __name__ == "__main__":
    main()
