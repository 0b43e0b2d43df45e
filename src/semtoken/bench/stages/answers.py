"""Works of the model that answers: its greedy answers, its samples, their STC scores, P(True)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
from typing import TypeAlias

from semtoken.backends.prompts import Prompt
from semtoken.bench.answering import GenerationBackend
from semtoken.bench.clusterings import load_clustering
from semtoken.bench.plan import clustering_of
from semtoken.bench.records import columns_of, table_of
from semtoken.bench.stages.parts import Context, Part, Recorded, Recorder
from semtoken.generation import Generation
from semtoken.scoring import Scorer, scorer_for
from semtoken.scoring.rules import ScoringRules
from semtoken.statistics import Decoding, Timings
from semtoken.statistics.clustered import NORMALIZERS
from semtoken.statistics.steps import STEP

Generate: TypeAlias = Callable[[Sequence[Prompt], Decoding, Timings], list[Generation]]


def _backend(context: Context) -> GenerationBackend:
    return context.models.answering(context.cell.model, context.cell.clusterings[0])


def greedy(context: Context) -> Recorder:
    """Greedy answers with log-probabilities and alternatives."""
    return _answers(context, _backend(context).greedy, columns_of("greedy"))


def samples(context: Context) -> Recorder:
    """Sampled answers with log-probabilities and hidden states."""
    return _answers(context, _backend(context).samples, columns_of("samples"))


def _answers(context: Context, generate: Generate, columns: Collection[str]) -> Recorder:
    """One row of the named fields for each answer."""

    def record(part: Part) -> Iterator[Recorded]:
        timings = Timings()
        found = generate(part.prompts, context.decoding, timings)
        fields = [{name: getattr(one, name) for name in columns} for one in found]
        yield Recorded(part.missing[0], table_of(part.ids, fields), timings.seconds)

    return record


def p_true(context: Context) -> Recorder:
    """What the model says when it is asked whether its answer is true."""
    backend = _backend(context)

    def record(part: Part) -> Iterator[Recorded]:
        timings = Timings()
        questions = [question.question for question in part.questions]
        texts = [one.text for one in part.generations]
        with timings.measure("p_true"):
            found = backend.p_true(questions, texts, context.settings.p_true_spelling)
        yield Recorded(
            part.missing[0], table_of(part.ids, [{"p_true_log_probs": row} for row in found]), timings.seconds
        )

    return record


def clustered(context: Context) -> Recorder:
    """STC scores of the greedy answers by all clusterings and rules that are missing, from one pass.

    The pass itself is not charged to them: a generation computes the same rows anyway.
    """
    backend = _backend(context)
    scorer_of = cache(partial(_scorer, context))  # kept for all shards: a scorer is made from a whole vocabulary

    def record(part: Part) -> Iterator[Recorded]:
        timings = Timings()
        scorers = {step.name: scorer_of(step.name) for step in part.missing}
        answers = [one.token_ids for one in part.generations]
        found = backend.clustered(part.prompts, answers, scorers, timings)
        for step in part.missing:
            own = step.name.partition(":")[0]
            (field,) = STEP[own].fills
            fields = [{field: value} for value in found[step.name]]
            seconds = timings.seconds[step.name] + timings.seconds[NORMALIZERS]
            yield Recorded(step, table_of(part.ids, fields), {own: seconds})

    return record


def _scorer(context: Context, name: str) -> Scorer:
    rules = ScoringRules(
        context.settings.preset,
        context.settings.function_words,
        **(STEP[name].rules or {} if name in STEP else {}),
    )
    return scorer_for(load_clustering(context.run, clustering_of(context.cell, name)), rules)
