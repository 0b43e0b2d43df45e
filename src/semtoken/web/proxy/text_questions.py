"""Typed questions that the upstream does not answer as such, asked as texts whose log-probabilities are read."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

import anyio
import anyio.to_thread

from semtoken.decisions import Answer, ReadingOptions
from semtoken.decisions.asked_texts import NAMED_TOKENS, AskedText, Masses, asked_texts
from semtoken.decisions.remote import ModelTokens
from semtoken.decisions.spellings import OptionReader
from semtoken.decisions.wire import WireRequest
from semtoken.decisions.wire.shapes import QuestionShape
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.replies import Reply, read_reply
from semtoken.replies.formats import Shape, served_shapes
from semtoken.support.plain_values import parse_reply
from semtoken.support.splice import encode
from semtoken.support.text import error_text
from semtoken.web.proxy.asking import AnswerRequest, Asking, read_request
from semtoken.web.proxy.routes import AbsentRoutes, NoRoute, has_no_route
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.proxy.unpacking import unpacked
from semtoken.web.proxy.upstream import BrokenOff, Request, UpstreamAnswer, failure
from semtoken.web.wire import ApiError

FIRST_CHOICES = ("chat", "completions")
"""The shapes in which questions are asked where nobody chose one, in order."""
NO_LISTS = "the upstream does not give log-probabilities, so nothing can be read from its answers."
NESTED = "the upstream's reply is nested too deeply."
NO_FIELDS = "the fields of request_fields under [decisions] make a request that is none of this API."


@dataclass
class TextQuestions:
    """The questions of one request, asked an upstream as texts with log-probabilities."""

    settings: ProxySettings
    asking: Asking
    absent: AbsentRoutes
    together: anyio.CapacityLimiter
    """The limit on requests that ask at one time."""
    wire: QuestionShape
    asked: WireRequest
    client: Request
    """The client's request, for its path and headers."""
    tokens: ModelTokens
    read: int = 0
    """Tokens that the upstream's model read, as far as it says so."""
    model: str | None = None
    """The upstream's name for its model."""

    async def answers(self, options: ReadingOptions) -> list[Answer]:
        """Answer all questions; `InvalidInputError` if they are too many or too long, `ApiError` names one that
        failed.
        """
        texts = asked_texts(self.asked.state, self.asked.questions, options)
        masses = await self._masses(texts.texts)
        return texts.answers(masses, self.model)

    async def _masses(self, texts: Sequence[AskedText]) -> list[Masses]:
        """The masses of all texts, in the first shape in which the upstream answers."""
        chosen = self.settings.decisions
        by_name = {shape.name: shape for shape in served_shapes()}
        shapes = [by_name[name] for name in (FIRST_CHOICES if chosen == "auto" else (chosen,))]
        for shape in shapes:
            # The last one is asked all the same, so that the client gets the present answer of the server.
            if shape.path in self.absent and shape is not shapes[-1]:
                continue
            try:
                return await self._masses_by(shape, texts)
            except NoRoute:
                self.absent.add(shape.path)
        tried = " and ".join(shape.path for shape in shapes)
        message = f"The upstream has no route for decisions, and none at {tried} to ask them as texts."
        raise ApiError(502, message, kind="upstream_error", code="no_route")

    async def _masses_by(self, shape: type[Shape], texts: Sequence[AskedText]) -> list[Masses]:
        """Ask the first alone, which shows what the upstream gives, then several at a time.

        The first failure ends all: it is an error for the whole request, and further answers would cost for nothing.
        """
        first = [await self._masses_of(shape, text) for text in texts[:1]]
        try:
            async with asyncio.TaskGroup() as tasks:
                others = [tasks.create_task(self._masses_of(shape, text)) for text in texts[1:]]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [*first, *(other.result() for other in others)]

    async def _masses_of(self, shape: type[Shape], text: AskedText) -> Masses:
        """One text's masses, by the tokens of its options if the upstream can list those, else by the best ones.

        A failure names its question.
        """
        try:
            async with self.together:
                named = await self._named_masses(shape, text)
                if named is not None:
                    return named
                return text.masses(await self._reply_to(shape, text), self.tokens.vocabulary)
        except ApiError as error:
            failed = error
        except BrokenOff as error:
            failed = failure(error)
        except (SemtokenError, ValueError, RecursionError, zlib.error) as error:
            said = NESTED if isinstance(error, RecursionError) else str(error)
            failed = ApiError(502, said, kind="upstream_error", code="not_understood")
        name = self.asked.names[text.number]
        which = repr(name) if name is not None else str(text.number)
        raise ApiError(
            failed.status,
            f"Question {which}: {failed.message}",
            kind=failed.kind,
            param=f"questions[{text.number}]",
            code=failed.code,
        )

    async def _named_masses(self, shape: type[Shape], text: AskedText) -> Masses | None:
        """One text's masses by the tokens of its options; None where the upstream does not list them."""
        if not self.settings.token_ids or NAMED_TOKENS in self.absent:
            return None
        reader = await anyio.to_thread.run_sync(self.tokens.reader, text)
        if reader is None:
            return None
        with suppress(ApiError):  # it may refuse the field
            named = text.named_masses(await self._reply_to(shape, text, reader), reader)
            if named is not None:
                return named
        self.absent.add(NAMED_TOKENS)
        return None

    async def _reply_to(self, shape: type[Shape], text: AskedText, reader: OptionReader | None = None) -> Reply:
        asked = await anyio.to_thread.run_sync(self._request, shape, text, reader)
        async with AsyncExitStack() as stack:
            request = replace(
                self.client,
                target=target_below(self.client.target, self.wire, ("/v1" if shape.below_v1 else "") + shape.path),
                body=b"",
            )
            answer, top = await self.asking.answer(stack, request, asked)
            if answer.status != 200:
                raise await _upstream_error(answer)
            if not top:
                raise ApiError(502, NO_LISTS, kind="upstream_error", code="no_logprobs")
            reply = await whole_reply(answer, self.settings.max_scored_bytes)
        parsed_reply = read_reply(reply, temperature=shape.temperature(asked.body))
        self.read += shape.prompt_tokens(reply) or 0
        self.model = parsed_reply.model or self.model
        return parsed_reply

    def _request(self, shape: type[Shape], text: AskedText, reader: OptionReader | None) -> AnswerRequest:
        extra = self.settings.decision_fields
        body = text.request(shape, self.asked.state, model=self.asked.model, extra=extra, reader=reader)
        request = read_request(shape, encode(body).encode())
        if request is None:
            raise InvalidInputError(NO_FIELDS)
        return request


async def whole_reply(answer: UpstreamAnswer, limit: int) -> Any:
    """The upstream's reply, parsed; an error of many kinds where it is too long, or none."""
    raw = await answer.whole(limit)
    if len(raw) > limit:
        raise InvalidInputError(f"the upstream's reply is longer than {limit:,} bytes.")
    return parse_reply(unpacked(raw, answer.encoding, limit))


def target_below(target: bytes, wire: QuestionShape, path: str) -> bytes:
    """The target of a request for a path below the one that the client asked at."""
    own, mark, query = target.partition(b"?")
    return own.removesuffix(f"/v1{wire.path}".encode()) + path.encode() + mark + query


async def _upstream_error(answer: UpstreamAnswer) -> ApiError | NoRoute:
    if await has_no_route(answer):
        return NoRoute()
    said = await answer.said()
    try:
        reply = parse_reply(said)
        said = error_text(reply.get("error", reply.get("detail", reply))) if isinstance(reply, dict) else said
    except InvalidInputError:
        said = " ".join(said.split())[:500]
    # The client can correct its request, but not the server.
    status = answer.status if 400 <= answer.status < 500 else 502
    return ApiError(status, f"the upstream answered with status {answer.status}: {said}", kind="upstream_error")
