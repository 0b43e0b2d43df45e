"""Records of the steps of a run: for each work a function that computes what is missing of one shard.

A `CellWork` is plain data and can be sent to another process or machine that sees the run's folder. Opened there, it
makes the files of one shard after another; an executor (`semtoken.support.executors`) decides where and in what order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from semtoken.bench.controls import PREFIX, ROW_MEANS, control_clusters, control_of, row_means_log_score
from semtoken.bench.judges import AnswerToJudge, correctness
from semtoken.bench.judges.kinds import judge_from
from semtoken.bench.judges.llm import LLMJudge
from semtoken.bench.models import Models
from semtoken.bench.passes import CellPass, Recorder, ShardInputs, StepRecords, UnrecordedStep, reason_of
from semtoken.bench.plan import clustering_of
from semtoken.bench.statistics import Timings, UniquePairs, record_greedy, record_samples
from semtoken.bench.statistics.decoding import NORMALIZERS, clustered_scores, read_by_length
from semtoken.bench.statistics.pairs import special_token_ids
from semtoken.bench.statistics.recording import p_true_fields
from semtoken.bench.statistics.steps import STEP, Fields, Tokens, watch_steps
from semtoken.bench.statistics.timings import IN_MODEL
from semtoken.bench.storage import columns_of, load_clustering, problem_path, table_of, write_json, write_shard
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.results.generation import Generation
from semtoken.core.rules import ScoringRules
from semtoken.core.scorer import Scorer, scorer_for
from semtoken.errors import BackendError, SemtokenError
from semtoken.methods import score
from semtoken.models.base import Backend, require_readings
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require

log = logging.getLogger(__name__)


def _of_one_step(fields: Callable[[ShardInputs, Timings], Sequence[Mapping[str, Any]]]) -> Recorder:
    """A recorder of a work of one step, from the function that gives the fields of every question of a shard."""

    def record(part: ShardInputs) -> Iterator[StepRecords]:
        timings = Timings()
        table = table_of(part.ids, fields(part, timings))
        yield StepRecords(part.missing[0], table, timings.seconds)

    return record


def greedy(work: CellPass, models: Models) -> Recorder:
    """Records the greedy answer to each question, with its log-probabilities and the best alternatives of each step."""
    backend, columns = models.answering(work.cell.model), columns_of("greedy")

    def fields(part: ShardInputs, timings: Timings) -> list[dict[str, Any]]:
        with _passes(backend, timings):
            found = record_greedy(backend, part.prompts, columns, work.decoding, timings, part.progress)
        return [{name: getattr(generation, name) for name in columns} for generation in found]

    return _of_one_step(fields)


def samples(work: CellPass, models: Models) -> Recorder:
    """Records several sampled answers to each question, with log-probabilities, and hidden states if there are any.

    The same seed gives the same samples whatever else is asked in the same call.
    """
    backend, columns = models.answering(work.cell.model), columns_of("samples")
    needs = {"hidden_states"} if "states" in backend.gives else set()
    decoding = replace(work.decoding, share_prefix=False)  # the seconds of samples are compared with each other

    def fields(part: ShardInputs, timings: Timings) -> list[dict[str, Any]]:
        empty = [Generation(text="", token_ids=()) for _ in part.prompts]
        with _passes(backend, timings):
            found = record_samples(backend, part.prompts, empty, needs, decoding, timings, part.progress)
        return [{name: getattr(generation, name) for name in columns} for generation in found]

    return _of_one_step(fields)


def _passes(backend: Backend, timings: Timings) -> AbstractContextManager[None]:
    """Charge passes of the model to `IN_MODEL`, where the backend can measure them."""
    timed = getattr(backend, "timed_passes", None)
    return nullcontext() if timed is None else timed(partial(timings.measure_too, IN_MODEL))


def p_true(work: CellPass, models: Models) -> Recorder:
    """Record the log-probabilities of "True" and "False" when the model is asked whether its own answer is true."""
    backend, spelling = models.answering(work.cell.model), work.settings.p_true_spelling

    def fields(part: ShardInputs, timings: Timings) -> list[Fields]:
        with timings.measure("p_true"):
            return p_true_fields(backend, part.generations, spelling, work.decoding.batch_size)

    return _of_one_step(fields)


def watched(work: CellPass, models: Models) -> Recorder:
    """Record statistics of the answering model for the greedy answers, all that are missing in one pass.

    The pass itself is not charged to them: a generation computes the same rows anyway.
    """
    backend = models.answering(work.cell.model)
    watches = {step.name: step.watch for step in watch_steps() if step.watch is not None}

    def record(part: ShardInputs) -> Iterator[StepRecords | UnrecordedStep]:
        timings = Timings()
        answers = [generation.token_ids for generation in part.generations]
        wanted = {step.name: watches[step.name]() for step in part.missing}
        for step in part.missing:
            try:
                require_readings(backend, [wanted[step.name]])
            except BackendError as error:  # the others have theirs
                wanted.pop(step.name)
                yield UnrecordedStep(step, str(error))
        size = work.decoding.batch_size
        places = read_by_length(backend, part.prompts, answers, wanted, timings, batch_size=size)
        for step in part.missing:
            if (watch := wanted.get(step.name)) is not None:
                fields = [{watch.field: watch.of(place)} for place in places]
                yield StepRecords(step, table_of(part.ids, fields), {step.name: timings.seconds.get(step.name, 0.0)})

    return record


def clustered(work: CellPass, models: Models) -> Recorder:
    """Record the STC scores of the greedy answers by all clusterings and rules that are missing, in one pass.

    The pass itself is not charged to them: a generation computes the same rows anyway.
    """
    backend, cell = models.answering(work.cell.model), work.cell
    # Controls share the main clustering's vocabulary and its index.
    main = load_clustering(work.run, cell.clusterings[0]) if cell.clusterings else None
    # Kept for all shards: a scorer is made from a whole vocabulary.
    scorer_of = cache(partial(_scorer, work, backend, main))

    def record(part: ShardInputs) -> Iterator[StepRecords]:
        timings = Timings()
        scorers = {step.name: scorer_of(step.name) for step in part.missing if step.name != _ROW_MEANS}
        answers = [answer.token_ids for answer in part.generations]
        size = work.decoding.batch_size
        scored = clustered_scores(backend, part.prompts, answers, scorers, timings, batch_size=size) if scorers else {}
        for step in part.missing:
            if step.name == _ROW_MEANS and main is not None:
                yield StepRecords(step, table_of(part.ids, list(_row_means(main, part.generations))), {})
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


def _row_means(clusters: TokenClusters, generations: Sequence[Generation]) -> Iterator[Fields]:
    """The control that needs no pass of the model."""
    for generation in generations:
        assert generation.log_probs is not None
        yield {"stc_log_score": row_means_log_score(clusters, generation.token_ids, generation.log_probs)}


def _scorer(work: CellPass, backend: Backend, main: TokenClusters | None, name: str) -> Scorer:
    """The scorer of the step with this name; `main` is the clustering that methods use, if there is any."""
    settings = work.settings
    rules: dict[str, Any] = {name: getattr(settings, name) for name in ("preset", "equality", "function_words")}
    rules |= dict(STEP[name].rules or {}) if name in STEP else {}
    if main is None:  # the rules of the run count none
        return scorer_for(backend.vocabulary, ScoringRules(**rules))
    clusters = main
    if name.startswith(PREFIX) and (chosen := settings.controls):
        counts = None if chosen.token_counts is None else np.load(chosen.token_counts, allow_pickle=False)
        clusters = control_clusters(main, name, seed=chosen.seed, n_bins=chosen.n_bins, token_counts=counts)
        rules |= control_of(name)[0].rules
    elif name not in STEP:
        clusters = load_clustering(work.run, clustering_of(work.cell, name))
    scored = ScoringRules(**rules)
    return Scorer(clusters.vocabulary, scored, clusters if scored.clustering else None)


def pairs(work: CellPass, models: Models) -> Recorder:
    """Record a statistic that compares pairs of texts; the work is named after one of `PAIR_STEPS`."""
    step = STEP[work.name]
    assert step.pairs is not None
    compute = step.pairs
    ask = models.asking(step.asks)
    # The tokenizer alone: the model that answered need not be in memory beside the one that is asked.
    tokenizer = models.tokenizer(work.cell.model)
    tokens = Tokens(Vocabulary.from_tokenizer(tokenizer).decode, special_token_ids(tokenizer))

    def fields(part: ShardInputs, timings: Timings) -> list[Fields]:
        generations = part.generations
        with timings.measure(step.name):  # pairs are remembered for one shard, so that its numbers are its own
            return compute(UniquePairs(ask), generations, tokens)

    return _of_one_step(fields)


CORRECT = "correct"


def judgments(work: CellPass, models: Models) -> Recorder:
    """Record the verdicts of the judge whose name the work has."""
    choice = next(judge for judge in work.settings.judges if f"judge:{judge.name}" == work.name)
    judge = judge_from(choice, model=work.cell.model, dataset=work.cell.dataset)

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


def scores(work: CellPass, models: Models) -> Recorder:
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


def recorder_of(work: CellPass, models: Models) -> Recorder:
    """The function that computes the steps of a work."""
    makers: dict[str, Callable[[CellPass, Models], Recorder]] = {
        "greedy": greedy,
        "samples": samples,
        "stc": clustered,
        "watched": watched,
        "p_true": p_true,
        "scores": scores,
        "judge": judgments,
    }
    return makers.get(work.name.partition(":")[0], pairs)(work, models)


@dataclass(frozen=True)
class CellWork(CellPass):
    """A pass over the questions of a model and a data set as executors make it."""

    def resolved(self) -> CellWork:
        """A copy with the absolute path of the run, so that another process can do the work."""
        return replace(self, run=self.run.resolve())

    def loader(self) -> Models:
        """The object that loads the models of this work when they are needed."""
        return Models(self.settings)

    def open(self, loader: Models, answered: Callable[[int], None] = lambda count: None) -> Callable[[int], None]:
        """Load what the work needs; returns the function that makes the missing files of one shard.

        `answered` is called as `ShardInputs.answered` says. `SemtokenError` if a model cannot be loaded.
        """
        record = recorder_of(self, loader)

        def make(shard: int) -> None:
            missing = self.missing(shard)
            if not missing:
                return
            for outcome in record(ShardInputs(self, shard, missing, answered)):
                folder = outcome.step.folder(self.run)
                if isinstance(outcome, UnrecordedStep):
                    write_json(problem_path(folder, shard), {"reason": outcome.reason})
                else:
                    write_shard(folder, shard, outcome.step.key, outcome.table, outcome.seconds, outcome.usage)

        return make
