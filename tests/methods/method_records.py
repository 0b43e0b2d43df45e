"""Records for the tests over all methods: one that is surely right, one that is scattered, and random legal ones."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from semtoken.core.results.generation import Generation

SAMPLE_FIELDS = ("sample_texts", "sample_token_ids", "sample_log_probs", "sample_token_similarity", "hidden_states")
PAIR_FIELDS = ("nli_logits", "similarity")
CONTRADICTS, ENTAILS = [4.0, 0.0, -4.0], [-4.0, 0.0, 4.0]


def one_of(count: int, best: float) -> np.ndarray:
    """Log-probabilities of some tokens, one of which has `best` and the others share the rest."""
    return np.log([best, *[(1 - best) / (count - 1)] * (count - 1)])


def surely_right(samples: int = 5) -> Generation:
    """The same certain answer every time."""
    return Generation(
        text=" Paris",
        token_ids=[7, 2],
        token_texts=[" Paris", "\n"],
        log_probs=np.log([0.99, 0.98]),
        top_ids=[np.array([7, 8]), np.array([2, 3])],
        top_texts=[[" Paris", "Paris"], ["\n", "."]],
        top_log_probs=[np.log([0.99, 0.01]), np.log([0.98, 0.02])],
        sample_texts=[" Paris"] * samples,
        sample_token_ids=[[7, 2]] * samples,
        sample_log_probs=[np.log([0.99, 0.98])] * samples,
        p_true_log_probs=np.log([0.9, 0.05]),
        nli_logits=np.tile(np.array(ENTAILS), (samples, samples, 1)),
        similarity=np.full((samples, samples), 0.98),
        token_similarity=np.array([0.3, 0.97]),
        sample_token_similarity=[np.array([0.3, 0.97])] * samples,
        nli_chosen_to_alternative=[np.array([2, 2]), np.array([2, 1])],
        nli_alternative_to_chosen=[np.array([2, 2]), np.array([2, 1])],
        hidden_states=np.tile(np.sin(np.arange(16.0)), (samples, 1)),
        token_entropies=np.array([0.05, 0.1]),
        uniform_divergences=np.array([6.0, 5.5]),
        best_log_probs=[one_of(20, 0.99), one_of(20, 0.98)],
        attention_to_previous=np.full((2, 3, 2), 0.9),
        new_word_log_probs=np.log([0.99]),
        phrase_log_probs=np.log([0.99]),
        new_phrase_log_probs=np.log([0.99]),
        stc_log_score=-0.01,
        stc_no_clustering_log_score=-0.02,
        stc_no_prefix_log_score=-0.02,
        default_log_score=-0.02,
    )


def scattered() -> Generation:
    """Five unlikely answers that contradict each other."""
    nli = np.tile(np.array(CONTRADICTS), (5, 5, 1))
    unlikely = np.log([0.15, 0.4])
    return Generation(
        text=" Rome",
        token_ids=[9, 2],
        token_texts=[" Rome", "\n"],
        log_probs=unlikely,
        top_ids=[np.array([9, 8]), np.array([2, 3])],
        top_texts=[[" Rome", "Oslo"], ["\n", " Hill"]],
        top_log_probs=[np.log([0.15, 0.14]), np.log([0.4, 0.3])],
        sample_texts=[" Rome", " Oslo", " Bonn", " Nice", " Graz"],
        sample_token_ids=[[9 + m, 2] for m in range(5)],
        sample_log_probs=[unlikely - 0.1 * m for m in range(5)],
        p_true_log_probs=np.log([0.1, 0.7]),
        nli_logits=nli,
        similarity=np.full((5, 5), 0.05),
        token_similarity=np.array([0.3, 0.97]),
        sample_token_similarity=[np.array([0.3, 0.97])] * 5,
        nli_chosen_to_alternative=[np.array([2, 0]), np.array([2, 0])],
        nli_alternative_to_chosen=[np.array([2, 0]), np.array([2, 0])],
        hidden_states=np.random.default_rng(1).normal(size=(5, 16)),
        token_entropies=np.array([2.5, 1.7]),
        uniform_divergences=np.array([0.4, 0.9]),
        best_log_probs=[one_of(20, 0.15), one_of(20, 0.4)],
        attention_to_previous=np.full((2, 3, 2), 0.1),
        new_word_log_probs=np.log([0.15]),
        phrase_log_probs=np.log([0.12]),
        new_phrase_log_probs=np.log([0.12]),
        stc_log_score=-3.0,
        stc_no_clustering_log_score=-4.0,
        stc_no_prefix_log_score=-4.0,
        default_log_score=-4.0,
    )


def random_legal(seed: int, samples: int = 5, tokens: int = 4) -> Generation:
    """A record with nothing special about it. The first meaning is the most frequent one.

    What a pair of samples says of each other follows from their texts and meanings, so that rules which
    compare with the first member of a class do not depend on which member that is.
    """
    rng = np.random.default_rng(seed)
    meaning = np.sort(rng.integers(samples, size=samples))
    meaning[: samples // 2 + 1] = meaning[0]
    of_meaning = rng.uniform(0.0, 0.6, size=(samples, samples))
    alike = 0.5 * (of_meaning + of_meaning.T)
    np.fill_diagonal(alike, 0.9)
    text = 2 * meaning + rng.integers(2, size=samples)  # two wordings of each meaning
    different = np.array(CONTRADICTS) + rng.normal(size=(2 * samples, 2 * samples, 3))
    same = np.array(ENTAILS) + 0.3 * rng.normal(size=(2 * samples, 2 * samples, 3))
    together = meaning[:, None] == meaning
    texts = np.ix_(text, text)
    lengths = rng.integers(1, 6, size=samples)
    alternatives = [np.sort(rng.dirichlet(np.ones(6)))[::-1][:5] for _ in range(tokens)]
    words = [" Paris", " the", "!", " of", "x7", "\n"]
    return Generation(
        text="a b",
        token_ids=list(range(tokens)),
        token_texts=[words[t % len(words)] for t in range(tokens)],
        log_probs=np.array([np.log(row[0]) for row in alternatives]),
        top_log_probs=[np.log(row) for row in alternatives],
        sample_texts=[f"wording {t}" for t in text],
        sample_token_ids=[list(range(length)) for length in lengths],
        sample_log_probs=[np.log(rng.uniform(0.05, 1.0, size=length)) for length in lengths],
        p_true_log_probs=np.log(rng.dirichlet(np.ones(3))[:2]),
        nli_logits=np.where(together[:, :, None], same[texts], different[texts]),
        similarity=alike[np.ix_(meaning, meaning)],
        token_similarity=rng.uniform(size=tokens),
        sample_token_similarity=[rng.uniform(size=length) for length in lengths],
        nli_chosen_to_alternative=[rng.integers(3, size=5) for _ in range(tokens)],
        nli_alternative_to_chosen=[rng.integers(3, size=5) for _ in range(tokens)],
        hidden_states=rng.normal(size=(samples, 16)),
        token_entropies=rng.exponential(size=tokens),
        uniform_divergences=rng.exponential(size=tokens),
        best_log_probs=[np.sort(np.log(rng.dirichlet(np.ones(24))))[::-1][:20] for _ in range(tokens)],
        attention_to_previous=rng.uniform(size=(tokens, 3, 2)),
        new_word_log_probs=np.log(rng.uniform(0.05, 1.0, size=2)),
        phrase_log_probs=np.log(rng.uniform(0.05, 1.0, size=3)),
        new_phrase_log_probs=np.log(rng.uniform(0.05, 1.0, size=3)),
        stc_log_score=-float(rng.exponential()),
        stc_no_clustering_log_score=-float(rng.exponential()),
        stc_no_prefix_log_score=-float(rng.exponential()),
        default_log_score=-float(rng.exponential()),
    )


def reordered(generation: Generation, order: np.ndarray) -> Generation:
    """The same samples, drawn in another order."""
    changed: dict[str, Any] = {}
    for name in SAMPLE_FIELDS:
        value = getattr(generation, name)
        changed[name] = value[order] if isinstance(value, np.ndarray) else [value[m] for m in order]
    for name in PAIR_FIELDS:
        changed[name] = getattr(generation, name)[np.ix_(order, order)]
    return replace(generation, **changed)


def write_protected(generation: Generation) -> Generation:
    """The same record; writing to any of its arrays raises."""
    for field in fields(generation):
        value = getattr(generation, field.name)
        for array in [value, *value] if isinstance(value, (list, np.ndarray)) else []:
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
    return generation
