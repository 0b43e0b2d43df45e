"""What computes the files of a run: one work for each pass over the questions of a model and a data set.

A `CellWork` is plain data and can be sent to another process or machine that sees the run's folder. Opened there, it
makes the files of one shard after another; an executor (`semtoken.support.executors`) decides where and in what order.

========================================== ===========================================================================
work                                       steps
========================================== ===========================================================================
greedy, samples, p_true                    of the same names, by the model that answers
stc                                        stc, stc_no_clustering, stc_no_prefix, one for each clustering of the study
watched                                    one for each statistic of the answering model
entailment, alternative_entailment         of the same names, by the NLI model
similarity, token_relevance,               of the same names, by the cross-encoder
sample_token_relevance
scores                                     one for each method
judge:NAME                                 of the same name
========================================== ===========================================================================
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from semtoken.bench.controls import PREFIX, ROW_MEANS, control_clusters, control_of, row_means_log_score
from semtoken.bench.judges import AnswerToJudge, correctness
from semtoken.bench.judges.kinds import judge_from
from semtoken.bench.judges.llm import LLMJudge
from semtoken.bench.models import Models, RunAnswerer
from semtoken.bench.plan import CellPlan, PlannedStep, clustering_of
from semtoken.bench.settings import RunSettings, judge_name
from semtoken.bench.statistics import AnswerSettings, Timings, UniquePairs
from semtoken.bench.statistics.decoding import NORMALIZERS, clustered_scores, watched_statistics
from semtoken.bench.statistics.pairs import special_token_ids
from semtoken.bench.statistics.recording import Progress
from semtoken.bench.statistics.steps import STEP, RecordingStep, Tokens, watch_steps
from semtoken.bench.storage import (
    Shard,
    columns_of,
    generations_of,
    is_shard,
    load_clustering,
    problem_path,
    read_shard,
    shard_path,
    table_of,
    write_json,
    write_shard,
)
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.results.generation import Generation
from semtoken.core.rules import ScoringRules
from semtoken.core.scorer import Scorer, scorer_for
from semtoken.errors import BackendError, InvalidInputError, SemtokenError
from semtoken.methods import score
from semtoken.models.base import Prompt, require_readings
from semtoken.models.probing import p_true_log_probs
from semtoken.models.prompts import PromptFormat
from semtoken.support.almanac import Question
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CellWork:
    """The steps on one model and data set that a single pass over the questions computes together."""

    run: Path
    settings: RunSettings
    cell: CellPlan
    name: str
    """The name of the work, from the list at the head of this module."""
    steps: tuple[PlannedStep, ...]

    @property
    def title(self) -> str:
        """The title of the step in messages and progress bars."""
        return f"{self.cell.title}: {self.name.replace('_', ' ').replace(':', ' ')}"

    def missing(self, shard: int) -> tuple[PlannedStep, ...]:
        """The steps whose file for a shard is missing or damaged, each key once."""
        # Two variants of one clustering have one key and one file, which is made once: by the first of them.
        by_key = {step.key: step for step in reversed(self.steps)}
        rows = self.cell.rows(shard)
        return tuple(
            step for step in reversed(by_key.values()) if not is_shard(step.folder(self.run), shard, step.key, rows)
        )

    def resolved(self) -> CellWork:
        """A copy with the absolute path of the run, so that another process can do the work."""
        return replace(self, run=self.run.resolve())

    def loader(self) -> Models:
        """The object that loads the models of this work when they are needed."""
        return Models(self.settings)

    def open(self, loader: Models, answered: Callable[[int], None] = lambda count: None) -> Callable[[int], None]:
        """Load what the work needs; returns the function that makes the missing files of one shard.

        `answered` is called as `Context.answered` says. `SemtokenError` if a model cannot be loaded.
        """
        context = Context(self.run, self.settings, self.cell, loader, answered)
        record = recorder_of(self.name, context)

        def make(shard: int) -> None:
            missing = self.missing(shard)
            if not missing:
                return
            for outcome in record(ShardInputs(context, shard, missing)):
                folder = outcome.step.folder(self.run)
                if isinstance(outcome, UnrecordedStep):
                    write_json(problem_path(folder, shard), {"reason": outcome.reason})
                else:
                    write_shard(folder, shard, outcome.step.key, outcome.table, outcome.seconds, outcome.usage)

        return make


@dataclass(frozen=True)
class Context:
    """The run, settings and models that all shards of one work share."""

    run: Path
    settings: RunSettings
    cell: CellPlan
    models: Models
    answered: Callable[[int], None] = lambda count: None
    """Called with how many questions of the shard at work the model has dealt with so far, where that is known."""

    @property
    def decoding(self) -> AnswerSettings:
        """The decoding settings with which this model answers this data set."""
        return AnswerSettings(
            **self.settings.decoding.model_dump(),
            stop_at_newline=bool(self.cell.format["stop_at_newline"]),
            batch_size=self.models.choice(self.cell.model).batch_size,
        )

    def read(self, step: PlannedStep, shard: int) -> Shard | None:
        """Read a shard of a step; None if it has not been made yet."""
        return read_shard(step.folder(self.run), shard, step.key, self.cell.rows(shard))


@dataclass(frozen=True)
class ShardInputs:
    """The questions of one shard with what earlier steps recorded of them."""

    context: Context
    shard: int
    missing: tuple[PlannedStep, ...]
    """Steps whose records are wanted, each key once."""

    @cached_property
    def questions(self) -> list[Question]:
        """The questions with their accepted answers."""
        folder, key = self.context.cell.questions_folder(self.context.run), self.context.cell.questions
        shard = read_shard(folder, self.shard, key, self.context.cell.rows(self.shard))
        if shard is None:
            raise _missing_file(shard_path(folder, self.shard))
        columns = shard.columns
        rows = zip(columns["id"], columns["question"], columns["answers"], strict=True)
        return [Question(name, question, tuple(answers)) for name, question, answers in rows]

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the questions."""
        return [question.id for question in self.questions]

    @cached_property
    def prompts(self) -> list[Prompt]:
        """The prompt of each question."""
        form = PromptFormat(**self.context.cell.format)
        return [form.prompt(question.question) for question in self.questions]

    @cached_property
    def generations(self) -> list[Generation]:
        """The recorded answers of the shard, with all fields that the missing steps need."""
        steps = self.context.cell.steps
        inputs = dict.fromkeys(name for step in self.missing for name in step.inputs)
        columns = []
        for name in inputs:
            shard = self.context.read(steps[name], self.shard)
            if shard is None:
                raise _missing_file(shard_path(steps[name].folder(self.context.run), self.shard))
            columns.append(shard.columns)
        return generations_of([question.question for question in self.questions], columns)


