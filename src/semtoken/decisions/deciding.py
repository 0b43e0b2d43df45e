"""Answering typed questions about states with a model in this process: requests, their prompts, and the answers."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from semtoken.choices import Reading
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.decisions.answers import Answer, OptionMasses, answers_to, in_all_orders
from semtoken.decisions.prompts import OrderedQuestion, in_each_order, prompt_text, prompt_tokens
from semtoken.decisions.questions import READ_AS_USUAL, Choice, Predicate, Question, ReadingOptions, Score, as_text
from semtoken.decisions.reading import PreparedPrompt, option_masses
from semtoken.decisions.spellings import OptionSpelling, spellings_of
from semtoken.errors import InvalidInputError
from semtoken.models.base import Backend
from semtoken.models.prompt_ids import common_beginning
from semtoken.support.inputs import instance, listed

MOST_TOKENS = 65_536
"""Most tokens that the model has to read for one inquiry: the beginning that a prompt shares with the one before is not
counted again.
"""
MOST_SHARED_TOKENS = 2**20
"""Most tokens of all its prompts, with shared beginnings counted each time, since all of them have to be tokenized."""

ALWAYS_TOKENIZED = 2**16
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
    """Make a question object; `InvalidInputError` unless it is one already or a dictionary of either wire format.

    In a question of OpenAI's format that is written by hand, `choices` and `levels` may be texts alone, such as
    `["calm", "angry"]`, and `choices` a table of descriptions by value, `{"calm": None, "angry": "Upset."}`.
    """
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
    return openai.read_question(openai.with_listed_options(question), label)


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
    return _spellings(source.tokenizer, source.vocabulary, shown.answers, reading == "labels")


@lru_cache(maxsize=256)
def _spellings(
    tokenizer: Any, vocabulary: Vocabulary, texts: tuple[str, ...], exact: bool
) -> tuple[OptionSpelling, ...]:
    # By tokenizer and vocabulary, not by what holds them: that is the model, whose weights would stay in memory.
    return tuple(spellings_of(texts, tokenizer, vocabulary, exact=exact))


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
    if limit is not None and len(text) > ALWAYS_TOKENIZED and len(text.encode()) > limit * longest:
        raise InvalidInputError(
            f"State and question have {len(text):,} characters; the model reads {limit:,} tokens at most."
        )


def _prompt_ids(source: PromptSource, texts: Iterable[str]) -> list[tuple[int, ...]]:
    """The token ids of prompts; `InvalidInputError` if one is longer than the model reads, or all are too many."""
    made: list[tuple[int, ...]] = []
    read = tokenized = 0
    for text in texts:
        # Before the tokenizer, whose time grows with the text.
        _check_text(source, text)
        ids = tuple(prompt_tokens(source.tokenizer, text))
        _check_length(source, ids)
        read += len(ids) - common_beginning(made[-1] if made else (), ids)
        tokenized += len(ids)
        if read > MOST_TOKENS or tokenized > MOST_SHARED_TOKENS:
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
    return sum(len(ids) - common_beginning(prompts[i - 1] if i else (), ids) for i, ids in enumerate(prompts))
