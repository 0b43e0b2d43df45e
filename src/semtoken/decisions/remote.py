"""Typed questions to a server: in one of the two formats for decisions, or as texts with log-probabilities.

`asker_of_endpoint` asks any of them. As texts each question is one request in each order:

    asked = asked_texts(questions, options)
    for each of asked.texts: body = text.request(shape, state, ...); send it; masses = text.masses(reply)
    answers = asked.answers(masses)

Nothing of that sends anything. How a request asks and what a reply says is the business of `semtoken.replies`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, TypeAlias
from urllib.parse import urlunsplit

import numpy as np

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.decisions.answers import Answer, answer_from_masses, in_all_orders, unanswered, unwrapped
from semtoken.decisions.questions import (
    READ_AS_USUAL,
    OrderedQuestion,
    Question,
    ReadingOptions,
    as_text,
    continued_text,
    orders_of,
    prompt_text,
    without_markup,
)
from semtoken.decisions.spellings import (
    OptionReader,
    masses_from_named_tokens,
    masses_from_top_tokens,
    spellings_of,
    surfaces_of,
    tokens_to_read,
)
from semtoken.decisions.wire.extension import KEY
from semtoken.decisions.wire.shapes import (
    NO_ROUTE,
    OPENAI,
    QUESTION_SHAPES,
    REFUSALS,
    SGLANG,
    SYSTEM_ONE,
    QuestionShape,
    says_no_route,
    wants_another_shape,
)
from semtoken.errors import BackendError, InvalidInputError, SemtokenError
from semtoken.replies import Reply, read_reply
from semtoken.replies.formats import ProbeQuestion, Shape, known_shapes
from semtoken.replies.formats.registry import shape_at
from semtoken.support.arrays import FloatArray
from semtoken.support.http_client import HttpClient, HttpReply
from semtoken.support.inputs import shown_address, split_address

logger = logging.getLogger("semtoken.decisions")

MOST_TOKENS = 16
"""Most tokens of an answer that a server is asked for. The probability of a longer option stays an interval."""
MOST_TEXTS = 1024
"""Most requests for the questions about one state."""
MOST_SENT = 2**26
"""Most characters of all these requests together, roughly counted."""
NOT_LISTED = "None of its options is surely among the tokens that the server lists, so nothing tells them apart."

Masses: TypeAlias = tuple[FloatArray, FloatArray]
"""Least and greatest mass of each option, in the order of the question."""
Asker: TypeAlias = Callable[[Any, Mapping[str, Question], ReadingOptions], dict[str, Answer]]
"""Asks questions, given by name, about a state, and returns their answers by name."""
NAMED_TOKENS = "logprob_token_ids"
"""The field of vLLM in which a request names the tokens whose log-probabilities it wants in place of the best ones."""
BEST, FEWER = 20, 5
"""Most log-probabilities that common APIs give for each token, and that others, such as TGI, give."""
_LIMIT_OF_LISTS = re.compile(r"(top_logprobs|top_n_tokens|n_probs|logprobs)\D{0,80}\d")


@dataclass(frozen=True, eq=False)
class ModelTokens:
    """The tokens of a server's model, as far as they are known."""

    vocabulary: Vocabulary | None = None
    tokenizer: Any = None
    """Says how the model spells an option; without it, no tokens can be named to the server."""

    def reader(self, text: AskedText) -> OptionReader | None:
        """The tokens to ask the server for, so that the masses of the options are exact; None where none are enough."""
        if self.vocabulary is None or self.tokenizer is None:
            return None
        return text.reader(self.vocabulary, self.tokenizer)


