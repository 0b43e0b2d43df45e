"""Typed questions to a server: in one of the two formats for decisions, or as texts with log-probabilities.

`asker_of_endpoint` finds out which of them a server takes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeAlias
from urllib.parse import urlunsplit

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.decisions.answers import Answer
from semtoken.decisions.asked_texts import AskedText, Masses, asked_texts
from semtoken.decisions.questions import READ_AS_USUAL, Question, ReadingOptions, as_text
from semtoken.decisions.records import unwrapped
from semtoken.decisions.spellings import OptionReader
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
from semtoken.replies.formats import Shape, known_shapes
from semtoken.replies.formats.registry import shape_at
from semtoken.support.http_client import HttpClient, HttpReply
from semtoken.support.inputs import shown_address, split_address

logger = logging.getLogger("semtoken.decisions")

Asker: TypeAlias = Callable[[Any, Mapping[str, Question], ReadingOptions], dict[str, Answer]]
"""Asks questions, given by name, about a state, and returns their answers by name."""
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
            return _FirstThatAnswers(_ways(root, server, top, tokens, own), say, first_is_wanted=True)
    if path.endswith((OPENAI.path, SYSTEM_ONE.path)) or "/ai/run/" in path:  # OpenRouter, Cloudflare and others
        shapes = (SYSTEM_ONE, OPENAI, SGLANG)
        return _FirstThatAnswers([_AskTyped(url, server, shape, may_refuse=True) for shape in shapes], say)
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
        # Servers name no error for this, so the status and the words of their refusals have to show it.
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
    """True if every refusal means that the server wants another shape, since its address does not say which it has."""

    @property
    def what(self) -> str:
        """The name of this way in messages."""
        return self.shape.what

    def __call__(self, state: Any, questions: Mapping[str, Question], options: ReadingOptions) -> dict[str, Answer]:
        body = self.shape.body(state, questions)
        if options != READ_AS_USUAL:  # other servers do not know the key of this package
            body = {KEY: options.values(), **body}
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
    """True if the server lists the tokens that it is asked for, as far as is known."""
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
    root: str, server: _Server, top: int, tokens: Callable[[], ModelTokens], first: QuestionShape = OPENAI
) -> list[_AskTyped | _AskTexts]:
    """The ways to ask below an address that ends with /v1, in the order in which they are tried."""
    # The wanted shape, then others at its path (OpenAI's and SGLang's differ in the body alone), then the rest.
    shapes = sorted(QUESTION_SHAPES, key=lambda shape: (shape is not first, shape.path != first.path))
    by_name = {shape.name: shape for shape in known_shapes()}
    texts = [
        _AskTexts(root + by_name[name].path, server, by_name[name], top, tokens) for name in ("chat", "completions")
    ]
    return [*(_AskTyped(root + shape.path, server, shape) for shape in shapes), *texts]


@dataclass
class _FirstThatAnswers:
    """Asks in the first of several ways in which the server answers, and then always in that one."""

    ways: Sequence[_AskTyped | _AskTexts]
    say: Callable[[str], None]
    first_is_wanted: bool = False
    """True if the first way has to be there."""
    _found: _AskTyped | _AskTexts | None = None
    _looking: Lock = field(default_factory=Lock)

    def __call__(self, state: Any, questions: Mapping[str, Question], options: ReadingOptions) -> dict[str, Answer]:
        with self._looking:  # one thread finds the way, the others wait for it
            if self._found is None:
                return self._first_answers(state, questions, options)
        return self._found(state, questions, options)

    def _first_answers(
        self, state: Any, questions: Mapping[str, Question], options: ReadingOptions
    ) -> dict[str, Answer]:
        refused: _OtherShape | None = None
        for way in self.ways:
            try:
                answers = way(state, questions, options)
            except _OtherShape as error:
                refused = refused or error
                # Whoever names the path wants that one: where it is missing, another way would hide a wrong address.
                if self.first_is_wanted and refused is error and error.status in NO_ROUTE:
                    raise
                continue
            except BackendError as error:
                # Nothing says that the server wants another shape: it is down, or the key is wrong, and each way would
                # fail.
                if refused is None:
                    raise
                raise BackendError(f"{refused} Asked by {way.what} instead: {error}") from error
            # A missing path is the usual case at the address of a whole API, and worth no warning.
            if refused is not None and refused.status not in NO_ROUTE:
                self.say(f"{refused} From here on, the server is asked by {way.what}.")
            self._found = way
            return answers
        raise BackendError(str(refused))