def _missing_file(path: Path) -> InvalidInputError:
    return InvalidInputError(
        f"{path} was there when this run began and is now missing or damaged. Run again to make it."
    )


@dataclass(frozen=True)
class StepRecords:
    """The columns that one step has recorded for a shard, with the seconds that this took."""

    step: PlannedStep
    table: Any
    """A `pyarrow.Table` with a row for each question."""
    seconds: Mapping[str, float]
    """How long the recording steps took, by name."""
    usage: Mapping[str, int] | None = None
    """What an endpoint counted, as in `Shard.usage`."""


@dataclass(frozen=True)
class UnrecordedStep:
    """The error of one step of a work that failed while the others of the same pass go on."""

    step: PlannedStep
    reason: str


def reason_of(error: Exception) -> str:
    """The reason why a step failed, in words; an error that is none of semtoken's is named with its type."""
    return str(error) if isinstance(error, SemtokenError) else f"{type(error).__name__}: {error}"


Recorder: TypeAlias = Callable[[ShardInputs], Iterator[StepRecords | UnrecordedStep]]
"""Records what is missing of one shard; each step is written as soon as it comes."""


Generate: TypeAlias = Callable[[Sequence[Prompt], AnswerSettings, Timings, Progress], list[Generation]]


def _answering(context: Context) -> RunAnswerer:
    return context.models.answering(context.cell.model)


def greedy(context: Context) -> Recorder:
    """Records the greedy answer to each question, with its log-probabilities and the best alternatives of each step."""
    return _answers(context, _answering(context).greedy, context.decoding, columns_of("greedy"))


def samples(context: Context) -> Recorder:
    """Records several sampled answers to each question, with log-probabilities, and hidden states if there are any."""
    decoding = replace(context.decoding, share_prefix=False)  # the seconds of samples are compared with each other
    return _answers(context, _answering(context).samples, decoding, columns_of("samples"))


