"""Answering typed questions about states with a model in this process.

How probable options are after a prompt can be looked up with any backend: a transformers model reads all prompts as
one tree, and goes on from it; other engines read each place as a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from semtoken.choices import Reading
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.decisions.answers import Answer, OptionMasses, answers_to, in_all_orders
from semtoken.decisions.questions import (
    READ_AS_USUAL,
    Choice,
    OrderedQuestion,
    Predicate,
    Question,
    ReadingOptions,
    Score,
    as_text,
    in_each_order,
    prompt_text,
    prompt_tokens,
)
from semtoken.decisions.spellings import LogMasses, OptionReader, OptionSpelling, Path, spellings_of
from semtoken.errors import InvalidInputError, InvalidLogits
from semtoken.methods.observers.steps import Observer, Step
from semtoken.models.base import Backend
from semtoken.support.arrays import FloatArray, IdArray, is_tensor
from semtoken.support.inputs import instance, listed

Place: TypeAlias = tuple[int, Path]
"""Number of a prompt, and the tokens that follow it."""
Look: TypeAlias = Callable[..., Generator[int, int | None, list[LogMasses]]]
"""Takes places, the tokens to look up at each, and whether it is the last look behind these prompts (`last`); gives
their log-probabilities, place by place.
"""
AT_ONCE = 32
"""The number of places that are read together where an engine reads each as a reply."""


@dataclass(frozen=True, eq=False)
class PreparedPrompt:
    """The prompt of one question with its options in one order, as token ids."""

    number: int
    """The place of the question among those of its inquiry."""
    shown: OrderedQuestion
    ids: tuple[int, ...]
    spellings: tuple[OptionSpelling, ...]
    """The spellings of the options, in the order in which these are shown."""


def option_masses(
    backend: Backend, prompts: Sequence[PreparedPrompt]
) -> Generator[int, int | None, list[tuple[FloatArray, FloatArray]]]:
    """Lower and upper bound of the mass of each option, [options] each, for each prompt, in the order that it shows.

    Pauses after some prompts, and after pieces of what is read together, so that a server can do other work in between;
    see `semtoken.models.transformers.trees.read_trunk` for what it gives and gets then. `InvalidLogits` if the model
    gives NaN, `InvalidInputError` if the engine cannot read a prompt.
    """
    masses: list[tuple[FloatArray, FloatArray]] = []
    for group in _groups(backend, [prompt.ids for prompt in prompts]):
        masses += yield from _masses_of_group(backend, [prompts[n] for n in group])
        yield 0
    return masses


def _masses_of_group(
    backend: Backend, prompts: Sequence[PreparedPrompt]
) -> Generator[int, int | None, list[tuple[FloatArray, FloatArray]]]:
    readers = [OptionReader(prompt.spellings) for prompt in prompts]
    look = yield from _look_at(backend, [prompt.ids for prompt in prompts])
    # Two looks are enough: all spellings that are worth it are followed to their ends at once.
    ends = [(place, ()) for place in range(len(prompts))]
    starts = yield from look(ends, [reader.first_tokens for reader in readers])
    wanted = [reader.first(start) for reader, start in zip(readers, starts, strict=True)]
    places = [(place, path) for place, by_path in enumerate(wanted) for path in by_path]
    tokens = [by_path[path] for by_path in wanted for path in by_path]
    # Most questions have options of one token each, and need no second look.
    log_masses = (yield from look(places, tokens, last=True)) if places else []
    further: list[dict[Path, dict[int, tuple[float, float]]]] = [{} for _ in prompts]
    for (place, path), ids, (low, high) in zip(places, tokens, log_masses, strict=True):
        pairs = zip(low.tolist(), high.tolist(), strict=True)
        further[place][path] = dict(zip(ids.tolist(), pairs, strict=True))
    return [reader.masses(by_path) for reader, by_path in zip(readers, further, strict=True)]


def _groups(backend: Backend, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    if not getattr(backend, "reads_trees", False):
        return [list(range(first, min(first + AT_ONCE, len(prompts)))) for first in range(0, len(prompts), AT_ONCE)]
    from semtoken.models.transformers.trees import groups_of

    return groups_of(prompts)


def _look_at(backend: Backend, prompts: Sequence[Sequence[int]]) -> Generator[int, int | None, Look]:
    """A function of places and tokens that gives their log-probabilities."""
    if not getattr(backend, "reads_trees", False):
        return lambda places, tokens, last=False: _read_as_replies(backend, prompts, places, tokens)
    tree = backend.tree(prompts)  # type: ignore[attr-defined]  # only transformers models read trees
    yield from tree.begin()

    def look(
        places: Sequence[Place], tokens: Sequence[IdArray], last: bool = False
    ) -> Generator[int, int | None, list[LogMasses]]:
        masses: dict[int, LogMasses] = {}

        def take(number: int, row: Any) -> None:
            masses[number] = _of_row(row, tokens[number], backend.vocabulary.size)

        yield from tree.read(places, take, last=last)
        return [masses[number] for number in range(len(places))]

    return look


def _of_row(row: Any, ids: IdArray, size: int) -> LogMasses:
    """Log-probabilities of some tokens in a row of raw logits [columns], of which `size` are tokens."""
    if is_tensor(row):
        # Rows may have more columns than the vocabulary (padding to a multiple), and these are no tokens.
        logits = row[:size].float()
        values = (logits[ids] - logits.logsumexp(-1)).cpu().numpy().astype(np.float64)
    else:
        logits = np.asarray(row[:size], dtype=np.float64)
        top = logits.max()
        values = logits[ids] - top - np.log(np.exp(logits - top).sum())
    if np.isnan(values).any():
        raise InvalidLogits("The model gives NaN or no finite logit after a prompt.")
    # The subtraction can leave a hair above 0, which would be a probability above 1.
    values = np.minimum(values, 0.0)
    return values, values


def _read_as_replies(
    backend: Backend, prompts: Sequence[Sequence[int]], places: Sequence[Place], tokens: Sequence[IdArray]
) -> Generator[int, int | None, list[LogMasses]]:
    looked = _LookedUp(tokens)
    # An engine reads replies only, so each place is given a reply of one token, whichever it is.
    sentinels = [[int(ids[0])] for ids in tokens]
    backend.read([[*prompts[number], *path] for number, path in places], sentinels, [looked], batch_size=AT_ONCE)
    yield 0
    return [looked.found[place] for place in range(len(places))]


class _LookedUp(Observer):
    """Keeps the log-probabilities of some tokens at the first step of each reply."""

    def __init__(self, tokens: Sequence[IdArray]) -> None:
        self.found: dict[int, LogMasses] = {}
        self._tokens = tokens

    def observe(self, step: Step) -> None:
        """Take in one step of some replies."""
        for k, answer in enumerate(step.answers):
            ids = self._tokens[answer]
            if step.logits is not None:
                self.found[answer] = _of_row(step.logits[step.rows[k]], ids, step.size)
            else:
                self.found[answer] = _of_list(*step.best[k], ids)


def _of_list(listed: IdArray, log_probs: FloatArray, ids: IdArray) -> LogMasses:
    """Bounds from a list of the best tokens: one that is not listed lies between nothing and the last of the list."""
    known = dict(zip(listed.tolist(), log_probs.tolist(), strict=True))
    # No token outside the list can have more than what the list leaves over.
    left = np.log(max(1e-300, 1.0 - float(np.exp(log_probs).sum())))
    most = min(float(np.min(log_probs)), float(left))
    low = np.array([known.get(token, -np.inf) for token in ids.tolist()])
    return low, np.array([known.get(token, most) for token in ids.tolist()])


MOST_TOKENS = 65_536
"""Most tokens that the model has to read for one inquiry: the beginning that a prompt shares with the one before is not
counted again.
"""
MOST_SHARED_TOKENS = 2**20
"""Most tokens of all its prompts, with shared beginnings counted each time, since all of them have to be tokenized."""

ALWAYS_TOKENISED = 2**16
"""A text of up to so many characters is tokenized even if it seems too long for the model."""

T = TypeVar("T")


class PromptSource(Protocol):
    """A maker of prompts: a backend, or a copy of its tokenizer for another thread."""

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the model."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the model."""

    @property
    def max_length(self) -> int | None:
        """The most tokens that the model can read; None if it does not say."""