@dataclass(frozen=True)
class AskedText:
    """The prompt of one question with its options in one order, which a server completes."""

    number: int
    """The place of the question among those that were asked."""
    shown: OrderedQuestion

    @property
    def exact(self) -> bool:
        """Whether options count only as they are spelled; true for labels."""
        return self.shown.reading == "labels"

    def request(
        self,
        shape: type[Shape],
        state: str,
        *,
        top: int | None = None,
        model: str | None = None,
        extra: Mapping[str, Any] | None = None,
        reader: OptionReader | None = None,
    ) -> dict[str, Any]:
        """The body of a request, with the fields in `extra`; where `top` is None, the caller adds log-probabilities.

        With a `reader` it asks for the tokens of the options, by their ids.
        """
        text = without_markup(prompt_text(state, self.shown))
        is_predicate = self.shown.question.kind == "predicate"
        length = 1 if is_predicate else tokens_to_read(self.shown.answers, MOST_TOKENS)  # more of it cannot matter
        question = ProbeQuestion(
            text if shape.is_chat else continued_text(text),
            max_tokens=length,
            top=top if reader is None else None,
            temperature=1.0 if length == 1 else 0.0,  # 1 changes no list; further ones are read behind the likeliest
            extra=extra or {},
            model=model,
        )
        body = shape.body(question)
        if reader is None:
            return body
        ids = {} if top is None else shape.asking(body, top, token_ids=True)
        return {NAMED_TOKENS: reader.first_tokens.tolist(), **body, **ids}

    def reader(self, vocabulary: Vocabulary, tokenizer: Any) -> OptionReader | None:
        """What to ask a server for that lists chosen tokens by id, so that the masses of the options are exact.

        None where an option takes several tokens, or another one goes on from it: the best tokens say more of these.
        """
        try:
            spellings = spellings_of(self.shown.answers, tokenizer, vocabulary, exact=self.exact)
        except InvalidInputError:
            return None
        alone = all(option.tokens.size and not option.going_on.size for option in spellings)
        return OptionReader(spellings) if alone else None

    def masses(self, reply: Reply, vocabulary: Vocabulary | None = None) -> Masses:
        """Lower and upper bound of the probability of each option, from the best tokens in the server's reply.

        With a `vocabulary`, tokens that the server names by ids alone are known. `InvalidInputError` if the reply has
        no log-probabilities, `InvalidLogits` if a number is no log-probability.
        """
        steps = self._steps(reply)
        if vocabulary is not None:
            steps = [_spelled_out(step, vocabulary) for step in steps]
        return self._in_order(masses_from_top_tokens(self.shown.answers, steps, exact=self.exact))

    def named_masses(self, reply: Reply, reader: OptionReader) -> Masses | None:
        """As `masses`, from a reply to a request for the tokens of the `reader`; None if they are not all listed."""
        masses = masses_from_named_tokens(reader, self._steps(reply)[0])
        return None if masses is None else self._in_order(masses)

    def _steps(self, reply: Reply) -> list[TopStep]:
        segments = reply.choices[0].segments
        steps = [step for segment in segments for step in segment.steps]
        if not steps:
            raise InvalidInputError(segments[0].problem or "The reply holds no log-probabilities.")
        return steps

    def _in_order(self, masses: Masses) -> Masses:
        """Masses of the options as they were shown, in the order of the question."""
        # The inverse permutation: from the places in the prompt to those in the question.
        back = np.argsort(self.shown.order)
        return masses[0][back], masses[1][back]


def _spelled_out(step: TopStep, vocabulary: Vocabulary) -> TopStep:
    """A step with the bytes of the tokens that its server names by ids alone."""

    def spelled(token: TopToken) -> TopToken:
        if token.id is None or token.text is not None or token.bytes is not None or token.id >= vocabulary.size:
            return token
        return token._replace(bytes=vocabulary.pieces[token.id])

    return TopStep(spelled(step.chosen), tuple(map(spelled, step.top)))


