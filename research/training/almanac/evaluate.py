"""The report over all seeds: `python -m research.training.almanac.evaluate research/training/out/seed0 research/training/out/seed1 ...`.

Accuracy by exposure and relation, and the AUROC of STC, its ablations, its controls and its ceiling beside sequence
probability. The number of clusters and the shipped seed are chosen on dev; test questions are only reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from numpy.typing import NDArray
from research.training.almanac.__main__ import load_plan
from research.training.almanac.answers import Answer, answer_questions, load_almanac
from research.training.almanac.controls import alias_labels, shuffled_labels
from research.training.almanac.exposure import PlannedFact
from rich.progress import track

import semtoken as st
from semtoken.support.almanac import is_correct, read_questions

EMBEDDINGS = ("concatenated", "output", "input")  # dev chooses among the paper's three token tables ...
DIVISORS = (2, 4, 8)  # ... and these numbers of clusters, V / divisor; linkage and distance are the paper's
SHUFFLES = 5
RESULTS = Path("research/training/almanac/results")
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
SHUFFLED_TWIN = {  # the control that each score must beat
    "STC (preset paper)": "shuffled clusters",
    "STC, function words: whole-word": "shuffled clusters, function words: whole-word",
    "STC, concatenated table": "shuffled clusters, concatenated table",
}

Labels = NDArray[np.int32]


@dataclass(frozen=True)
class AnswerToJudge:
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


def judge(folder: Path, split: str) -> AnswerToJudge:
    """Ask a trained model all questions of a split."""
    model, tokenizer = load_almanac(folder / "model")
    questions = read_questions(folder / "questions" / f"{split}.jsonl.gz")
    answers = list(track(answer_questions(model, tokenizer, questions), f"{folder.name} {split}", len(questions)))
    return AnswerToJudge(answers, np.array([is_correct(a.text, a.question) for a in answers]))


def stc(judged: AnswerToJudge, clusters: st.TokenClusters, **rules: Any) -> Array:
    """STC's uncertainty, as minus the log score so that no answers tie at 1."""
    scored = (st.score_logits(a.logits, a.token_ids, clusters, **{"preset": "paper", **rules}) for a in judged.answers)
    return np.array([-response.log_confidence for response in scored])


def likelihoods(judged: AnswerToJudge) -> dict[str, Array]:
    """Sequence probability and its length-normalized form."""
    rows = judged.log_probabilities
    sequence = [st.methods.sequence_probability(row, variant="negative_logprob") for row in rows]
    return {BASELINE: np.array(sequence), "perplexity": np.array([st.methods.perplexity(row) for row in rows])}


@dataclass(frozen=True, order=True)
class Setting:
    """What the clusters of the report are made from, and how many they are."""

    embedding: str
    divisor: int


