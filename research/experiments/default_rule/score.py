"""Scores of recorded answers under every rule, and under shuffled controls, one line an answer.

    python research/experiments/default_rule/score.py MODEL_DIRECTORY CLUSTERS ANSWERS SCORES.parquet [--rules NAME ...] [--development] [--more DIR ...]

ANSWERS is what `answer.py` wrote (without its ending). A score is minus the log of the product over the steps: larger is more
uncertain. Columns: id, right (exact), close (second judge), close_no_echo, tokens, one for each rule, and `RULE ~ shuffle k`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from rules import Agreements, Rule, by_distance_to_peak, nearest_at_step, unless_two_rivals, without_rivals
from steps import Floats, Steps, is_close, is_exact, is_no_echo

from semtoken import TokenClusters

CLUSTERED = (
    "clusters, beginnings",
    "clusters",
    "clusters of 3 letters, beginnings",
    "clusters of a stem, beginnings",
    "paper",
)
SHUFFLED = ("default", "clusters, beginnings", "paper")  # of these the controls are kept in the short form


def main_rules(steps: Steps, made: Agreements) -> dict[str, Callable[[], Rule]]:
    """The rules of every table, made when they are wanted."""
    labels = made.labels
    return {
        "probability": lambda: Rule(beginnings=None),
        "default": lambda: Rule(steps.spelling, beginnings=None),
        "surface": lambda: Rule(steps.spelling, beginnings=2),
        "beginnings": lambda: Rule(),
        "clusters, beginnings": lambda: Rule(labels),
        "clusters": lambda: Rule(labels, beginnings=None),
        "clusters of 3 letters, beginnings": lambda: Rule(made.letters(3, in_cluster=True)),
        "clusters of a stem, beginnings": lambda: Rule(made.stem(in_cluster=True)),
        "3 letters, beginnings": lambda: Rule(made.letters(3, in_cluster=False)),
        "paper": lambda: Rule(labels, words="paper"),
        "paper without clusters": lambda: Rule(words="paper"),
        "function words": lambda: Rule(beginnings=None, words="paper"),
        "spelling, chosen function words": lambda: Rule(steps.spelling, beginnings=None, words="chosen"),
        "spelling, chosen blanks": lambda: Rule(steps.spelling, beginnings=None, words="blanks"),
    }


def development_rules(steps: Steps, made: Agreements, more: list[Path]) -> dict[str, Rule]:
    """What was tried beyond that on the development sets."""
    labels = made.labels
    rules = {
        f"{path.name} clusters, beginnings": Rule(
            np.asarray(TokenClusters.from_pretrained(path).labels, dtype=np.int64)
        )
        for path in more
    }
    rules |= {
        "beginnings from 2": Rule(beginnings=2),
        "clusters of 4 letters, beginnings": Rule(made.letters(4, in_cluster=True)),
        "stem, beginnings": Rule(made.stem(in_cluster=False)),
    }
    for least in (0.5, 0.6, 0.7, 0.8):
        rules[f"clusters at cosine {least}, beginnings"] = Rule(made.weighted(lambda c, least=least: c >= least))
    for power in (1, 4):
        rules[f"clusters by cosine^{power}, beginnings"] = Rule(
            made.weighted(lambda c, power=power: np.clip(c, 0, 1) ** power)
        )
    for share in (0.4, 0.2):
        rules[f"clusters at edit distance {share}, beginnings"] = Rule(made.spelled_alike(share))
    for count in (1, 3, 5):
        rules[f"mutual nearest {count}, beginnings"] = Rule(made.mutual_neighbors(count, in_cluster=False))
        rules[f"clusters, mutual nearest {count}, beginnings"] = Rule(made.mutual_neighbors(count, in_cluster=True))
    for share in (0.3, 0.1, 0.03):
        rules[f"clusters, rivals of {share} off, beginnings"] = Rule(labels, at_step=without_rivals(share))
    rules["clusters unless two rivals, beginnings"] = Rule(labels, at_step=unless_two_rivals(0.05))
    rules["clusters, nearest at the step, beginnings"] = Rule(labels, at_step=nearest_at_step(made.table, 50))
    rules["clusters, by distance to the peak, beginnings"] = Rule(labels, at_step=by_distance_to_peak)
    for words in ("chosen", "word starts", "blanks"):
        rules[f"clusters, beginnings, function words {words}"] = Rule(labels, words=words)
        rules[f"beginnings, function words {words}"] = Rule(words=words)
    return rules


def row_means(steps: Steps, made: Agreements) -> Floats:
    """Each other member of the chosen token's cluster gets the mean of what the chosen token leaves over."""
    size = np.bincount(made.labels)[made.labels[steps.chosen]] * ~steps.vocabulary.numeral[steps.chosen]
    return np.minimum(steps.p[:, 0] + np.maximum(size - 1, 0) * (1 - steps.p[:, 0]) / (len(made.labels) - 1), 1.0)


def frame(
    steps: Steps, rules: dict[str, Rule], made: Agreements, shuffled: Callable[[str], bool], shuffles: int
) -> pd.DataFrame:
    """All scores of all answers; `shuffled` says which rules get controls."""
    records = [(r["question"], r["text"], r["answers"]) for r in steps.records]
    columns: dict[str, object] = {
        "id": [r["id"] for r in steps.records],
        "right": [is_exact(text, accepted) for _, text, accepted in records],
        "close": [is_close(text, accepted) for _, text, accepted in records],
        "close_no_echo": [is_no_echo(*record) for record in records],
        "tokens": steps.lengths,
    }
    rng = np.random.default_rng(0)
    places = [made.shuffle(rng) for _ in range(shuffles)]
    for name, rule in rules.items():
        columns[name] = steps.uncertainties(rule.masses(steps))
        if rule.agreement is not None and shuffled(name):
            for k, place in enumerate(places):
                columns[f"{name} ~ shuffle {k}"] = steps.uncertainties(rule.masses(steps, place))
        print(name, flush=True)
    logs = np.log(steps.p[:, 0])
    columns["row means"] = steps.uncertainties(row_means(steps, made))
    columns["perplexity"] = -np.add.reduceat(logs, steps.starts) / steps.lengths
    columns["weakest token"] = -np.minimum.reduceat(logs, steps.starts)
    return pd.DataFrame(columns).astype({name: np.float32 for name in columns if name not in _PLAIN})


_PLAIN = ("id", "right", "close", "close_no_echo", "tokens")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("clusters", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("scores", type=Path)
    parser.add_argument("--development", action="store_true", help="All that was tried, each with its controls.")
    parser.add_argument("--more", type=Path, nargs="*", default=[], help="Further clusters, for --development.")
    parser.add_argument("--rules", nargs="*", help="Only these of the main rules.")
    parser.add_argument("--shuffles", type=int, default=5)
    options = parser.parse_args()
    clusters = TokenClusters.from_pretrained(options.clusters)
    steps, made = Steps.read(options.answers, clusters.vocabulary), Agreements(clusters, options.model)
    alone = clusters.n_clusters == clusters.vocabulary.size  # each token alone: there are no clusters to speak of
    wanted = options.rules or [n for n in main_rules(steps, made) if not alone or n not in CLUSTERED]
    rules = {name: make() for name, make in main_rules(steps, made).items() if name in wanted}
    if options.development:
        rules |= development_rules(steps, made, options.more)
    everything = options.development
    found = frame(steps, rules, made, lambda name: everything or name in SHUFFLED, options.shuffles)
    found.to_parquet(options.scores, index=False, compression="zstd")


if __name__ == "__main__":
    main()
