"""Typed questions through the proxy: passed on to an upstream that answers them, else asked as texts."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from starlette.responses import Response

from semtoken.decisions import Answer
from semtoken.decisions.calibrating import DecisionCalibrator, blocks_of
from semtoken.decisions.questions import READ_AS_USUAL
from semtoken.decisions.remote import ModelTokens
from semtoken.decisions.wire import WireError, WireRequest
from semtoken.decisions.wire.extension import KEY, answers_in, block_beside
from semtoken.decisions.wire.shapes import (
    QUESTION_SHAPES,
    REFUSALS,
    QuestionShape,
    parsed_request,
    wants_another_shape,
)
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.support.splice import Document, Put, encode
from semtoken.web.calibrators import CalibratorSlot
from semtoken.web.proxy.asking import Asking, without_compression
from semtoken.web.proxy.client import Client
from semtoken.web.proxy.relay import relay_untouched, send_changed
from semtoken.web.proxy.routes import AbsentRoutes, has_no_route
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.proxy.stream import LARGE
from semtoken.web.proxy.text_questions import TextQuestions, target_below, whole_reply
from semtoken.web.proxy.unpacking import unpacked
from semtoken.web.proxy.upstream import Request, Upstream, UpstreamAnswer
from semtoken.web.wire import ApiError, failure_of, refusal_of

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
        """Return True if the upstream has no such route, or wants other fields there than a right request has."""
        if await has_no_route(answer):
            self._absent.add(shape.path)
            return True
        if isinstance(asked, Response) or answer.status not in REFUSALS:
            return False
        said = await answer.said()
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
                target = target_below(request.target, wire, f"/v1{shape.path}")
                sent = replace(without_compression(request), target=target, body=encode(body).encode())
                answer = await self._upstream.send(stack, sent, fresh=True)
                if answer.status != 200:
                    await self._is_to_ask_otherwise(answer, shape, asked)
                    continue
                try:
                    reply = await whole_reply(answer, self._settings.max_scored_bytes)
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
            Put((name, key), {KEY: block_beside(reply[name][key], answer, block)})
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