def _answers(context: Context, generate: Generate, decoding: AnswerSettings, columns: Collection[str]) -> Recorder:
    """One row of the named fields for each answer."""

    def record(part: ShardInputs) -> Iterator[StepRecords]:
        timings = Timings()
        generations = generate(part.prompts, decoding, timings, lambda step, done, total: context.answered(done))
        fields = [{name: getattr(generation, name) for name in columns} for generation in generations]
        yield StepRecords(part.missing[0], table_of(part.ids, fields), timings.seconds)

    return record


def p_true(context: Context) -> Recorder:
    """Record the log-probabilities of "True" and "False" when the model is asked whether its own answer is true."""
    model = _answering(context)

    def record(part: ShardInputs) -> Iterator[StepRecords]:
        timings = Timings()
        questions = [question.question for question in part.questions]
        texts = [generation.text for generation in part.generations]
        with timings.measure("p_true"):
            spelling, size = context.settings.p_true_spelling, model.batch_size
            log_probs = p_true_log_probs(model.backend, questions, texts, spelling=spelling, batch_size=size)
        yield StepRecords(
            part.missing[0], table_of(part.ids, [{"p_true_log_probs": row} for row in log_probs]), timings.seconds
        )

    return record


def watched(context: Context) -> Recorder:
    """Record statistics of the answering model for the greedy answers, all that are missing in one pass.

    The pass itself is not charged to them: a generation computes the same rows anyway.
    """
    model = _answering(context)
    watches = {step.name: step.watch for step in watch_steps() if step.watch is not None}

    def record(part: ShardInputs) -> Iterator[StepRecords | UnrecordedStep]:
        timings = Timings()
        answers = [generation.token_ids for generation in part.generations]
        wanted = {step.name: watches[step.name]() for step in part.missing}
        for step in part.missing:
            try:
                require_readings(model.backend, [wanted[step.name]])
            except BackendError as error:  # the others have theirs
                wanted.pop(step.name)
                yield UnrecordedStep(step, str(error))
        statistics = watched_statistics(
            model.backend, part.prompts, answers, wanted, timings, batch_size=model.batch_size
        )
        for step in part.missing:
            if step.name not in wanted:
                continue
            fields = [{wanted[step.name].field: value} for value in statistics[step.name]]
            yield StepRecords(step, table_of(part.ids, fields), {step.name: timings.seconds.get(step.name, 0.0)})

    return record


def clustered(context: Context) -> Recorder:
    """Record the STC scores of the greedy answers by all clusterings and rules that are missing, in one pass.

    The pass itself is not charged to them: a generation computes the same rows anyway.
    """
    model = _answering(context)
    scorers_of = cache(_Scorers(context).of)  # kept for all shards: a scorer is made from a whole vocabulary

    def record(part: ShardInputs) -> Iterator[StepRecords]:
        timings = Timings()
        scorers = {step.name: scorers_of(step.name) for step in part.missing if step.name != _ROW_MEANS}
        answers = [answer.token_ids for answer in part.generations]
        size = model.batch_size
        scored = (
            clustered_scores(model.backend, part.prompts, answers, scorers, timings, batch_size=size) if scorers else {}
        )
        for step in part.missing:
            if step.name == _ROW_MEANS:
                yield _row_means(context, part, step)
                continue
            own = step.name.partition(":")[0]
            of_answer = STEP["stc" if own == "control" else own].of_answer
            fields = [
                of_answer(answer, q.question) for answer, q in zip(scored[step.name], part.questions, strict=True)
            ]
            # Alone it would have computed the normalizers itself.
            seconds = timings.seconds[step.name] + timings.seconds[NORMALIZERS]
            yield StepRecords(step, table_of(part.ids, fields), {own: seconds})

    return record


_ROW_MEANS = f"{PREFIX}{ROW_MEANS}"


def _row_means(context: Context, part: ShardInputs, step: PlannedStep) -> StepRecords:
    """The control that needs no pass of the model."""
    clusters = load_clustering(context.run, clustering_of(context.cell, step.name))
    fields = []
    for generation in part.generations:
        assert generation.log_probs is not None
        fields.append({"stc_log_score": row_means_log_score(clusters, generation.token_ids, generation.log_probs)})
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
        rules: dict[str, Any] = {name: getattr(settings, name) for name in ("preset", "equality", "function_words")}
        if name.startswith(PREFIX) and (chosen := settings.controls):
            counts = None if chosen.token_counts is None else np.load(chosen.token_counts, allow_pickle=False)
            clusters = control_clusters(self._main, name, seed=chosen.seed, n_bins=chosen.n_bins, token_counts=counts)
            rules |= control_of(name)[0].rules
        elif not cell.clusterings:  # the rules of the run count none
            rules |= dict(STEP[name].rules or {})
            return scorer_for(_answering(self._context).backend.vocabulary, ScoringRules(**rules))
        elif name in STEP:
            clusters, rules = self._main, rules | dict(STEP[name].rules or {})
        else:
            clusters = load_clustering(self._context.run, clustering_of(cell, name))
        scored, vocabulary = ScoringRules(**rules), clusters.vocabulary
        return Scorer(vocabulary, scored, clusters if scored.clustering else None)


