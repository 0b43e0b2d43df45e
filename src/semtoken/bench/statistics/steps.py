"""`STEPS`: every recording step, declared once: what it fills, what it reads, which model it asks.

A new statistic that is about pairs of texts takes one field of `Generation`, one function here and one entry of
`STEPS`. One of the answering model is an observer with `@statistic` above it (`semtoken.methods.observers`), which
makes its step. `record` and `semtoken bench` read this table and nothing else. A piece that is missing
raises a `TypeError` when this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from semtoken.bench.statistics.pairs import (
    AskPairs,
    alternative_classes,
    entailment_matrices,
    similarity_matrices,
    token_similarities,
)
from semtoken.core.results import ScoredAnswer
from semtoken.core.results.generation import LAYOUTS, Generation
from semtoken.core.rules import ScoringRules
from semtoken.errors import MissingExtra
from semtoken.methods import METHODS
from semtoken.methods.observers import STATISTICS, Statistic
from semtoken.methods.observers.method_scores import BOUNDED, log_confidence
from semtoken.methods.observers.steps import Readable
from semtoken.support.extras import require_installed
from semtoken.support.text import did_you_mean

Fields = dict[str, Any]
"""Field of `Generation` -> value."""
AskedModel = Literal["generator", "nli", "similarity"]
"""The model that a step needs: the one that answers, the NLI classifier, or the similarity cross-encoder."""


@dataclass(frozen=True)
class Tokens:
    """The tokens of the answering model: the way from ids to text without special tokens, and the ids of these."""

    decode: Callable[[Sequence[int]], str]
    special_ids: Collection[int] = ()


PairRecorder: TypeAlias = Callable[[AskPairs, Sequence[Generation], Tokens], list[Fields]]
"""A model's answers to pairs of texts (`AskPairs`) -> the fields that it adds to each generation."""


@dataclass(frozen=True)
class RecordingStep:
    """A step that fills fields of a `Generation`; `Timings` keeps its seconds under its name."""

    name: str
    fills: tuple[str, ...]
    asks: AskedModel = "generator"
    needs: tuple[str, ...] = ()
    """Fields of `Generation` that it reads, or that are recorded in the same pass."""
    file: str = ""
    """The artifact of a benchmark run that holds its records; by default one of its own name."""
    pairs: PairRecorder | None = None
    """The function that computes the fields, for a step that asks a model about pairs of texts."""
    watch: type[Statistic] | None = None
    """The observer of the answering model that records the field, in the pass that gives the answer or in another."""
    rules: Mapping[str, Any] | None = None
    """For a step that reads a scored answer: the fields of `ScoringRules` in which its rules differ from those of the
    run. None for other steps."""
    inside: frozenset[Readable] = frozenset()
    """For a step without `watch`: the data that it reads and that not every backend gives."""

    def of_answer(self, answer: ScoredAnswer, question: str) -> Fields:
        """For a step with `rules`: the fields that a scored answer and its question fill."""
        return {name: BOUNDED.get(name, log_confidence)(answer, question)[0] for name in self.fills}

    @property
    def reads(self) -> frozenset[Readable]:
        """The data that a backend must give for this step."""
        return self.inside if self.watch is None else frozenset(reading.what for reading in self.watch.reads)

    @property
    def artifact(self) -> str:
        """The name of the files of a run that hold what the step records."""
        return self.file or self.name


def _entailment(ask: AskPairs, part: Sequence[Generation], tokens: Tokens) -> list[Fields]:
    matrices = entailment_matrices(ask, [(generation.question, generation.sample_texts or ()) for generation in part])
    return [{"nli_logits": matrix} for matrix in matrices]


def _alternatives(ask: AskPairs, part: Sequence[Generation], tokens: Tokens) -> list[Fields]:
    classes = alternative_classes(ask, [generation.top_texts or () for generation in part])
    return [{"nli_chosen_to_alternative": ahead, "nli_alternative_to_chosen": back} for ahead, back in classes]


def _similarity(ask: AskPairs, part: Sequence[Generation], tokens: Tokens) -> list[Fields]:
    matrices = similarity_matrices(ask, [(generation.question, generation.sample_texts or ()) for generation in part])
    return [{"similarity": matrix} for matrix in matrices]


def _relevance(ask: AskPairs, part: Sequence[Generation], tokens: Tokens) -> list[Fields]:
    answers = [(generation.question, generation.token_ids) for generation in part]
    similarities = token_similarities(ask, answers, tokens.decode, tokens.special_ids)
    return [{"token_similarity": row} for row in similarities]


def _sample_relevance(ask: AskPairs, part: Sequence[Generation], tokens: Tokens) -> list[Fields]:
    samples = [(generation.question, ids) for generation in part for ids in generation.sample_token_ids or ()]
    similarities = iter(token_similarities(ask, samples, tokens.decode, tokens.special_ids))
    return [
        {"sample_token_similarity": [next(similarities) for _ in generation.sample_token_ids or ()]}
        for generation in part
    ]