@dataclass(frozen=True)
class DecisionRequest:
    """One state, with the questions that are asked about it."""

    state: str
    """The state that the questions are about, as text."""
    questions: Sequence[Question]
    """The questions, all about this state."""
    options: ReadingOptions = READ_AS_USUAL
    """The way in which the probabilities of the options are read."""


@dataclass(frozen=True)
class DecisionResponse:
    """The answers to the questions of an inquiry, and how many tokens the model read for them."""

    answers: tuple[Answer, ...]
    """The answers in the order of the questions."""
    input_tokens: int
    """Tokens that the model had to read: what the prompts share counts once."""


@dataclass(frozen=True, eq=False)
class PreparedRequest:
    """An inquiry as token ids, ready for the model. Any thread can make it."""

    inquiry: DecisionRequest
    prompts: tuple[PreparedPrompt, ...]
    """The prompts of each question in each of its orders; a refused question has none."""
    refusals: Mapping[int, str]
    """Why a question cannot be answered, by its number."""

    @property
    def input_tokens(self) -> int:
        """The number of tokens that the model reads for the inquiry; beginnings that prompts share count once."""
        return shared_size([prompt.ids for prompt in self.prompts])


def decide_about(
    backend: Backend, state: Any, questions: Sequence[Any] | Mapping[str, Any], options: ReadingOptions
) -> list[Answer] | dict[str, Answer]:
    """Answer typed questions about a state with the model of a backend, as `ScoredModel.decide` does.

    `state`, `questions`, what is returned and the errors are as there; `options` say how the probabilities are read.
    """
    instance(options, ReadingOptions, "options")
    named: Mapping[Any, Any] = (
        questions if isinstance(questions, Mapping) else dict(enumerate(listed(questions, "questions")))
    )
    asked = [as_question(question, name) for name, question in named.items()]
    answers = decide(backend, [DecisionRequest(as_text(state), asked, options)])[0].answers
    return dict(zip(named, answers, strict=True)) if isinstance(questions, Mapping) else list(answers)


