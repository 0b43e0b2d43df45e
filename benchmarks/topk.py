"""The exact uncertainty, and what the k best log-probabilities of each step show of it.

    python -m benchmarks.topk                     # the almanac's test questions, preset default
    python -m benchmarks.topk --preset paper
    python -m benchmarks.topk --names             # nothing but texts and bytes, no vocabulary
    python -m benchmarks.topk --model smollm2 --questions FILE.jsonl --chat --limit 200

For each k: the width of the interval, how far `sequence_uncertainty` (which counts the listed mass alone) is from the
exact one, and its AUROC and that of the lower end, beside those of the exact uncertainty and of the sequence
probability.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
import typer

import semtoken as st
from semtoken import ScoredModel
from semtoken.bench.datasets import read_dataset
from semtoken.choices import Preset
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core import ScoringRules
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.core.results import ScoredAnswer
from semtoken.methods.metrics import auroc
from semtoken.methods.observers.steps import Observer, Step
from semtoken.models.base import Decoding
from semtoken.support.almanac import is_correct

SIZES = (1, 2, 5, 10, 20, 50, 100)


@dataclass(frozen=True)
class Answer:
    """One greedy answer: raw log-probabilities [n, V] and ids."""

    log_probs: np.ndarray[Any, Any]
    ids: list[int]


def answers(stc: ScoredModel, prompts: list[Any], max_new_tokens: int, stop_at_newline: bool) -> Iterator[Answer]:
    """Greedy answers with the whole distribution of every step, one after another."""
    decoding = Decoding(max_new_tokens=max_new_tokens, stop_at_newline=stop_at_newline, batch_size=1)
    for prompt in prompts:
        rows = Rows()
        [answer] = stc.backend.generate([prompt], decoding, [rows])
        yield Answer(np.stack(rows.log_probs), answer.token_ids)


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


def by_name(answer: Answer, k: int, vocabulary: Vocabulary) -> list[TopStep]:
    """The same under the names that OpenAI gives: strings, and the bytes that they stand for."""

    def named(token: int, log_prob: float) -> TopToken:
        piece = vocabulary.pieces[token]
        return TopToken(log_prob, text=piece.decode("utf-8", "replace") or f"<|{token}|>", bytes=piece or None)

    return [TopStep(named(t, top[t]), [named(i, v) for i, v in top.items()]) for t, top in best(answer, k)]


def main(
    model: Annotated[str, typer.Option(help="A name, directory, GGUF file or hub id.")] = "almanac",
    questions: Annotated[str, typer.Option(help="'almanac', 'almanac-dev' or a file of JSON lines.")] = "almanac",
    preset: Annotated[str, typer.Option(help="'default' or 'paper'.")] = "default",
    names: Annotated[bool, typer.Option(help="Score lists of names, without a vocabulary.")] = False,
    chat: Annotated[bool, typer.Option(help="Ask the bare question through the model's chat template.")] = False,
    limit: Annotated[int, typer.Option(help="A random part of so many questions.")] = 1000,
    max_new_tokens: Annotated[int, typer.Option()] = 32,
) -> None:
    """Print the table."""
    rules = ScoringRules(cast(Preset, preset))
    stc = ScoredModel.from_pretrained(model, preset=rules.preset)
    tokens = stc.clusters or stc.scorer.vocabulary
    dataset = read_dataset(questions, limit=limit)
    prompts: list[Any] = list(dataset.prompts())
    if chat:
        prompts = [[{"role": "user", "content": asked.question}] for asked in dataset.questions]
    exact: list[ScoredAnswer] = []
    listed: dict[int, list[ScoredAnswer]] = {k: [] for k in SIZES}
    for answer in answers(stc, prompts, max_new_tokens, dataset.format.stop_at_newline and not chat):
        exact.append(st.score_logits(answer.log_probs, answer.ids, tokens, preset=rules))
        for k in SIZES:
            known = by_name(answer, k, stc.scorer.vocabulary) if names else best(answer, k)
            listed[k].append(st.score_logprobs(known, None if names else tokens, rules))
    judged = zip(exact, dataset.questions, strict=True)
    correct = np.array([float(is_correct(scored.text, question)) for scored, question in judged])
    truth = np.array([scored.sequence_uncertainty for scored in exact])
    plain = auroc(np.array([-scored.log_probability for scored in exact]), correct)
    log_confidences = np.array([-scored.log_confidence for scored in exact])
    length = np.mean([scored.n_tokens for scored in exact])
    print(f"{len(exact)} answers of {length:.1f} tokens, {correct.mean():.1%} right; ", end="")
    print(f"AUROC exact {auroc(log_confidences, correct):.4f}, sequence probability {plain:.4f}\n")
    print("| k | width, mean | median | 90 % | above the exact one, mean | AUROC | AUROC of the lower end |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for k in SIZES:
        scored = listed[k]
        bounds = np.array([s.sequence_uncertainty_interval for s in scored])
        outside = (truth < bounds[:, 0]) | (truth > bounds[:, 1])
        if outside.any():
            raise SystemExit(f"k = {k}: {outside.sum()} intervals do not hold the exact uncertainty")
        widths = bounds[:, 1] - bounds[:, 0]
        error = (np.array([s.sequence_uncertainty for s in scored]) - truth).mean()
        ranks = [auroc(np.array(v), correct) for v in ([-s.log_confidence for s in scored], bounds[:, 0])]
        spread = (widths.mean(), np.median(widths), np.quantile(widths, 0.9), error)
        print(f"| {k} | " + " | ".join(f"{x:.4f}" for x in (*spread, *ranks)) + " |")


if __name__ == "__main__":
    typer.run(main)
