"""The report over all seeds: `python -m training.almanac.evaluate training/out/seed0 training/out/seed1 ...`.

Accuracy by exposure and relation, and the AUROC of STC, its ablations, its controls and its ceiling beside sequence
probability. The number of clusters and the shipped seed are chosen on dev; test questions are only reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from numpy.typing import NDArray
from rich.progress import track
from training.almanac.__main__ import load_plan
from training.almanac.answers import Answer, answer_questions, load_almanac
from training.almanac.controls import alias_labels, shuffled_labels
from training.almanac.exposure import PlannedFact

import semtoken as st
from semtoken.almanac import is_correct
from semtoken.almanac.questions import read_questions

DIVISORS = (2, 4, 8)  # numbers of clusters that dev chooses from: V / divisor
SHUFFLES = 10
RESULTS = Path("training/almanac/results")
BASELINE = "sequence probability"
EXPOSURE_BINS = (0, 1, 5, 20, 100)
MANY_FORMS = ("city_country", "city_state", "capital_of", "currency", "language", "number_element")  # set beforehand

Array = NDArray[np.float64]
VARIANTS: dict[str, dict[str, Any]] = {
    "STC (preset paper)": {},
    "STC, function words: whole-word": {"function_words": "whole-word"},
    "STC, function words: off": {"function_words": "off"},
    "STC without clustering": {"clustering": False},
    "STC without prefix matching": {"prefix_matching": False},
}
CONTROLS: dict[str, dict[str, Any]] = {"": {}, ", function words: whole-word": {"function_words": "whole-word"}}


@dataclass(frozen=True)
class Judged:
    """The answers of one model to one question set, and which of them are right."""

    answers: list[Answer]
    correct: NDArray[np.bool_]

    @property
    def log_probabilities(self) -> list[list[float]]:
        """Of the tokens of each answer, under the raw distribution."""
        rows = []
        for answer in self.answers:
            logs = torch.from_numpy(answer.logits).double().log_softmax(dim=-1)
            rows.append([float(logs[i, token].clamp(max=0)) for i, token in enumerate(answer.token_ids)])
        return rows


def judge(folder: Path, split: str) -> Judged:
    """Ask a trained model all questions of a split."""
    model, tokenizer = load_almanac(folder / "model")
    questions = read_questions(folder / "questions" / f"{split}.jsonl.gz")
    answers = list(track(answer_questions(model, tokenizer, questions), f"{folder.name} {split}", len(questions)))
    return Judged(answers, np.array([is_correct(a.text, a.question) for a in answers]))


def stc(judged: Judged, clusters: st.TokenClusters, **rules: Any) -> Array:
    """STC's uncertainty, as minus the log score so that no answers tie at 1."""
    scored = (st.score_logits(a.logits, a.token_ids, clusters, **{"preset": "paper", **rules}) for a in judged.answers)
    return np.array([-response.log_score for response in scored])


def likelihoods(judged: Judged) -> dict[str, Array]:
    """Sequence probability and its length-normalised form."""
    rows = judged.log_probabilities
    sequence = [st.methods.sequence_probability(row, variant="negative_logprob") for row in rows]
    return {BASELINE: np.array(sequence), "perplexity": np.array([st.methods.perplexity(row) for row in rows])}


