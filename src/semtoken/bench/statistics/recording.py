"""All statistics of some questions, each recorded once and shared by every method that needs it.

One greedy answer to each prompt and its samples come first, with what is read of them in the same pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from semtoken.bench.statistics.decoding import BestTokens, LogProbabilities, TimedObserver, backend_of
from semtoken.bench.statistics.pairs import (
    DEFAULT_NLI,
    DEFAULT_SIMILARITY,
    AskPairs,
    EntailmentModel,
    SimilarityModel,
    UniquePairs,
    asked,
    special_token_ids,
)
from semtoken.bench.statistics.steps import (
    EVERYTHING,
    PAIR_STEPS,
    STC_STEPS,
    STEP_OF_FIELD,
    Fields,
    RecordingStep,
    Tokens,
    add_statistics,
    steps_for,
    watch_steps,
)
from semtoken.bench.statistics.timings import Timings
from semtoken.choices import PTrueSpelling
from semtoken.core.results.generation import Generation
from semtoken.errors import InvalidInputError
from semtoken.methods.observers.steps import Best, Completion, Observer
from semtoken.methods.observers.table import LastStates
from semtoken.models import base
from semtoken.models.base import Backend, Prompt
from semtoken.models.probing.p_true import p_true_log_probs
from semtoken.models.prompt_ids import encode_prompts, in_batches_by_length, prompt_text
from semtoken.models.scores import AnswerScores
from semtoken.scored_model import ScoredModel
from semtoken.support.arrays import FloatArray, IdArray
from semtoken.support.inputs import flag, instance, listed, real, text, whole

SHARED_PREFIX = "shared_prefix"
"""The name under which `Timings` keeps the seconds of reading the common beginning of all prompts."""
Progress = Callable[[str, int, int], None]
"""Called with the name of a step, how many questions are done, and how many there are."""


@dataclass(frozen=True)
class AnswerSettings:
    """The settings by which the recorded answers are generated. The defaults are the paper's."""

    max_new_tokens: int = 256
    """The most tokens of an answer."""
    stop_at_newline: bool = True
    """End an answer at the first token with a newline, besides end-of-sequence tokens."""
    n_samples: int = 5
    """The number of samples for each prompt."""
    temperature: float = 0.5
    """The temperature of the samples; no top-k, no top-p. Their log-probabilities are recorded at temperature 1."""
    seed: int = 0
    """The seed of the samples. Each has its own stream, made from the seed, the prompt and the number of the sample."""
    batch_size: int = 32
    """The number of prompts that are decoded together. All samples of a prompt are decoded in its batch."""
    top_k: int = 10
    """The number of best tokens that are recorded of each step of the greedy answer, the chosen one included."""
    share_prefix: bool = False
    """Read what all prompts begin with once; see `semtoken.models.base.Decoding`. Leave it off where the time that a
    method takes is measured."""

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "n_samples", "batch_size", "top_k"):
            whole(getattr(self, name), name, low=1)
        for name in ("stop_at_newline", "share_prefix"):
            flag(getattr(self, name), name)
        real(self.temperature, "temperature", low=0.0)
        whole(self.seed, "seed")

    def greedy(self) -> base.Decoding:
        """The decoding settings of greedy answers."""
        return base.Decoding(
            max_new_tokens=self.max_new_tokens,
            stop_at_newline=self.stop_at_newline,
            batch_size=self.batch_size,
            share_prefix=self.share_prefix,
        )

    def samples(self) -> base.Decoding:
        """The decoding settings of sampled answers."""
        return replace(self.greedy(), n=self.n_samples, temperature=self.temperature, seed=self.seed)