def as_question(question: Any, name: Any = None) -> Question:
    """Make a question object; `InvalidInputError` unless it is one already or a dictionary of either wire format."""
    if isinstance(question, Predicate | Choice | Score):
        return question
    if not isinstance(question, Mapping):
        raise InvalidInputError(
            f"A question is a Predicate, a Choice, a Score, or a dictionary; got {type(question).__name__}."
        )
    from semtoken.decisions.wire import openai, systemone

    label = name if isinstance(name, str) else None
    kind = question.get("type")
    if "criteria" in question or (isinstance(kind, str) and kind == "noul"):
        return systemone.read_question(label or str(name), question)
    return openai.read_question(question, label)


def decide(backend: Backend, inquiries: Sequence[DecisionRequest]) -> list[DecisionResponse]:
    """Answer questions about one state or several, all read together.

    Parameters
    ----------
    backend
        A model in this process. One that reads trees reads what prompts share once.
    inquiries : list of n DecisionRequest
        Each has a state, questions, and the options by which they are read.

    Returns
    -------
    list of n DecisionResponse
        In their order. A question with two options that look the same has no answer, but the reason.

    Raises
    ------
    InvalidInputError
        A prompt is longer than the model reads or cannot be made, or all are more than `MOST_TOKENS`.
    InvalidLogits
        The model gives NaN.
    """
    return run_to_end(answer_prepared(backend, [prepare(backend, inquiry) for inquiry in inquiries]))


def prepare(source: PromptSource, inquiry: DecisionRequest) -> PreparedRequest:
    """Turn an inquiry into the token ids of its prompts and options.

    `InvalidInputError` if a prompt is longer than the model reads, all are more than `MOST_TOKENS`, or one cannot be
    made.
    """
    each = list(in_each_order(inquiry.questions, inquiry.options))
    ids = _prompt_ids(source, (prompt_text(inquiry.state, shown) for _, shown in each))
    spellings, refusals = {}, {}  # spelled once it is known that there are not too many
    for number, question in enumerate(inquiry.questions):
        try:
            spellings[number] = spelling_in_question(source, question, inquiry.options.reading)
        except InvalidInputError as error:
            refusals[number] = str(error)
    prompts = []
    for (number, shown), tokens in zip(each, ids, strict=True):
        if own := spellings.get(number):
            # Labels stay with their places; words move with their options.
            moved = tuple(own[place] for place in shown.order) if shown.spelled_out else own
            prompts.append(PreparedPrompt(number, shown, tokens, moved))
    return PreparedRequest(inquiry, tuple(prompts), refusals)


