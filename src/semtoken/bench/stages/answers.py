"""Works of the model that answers: its greedy answers, its samples, their STC scores, P(True)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, TypeAlias

import numpy as np

from semtoken.backends.base import require_readings
from semtoken.backends.prompts import Prompt
from semtoken.bench.answering import RunAnswerer
from semtoken.bench.clusterings import load_clustering
from semtoken.bench.columns import columns_of, table_of
from semtoken.bench.controls import PREFIX, ROW_MEANS, control_clusters, control_of, row_means_log_score
from semtoken.bench.plan import PlannedStep, clustering_of
from semtoken.bench.stages.parts import Context, Recorder, ShardInputs, StepRecords, UnrecordedStep
from semtoken.clusters import TokenClusters
from semtoken.errors import BackendError
from semtoken.results.generation import Generation
from semtoken.scoring.rules import ScoringRules
from semtoken.scoring.scorer import Scorer, prefix_index, scorer_for
from semtoken.statistics import AnswerSettings, Timings
from semtoken.statistics.decoding import NORMALIZERS
from semtoken.statistics.steps import STEP, watch_steps

Generate: TypeAlias = Callable[[Sequence[Prompt], AnswerSettings, Timings, Callable[[int], None]], list[Generation]]


def _backend(context: Context) -> RunAnswerer:
    return context.models.answering(context.cell.model)


def greedy(context: Context) -> Recorder:
    """Records the greedy answer to each question, with its log-probabilities and the best alternatives of each step."""
    return _answers(context, _backend(context).greedy, context.decoding, columns_of("greedy"))


def samples(context: Context) -> Recorder:
    """Records several sampled answers to each question, with log-probabilities, and hidden states if there are any."""
    decoding = replace(context.decoding, share_prefix=False)  # the seconds of samples are compared with each other
    return _answers(context, _backend(context).samples, decoding, columns_of("samples"))


def _answers(context: Context, generate: Generate, decoding: AnswerSettings, columns: Collection[str]) -> Recorder:
    """One row of the named fields for each answer."""

    def record(part: ShardInputs) -> Iterator[StepRecords]:
        timings = Timings()
        found = generate(part.prompts, decoding, timings, context.answered)
        fields = [{name: getattr(one, name) for name in columns} for one in found]
        yield StepRecords(part.missing[0], table_of(part.ids, fields), timings.seconds)

    return record


def p_true(context: Context) -> Recorder:
    """What the model says when it is asked whether its answer is true."""
    backend = _backend(context)

    def record(part: ShardInputs) -> Iterator[StepRecords]:
        timings = Timings()
        questions = [question.question for question in part.questions]
        texts = [one.text for one in part.generations]
        with timings.measure("p_true"):
            found = backend.p_true(questions, texts, context.settings.p_true_spelling)
        yield StepRecords(
            part.missing[0], table_of(part.ids, [{"p_true_log_probs": row} for row in found]), timings.seconds
        )

    return record


def watched(context: Context) -> Recorder:
    """Statistics of the answering model of the greedy answers, all that are missing from one pass.

    The pass itself is not charged to them: a generation computes the same rows anyway.
    """
    backend = _backend(context)
    watches = {step.name: step.watch for step in watch_steps() if step.watch is not None}

    def record(part: ShardInputs) -> Iterator[StepRecords | UnrecordedStep]:
        timings = Timings()
        answers = [one.token_ids for one in part.generations]
        wanted = {step.name: watches[step.name]() for step in part.missing}
        for step in part.missing:
            try:
                require_readings(backend.backend, [wanted[step.name]])
            except BackendError as error:  # the others have theirs
                wanted.pop(step.name)
                yield UnrecordedStep(step, str(error))
        found = backend.watched(part.prompts, answers, wanted, timings)
        for step in part.missing:
            if step.name not in wanted:
                continue
            fields = [{wanted[step.name].field: value} for value in found[step.name]]
            yield StepRecords(step, table_of(part.ids, fields), {step.name: timings.seconds.get(step.name, 0.0)})

    return record


def clustered(context: Context) -> Recorder:
    """STC scores of the greedy answers by all clusterings and rules that are missing, from one pass.

    The pass itself is not charged to them: a generation computes the same rows anyway.
    """
    backend = _backend(context)
    scorers_of = cache(_Scorers(context).of)  # kept for all shards: a scorer is made from a whole vocabulary

    def record(part: ShardInputs) -> Iterator[StepRecords]:
        timings = Timings()
        scorers = {step.name: scorers_of(step.name) for step in part.missing if step.name != _ROW_MEANS}
        answers = [one.token_ids for one in part.generations]
        found = backend.clustered(part.prompts, answers, scorers, timings) if scorers else {}
        for step in part.missing:
            if step.name == _ROW_MEANS:
                yield _row_means(context, part, step)
                continue
            own = step.name.partition(":")[0]
            of_answer = STEP["stc" if own == "control" else own].of_answer
            fields = [of_answer(one, q.question) for one, q in zip(found[step.name], part.questions, strict=True)]
            seconds = timings.seconds[step.name] + timings.seconds[NORMALIZERS]
            yield StepRecords(step, table_of(part.ids, fields), {own: seconds})

    return record


_ROW_MEANS = f"{PREFIX}{ROW_MEANS}"


def _row_means(context: Context, part: ShardInputs, step: PlannedStep) -> StepRecords:
    """The control that needs no pass of the model."""
    clusters = load_clustering(context.run, clustering_of(context.cell, step.name))
    fields = []
    for one in part.generations:
        assert one.log_probs is not None
        fields.append({"stc_log_score": row_means_log_score(clusters, one.token_ids, one.log_probs)})
    return StepRecords(step, table_of(part.ids, fields), {})


class _Scorers:
    """The scorers of a cell by the names of their steps. Controls share one vocabulary and its index."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def _main(self) -> TokenClusters:
        return load_clustering(self._context.run, self._context.cell.clusterings[0])

    def of(self, name: str) -> Scorer:
        """The scorer of one step."""
        settings, cell = self._context.settings, self._context.cell
        rules: dict[str, Any] = {"preset": settings.preset, "function_words": settings.function_words}
        if name.startswith(PREFIX) and (chosen := settings.controls):
            counts = None if chosen.token_counts is None else np.load(chosen.token_counts, allow_pickle=False)
            clusters = control_clusters(self._main, name, seed=chosen.seed, n_bins=chosen.n_bins, token_counts=counts)
            rules |= control_of(name)[0].rules
        elif not cell.clusterings:  # the rules of the run count none
            rules |= dict(STEP[name].rules or {})
            return scorer_for(_backend(self._context).backend.vocabulary, ScoringRules(**rules))
        elif name in STEP:
            clusters, rules = self._main, rules | dict(STEP[name].rules or {})
        else:
            clusters = load_clustering(self._context.run, clustering_of(cell, name))
        scored, vocabulary = ScoringRules(**rules), clusters.vocabulary
        return Scorer(vocabulary, scored, prefix_index(vocabulary), clusters if scored.clustering else None)
