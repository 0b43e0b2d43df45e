"""How much of the exact uncertainty the k best log-probabilities of each step tell.

    python -m benchmarks.topk                     # the almanac's test questions
    python -m benchmarks.topk --model DIRECTORY --questions FILE.jsonl --limit 500

For each k: the width of the interval, how far `uncertainty` (which counts the listed mass alone) is from the exact
one, and its AUROC and that of the lower end, beside those of the exact uncertainty and of the sequence probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer

import semtoken as st
from semtoken import STC
from semtoken.almanac import is_correct
from semtoken.backends.base import Decoding, Observer, Step
from semtoken.bench.datasets import read_dataset
from semtoken.metrics import auroc

SIZES = (1, 2, 5, 10, 20, 50, 100)


@dataclass(frozen=True)
class Answer:
    """One greedy answer: raw log-probabilities [n, V] and ids."""

    log_probs: np.ndarray[Any, Any]
    ids: list[int]


def answers(stc: STC, prompts: list[Any], max_new_tokens: int, stop_at_newline: bool) -> list[Answer]:
    """Greedy answers with the whole distribution of every step, one after another."""
    decoding = Decoding(max_new_tokens=max_new_tokens, stop_at_newline=stop_at_newline, batch_size=1)
    found = []
    for prompt in prompts:
        rows = Rows()
        [answer] = stc.backend.generate([prompt], decoding, [rows])
        found.append(Answer(np.stack(rows.log_probs), answer.token_ids))
    return found


class Rows(Observer):
    """Keeps the whole distribution of every step of one answer."""

    def __init__(self) -> None:
        self.log_probs: list[np.ndarray[Any, Any]] = []

    def observe(self, step: Step) -> None:
        """Take in one step."""
        assert step.logits is not None
        self.log_probs.append(step.logits[0, : step.size].astype(np.float64) - step.log_normalizers[0])


def best(answer: Answer, k: int) -> list[tuple[int, dict[int, float]]]:
    """The k best tokens of each step, and the chosen one."""
    order = np.argsort(-answer.log_probs, axis=1, kind="stable")[:, :k].tolist()
    rows = zip(answer.log_probs, answer.ids, order, strict=True)
    return [(token, {i: float(row[i]) for i in dict.fromkeys([*top, token])}) for row, token, top in rows]


def main(
    model: Annotated[str, typer.Option(help="'almanac' or a directory.")] = "almanac",
    questions: Annotated[str, typer.Option(help="'almanac', 'almanac-dev' or a file of JSON lines.")] = "almanac",
    limit: Annotated[int, typer.Option(help="A random part of so many questions.")] = 1000,
    max_new_tokens: Annotated[int, typer.Option()] = 32,
) -> None:
    """Print the table."""
    stc = STC.from_pretrained(model, preset="paper")
    dataset = read_dataset(questions, limit=limit)
    found = answers(stc, list(dataset.prompts()), max_new_tokens, dataset.format.stop_at_newline)
    exact = [st.score_logits(a.log_probs, a.ids, stc.clusters, preset="paper") for a in found]
    judged = zip(exact, dataset.questions, strict=True)
    correct = np.array([float(is_correct(scored.text, question)) for scored, question in judged])
    truth = np.array([scored.uncertainty for scored in exact])
    plain = auroc(np.array([-scored.log_probability for scored in exact]), correct)
    log_scores = np.array([-scored.log_score for scored in exact])
    print(f"{len(found)} answers, {correct.mean():.1%} right; AUROC exact {auroc(log_scores, correct):.4f}, ", end="")
    print(f"sequence probability {plain:.4f}\n")
    print("| k | width, mean | median | 90 % | above the exact one, mean | AUROC | AUROC of the lower end |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for k in SIZES:
        scored = [st.score_top_logprobs(best(a, k), stc.clusters, preset="paper") for a in found]
        bounds = np.array([s.uncertainty_bounds for s in scored])
        outside = (truth < bounds[:, 0]) | (truth > bounds[:, 1])
        if outside.any():
            raise SystemExit(f"k = {k}: {outside.sum()} intervals do not hold the exact uncertainty")
        widths = bounds[:, 1] - bounds[:, 0]
        error = (np.array([s.uncertainty for s in scored]) - truth).mean()
        ranks = [auroc(np.array(v), correct) for v in ([-s.log_score for s in scored], bounds[:, 0])]
        spread = (widths.mean(), np.median(widths), np.quantile(widths, 0.9), error)
        print(f"| {k} | " + " | ".join(f"{x:.4f}" for x in (*spread, *ranks)) + " |")


if __name__ == "__main__":
    typer.run(main)
