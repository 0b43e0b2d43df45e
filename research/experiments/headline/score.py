"""Every candidate of every recorded answer, and the judges' verdicts, one line an answer.

    python research/experiments/headline/score.py MODEL_DIRECTORY RECORDINGS NAME SCORES.parquet [--clusters DIR] [--first N]

RECORDINGS is where `record.py` wrote; NAME is a set in it (nq, wq, chat, tqa).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from candidates import Answer, numbers
from recording import Recording
from transformers import AutoConfig, AutoTokenizer

from semtoken import TokenClusters, Vocabulary

EXPERIMENTS = Path(__file__).parents[1]
sys.path[:0] = [str(EXPERIMENTS / "default_rule"), str(EXPERIMENTS / "long_answers")]
from rules import Agreements, Rule  # noqa: E402
from steps import Steps, is_exact, is_no_echo  # noqa: E402
from views import is_right  # noqa: E402

SHUFFLES = 5
TEXTS = ("id", "set", "question", "text", "accepted")


def rule_scores(steps: Steps, clusters: TokenClusters | None, model: Path) -> dict[str, np.ndarray]:
    """Minus the log of the product of agreeing masses, by rule."""
    rules = {
        "default": Rule(steps.spelling, beginnings=None),
        "surface": Rule(steps.spelling, beginnings=2),
        "paper_without_clusters": Rule(words="paper"),
        "function_words": Rule(beginnings=None, words="paper"),
    }
    found = {name: steps.uncertainties(rule.masses(steps)) for name, rule in rules.items()}
    if clusters is not None:
        made, rng = Agreements(clusters, model), np.random.default_rng(0)
        paper = Rule(made.labels, words="paper")
        found["paper"] = steps.uncertainties(paper.masses(steps))
        for k in range(SHUFFLES):
            found[f"paper ~ shuffle {k}"] = steps.uncertainties(paper.masses(steps, made.shuffle(rng)))
    return found


def frame(recording: Recording, rows: int, clusters: TokenClusters | None, model: Path) -> pd.DataFrame:
    """A line for each answer. `rows` is V, of the model's head."""
    steps, arrays = recording.steps, recording.arrays
    agreeing = np.log(np.clip(Rule(steps.spelling, beginnings=None).masses(steps), 1e-30, 1.0)).astype(float)
    lines = []
    for record, place in recording.answers():
        answer = Answer(
            text=steps.vocabulary.decode(record["ids"]),
            question=record["question"],
            offsets=steps.vocabulary.offsets(record["ids"]),
            token_texts=[steps.vocabulary.decode([i]) for i in record["ids"]],
            log_probs=np.minimum(arrays["log_prob"][place].astype(float), 0.0),
            agreeing=agreeing[place],
            entropies=np.maximum(arrays["entropy"][place].astype(float), 0.0),
            mean_log_probs=arrays["mean_log_prob"][place].astype(float),
            best=np.log(steps.p[place].astype(float)[:, :32].clip(1e-300, 1.0)),
            attention=np.moveaxis(arrays["attention"][place].astype(float), 0, -1)[:, :, 1:],
            vocabulary=rows,
        )
        lines.append(verdicts(record) | numbers(answer))
    return pd.DataFrame(lines).assign(**rule_scores(steps, clusters, model))


def verdicts(record: dict[str, object]) -> dict[str, object]:
    """Who and what, and the judges."""
    question, text, accepted = record["question"], record["text"], record["answers"]
    return {
        "id": record["id"],
        "set": record["set"],
        "text": text,
        "cut": record["cut"],
        "exact": is_exact(text, accepted),  # type: ignore[arg-type]
        "close_no_echo": is_no_echo(question, text, accepted),  # type: ignore[arg-type]
        "contains": is_right(record),
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("name")
    parser.add_argument("scores", type=Path)
    parser.add_argument("--clusters", type=Path)
    parser.add_argument("--first", type=int)
    options = parser.parse_args()
    vocabulary = Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(options.model))
    clusters = None if options.clusters is None else TokenClusters.from_pretrained(options.clusters)
    recording = Recording.read(options.recordings, options.name, vocabulary, options.first)
    config = AutoConfig.from_pretrained(options.model)
    found = frame(recording, config.vocab_size, clusters, options.model)
    plain = {name: np.float32 for name in found if found[name].dtype == np.float64}
    found.astype(plain).to_parquet(options.scores, index=False, compression="zstd")
    print(f"{options.scores}: {len(found):,} answers")


if __name__ == "__main__":
    main()