@dataclass(frozen=True)
class AskedTexts:
    """All prompts for the questions about one state."""

    questions: Sequence[Question]
    texts: Sequence[AskedText]
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Why a question cannot be asked, by its number."""

    def answers(self, masses: Sequence[Masses], model: str | None = None) -> list[Answer]:
        """Answer the questions from the probabilities that were read for each prompt of a `model`, as far as known."""
        # A list that names no option for sure leaves only upper ends, and renormalizing these would look like an
        # answer.
        known = in_all_orders(zip((text.number for text in self.texts), masses, strict=True))
        whys = {number: NOT_LISTED for number, bounds in known.items() if not bounds.low.any()} | dict(self.refusals)
        return [
            unanswered(question, whys[number])
            if number in whys
            else replace(answer_from_masses(question, known[number]), model=model)
            for number, question in enumerate(self.questions)
        ]


def asked_texts(state: str, questions: Sequence[Question], options: ReadingOptions) -> AskedTexts:
    """Make the prompts for questions about a state; `InvalidInputError` if they are too many or too long together."""
    texts: list[AskedText] = []
    refusals: dict[int, str] = {}
    size = 0
    for number, question in enumerate(questions):
        shown = [OrderedQuestion(question, order, options.reading) for order in orders_of(question, options.orders)]
        try:
            # Whether options can be told apart does not depend on their order, so one of the orders tells it for all.
            surfaces_of(shown[0].answers, exact=options.reading == "labels")
        except InvalidInputError as error:
            refusals[number] = str(error)
            continue
        texts += [AskedText(number, ordered) for ordered in shown]
        of_options = sum(len(option.line) for option in question.options)
        size += len(shown) * (len(state) + len(question.instructions) + of_options)
        if len(texts) > MOST_TEXTS or size > MOST_SENT:
            raise InvalidInputError(
                f"The questions take more than {MOST_TEXTS:,} requests, or {MOST_SENT:,} characters in all of them. "
                "Ask fewer at a time, or in fewer orders."
            )
    return AskedTexts(questions, texts, refusals)


def asker_of_endpoint(
    url: str,
    model: str | None = None,
    *,
    key: str | None = None,
    top: int = BEST,
    tokens: Callable[[], ModelTokens] = ModelTokens,
    say: Callable[[str], None] = logger.warning,
) -> Asker:
    """A function that asks a server questions, in the format that its address stands for.

    `/v1/decisions` and `/v1/systemone` are asked as they are. At an ordinary API (`/v1/chat/completions`, ...) each
    question is asked for a text, once in each order of its options, and read from the `top` log-probabilities of each
    token, so probabilities may be intervals. Another address that ends with /decisions or /systemone, such as
    OpenRouter's, or holds /ai/run/, as Cloudflare's do, is asked in the first shape that it takes. The address of a
    whole API, such as `http://localhost:8000/v1`, stands for the first of these that answers. If the server refuses the
    fields of the first way, `say` is called once, with a sentence that names the other way. `tokens` is called once,
    before the first text is sent: of a server that lists the tokens which it is asked for, as vLLM does, the
    probabilities of options of one token are then exact.

    `InvalidInputError` if nothing that can be asked has such an address; the function raises `BackendError` if the
    server gives no answers. Several threads may call it at a time.
    """
    parts = split_address(url)
    path = parts.path.rstrip("/")
    server = _Server(HttpClient(url, key=key), model)
    for own in (OPENAI, SYSTEM_ONE):
        if path.endswith(f"/v1{own.path}"):
            root = urlunsplit(parts._replace(path=path.removesuffix(own.path)))
            return _FirstThatAnswers(_ways(root, server, top, tokens, first=own), say)
    if path.endswith((OPENAI.path, SYSTEM_ONE.path)) or "/ai/run/" in path:  # OpenRouter, Cloudflare and others
        shapes = (SYSTEM_ONE, OPENAI, SGLANG)
        return _FirstThatAnswers(([_AskTyped(url, server, shape, may_refuse=True) for shape in shapes], False), say)
    shape = shape_at(path)
    if shape is not None:
        return _AskTexts(url, server, shape, top, tokens)
    if not (path == "" or path.endswith("/v1")):
        raise InvalidInputError(
            f"An endpoint ends with /v1, /v1/decisions or /v1/systemone, or it is that of an API for texts such as "
            f"/v1/chat/completions; got {url!r:.80}."
        )
    root = urlunsplit(parts._replace(path=path or "/v1"))
    return _FirstThatAnswers(_ways(root, server, top, tokens), say)


@dataclass(frozen=True)
class _Server:
    """One server: the client that asks it, and the model's name there."""

    client: HttpClient
    model: str | None

    def post(self, url: str, body: Mapping[str, Any], *, may_refuse: bool = False) -> Any:
        """The reply to a request; raises `_OtherShape` where the server wants to be asked otherwise.

        With `may_refuse`, every refusal of the request says so.
        """
        reply = self.client.post(url, {**({} if self.model is None else {"model": self.model}), **body})
        # Servers name no error for this, so it is told by the status and by the words of their refusals.
        if says_no_route(reply.status, reply.text) or wants_another_shape(reply.status, reply.text):
            raise _OtherShape(reply)
        if reply.status in REFUSALS:
            # The request is fine but for this number, so it can be sent again with a smaller one.
            if _LIMIT_OF_LISTS.search(reply.text):
                raise _TooManyListed(f"{reply.url} gave no answers: {reply.reason}")
            if may_refuse:
                raise _OtherShape(reply)
        return unwrapped(reply.json())