def record_greedy(
    model: ScoredModel | Backend,
    prompts: Sequence[base.Prompt],
    needs: Collection[str],
    decoding: AnswerSettings,
    timings: Timings,
    progress: Progress | None = None,
    questions: Sequence[str] | None = None,
) -> list[Generation]:
    """Answer each prompt greedily, with log-probabilities, alternatives and STC scores from the same pass.

    Parameters
    ----------
    model
        A backend; a `ScoredModel`, with rules and perhaps clusters, if STC scores are needed.
    prompts : list of n prompts
        Texts, chat messages or token ids.
    needs
        Fields of `Generation`. Those that this pass can give are filled.
    decoding
        How answers are generated.
    timings
        Gets the seconds of `shared_prefix`, `greedy`, `likelihoods`, `alternatives`, `stc`, `stc_no_clustering` and
        `stc_no_prefix`.
    progress
        Called with (step, done, of how many).
    questions : list of n texts, optional
        Their words do not count as new in an answer.

    Returns
    -------
    list of n Generation
        In the order of the prompts.

    Raises
    ------
    InvalidInputError
        STC scores are needed, and the model is a backend without rules.
    BackendError
        The backend does not give what one of the fields is read from.
    """
    backend = backend_of(model)
    likelihoods = LogProbabilities()
    observers: list[Observer] = [TimedObserver(likelihoods, "likelihoods", timings)]
    best = BestTokens(decoding.top_k) if {"top_ids", "top_texts", "top_log_probs"} & set(needs) else None
    if best is not None:
        observers.append(TimedObserver(best, "alternatives", timings))
    scores = [(step, _scores(model, step, timings)) for step in STC_STEPS if set(step.fills) & set(needs)]
    watches = [
        (step, step.watch()) for step in watch_steps() if step.watch is not None and set(step.fills) & set(needs)
    ]
    observers += [TimedObserver(observer, step.name, timings) for step, observer in (*scores, *watches)]
    encoded, order = _by_length(backend, prompts, decoding.batch_size)
    completions = _decode(backend, encoded, decoding.greedy(), observers, "greedy", timings, progress)
    records: dict[int, Generation] = {}
    for place, (i, completion) in enumerate(zip(order, completions, strict=True)):
        fields: dict[str, Any] = {}
        for step, observer in scores:
            with timings.measure(step.name):
                fields |= step.of_answer(observer.result(place), questions[i] if questions else "")
        fields |= {watch.field: watch.of(place) for _, watch in watches}
        best_tokens = None if best is None else best.of(place)
        greedy = _greedy_record(backend, completion.token_ids, likelihoods.of(place), best_tokens)
        records[i] = greedy.with_fields(fields)
    return [records[i] for i in range(len(prompts))]


def _by_length(backend: Backend, prompts: Sequence[base.Prompt], batch_size: int) -> tuple[list[list[int]], list[int]]:
    """The prompts as token ids, those of similar length beside each other, and the place that each had."""
    encoded = encode_prompts(backend.tokenizer, prompts)
    # Padding costs as much as tokens, so prompts of similar length are decoded together.
    order = [i for batch in in_batches_by_length([len(ids) for ids in encoded], batch_size) for i in batch]
    return [encoded[i] for i in order], order


def _scores(model: ScoredModel | Backend, step: RecordingStep, timings: Timings) -> AnswerScores:
    if not isinstance(model, ScoredModel):
        raise InvalidInputError(
            f"{step.fills[0]} needs rules, and perhaps clusters: give an STC instead of its backend."
        )
    with timings.measure("loading"):  # the index of the vocabulary is made once
        return AnswerScores(model.scorer_of(replace(model.rules, **(step.rules or {}))))


def _decode(
    backend: Backend,
    prompts: Sequence[base.Prompt],
    decoding: base.Decoding,
    observers: list[Observer],
    step: str,
    timings: Timings,
    progress: Progress | None,
) -> list[Completion]:
    """Run `Backend.generate` and note how long it took."""
    if progress is not None:
        observers = [*observers, _Count(progress, step, len(prompts), decoding.n)]
    if decoding.share_prefix and hasattr(backend, "read_prefix"):
        with timings.measure(SHARED_PREFIX):
            backend.read_prefix(prompts)
    with timings.measure(step):
        return backend.generate(prompts, decoding, observers)


