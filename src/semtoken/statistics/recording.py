"""All statistics of some questions, each recorded once and shared by every method that needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from semtoken.backends.base import Backend, Prompt
from semtoken.backends.prompts import encode_prompts, prompt_text
from semtoken.choices import PTrueSpelling
from semtoken.errors import InvalidInput
from semtoken.probing.p_true import p_true_log_probs
from semtoken.results.generation import Generation
from semtoken.statistics.decoding import backend_of
from semtoken.statistics.encoders import DEFAULT_NLI, DEFAULT_SIMILARITY, EntailmentModel, SimilarityModel
from semtoken.statistics.generations import AnswerSettings, Progress, record_greedy, record_samples
from semtoken.statistics.pairs import AskPairs, UniquePairs, special_token_ids
from semtoken.statistics.steps import (
    EVERYTHING,
    PAIR_STEPS,
    STEP_OF_FIELD,
    Fields,
    RecordingStep,
    Tokens,
    add_statistics,
    steps_for,
)
from semtoken.statistics.timings import Timings
from semtoken.stc import STC
from semtoken.support.inputs import instance, listed, text

QUESTIONS_AT_ONCE = 64  # whose pairs of texts are put to a model together
Statistics = Callable[[list[Generation]], list[Fields]]
"""Generations -> the fields that one step adds to each."""


def record(
    model: STC | Backend,
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
        A backend; with clusters and rules (`STC`) if STC scores are needed.
    questions
        Bare questions: P(True), similarity and NLI models read them beside the answers.
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
    InvalidInput
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
        raise InvalidInput(f"There are {len(questions)} questions and {len(given)} prompts; each question needs one.")
    run = _Run(model, fields, decoding, timings or Timings(), progress)
    generations = run.answers(questions, given)
    for step, statistics in _statistics(run, nli, similarity, p_true_spelling):
        generations = run.fill(generations, step, statistics)
    return generations


@dataclass(frozen=True)
class _Run:
    """What the steps of one `record` share."""

    model: STC | Backend
    needs: frozenset[str]
    decoding: AnswerSettings
    timings: Timings
    progress: Progress | None
    steps: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        add_statistics()  # those of files and packages that were loaded since
        unknown = self.needs - STEP_OF_FIELD.keys()
        if unknown:
            raise InvalidInput(f"needs holds {', '.join(sorted(unknown))}; it can hold {', '.join(STEP_OF_FIELD)}.")
        object.__setattr__(self, "steps", steps_for(self.needs))

    def answers(self, questions: list[str], prompts: list[Prompt]) -> list[Generation]:
        """Greedy answers, and samples if they are needed."""
        ids = encode_prompts(backend_of(self.model).tokenizer, prompts)
        found = record_greedy(self.model, ids, self.needs, self.decoding, self.timings, self.progress, questions)
        if "sampling" in self.steps:
            found = record_samples(self.model, ids, found, self.needs, self.decoding, self.timings, self.progress)
        texts = [prompt_text(backend_of(self.model).tokenizer, prompt, number) for number, prompt in enumerate(prompts)]
        return [
            replace(generation, question=question, prompt=text)
            for generation, question, text in zip(found, questions, texts, strict=True)
        ]

    @property
    def tokens(self) -> Tokens:
        """The tokens of the model that answers."""
        return Tokens(backend_of(self.model).vocabulary.decode, special_token_ids(backend_of(self.model).tokenizer))

    def fill(self, generations: list[Generation], step: str, statistics: Statistics) -> list[Generation]:
        """The generations with the fields that one more step records, a part of them at a time."""
        filled: list[Generation] = []
        for first in range(0, len(generations), QUESTIONS_AT_ONCE):
            part = generations[first : first + QUESTIONS_AT_ONCE]
            with self.timings.measure(step):
                fields = statistics(part)
            filled += [one.with_fields(more) for one, more in zip(part, fields, strict=True)]
            if self.progress is not None:
                self.progress(step, len(filled), len(generations))
        return filled


def _statistics(
    run: _Run, nli: str | EntailmentModel, similarity: str | SimilarityModel, spelling: PTrueSpelling
) -> Iterator[tuple[str, Statistics]]:
    """The steps after decoding that are needed, each with what records it; a model is loaded when its turn comes."""
    if "p_true" in run.steps:
        yield "p_true", partial(_p_true, run, spelling)
    models: dict[str, AskPairs] = {}
    for step in PAIR_STEPS:
        if step.name not in run.steps:
            continue
        if step.asks not in models:
            with run.timings.measure("loading"):
                models = {step.asks: _nli(nli) if step.asks == "nli" else _similarity(similarity)}
        yield step.name, partial(_pairs, step, UniquePairs(models[step.asks]), run.tokens)


def _nli(model: str | EntailmentModel) -> AskPairs:
    return (EntailmentModel.from_pretrained(model) if isinstance(model, str) else model).logits


def _similarity(model: str | SimilarityModel) -> AskPairs:
    return (SimilarityModel.from_pretrained(model) if isinstance(model, str) else model).similarities


def _p_true(run: _Run, spelling: PTrueSpelling, part: list[Generation]) -> list[Fields]:
    questions, answers = [one.question or "" for one in part], [one.text for one in part]
    found = p_true_log_probs(run.model, questions, answers, spelling=spelling, batch_size=run.decoding.batch_size)
    return [{"p_true_log_probs": row} for row in found]


def _pairs(step: RecordingStep, ask: AskPairs, tokens: Tokens, part: list[Generation]) -> list[Fields]:
    assert step.pairs is not None
    return step.pairs(ask, part, tokens)
