"""Lists of the best tokens of real tokenizers, rounded as engines do: the interval holds the exact score."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch

from semtoken import TokenClusters, Vocabulary, score_logits, score_logprobs
from semtoken.core import ScoringRules
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.errors import InvalidInputError, InvalidLogits, ModelError
from semtoken.support.checkpoints import resolve
from tests import tiny
from tests.hostile.outcomes import Outcome, case_random

Numbers = np.ndarray[Any, Any]
MOST_BEST, MOST_STEPS, LISTED = 20, 6, 40
RULES: tuple[dict[str, Any], ...] = (
    {"preset": ScoringRules()},
    {"preset": ScoringRules(preset="paper")},
    {"preset": ScoringRules(equality="meaning")},
    {"preset": ScoringRules(equality="meaning", function_words="off")},
    {"preset": ScoringRules(equality="surface")},
    {"preset": ScoringRules(equality="exact")},
)


def _significant(digits: int) -> Callable[[Numbers], Numbers]:
    return np.vectorize(lambda value: float(f"{value:.{digits}g}"), otypes=[np.float64])


def _decimals(decimals: int) -> Callable[[Numbers], Numbers]:
    return lambda values: np.round(values, decimals)


def _in_float32(decimals: int) -> Callable[[Numbers], Numbers]:
    return lambda values: np.round(values.astype(np.float32), decimals).astype(np.float64)


def _cut_off(decimals: int) -> Callable[[Numbers], Numbers]:
    return lambda values: np.trunc(values * 10**decimals) / 10**decimals


def _format(dtype: torch.dtype) -> Callable[[Numbers], Numbers]:
    return lambda values: torch.tensor(values).to(dtype).double().numpy()


WRITTEN: Mapping[str, Callable[[Numbers], Numbers]] = {
    "in full": lambda values: values,
    "float32": _format(torch.float32),
    "bfloat16": _format(torch.bfloat16),
    "float16": _format(torch.float16),
    **{f"{d} decimals": _decimals(d) for d in (2, 3, 4, 5, 6)},
    **{f"{d} decimals in float32": _in_float32(d) for d in (2, 3, 4)},
    **{f"{d} decimals, cut off": _cut_off(d) for d in (2, 4)},
    **{f"%.{d}g": _significant(d) for d in (2, 3, 4, 5, 6, 7)},
}


@cache
def real_clusters() -> Mapping[str, TokenClusters]:
    """Real tokenizers, each with some clusters: those of the embedded model, and of the others such as are at hand."""
    found = {"almanac": TokenClusters.from_pretrained("almanac")}
    vocabularies: dict[str, Callable[[], Vocabulary]] = {
        "smollm2": lambda: Vocabulary.from_tokenizer(_tokenizer(resolve("smollm2").path)),
        "mistral": lambda: Vocabulary.from_tokenizer(tiny.mistral("sentencepiece")),
        "tekken": lambda: Vocabulary.from_tokenizer(tiny.mistral("tekken")),
    }
    for name, read in vocabularies.items():
        try:
            vocabulary = read()
        except (ModelError, ImportError):
            continue
        labels = np.random.default_rng(0).integers(0, vocabulary.size // 4, vocabulary.size, dtype=np.int32)
        found[name] = TokenClusters(np.unique(labels, return_inverse=True)[1].astype(np.int32), vocabulary)
    return found


def _tokenizer(path: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, local_files_only=True)


def log_probs(rng: np.random.Generator, steps: int, vocabulary: Vocabulary, ids: list[int]) -> Numbers:
    """Distributions from flat to peaked, the chosen tokens among the likely ones or not."""
    logits = rng.normal(size=(steps, vocabulary.size)) * rng.choice([0.3, 1.0, 3.0])
    for row, token in zip(logits, ids, strict=True):
        likely = np.append(rng.integers(0, vocabulary.size, LISTED), token)
        row[likely] += rng.exponential(rng.choice([2.0, 6.0, 12.0]), likely.size)
        row[np.flatnonzero(vocabulary.special)] += rng.choice([0.0, 0.0, 8.0])
    highest = logits.max(1, keepdims=True)
    return np.asarray(logits - highest - np.log(np.exp(logits - highest).sum(1, keepdims=True)))


def named(vocabulary: Vocabulary, token: int, number: float, how: str) -> TopToken:
    """A token as engines name it; special ones have a name that no vocabulary has, or an id."""
    if how == "ids":
        return TopToken(number, token)
    if vocabulary.special[token]:
        name = f"<|special_{token}|>"
        return TopToken(number, text=name, bytes=name.encode())
    return TopToken(number, text=vocabulary.texts[token], bytes=vocabulary.pieces[token])


def fault_of(rng: random.Random) -> str | None:
    """One answer: how the interval of its lists misses the score of its logits.

    Raises
    ------
    InvalidInputError, InvalidLogits
        Several tokens share the name of a chosen one, or rounding has lifted the sum of a list far above 1.
    """
    name = rng.choice(list(real_clusters()))
    clusters = real_clusters()[name]
    vocabulary = clusters.vocabulary
    numbers = np.random.default_rng(rng.randrange(2**63))
    ids = [rng.randrange(vocabulary.size) for _ in range(rng.randint(1, MOST_STEPS))]
    specials = np.flatnonzero(vocabulary.special).tolist()
    how = rng.choice(["ids", "names"])
    ids = [token for token in ids if how == "ids" or vocabulary.pieces[token]] or [ids[0]]
    if specials and rng.random() < 0.5:
        ids[-1] = rng.choice(specials)
    rules, k, written = rng.choice(RULES), rng.randint(1, MOST_BEST), rng.choice(list(WRITTEN))
    rows = log_probs(numbers, len(ids), vocabulary, ids)
    shown = WRITTEN[written]
    steps = []
    for row, token in zip(rows, ids, strict=True):
        best = np.argpartition(-row, k)[:k]
        best = best[np.argsort(-row[best])]
        listed = [*best.tolist(), *([] if token in best else [token])]
        entries = [
            named(vocabulary, one, number, how) for one, number in zip(listed, shown(row[listed]).tolist(), strict=True)
        ]
        steps.append(TopStep(entries[listed.index(token)], tuple(entries)))
    low, high = score_logprobs(steps, clusters, **rules).sequence_uncertainty_interval
    exact = score_logits(rows, ids, clusters, **rules).sequence_uncertainty
    inside = low - 1e-9 <= exact <= high + 1e-9
    return (
        None if inside else f"{name}, k = {k}, {written}, {how}, {rules['preset']}: {exact} is not in {low} to {high}"
    )


def attack(seed: int, tries: int) -> Outcome:
    """Score so many answers from lists and from all logits."""
    outcome = Outcome(
        "intervals", "lists of the best tokens, rounded as engines do: the interval holds the exact score"
    )
    refused = 0
    for number in range(tries):
        try:
            fault = fault_of(case_random(seed, "intervals", number))
        except (InvalidInputError, InvalidLogits):
            refused += 1
            continue
        outcome.count(fault, f"answer {number} of --seed {seed}")
    outcome.notes.append(f"{refused:,} refused; tokenizers: {', '.join(real_clusters())}")
    return outcome
