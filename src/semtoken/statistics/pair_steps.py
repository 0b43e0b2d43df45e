"""The steps that ask a model about pairs of texts: which pairs, and the fields of `Generation` that they fill."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from semtoken.generation import Generation
from semtoken.statistics.alternatives import alternative_classes
from semtoken.statistics.entailment import entailment_matrices
from semtoken.statistics.pairs import AskPairs
from semtoken.statistics.relevance import token_similarities
from semtoken.statistics.similarity import similarity_matrices

Fields = dict[str, Any]


@dataclass(frozen=True)
class Tokens:
    """What must be known of the tokens of the model that answered."""

    decode: Callable[[Sequence[int]], str]
    """Ids -> text without special tokens."""
    special_ids: Collection[int] = ()
    """Ids of special tokens."""


def record_pairs(step: str, ask: AskPairs, generations: Sequence[Generation], tokens: Tokens) -> list[Fields]:
    """The fields that one of `PAIR_STEPS` adds to each generation.

    Parameters
    ----------
    step
        A key of `PAIR_STEPS`.
    ask
        `EntailmentModel.logits` or `SimilarityModel.similarities`, as `PAIR_STEPS` says, or `UniquePairs` of it.
    generations
        With question, answers and samples.
    tokens
        Of the model that answered.
    """
    return _RECORDERS[step](ask, generations, tokens)


def _entailment(ask: AskPairs, part: Sequence[Generation], tokens: Tokens) -> list[Fields]:
    found = entailment_matrices(ask, [(one.question, one.sample_texts or ()) for one in part])
    return [{"nli_logits": matrix} for matrix in found]


def _alternatives(ask: AskPairs, part: Sequence[Generation], tokens: Tokens) -> list[Fields]:
    found = alternative_classes(ask, [one.top_texts or () for one in part])
    return [{"nli_chosen_to_alternative": ahead, "nli_alternative_to_chosen": back} for ahead, back in found]


def _similarity(ask: AskPairs, part: Sequence[Generation], tokens: Tokens) -> list[Fields]:
    found = similarity_matrices(ask, [(one.question, one.sample_texts or ()) for one in part])
    return [{"similarity": matrix} for matrix in found]


def _relevance(ask: AskPairs, part: Sequence[Generation], tokens: Tokens) -> list[Fields]:
    answers = [(one.question, one.token_ids) for one in part]
    found = token_similarities(ask, answers, tokens.decode, tokens.special_ids)
    return [{"token_similarity": row} for row in found]


def _sample_relevance(ask: AskPairs, part: Sequence[Generation], tokens: Tokens) -> list[Fields]:
    samples = [(one.question, ids) for one in part for ids in one.sample_token_ids or ()]
    found = iter(token_similarities(ask, samples, tokens.decode, tokens.special_ids))
    return [{"sample_token_similarity": [next(found) for _ in one.sample_token_ids or ()]} for one in part]


PAIR_STEPS: Mapping[str, Literal["nli", "similarity"]] = MappingProxyType(
    {
        "entailment": "nli",
        "alternative_entailment": "nli",
        "similarity": "similarity",
        "token_relevance": "similarity",
        "sample_token_relevance": "similarity",
    }
)
"""Step -> the model that it asks."""
_RECORDERS: Mapping[str, Callable[[AskPairs, Sequence[Generation], Tokens], list[Fields]]] = {
    "entailment": _entailment,
    "alternative_entailment": _alternatives,
    "similarity": _similarity,
    "token_relevance": _relevance,
    "sample_token_relevance": _sample_relevance,
}