def cluster_choices(folder: Path, vocabulary: st.Vocabulary) -> dict[int, NDArray[np.int32]]:
    """Labels for each number of clusters that dev may choose."""
    table = st.token_table(folder / "model")[: vocabulary.size]
    counts = [vocabulary.size // divisor for divisor in DIVISORS]
    labels: dict[int, NDArray[np.int32]] = st.cluster_tokens(table, counts)
    return labels


def all_scores(
    judged: Judged, labels: NDArray[np.int32], vocabulary: st.Vocabulary, planned: list[PlannedFact]
) -> Iterator[tuple[str, Array]]:
    """Every score of the report with its name; shuffled clusters come once a shuffle under one name."""
    yield from likelihoods(judged).items()
    clusters = st.TokenClusters(labels, vocabulary)
    for name, rules in VARIANTS.items():
        yield name, stc(judged, clusters, **rules)
    for suffix, rules in CONTROLS.items():
        table = st.TokenClusters(alias_labels(planned, vocabulary), vocabulary)
        yield "alias table" + suffix, stc(judged, table, **rules)
        for shuffle in range(SHUFFLES):
            shuffled = st.TokenClusters(shuffled_labels(labels, shuffle), vocabulary)
            yield "shuffled clusters" + suffix, stc(judged, shuffled, **rules)


def compare(scores: Iterable[tuple[str, Array]], correct: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """AUROC with its interval and the paired difference to sequence probability, a row a score.

    Of several arrays under one name, the one with the median AUROC is compared; `aurocs` holds them all.
    """
    groups: dict[str, list[Array]] = {}
    for name, uncertainty in scores:
        groups.setdefault(name, []).append(uncertainty)
    baseline = groups[BASELINE][0]
    rows = []
    for name, members in groups.items():
        members.sort(key=lambda uncertainty: st.metrics.auroc(uncertainty, correct))
        median = members[len(members) // 2]
        estimate = st.metrics.bootstrap("auroc", median, correct)
        row = {"score": name, "auroc": estimate.value, "low": estimate.low, "high": estimate.high}
        for prefix, other in (("diff", baseline), ("over_shuffled", _median_shuffled(groups, name, correct))):
            if other is not None:
                difference = st.metrics.paired_difference("auroc", median, other, correct)
                row |= {prefix: difference.value, f"{prefix}_low": difference.low, f"{prefix}_high": difference.high}
        rows.append(row | {"aurocs": [st.metrics.auroc(member, correct) for member in members]})
    return rows


def _median_shuffled(groups: dict[str, list[Array]], name: str, correct: NDArray[np.bool_]) -> Array | None:
    """The shuffled clusters that a score under the same function-word rule must beat."""
    controls = {
        "STC (preset paper)": "shuffled clusters",
        "STC, function words: whole-word": "shuffled clusters, function words: whole-word",
    }
    members = groups.get(controls.get(name, ""))
    if not members:
        return None
    return sorted(members, key=lambda uncertainty: st.metrics.auroc(uncertainty, correct))[len(members) // 2]


def accuracy_table(judged: Judged) -> pd.DataFrame:
    """One row an answer: what was asked, how exposed it was, and whether the answer was right."""
    rows = [
        {
            "id": answer.question.id,
            "relation": answer.question.relation,
            "exposure": answer.question.exposure,
            "contradicted": answer.question.contradicted,
            "answer": answer.text.strip(),
            "tokens": len(answer.token_ids),
            "ended": answer.ended,
            "correct": bool(right),
        }
        for answer, right in zip(judged.answers, judged.correct, strict=True)
    ]
    frame = pd.DataFrame(rows)
    labels = [f"{a}-{b - 1}" if b - a > 1 else str(a) for a, b in pairwise(EXPOSURE_BINS)]
    frame["bin"] = pd.cut(frame.exposure, [*EXPOSURE_BINS, np.inf], right=False, labels=[*labels, "100+"])
    frame["misled"] = frame.contradicted > frame.exposure
    return frame


def accuracy_summary(frame: pd.DataFrame) -> dict[str, Any]:
    """Accuracy overall and by group, each with the number of questions."""
    summary: dict[str, Any] = {"overall": float(frame.correct.mean()), "n": len(frame)}
    summary["ended"] = float(frame.ended.mean())
    for column in ("bin", "relation", "misled"):
        grouped = frame.groupby(column, observed=True).correct.agg(["mean", "size"])
        summary[column] = {str(k): {"accuracy": row["mean"], "n": int(row["size"])} for k, row in grouped.iterrows()}
    return summary


def choose_divisor(folders: list[Path], devs: list[Judged]) -> tuple[int, list[dict[str, Any]]]:
    """The number of clusters with the best mean AUROC of the paper's preset on dev."""
    rows = []
    for folder, judged in zip(folders, devs, strict=True):
        vocabulary = st.Vocabulary.from_tokenizer(load_almanac(folder / "model")[1])
        baseline = st.metrics.auroc(likelihoods(judged)[BASELINE], judged.correct)
        for divisor, labels in zip(DIVISORS, cluster_choices(folder, vocabulary).values(), strict=True):
            value = st.metrics.auroc(stc(judged, st.TokenClusters(labels, vocabulary)), judged.correct)
            rows.append({"model": folder.name, "divisor": divisor, "auroc": value, BASELINE: baseline})
    means = pd.DataFrame(rows).groupby("divisor").auroc.mean()
    return int(means.idxmax()), rows


def report_test(folder: Path, divisor: int, planned: list[PlannedFact]) -> dict[str, Any]:
    """Everything about one model on the test questions: all, and those whose answers have many forms or few."""
    judged = judge(folder, "test")
    vocabulary = st.Vocabulary.from_tokenizer(load_almanac(folder / "model")[1])
    labels = cluster_choices(folder, vocabulary)[vocabulary.size // divisor]
    scores = list(track(all_scores(judged, labels, vocabulary, planned), f"{folder.name} scores", 31))
    many = np.array([answer.question.relation in MANY_FORMS for answer in judged.answers])
    parts = {"all": np.ones_like(many), "many forms": many, "few forms": ~many}
    frame = accuracy_table(judged)
    RESULTS.mkdir(parents=True, exist_ok=True)
    frame.to_csv(RESULTS / f"answers-{folder.name}.csv.gz", index=False, compression={"method": "gzip", "mtime": 1})
    return {
        "accuracy": accuracy_summary(frame),
        "scores": {
            part: compare([(name, values[rows]) for name, values in scores], judged.correct[rows])
            for part, rows in parts.items()
        },
    }


def main(
    folders: Annotated[list[Path], typer.Argument(help="Output folders of trainings, a seed each.")],
    wordnet: Annotated[Path, typer.Option(help="Folder of WordNet 3.0's files.")] = Path("/usr/share/wordnet"),
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
) -> None:
    """Choose on dev, report on test, write training/almanac/results/report.json and scores.csv."""
    torch.set_num_threads(threads)
    planned = load_plan(wordnet)
    devs = [judge(folder, "dev") for folder in folders]
    divisor, dev_rows = choose_divisor(folders, devs)
    dev_accuracy = {folder.name: float(judged.correct.mean()) for folder, judged in zip(folders, devs, strict=True)}
    report = {
        "shipped": max(dev_accuracy, key=lambda name: dev_accuracy[name]),
        "divisor": divisor,
        "dev": {"accuracy": dev_accuracy, "cluster_counts": dev_rows},
        "training": {f.name: json.loads((f / "training.json").read_text(encoding="utf-8")) for f in folders},
        "test": {folder.name: report_test(folder, divisor, planned) for folder in folders},
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    rows = [
        {"model": name, "questions": part, **{k: v for k, v in row.items() if k != "aurocs"}}
        for name, result in report["test"].items()
        for part, group in result["scores"].items()
        for row in group
    ]
    pd.DataFrame(rows).round(5).to_csv(RESULTS / "scores.csv", index=False)


if __name__ == "__main__":
    typer.run(main)
