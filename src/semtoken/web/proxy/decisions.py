"""Typed questions through the proxy: passed on to an upstream that answers them, else asked as texts."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from starlette.responses import Response

from semtoken.decisions import Answer, ReadingOptions
from semtoken.decisions.asked_texts import NAMED_TOKENS, AskedText, Masses, asked_texts
from semtoken.decisions.calibrating import DecisionCalibrator, blocks_of
from semtoken.decisions.questions import READ_AS_USUAL
from semtoken.decisions.remote import ModelTokens
from semtoken.decisions.spellings import OptionReader
from semtoken.decisions.wire import WireError, WireRequest
from semtoken.decisions.wire.extension import KEY, answers_in, block_beside
from semtoken.decisions.wire.shapes import (
    NO_ROUTE,
    QUESTION_SHAPES,
    REFUSALS,
    QuestionShape,
    parsed_request,
    says_no_route,
    wants_another_shape,
)
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.replies import Reply, read_reply
from semtoken.replies.formats import Shape, served_shapes
from semtoken.support.splice import Document, Put, encode, parse_reply
from semtoken.support.text import error_text
from semtoken.web.calibrators import CalibratorSlot
from semtoken.web.proxy.asking import AnswerRequest, Asking, read_request, without_compression
from semtoken.web.proxy.exchange import BrokenOff, Client, Request, Upstream, UpstreamAnswer, failure, unpacked
from semtoken.web.proxy.memory import new_memory
from semtoken.web.proxy.relay import LARGE, relay_untouched, send_changed
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.wire import ApiError, failure_of, refusal_of

LONGEST_ERROR = 2**16
FIRST_CHOICES = ("chat", "completions")
"""The shapes in which questions are asked where nobody chose one, in order."""
NO_LISTS = "the upstream does not give log-probabilities, so nothing can be read from its answers."
NESTED = "the upstream's reply is nested too deeply."
NO_FIELDS = "the fields of request_fields under [decisions] make a request that is none of this API."


logger = logging.getLogger("semtoken.proxy")


class NoRoute(Exception):
    """The upstream has no endpoint at a path."""


class AbsentRoutes:
    """The paths at which the upstream has no endpoint, and shapes that it refuses, so that it is not asked again."""

    def __init__(self) -> None:
        self._absent: MutableMapping[str, bool] = new_memory()
        self._said: set[str] = set()

    def add(self, path: str) -> None:
        """Remember a path."""
        self._absent[path] = True

    def refuse(self, shape: QuestionShape, model: str | None, said: str) -> None:
        """Remember that the upstream does not answer a shape with a model, and say so once."""
        self.add(_refused(shape, model))
        if shape.name not in self._said:
            self._said.add(shape.name)
            logger.warning("The upstream rejects %s, so questions are asked in another way: %s", shape.what, said)

    def lacks(self, shape: QuestionShape, model: str | None) -> bool:
        """Whether the upstream is known not to answer a shape."""
        return shape.path in self or _refused(shape, model) in self

    def __contains__(self, path: str) -> bool:
        return path in self._absent


def _refused(shape: QuestionShape, model: str | None) -> str:
    return f"{shape.name} {model}"


@dataclass
class TextQuestions:
    """The questions of one request, asked an upstream as texts with log-probabilities."""

    settings: ProxySettings
    asking: Asking
    absent: AbsentRoutes
    together: anyio.CapacityLimiter
    """How many requests may ask at one time."""
    wire: QuestionShape
    asked: WireRequest
    client: Request
    """What the client sent: its path and headers."""
    tokens: ModelTokens
    read: int = 0
    """Tokens that the upstream's model read, as far as it says so."""
    model: str | None = None
    """What the upstream calls its model."""

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
        """Ask the first alone, which tells what the upstream gives, then several at a time; one that fails ends all."""
        masses_by_number: dict[int, Masses] = {}
        failed: list[ApiError | NoRoute] = []

        async def ask(number: int) -> None:
            try:
                async with self.together:
                    masses_by_number[number] = await self._masses_of_text(shape, texts[number])
            except (ApiError, NoRoute) as error:
                failed.append(error)
                # One failure is an error for the whole request, and further answers would cost for nothing.
                tasks.cancel_scope.cancel()

        for numbers in (range(len(texts))[:1], range(len(texts))[1:]):
            async with anyio.create_task_group() as tasks:
                for number in numbers:
                    tasks.start_soon(ask, number)
            if failed:
                raise failed[0]
        return [masses_by_number[number] for number in range(len(texts))]

    async def _masses_of_text(self, shape: type[Shape], text: AskedText) -> Masses:
        """One text's masses; a failure names its question."""
        try:
            return await self._masses_of(shape, text)
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

    async def _masses_of(self, shape: type[Shape], text: AskedText) -> Masses:
        """By the tokens of the options where the upstream lists those that it is asked for, else by the best ones."""
        reader = await anyio.to_thread.run_sync(self._reader, text)
        if reader is not None:
            with suppress(ApiError):  # it may refuse the field
                named = text.named_masses(await self._reply_to(shape, text, reader), reader)
                if named is not None:
                    return named
            self.absent.add(NAMED_TOKENS)
        return text.masses(await self._reply_to(shape, text), self.tokens.vocabulary)

    def _reader(self, text: AskedText) -> OptionReader | None:
        if not self.settings.token_ids or NAMED_TOKENS in self.absent:
            return None
        return self.tokens.reader(text)

    async def _reply_to(self, shape: type[Shape], text: AskedText, reader: OptionReader | None = None) -> Reply:
        asked = await anyio.to_thread.run_sync(self._request, shape, text, reader)
        async with AsyncExitStack() as stack:
            request = replace(
                self.client,
                target=_target(self.client.target, self.wire, ("/v1" if shape.below_v1 else "") + shape.path),
                body=b"",
            )
            answer, top = await self.asking.answer(stack, request, asked)
            if answer.status != 200:
                raise await _upstream_error(answer)
            if not top:
                raise ApiError(502, NO_LISTS, kind="upstream_error", code="no_logprobs")
            reply = await _whole_reply(answer, self.settings.max_scored_bytes)
        parsed_reply = read_reply(reply, temperature=asked.temperature)
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