def pairs(step: RecordingStep, context: Context) -> Recorder:
    """Record a statistic that compares pairs of texts; `step` is one of `PAIR_STEPS`."""
    compute = step.pairs
    assert compute is not None
    models = context.models
    ask = models.nli().logits if step.asks == "nli" else models.similarity().similarities
    # The tokenizer alone: the model that answered need not be in memory beside the one that is asked.
    tokenizer = models.tokenizer(context.cell.model)
    tokens = Tokens(Vocabulary.from_tokenizer(tokenizer).decode, special_token_ids(tokenizer))

    def record(part: ShardInputs) -> Iterator[StepRecords]:
        timings = Timings()
        generations = part.generations
        with timings.measure(step.name):  # pairs are remembered for one shard, so that its numbers are its own
            fields = compute(UniquePairs(ask), generations, tokens)
        yield StepRecords(part.missing[0], table_of(part.ids, fields), timings.seconds)

    return record


CORRECT = "correct"


def judgements(name: str, context: Context) -> Recorder:
    """Record the verdicts of the judge with this name."""
    choice = next(judge for judge in context.settings.judges if judge_name(judge) == name)
    judge = judge_from(choice, model=context.cell.model, dataset=context.cell.dataset)

    def record(part: ShardInputs) -> Iterator[StepRecords]:
        pyarrow = require("pyarrow", extra="bench")
        items = [
            AnswerToJudge(question, generation.text)
            for question, generation in zip(part.questions, part.generations, strict=True)
        ]
        # A judge counts over all shards; the difference is what this one took.
        before = judge.relied_on if isinstance(judge, LLMJudge) else None
        verdicts = judge.judge(items)
        usage = asdict(judge.relied_on - before) if isinstance(judge, LLMJudge) and before is not None else None
        table = pyarrow.table(
            {
                "id": part.ids,
                # NaN is "no verdict", and pandas' rules would make it null.
                CORRECT: pyarrow.array(correctness(verdicts), from_pandas=False),
                "quality": pyarrow.array([verdict.quality for verdict in verdicts], type=pyarrow.float64()),
                "reply": pyarrow.array([verdict.reply for verdict in verdicts], type=pyarrow.string()),
            }
        )
        yield StepRecords(part.missing[0], table, {}, usage)

    return record


UNCERTAINTY = "uncertainty"


def uncertainties(method: str, generations: Sequence[Generation]) -> tuple[FloatArray, float]:
    """Score every answer by a method; returns the uncertainties [n] and the seconds that this took."""
    start = time.perf_counter()
    values = np.array([score(method, generation) for generation in generations], dtype=np.float64)
    return values, time.perf_counter() - start


def scores(context: Context) -> Recorder:
    """Score every answer by each method, a column each; a method that fails does not stop the others."""

    def record(part: ShardInputs) -> Iterator[StepRecords | UnrecordedStep]:
        pyarrow = require("pyarrow", extra="bench")
        generations = part.generations
        for step in part.missing:
            try:
                values, seconds = uncertainties(step.subject, generations)
            except Exception as error:  # a method of somebody's own may raise anything
                if not isinstance(error, SemtokenError):
                    log.exception("The method %s failed", step.subject)
                yield UnrecordedStep(step, reason_of(error))
                continue
            table = pyarrow.table({"id": part.ids, UNCERTAINTY: pyarrow.array(values, from_pandas=False)})
            yield StepRecords(step, table, {step.name: seconds})

    return record


def recorder_of(work: str, context: Context) -> Recorder:
    """The function that computes the steps of the work with this name."""
    if work.startswith("judge:"):
        return judgements(work.partition(":")[2], context)
    makers: dict[str, Callable[[Context], Recorder]] = {
        "greedy": greedy,
        "samples": samples,
        "stc": clustered,
        "watched": watched,
        "p_true": p_true,
        "scores": scores,
    }
    return makers[work](context) if work in makers else pairs(STEP[work], context)
