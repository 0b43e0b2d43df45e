"""`STEPS`: every recording step, declared once: what it fills, what it reads, which model it asks.

A new statistic that is about pairs of texts takes one field of `Generation`, one function here and one entry of
`STEPS`. `record`, `semtoken compare` and `semtoken bench run` read this table and nothing else. A piece that is
missing raises a `TypeError` when this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from semtoken.methods import METHODS
from semtoken.results.generation import LAYOUTS, Generation
from semtoken.statistics.alternatives import alternative_classes
from semtoken.statistics.entailment import entailment_matrices
from semtoken.statistics.pairs import AskPairs
from semtoken.statistics.relevance import token_similarities
from semtoken.statistics.similarity import similarity_matrices

Fields = dict[str, Any]
"""Field of `Generation` -> value."""
Asked = Literal["generator", "nli", "similarity"]
"""Which model a step needs: the one that answers, the NLI classifier, or the similarity cross-encoder."""


@dataclass(frozen=True)
class Tokens:
    """What must be known of the tokens of the model that answered."""

    decode: Callable[[Sequence[int]], str]
    """Ids -> text without special tokens."""
    special_ids: Collection[int] = ()
    """Ids of special tokens."""


PairRecorder: TypeAlias = Callable[[AskPairs, Sequence[Generation], Tokens], list[Fields]]
"""A model's answers to pairs of texts (`AskPairs`) -> the fields that it adds to each generation."""


@dataclass(frozen=True)
class RecordingStep:
    """One recording step. Its name is that of its seconds in `Timings`."""

    name: str
    fills: tuple[str, ...]
    """Fields of `Generation`."""
    asks: Asked = "generator"
    needs: tuple[str, ...] = ()
    """Fields of `Generation` that it reads, or that are recorded in the same pass."""
    file: str = ""
    """The artifact of a benchmark run that holds its records; by default one of its own name."""
    pairs: PairRecorder | None = None
    """What computes the fields, for a step that asks a model about pairs of texts."""
    rules: Mapping[str, Any] | None = None
    """For an STC score: the fields of `ScoringRules` that differ from those of the run."""

    @property
    def artifact(self) -> str:
        """See `file`."""
        return self.file or self.name


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


STEPS: tuple[RecordingStep, ...] = (
    RecordingStep("greedy", fills=("text", "token_ids", "token_texts")),
    RecordingStep("likelihoods", fills=("log_probs",), needs=("token_ids",), file="greedy"),
    RecordingStep("alternatives", fills=("top_ids", "top_texts", "top_log_probs"), needs=("token_ids",), file="greedy"),
    RecordingStep("sampling", fills=("sample_texts", "sample_token_ids"), file="samples"),
    RecordingStep("sample_likelihoods", fills=("sample_log_probs",), needs=("sample_token_ids",), file="samples"),
    RecordingStep("hidden_states", fills=("hidden_states",), needs=("sample_token_ids",), file="samples"),
    RecordingStep("stc", fills=("stc_log_score",), needs=("token_ids",), rules={}),
    RecordingStep(
        "stc_no_clustering",
        fills=("stc_no_clustering_log_score",),
        needs=("token_ids",),
        rules={"clustering": False},
    ),
    RecordingStep(
        "stc_no_prefix", fills=("stc_no_prefix_log_score",), needs=("token_ids",), rules={"prefix_matching": False}
    ),
    RecordingStep("p_true", fills=("p_true_log_probs",), needs=("text",)),
    RecordingStep("entailment", fills=("nli_logits",), asks="nli", needs=("sample_texts",), pairs=_entailment),
    RecordingStep(
        "alternative_entailment",
        fills=("nli_chosen_to_alternative", "nli_alternative_to_chosen"),
        asks="nli",
        needs=("top_texts",),
        pairs=_alternatives,
    ),
    RecordingStep("similarity", fills=("similarity",), asks="similarity", needs=("sample_texts",), pairs=_similarity),
    RecordingStep(
        "token_relevance", fills=("token_similarity",), asks="similarity", needs=("token_ids",), pairs=_relevance
    ),
    RecordingStep(
        "sample_token_relevance",
        fills=("sample_token_similarity",),
        asks="similarity",
        needs=("sample_token_ids",),
        pairs=_sample_relevance,
    ),
)
"""In an order in which every step comes after those that fill what it needs."""


@dataclass(frozen=True)
class _Table:
    """`STEPS`, checked, by name and by what they fill."""

    steps: tuple[RecordingStep, ...]
    by_name: Mapping[str, RecordingStep] = field(init=False)
    filling: Mapping[str, RecordingStep] = field(init=False)

    def __post_init__(self) -> None:
        filling: dict[str, RecordingStep] = {}
        for step in self.steps:
            if missing := [name for name in step.needs if name not in filling]:
                raise TypeError(f"Step {step.name!r} needs {missing}, which no earlier step fills.")
            if (step.asks == "generator") != (step.pairs is None):
                raise TypeError(f"Step {step.name!r} needs `pairs` exactly if it asks an NLI or a similarity model.")
            for name in step.fills:
                if name not in LAYOUTS:
                    raise TypeError(f"Step {step.name!r} fills {name!r}, no field of Generation that has a layout.")
                if name in filling:
                    raise TypeError(f"{name!r} is filled by {filling[name].name!r} and by {step.name!r}.")
                filling[name] = step
        if unfilled := LAYOUTS.keys() - filling.keys():
            raise TypeError(f"No step fills {sorted(unfilled)} of Generation.")
        by_name = {step.name: step for step in self.steps}
        if len(by_name) < len(self.steps):
            raise TypeError("Two steps have the same name.")
        if unknown := {name for method in METHODS.values() for name in method.needs} - filling.keys():
            raise TypeError(f"Some method needs {sorted(unknown)}, which no step fills.")
        object.__setattr__(self, "by_name", MappingProxyType(by_name))
        object.__setattr__(self, "filling", MappingProxyType(filling))


_table = _Table(STEPS)
STEP = _table.by_name
"""Name -> recording step."""
STEP_OF_FIELD = _table.filling
"""Field of `Generation` -> the step that fills it."""
PAIR_STEPS = tuple(step for step in STEPS if step.pairs is not None)
"""Those that ask a model about pairs of texts."""
STC_STEPS = tuple(step for step in STEPS if step.rules is not None)
"""Those that compute an STC score of the greedy answer; all of them share one pass of the model."""
EVERYTHING = frozenset(name for method in METHODS.values() for name in method.needs)
"""All fields of `Generation` that some method needs."""


def steps_for(fields: Iterable[str]) -> frozenset[str]:
    """Names of all steps that some fields of `Generation` need, beyond the greedy generation that is there anyway."""
    found: set[str] = set()
    waiting = [name for name in fields if name in STEP_OF_FIELD]
    while waiting:
        step = STEP_OF_FIELD[waiting.pop()]
        if step.name not in found:
            found.add(step.name)
            waiting += step.needs
    return frozenset(found - {"greedy"})


def seconds_for(fields: Iterable[str], steps: Mapping[str, float]) -> float:
    """Seconds to record some fields of `Generation`, a step that several of them need counted once.

    Parameters
    ----------
    fields
        Of `Generation`.
    steps
        Step -> its seconds.
    """
    return sum(steps.get(step, 0.0) for step in sorted(steps_for(fields)))