async def _whole_reply(answer: UpstreamAnswer, limit: int) -> Any:
    """The upstream's reply, parsed; an error of many kinds where it is too long, or none."""
    raw = await answer.whole(limit)
    if len(raw) > limit:
        raise InvalidInputError(f"the upstream's reply is longer than {limit:,} bytes.")
    return parse_reply(unpacked(raw, answer.encoding, limit))


def _target(target: bytes, wire: QuestionShape, path: str) -> bytes:
    """Where a path is asked, below the one that the client asked at."""
    own, mark, query = target.partition(b"?")
    return own.removesuffix(f"/v1{wire.path}".encode()) + path.encode() + mark + query


async def _said(answer: UpstreamAnswer) -> str:
    return (await answer.beginning(LONGEST_ERROR)).decode("utf-8", "replace")


async def _upstream_error(answer: UpstreamAnswer) -> ApiError | NoRoute:
    if await _has_no_route(answer):
        return NoRoute()
    said = await _said(answer)
    try:
        reply = parse_reply(said)
        said = error_text(reply.get("error", reply.get("detail", reply))) if isinstance(reply, dict) else said
    except InvalidInputError:
        said = " ".join(said.split())[:500]
    # The client can correct its request, but not the server.
    status = answer.status if 400 <= answer.status < 500 else 502
    return ApiError(status, f"the upstream answered with status {answer.status}: {said}", kind="upstream_error")


async def _has_no_route(answer: UpstreamAnswer) -> bool:
    return answer.status in NO_ROUTE and says_no_route(answer.status, await _said(answer))


T = TypeVar("T")