class _Count(Observer):
    """Reports how many prompts have their answers."""

    reads = frozenset()

    def __init__(self, progress: Progress, step: str, prompts: int, n: int) -> None:
        self._progress = progress
        self._step = step
        self._prompts = prompts
        self._n = n
        self._done = 0

    def finish(self, answer: int, completion: Completion) -> None:
        """Count an answer that is complete."""
        self._done += 1
        # A prompt counts once all of its samples are complete; which of them come last does not matter to a count.
        if self._done % self._n == 0:
            self._progress(self._step, self._done // self._n, self._prompts)


def _greedy_record(backend: Backend, ids: list[int], log_probs: FloatArray, best: list[Best] | None) -> Generation:
    vocabulary = backend.vocabulary
    generation = Generation(
        text=vocabulary.decode(ids),
        token_ids=ids,
        distribution="raw",
        token_texts=[vocabulary.texts[token] for token in ids],
        log_probs=log_probs,
    )
    if best is None:
        return generation
    top = [
        chosen_first(token, float(log_prob), best_ids, values)
        for token, log_prob, (best_ids, values) in zip(ids, log_probs, best, strict=True)
    ]
    return replace(
        generation,
        top_ids=[best_ids for best_ids, _ in top],
        top_texts=[[vocabulary.texts[token] for token in best_ids] for best_ids, _ in top],
        top_log_probs=[values for _, values in top],
    )


def chosen_first(token: int, log_prob: float, best: IdArray, log_probs: FloatArray) -> tuple[IdArray, FloatArray]:
    """The best tokens of one step with the chosen one in front, moved there or put in place of the last."""
    others = best != token
    # Where the chosen token was not among the best, the last of these makes room for it.
    others[np.flatnonzero(others)[len(best) - 1 :]] = False
    return np.append(token, best[others]), np.append(log_prob, log_probs[others])


def record_samples(
    model: ScoredModel | Backend,
    prompts: Sequence[base.Prompt],
    generations: Sequence[Generation],
    needs: Collection[str],
    decoding: AnswerSettings,
    timings: Timings,
    progress: Progress | None = None,
) -> list[Generation]:
    """Add `decoding.n_samples` sampled answers to each generation.

    The arguments are those of `record_greedy`. Of `needs` only "hidden_states" matters, and `BackendError` says that
    the backend gives none: texts, ids and log-probabilities are always recorded. Seconds go to `sampling`,
    `sample_likelihoods` and `hidden_states`.
    """
    backend = backend_of(model)
    likelihoods = LogProbabilities()
    observers: list[Observer] = [TimedObserver(likelihoods, "sample_likelihoods", timings)]
    states = LastStates() if "hidden_states" in needs else None
    if states is not None:
        observers.append(TimedObserver(states, "hidden_states", timings))
    encoded, order = _by_length(backend, prompts, decoding.batch_size)
    completions = _decode(backend, encoded, decoding.samples(), observers, "sampling", timings, progress)
    n = decoding.n_samples
    recorded = list(generations)
    for place, i in enumerate(order):
        answers = range(place * n, place * n + n)
        ids = [completions[answer].token_ids for answer in answers]
        recorded[i] = replace(
            generations[i],
            sample_texts=[backend.vocabulary.decode(token_ids) for token_ids in ids],
            sample_token_ids=ids,
            sample_log_probs=[likelihoods.of(answer) for answer in answers],
            hidden_states=None if states is None else _together([states.of(answer) for answer in answers]),
        )
    return recorded


def _together(states: Sequence[FloatArray | None]) -> FloatArray | None:
    """[answers, H] the states of several answers; None unless all have one."""
    known_states = [state for state in states if state is not None]
    return np.stack(known_states) if len(known_states) == len(states) else None


QUESTIONS_AT_ONCE = 64  # whose pairs of texts are put to a model together
Statistics = Callable[[list[Generation]], list[Fields]]
"""Generations -> the fields that one step adds to each."""


def record(
    model: ScoredModel | Backend,
    questions: Sequence[str],
    *,
    prompts: Sequence[Prompt] | None = None,
    needs: Iterable[str] = EVERYTHING,
    decoding: AnswerSettings | None = None,
    nli: str | EntailmentModel = DEFAULT_NLI,
    similarity: str | SimilarityModel = DEFAULT_SIMILARITY,
    p_true_spelling: PTrueSpelling = "bare",
    timings: Timings | None = None,
    progress: Progress | None = None,
) -> list[Generation]:
    """Answer every question and record what methods need to know of the answer.

    Parameters
    ----------
    model
        A backend; with clusters and rules (`ScoredModel`) if STC scores are needed.
    questions
        Bare questions: P(True), similarity and NLI models read them with the answers.
    prompts
        What the model is given, text or chat messages, one a question. Without: the questions themselves.
    needs
        Fields of `Generation` to fill; `METHODS[name].needs` are those of a method. Only the steps that these need
        are run, and only the models that these steps need are loaded.
    decoding
        How answers are generated; see `AnswerSettings`.
    nli, similarity
        The models for pairs of texts: a name, a directory, "almanac" for the embedded ones, or a loaded one.
    p_true_spelling
        See `PTrueSpelling`.
    timings
        The clock that adds up the seconds of every step.
    progress
        Called with (step, done, of how many).

    Returns
    -------
    list of Generation
        In the order of the questions. The same arguments give the same records.

    Raises
    ------
    InvalidInputError
        There is no question, or an empty one, or not one prompt for each; an unknown field in `needs`.
    MissingExtra
        A step needs a package that is not installed.
    """
    questions = [text(question, "questions") for question in listed(questions, "questions")]
    given: list[Prompt] = list(questions) if prompts is None else listed(prompts, "prompts")
    decoding = AnswerSettings() if decoding is None else instance(decoding, AnswerSettings, "decoding")
    wanted = listed(list(needs) if isinstance(needs, frozenset | set) else needs, "needs")
    fields = frozenset(text(name, "needs") for name in wanted)
    if not questions or len(given) != len(questions):
        raise InvalidInputError(
            f"There are {len(questions)} questions and {len(given)} prompts; each question needs one."
        )
    add_statistics()  # those of files and packages that were loaded since
    if unknown := fields - STEP_OF_FIELD.keys():
        raise InvalidInputError(f"needs holds {', '.join(sorted(unknown))}; it can hold {', '.join(STEP_OF_FIELD)}.")
    timings = timings or Timings()
    generations = _answers(model, questions, given, fields, decoding, timings, progress)
    models = {"nli": nli, "similarity": similarity}
    for step, compute in _later_steps(model, steps_for(fields), models, p_true_spelling, decoding.batch_size, timings):
        for first in range(0, len(generations), QUESTIONS_AT_ONCE):
            part = generations[first : first + QUESTIONS_AT_ONCE]
            with timings.measure(step):
                recorded = compute(part)
            filled = [generation.with_fields(more) for generation, more in zip(part, recorded, strict=True)]
            generations[first : first + QUESTIONS_AT_ONCE] = filled
            if progress is not None:
                progress(step, first + len(part), len(generations))
    return generations


def _answers(
    model: ScoredModel | Backend,
    questions: Sequence[str],
    prompts: Sequence[Prompt],
    needs: Collection[str],
    decoding: AnswerSettings,
    timings: Timings,
    progress: Progress | None,
) -> list[Generation]:
    """Greedy answers, and samples if they are needed."""
    tokenizer = backend_of(model).tokenizer
    ids = encode_prompts(tokenizer, prompts)
    generations = record_greedy(model, ids, needs, decoding, timings, progress, questions)
    if "sampling" in steps_for(needs):
        generations = record_samples(model, ids, generations, needs, decoding, timings, progress)
    texts = [prompt_text(tokenizer, prompt, number) for number, prompt in enumerate(prompts)]
    return [
        replace(generation, question=question, prompt=text)
        for generation, question, text in zip(generations, questions, texts, strict=True)
    ]


def _later_steps(
    model: ScoredModel | Backend,
    wanted: Collection[str],
    given: Mapping[str, str | EntailmentModel | SimilarityModel],
    spelling: PTrueSpelling,
    batch_size: int,
    timings: Timings,
) -> Iterator[tuple[str, Statistics]]:
    """The wanted steps after decoding, each with what records it; a model is loaded when its turn comes."""
    backend = backend_of(model)
    if "p_true" in wanted:
        yield "p_true", partial(p_true_fields, model, spelling=spelling, batch_size=batch_size)
    tokens = Tokens(backend.vocabulary.decode, special_token_ids(backend.tokenizer))
    models: dict[str, AskPairs] = {}
    for step in PAIR_STEPS:
        if step.name not in wanted:
            continue
        if step.asks not in models:
            with timings.measure("loading"):
                models = {step.asks: asked(step.asks, given[step.asks])}
        yield step.name, partial(_pairs, step, UniquePairs(models[step.asks]), tokens)


def _pairs(step: RecordingStep, ask: AskPairs, tokens: Tokens, part: list[Generation]) -> list[Fields]:
    assert step.pairs is not None
    return step.pairs(ask, part, tokens)


def p_true_fields(
    model: ScoredModel | Backend, generations: Sequence[Generation], spelling: PTrueSpelling, batch_size: int
) -> list[Fields]:
    """The field of each of n recorded answers that P(True) reads: the model is asked whether its answer is true."""
    questions, answers = [one.question or "" for one in generations], [one.text for one in generations]
    log_probs = p_true_log_probs(model, questions, answers, spelling=spelling, batch_size=batch_size)
    return [{"p_true_log_probs": row} for row in log_probs]