class _TooManyListed(BackendError):
    """A server lists fewer log-probabilities for each token than it was asked for."""


class _OtherShape(BackendError):
    """A server has no such route, or wants other fields there."""

    def __init__(self, reply: HttpReply) -> None:
        self.status = reply.status
        super().__init__(f"{reply.url} gave no answers: {reply.reason}")


@dataclass(frozen=True)
class _AskTyped:
    """Asks typed questions in one of the shapes for them."""

    url: str
    server: _Server
    shape: QuestionShape
    may_refuse: bool = False
    """Whether every refusal means that the server wants another shape, since its address does not say which it has."""

    @property
    def what(self) -> str:
        """The name of this way in messages."""
        return self.shape.what

    def __call__(self, state: Any, questions: Mapping[str, Question], options: ReadingOptions) -> dict[str, Answer]:
        body = self.shape.body(state, questions)
        if options != READ_AS_USUAL:  # other servers do not know the key of this package
            body = {KEY: {"reading": options.reading, "orders": options.orders or "all"}, **body}
        reply = self.server.post(self.url, body, may_refuse=self.may_refuse)
        try:
            return dict(zip(questions, self.shape.answers(questions, reply), strict=True))
        except InvalidInputError as error:
            # The questions were fine: it is the server's reply that does not fit them.
            raise BackendError(f"{shown_address(self.url)} gave no answers to these questions: {error}") from error