def cluster_choices(folder: Path, vocabulary: st.Vocabulary) -> dict[Setting, Labels]:
    """Labels for every setting that dev may choose."""
    counts = {divisor: vocabulary.size // divisor for divisor in DIVISORS}
    choices = {}
    for embedding in EMBEDDINGS:
        table = st.token_table(folder / "model", kind=embedding)[: vocabulary.size]
        labels = st.cluster_tokens(table, list(counts.values()))
        choices |= {Setting(embedding, divisor): labels[count] for divisor, count in counts.items()}
    return choices


def all_scores(
    judged: AnswerToJudge, labels: Labels, concatenated: Labels, vocabulary: st.Vocabulary, planned: list[PlannedFact]
) -> Iterator[tuple[str, Array]]:
    """Every score of the report with its name; shuffled clusters come once a shuffle under one name."""
    yield from likelihoods(judged).items()
    clusters = st.TokenClusters(labels, vocabulary)
    for name, rules in VARIANTS.items():
        yield name, stc(judged, clusters, **rules)
    yield "STC, concatenated table", stc(judged, st.TokenClusters(concatenated, vocabulary))
    table = st.TokenClusters(alias_labels(planned, vocabulary), vocabulary)
    for suffix, rules in CONTROLS.items():
        yield "alias table" + suffix, stc(judged, table, **rules)
        for shuffle in range(SHUFFLES):
            shuffled = st.TokenClusters(shuffled_labels(labels, shuffle), vocabulary)
            yield "shuffled clusters" + suffix, stc(judged, shuffled, **rules)
    for shuffle in range(SHUFFLES):
        shuffled = st.TokenClusters(shuffled_labels(concatenated, shuffle), vocabulary)
        yield "shuffled clusters, concatenated table", stc(judged, shuffled)


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
    """The shuffled clusters that this score must beat; of several, the one with the median AUROC."""
    members = groups.get(SHUFFLED_TWIN.get(name, ""))
    if not members:
        return None
    return sorted(members, key=lambda uncertainty: st.metrics.auroc(uncertainty, correct))[len(members) // 2]


def accuracy_table(judged: AnswerToJudge) -> pd.DataFrame:
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


def report_dev(folder: Path) -> dict[str, Any]:
    """Accuracy on dev, and the AUROC of the paper's preset with every setting."""
    torch.set_num_threads(1)
    judged = judge(folder, "dev")
    vocabulary = st.Vocabulary.from_tokenizer(load_almanac(folder / "model")[1])
    rows = [
        {
            **asdict(setting),
            "auroc": st.metrics.auroc(stc(judged, st.TokenClusters(labels, vocabulary)), judged.correct),
        }
        for setting, labels in cluster_choices(folder, vocabulary).items()
    ]
    baseline = st.metrics.auroc(likelihoods(judged)[BASELINE], judged.correct)
    return {"accuracy": float(judged.correct.mean()), BASELINE: baseline, "settings": rows}


def choose_setting(devs: list[dict[str, Any]]) -> tuple[Setting, Setting]:
    """The setting with the best mean AUROC on dev, overall and among concatenated tables."""
    means = (
        pd.DataFrame([row for dev in devs for row in dev["settings"]]).groupby(["embedding", "divisor"]).auroc.mean()
    )
    best, best_concatenated = means.idxmax(), means[["concatenated"]].idxmax()
    return Setting(best[0], int(best[1])), Setting(best_concatenated[0], int(best_concatenated[1]))


def report_test(folder: Path, chosen: Setting, concatenated: Setting, planned: list[PlannedFact]) -> dict[str, Any]:
    """Everything about one model on the test questions: all, and those whose answers have many forms or few."""
    torch.set_num_threads(1)
    judged = judge(folder, "test")
    vocabulary = st.Vocabulary.from_tokenizer(load_almanac(folder / "model")[1])
    choices = cluster_choices(folder, vocabulary)
    scoring = all_scores(judged, choices[chosen], choices[concatenated], vocabulary, planned)
    scores = list(track(scoring, f"{folder.name} scores", 10 + 3 * SHUFFLES))
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
    processes: Annotated[int, typer.Option(help="Models that are evaluated at once.")] = 2,
) -> None:
    """Choose on dev, report on test, write research/training/almanac/results/report.json and scores.csv."""
    planned = load_plan(wordnet)
    names = [folder.name for folder in folders]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        devs = list(pool.map(report_dev, folders))
        chosen, concatenated = choose_setting(devs)
        tests = list(pool.map(report_test, folders, repeat(chosen), repeat(concatenated), repeat(planned)))
    report = {
        "shipped": max(zip(names, devs, strict=True), key=lambda pair: pair[1]["accuracy"])[0],
        "clusters": asdict(chosen),
        "concatenated": asdict(concatenated),
        "training": {f.name: json.loads((f / "training.json").read_text(encoding="utf-8")) for f in folders},
        "dev": dict(zip(names, devs, strict=True)),
        "test": dict(zip(names, tests, strict=True)),
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