class ProxyDecisions:
    """Answers requests of both formats, with the probability, decision and guarantee of a calibrator if there is
    one.
    """

    def __init__(
        self,
        upstream: Upstream,
        settings: ProxySettings,
        asking: Asking,
        calibrators: CalibratorSlot[DecisionCalibrator],
        tokens: ModelTokens,
    ) -> None:
        self._upstream = upstream
        self._settings = settings
        self._calibrators = calibrators
        self._tokens = tokens
        self._absent = AbsentRoutes()
        self._asking = asking
        self._together: anyio.CapacityLimiter | None = None

    async def answer(self, stack: AsyncExitStack, client: Client, request: Request, wire: QuestionShape) -> None:
        """Answer a request for typed questions, or refuse it in its own format; `BrokenOff` if the upstream does."""
        wire, asked = await _off_the_loop(lambda: _parsed(wire, request.body), len(request.body))
        model = None if isinstance(asked, Response) else asked.model
        way = self._settings.decisions
        if way == "pass" or (way == "auto" and not self._absent.lacks(wire, model)):
            # A stack of its own, so that its connection is free before the questions are asked otherwise.
            attempt = await stack.enter_async_context(AsyncExitStack())
            answer = await self._upstream.send(attempt, without_compression(request))
            if way == "pass" or not await self._is_to_ask_otherwise(answer, wire, asked):
                await self._pass_on(answer, client, wire, asked)
                return
            await attempt.aclose()
        if isinstance(asked, Response):
            await client.respond(asked)
            return
        reply = await self._in_other_shape(wire, asked, request) if way == "auto" else None
        await client.respond(reply or await self._as_texts(wire, asked, request))

    async def _is_to_ask_otherwise(
        self, answer: UpstreamAnswer, shape: QuestionShape, asked: WireRequest | Response
    ) -> bool:
        """Whether the upstream has no such route, or wants other fields there than a right request has."""
        if await _has_no_route(answer):
            self._absent.add(shape.path)
            return True
        if isinstance(asked, Response) or answer.status not in REFUSALS:
            return False
        said = await _said(answer)
        if wants_another_shape(answer.status, said):
            self._absent.refuse(shape, asked.model, " ".join(said.split())[:200])
            return True
        return False

    async def _in_other_shape(self, wire: QuestionShape, asked: WireRequest, request: Request) -> Response | None:
        """The answers of the upstream to the same questions in another shape; None where it answers none of them."""
        if asked.reading not in (None, READ_AS_USUAL):
            return None  # other servers do not know other readings
        numbered = [f"question_{number}" for number in range(len(asked.names))]
        names = [name or number for name, number in zip(asked.names, numbered, strict=True)]
        # OpenAI's questions need no names, and may have one twice; others are keyed by them.
        named = dict(zip(names if len(set(names)) == len(names) else numbered, asked.questions, strict=True))
        for shape in QUESTION_SHAPES:
            if shape is wire or self._absent.lacks(shape, asked.model):
                continue
            body = {**({"model": asked.model} if asked.model else {}), **shape.body(asked.state, named)}
            async with AsyncExitStack() as stack:
                target = _target(request.target, wire, f"/v1{shape.path}")
                sent = replace(without_compression(request), target=target, body=encode(body).encode())
                answer = await self._upstream.send(stack, sent, fresh=True)
                if answer.status != 200:
                    await self._is_to_ask_otherwise(answer, shape, asked)
                    continue
                try:
                    reply = await _whole_reply(answer, self._settings.max_scored_bytes)
                    return self._reply(wire, asked, shape.answers(named, reply), reply)
                except (SemtokenError, ValueError, RecursionError, zlib.error):
                    continue
        return None

    def _reply(self, wire: QuestionShape, asked: WireRequest, answers: list[Answer], given: Any) -> Response:
        """A reply in the client's format to what the upstream answered in another one."""
        more = blocks_of(self._calibrators.current, answers, READ_AS_USUAL)
        usage = given.get("usage") if isinstance(given.get("usage"), dict) else {}
        read = usage.get("input_tokens", usage.get("prompt_tokens"))
        model = given.get("model") if isinstance(given.get("model"), str) else asked.model or ""
        reply = wire.reply(asked, model, answers, None, more, read if isinstance(read, int) else 0)
        return Response(encode(reply), media_type="application/json")

    async def _pass_on(
        self, answer: UpstreamAnswer, client: Client, wire: QuestionShape, asked: WireRequest | Response
    ) -> None:
        """The upstream's answer with blocks; untouched where it is none, or none to this request."""
        if answer.status != 200 or isinstance(asked, Response):
            await relay_untouched(answer, client)
            return
        limit = self._settings.max_scored_bytes
        raw = await answer.whole(limit)
        try:
            if len(raw) > limit:
                raise InvalidInputError(f"The reply is longer than {limit:,} bytes.")
            changed = await _off_the_loop(lambda: self._with_blocks(raw, answer.encoding, wire, asked), len(raw))
        except (SemtokenError, ValueError, RecursionError, zlib.error):
            await relay_untouched(answer, client, raw, "too_large" if len(raw) > limit else "not_understood")
            return
        await send_changed(answer, client, changed)

    def _with_blocks(self, raw: bytes, encoding: str, wire: QuestionShape, asked: WireRequest) -> bytes:
        document = Document(unpacked(raw, encoding, self._settings.max_scored_bytes).decode())
        reply = document.value
        places = wire.places(asked.names)
        answers = answers_in(asked.questions, places, reply, wire.read_answer)
        more = blocks_of(self._calibrators.current, answers, asked.reading or READ_AS_USUAL)
        beside = zip(places, answers, more, strict=True)
        blocks = [
            Put((name, key), KEY, block_beside(reply[name][key], answer, block))
            for (name, key), answer, block in beside
        ]
        return document.changed(blocks).encode()

    async def _as_texts(self, wire: QuestionShape, asked: WireRequest, request: Request) -> Response:
        options = asked.reading or READ_AS_USUAL
        if self._together is None:  # it belongs to the event loop that it is made in
            self._together = anyio.CapacityLimiter(self._settings.decision_requests)
        work = TextQuestions(
            self._settings, self._asking, self._absent, self._together, wire, asked, request, self._tokens
        )
        try:
            answers = await work.answers(options)
            more = blocks_of(self._calibrators.current, answers, options)
            reply = wire.reply(asked, work.model or asked.model or "", answers, options, more, work.read)
        except InvalidInputError as error:
            return failure_of(wire, ApiError(400, str(error)))
        except ApiError as error:
            return failure_of(wire, error)
        return Response(encode(reply), media_type="application/json")


def _parsed(wire: QuestionShape, body: bytes) -> tuple[QuestionShape, WireRequest | Response]:
    """A request, or what is answered to one that its format does not allow, should the upstream not judge it."""
    try:
        return parsed_request(wire, body)
    except WireError as error:
        return wire, refusal_of(wire, error)
    except InvalidInputError as error:
        return wire, failure_of(wire, ApiError(400, str(error)))


async def _off_the_loop(work: Callable[[], T], size: int) -> T:
    """Do what takes long for a large body in a thread."""
    return work() if size < LARGE else await anyio.to_thread.run_sync(work)