@dataclass
class _AskTexts:
    """Asks questions as texts with log-probabilities."""

    url: str
    server: _Server
    shape: type[Shape]
    top: int
    """Log-probabilities that are asked for of each token; fewer, once the server refused so many."""
    tokens: Callable[[], ModelTokens]
    lists_named: bool = True
    """Whether the server lists the tokens that it is asked for, as far as is known."""
    _known: ModelTokens | None = None
    _looking: Lock = field(default_factory=Lock)

    def known_tokens(self) -> ModelTokens:
        """The tokens of the server's model, looked for once: by one thread, while the others wait."""
        with self._looking:
            if self._known is None:
                self._known = self.tokens()
        return self._known

    @property
    def what(self) -> str:
        """The name of this way in messages."""
        return f"texts from {self.shape.path}"

    def __call__(self, state: Any, questions: Mapping[str, Question], options: ReadingOptions) -> dict[str, Answer]:
        state_text = as_text(state)
        asked = asked_texts(state_text, list(questions.values()), options)
        found = []
        for text in asked.texts:
            try:
                found.append(self._named(text, state_text) or self._listed(text, state_text))
            except SemtokenError as error:
                name = list(questions)[text.number]
                raise BackendError(
                    f"{shown_address(self.url)} gave no answer to the question {name!r}: {error}"
                ) from error
        model = next((name for _, name in found if name), None)
        return dict(zip(questions, asked.answers([masses for masses, _ in found], model), strict=True))

    def _named(self, text: AskedText, state: str) -> tuple[Masses, str | None] | None:
        """The masses from the tokens of the options, with the model that the reply names; None where the server lists
        others, or refuses to.
        """
        reader = self.known_tokens().reader(text) if self.lists_named else None
        if reader is None:
            return None
        named = None
        with suppress(BackendError):
            reply = self._reply(text, state, reader)
            masses = text.named_masses(reply, reader)
            named = None if masses is None else (masses, reply.model)
        # A server that does not know the field ignores or refuses it each time: further requests would be wasted.
        self.lists_named = named is not None
        return named

    def _listed(self, text: AskedText, state: str) -> tuple[Masses, str | None]:
        """The masses from the best tokens, with the model that the reply names."""
        try:
            reply = self._reply(text, state)
        except _TooManyListed:
            if self.top <= FEWER:
                raise
            # For good, since each further question would be refused, too.
            self.top = FEWER
            reply = self._reply(text, state)
        return text.masses(reply), reply.model

    def _reply(self, text: AskedText, state: str, reader: OptionReader | None = None) -> Reply:
        return read_reply(self.server.post(self.url, text.request(self.shape, state, top=self.top, reader=reader)))


def _ways(
    root: str,
    server: _Server,
    top: int,
    tokens: Callable[[], ModelTokens],
    first: QuestionShape | None = None,
) -> tuple[list[_AskTyped | _AskTexts], bool]:
    """The ways to ask below an address that ends with /v1, and whether the first has to be there."""
    # The wanted shape, then others at its path (OpenAI's and SGLang's differ in the body alone), then the rest.
    shapes = sorted(QUESTION_SHAPES, key=lambda shape: (shape is not first, shape.path != (first or OPENAI).path))
    by_name = {shape.name: shape for shape in known_shapes()}
    texts = [
        _AskTexts(root + by_name[name].path, server, by_name[name], top, tokens) for name in ("chat", "completions")
    ]
    return [*(_AskTyped(root + shape.path, server, shape) for shape in shapes), *texts], first is not None


class _FirstThatAnswers:
    """Asks in the first of several ways in which the server answers, and then always in that one."""

    def __init__(self, ways: tuple[list[_AskTyped | _AskTexts], bool], say: Callable[[str], None]) -> None:
        self._ways, self._first_is_wanted = ways
        self._say = say
        self._found: _AskTyped | _AskTexts | None = None
        self._looking = Lock()

    def __call__(self, state: Any, questions: Mapping[str, Question], options: ReadingOptions) -> dict[str, Answer]:
        with self._looking:  # one thread finds the way, the others wait for it
            if self._found is None:
                return self._first_answers(state, questions, options)
        return self._found(state, questions, options)

    def _first_answers(
        self, state: Any, questions: Mapping[str, Question], options: ReadingOptions
    ) -> dict[str, Answer]:
        refused: _OtherShape | None = None
        for way in self._ways:
            try:
                answers = way(state, questions, options)
            except _OtherShape as error:
                refused = refused or error
                # Whoever names the path wants that one: where it is missing, another way would hide a wrong address.
                if self._first_is_wanted and refused is error and error.status in NO_ROUTE:
                    raise
                continue
            except BackendError as error:
                # Nothing told that the server wants another shape: it is down, or the key is wrong, and each way would
                # fail.
                if refused is None:
                    raise
                raise BackendError(f"{refused} Asked by {way.what} instead: {error}") from error
            # A missing path is the usual case at the address of a whole API, and worth no warning.
            if refused is not None and refused.status not in NO_ROUTE:
                self._say(f"{refused} From here on, the server is asked by {way.what}.")
            self._found = way
            return answers
        raise BackendError(str(refused))