_OWN: tuple[RecordingStep, ...] = (
    RecordingStep("greedy", fills=("text", "token_ids", "token_texts")),
    RecordingStep("likelihoods", fills=("log_probs",), needs=("token_ids",), file="greedy"),
    RecordingStep("alternatives", fills=("top_ids", "top_texts", "top_log_probs"), needs=("token_ids",), file="greedy"),
    RecordingStep("sampling", fills=("sample_texts", "sample_token_ids"), file="samples"),
    RecordingStep("sample_likelihoods", fills=("sample_log_probs",), needs=("sample_token_ids",), file="samples"),
    RecordingStep(
        "hidden_states",
        fills=("hidden_states",),
        needs=("sample_token_ids",),
        file="samples",
        inside=frozenset({"states"}),
    ),
    RecordingStep("stc", fills=("stc_log_score",), needs=("token_ids",), rules={}),
    RecordingStep(
        "stc_no_clustering",
        fills=("stc_no_clustering_log_score",),
        needs=("token_ids",),
        rules={"clustering": False},
    ),
    RecordingStep(
        "stc_no_prefix",
        fills=("stc_no_prefix_log_score",),
        needs=("token_ids",),
        rules={"prefix_matching": False},
    ),
    RecordingStep(
        "words",
        fills=("new_word_log_probs", "phrase_log_probs", "new_phrase_log_probs", "default_log_score"),
        needs=("token_ids",),
        rules=vars(ScoringRules("default")),  # whatever the rules of the run
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
"""Our own steps; each comes after those that fill what it needs."""


STEPS: list[RecordingStep] = []
"""All recording steps, the observers of `semtoken.methods.observers.STATISTICS` among them."""
STEP: dict[str, RecordingStep] = {}
"""Name -> recording step."""
STEP_OF_FIELD: dict[str, RecordingStep] = {}
"""Field of `Generation` -> the step that fills it."""


def add_step(step: RecordingStep) -> None:
    """Add a recording step to the tables.

    `TypeError` if it needs what no earlier step fills, fills what another does, or no field, or lacks a part.
    """
    if missing := [name for name in step.needs if name not in STEP_OF_FIELD]:
        raise TypeError(f"Step {step.name!r} needs {missing}, which no earlier step fills.")
    if (step.asks == "generator") != (step.pairs is None):
        raise TypeError(f"Step {step.name!r} needs `pairs` exactly if it asks an NLI or a similarity model.")
    if step.name in STEP:
        raise TypeError(f"There are two steps called {step.name!r}.")
    for name in step.fills:
        if name not in LAYOUTS:
            raise TypeError(f"Step {step.name!r} fills {name!r}, no field of Generation that has a layout.")
        if name in STEP_OF_FIELD:
            raise TypeError(f"{name!r} is filled by {STEP_OF_FIELD[name].name!r} and by {step.name!r}.")
    STEPS.append(step)
    STEP[step.name] = step
    STEP_OF_FIELD.update(dict.fromkeys(step.fills, step))


def add_statistics() -> None:
    """Add a recording step for every observer with `@statistic` that has none yet."""
    for field, watch in STATISTICS.items():
        if field not in STEP_OF_FIELD:
            add_step(RecordingStep(field, fills=(field,), needs=("token_ids",), watch=watch))


def require_filled() -> None:
    """Raise `TypeError` for a field that no step fills, or that a method needs and nobody records."""
    if unfilled := LAYOUTS.keys() - STEP_OF_FIELD.keys():
        raise TypeError(f"No step fills {sorted(unfilled)} of Generation.")
    for method in METHODS.values():
        for name in method.needs:
            if name not in STEP_OF_FIELD:
                hint = did_you_mean(name, STEP_OF_FIELD)
                raise TypeError(f"The method {method.name} needs {name!r}{hint}, which no step or statistic fills.")


for _step in _OWN:
    add_step(_step)
add_statistics()
require_filled()

PAIR_STEPS = tuple(step for step in STEPS if step.pairs is not None)
"""The steps that ask a model about pairs of texts."""
STC_STEPS = tuple(step for step in STEPS if step.rules is not None)
"""The steps that read a scored greedy answer; all of them share one pass of the model."""
EVERYTHING = frozenset(name for method in METHODS.values() for name in method.needs)
"""All fields of `Generation` that some method of this package needs."""


def watch_steps() -> list[RecordingStep]:
    """The recording steps that observe the answering model, all of which can share one pass."""
    add_statistics()
    return [step for step in STEPS if step.watch is not None]


def steps_for(fields: Iterable[str]) -> frozenset[str]:
    """The names of all steps that some fields of `Generation` need, besides the greedy generation."""
    add_statistics()  # those of files and packages that were loaded since
    names: set[str] = set()
    waiting = [name for name in fields if name in STEP_OF_FIELD]
    while waiting:
        step = STEP_OF_FIELD[waiting.pop()]
        if step.name not in names:
            names.add(step.name)
            waiting += step.needs
    return frozenset(names - {"greedy"})


def require_similarity(methods: Sequence[str]) -> None:
    """Raise `MissingExtra`, before any answer is made, if some of these methods read similarities and the library of
    their cross-encoder is missing; the message names the other methods.
    """
    needing = [name for name in methods if any(STEP[s].asks == "similarity" for s in steps_for(METHODS[name].needs))]
    if not needing:
        return
    try:
        require_installed("sentence_transformers", extra="similarity")
    except MissingExtra as error:
        others = [name for name in methods if name not in (*needing, "confidence", "stc")]
        raise MissingExtra(f"{error}\nOr leave out the methods that read it: --methods {','.join(others)}") from error


def readings_for(fields: Iterable[str]) -> frozenset[Readable]:
    """The data that a backend must give so that some fields of `Generation` can be recorded."""
    return frozenset().union(*(STEP[name].reads for name in steps_for(fields)))


def seconds_for(fields: Iterable[str], steps: Mapping[str, float]) -> float:
    """Seconds to record some fields of `Generation`; a step that several of them need is counted once."""
    # Sorted, since the order of a set differs from process to process, and the last digits of the sum with it.
    return sum(steps.get(step, 0.0) for step in sorted(steps_for(fields)))