def answer_prepared(
    backend: Backend, prepared: Sequence[PreparedRequest]
) -> Generator[int, int | None, list[DecisionResponse]]:
    """Answer several inquiries together; a generator that pauses as `option_masses`, with the errors of `decide`."""
    masses = yield from read_masses(backend, prepared)
    return [
        DecisionResponse(tuple(answers_to(one.inquiry.questions, known, one.refusals)), one.input_tokens)
        for one, known in zip(prepared, masses, strict=True)
    ]


def read_masses(
    backend: Backend, prepared: Sequence[PreparedRequest]
) -> Generator[int, int | None, list[dict[int, OptionMasses]]]:
    """The masses of each inquiry's options in every order, by question number; without those that have no answer."""
    prompts = [prompt for inquiry in prepared for prompt in inquiry.prompts]
    masses = iter((yield from option_masses(backend, prompts)))
    return [
        in_all_orders((prompt.number, prompt.shown.in_question_order(next(masses))) for prompt in inquiry.prompts)
        for inquiry in prepared
    ]


def run_to_end(steps: Generator[int, int | None, T]) -> T:
    """Run a generator to its end and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def spelling_in_question(source: PromptSource, question: Question, reading: Reading) -> tuple[OptionSpelling, ...]:
    """The tokens of each option, in the question's order; `InvalidInputError` if two are alike or one has none."""
    shown = OrderedQuestion(question, tuple(range(len(question.options))), reading)
    return _spellings(source, shown.answers, reading == "labels")  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _spellings(source: PromptSource, texts: tuple[str, ...], exact: bool) -> tuple[OptionSpelling, ...]:
    return tuple(spellings_of(texts, source.tokenizer, source.vocabulary, exact=exact))


def _check_length(source: PromptSource, ids: Sequence[int]) -> None:
    limit = source.max_length
    # One place has to be left for the answer.
    if limit is not None and len(ids) >= limit:
        raise InvalidInputError(f"State and question have {len(ids):,} tokens; the model reads {limit:,} at most.")


def _check_text(source: PromptSource, text: str) -> None:
    """Refuse what is too long in any case before it is tokenized."""
    limit = source.max_length
    longest = source.vocabulary.longest_piece
    # No token is longer than the longest one, so a text of more bytes than this cannot fit, however it is tokenized.
    if limit is not None and len(text) > ALWAYS_TOKENISED and len(text.encode()) > limit * longest:
        raise InvalidInputError(
            f"State and question have {len(text):,} characters; the model reads {limit:,} tokens at most."
        )


def _prompt_ids(source: PromptSource, texts: Iterable[str]) -> list[tuple[int, ...]]:
    """The token ids of prompts; `InvalidInputError` if one is longer than the model reads, or all are too many."""
    made: list[tuple[int, ...]] = []
    read = tokenised = 0
    for text in texts:
        # Before the tokenizer, whose time grows with the text.
        _check_text(source, text)
        ids = tuple(prompt_tokens(source.tokenizer, text))
        _check_length(source, ids)
        read += len(ids) - _common_beginning(made[-1] if made else (), ids)
        tokenised += len(ids)
        if read > MOST_TOKENS or tokenised > MOST_SHARED_TOKENS:
            raise InvalidInputError(
                f"The questions have more than {MOST_TOKENS:,} tokens together, or {MOST_SHARED_TOKENS:,} with the "
                "state counted for each. Ask fewer at a time, or in fewer orders."
            )
        made.append(ids)
    return made


def shared_size(prompts: Sequence[Sequence[int]]) -> int:
    """The number of tokens that the model reads of prompts, each of which shares its beginning with the one before.

    >>> shared_size([[1, 2, 3], [1, 2, 4, 5]])
    5
    """
    return sum(len(ids) - _common_beginning(prompts[i - 1] if i else (), ids) for i, ids in enumerate(prompts))


def _common_beginning(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of tokens that two prompts have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((k for k, (a, b) in pairs if a != b), min(len(one), len(other)))
