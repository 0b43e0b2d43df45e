"""Typed questions through the proxy: passed on to an upstream that answers them, else asked as texts.

An answer that is passed on keeps every byte and gets a block; asking_texts.py has the other way.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TypeVar

import anyio.to_thread
from starlette.responses import Response

from semtoken.decisions.calibrating import DecisionCalibrator, blocks_of
from semtoken.decisions.questions import READ_AS_USUAL
from semtoken.decisions.wire import DecisionRequest, WireError
from semtoken.decisions.wire.extension import KEY, block_beside
from semtoken.errors import InvalidInput, SemtokenError
from semtoken.payloads.splice import Document, Put, encode
from semtoken.web.calibrators import CalibratorSlot, slot_of
from semtoken.web.decision_formats import WireFormat
from semtoken.web.proxy.asking import Asking, without_compression
from semtoken.web.proxy.asking_texts import AbsentRoutes, TextQuestions, says_no_route
from semtoken.web.proxy.client import Client
from semtoken.web.proxy.relay import CHANGED, LARGE, relay_untouched
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.proxy.unpacking import PIECE, unpacked
from semtoken.web.proxy.upstream import Answer, Request, Upstream, forwarded
from semtoken.web.wire import ApiError

T = TypeVar("T")


class ProxyDecisions:
    """Answers requests of both formats.

    Parameters
    ----------
    upstream, settings, asking
        The parts of the proxy.
    calibrator
        Adds chance, decision and promise to the answers of the questions that it knows; in a slot it can be exchanged.
    """

    def __init__(
        self,
        upstream: Upstream,
        settings: ProxySettings,
        asking: Asking,
        calibrator: DecisionCalibrator | CalibratorSlot[DecisionCalibrator] | None = None,
    ) -> None:
        self._upstream = upstream
        self._settings = settings
        self._calibrators = slot_of(calibrator)
        self._absent = AbsentRoutes()
        self._texts = TextQuestions(settings, asking, self._absent)

    async def answer(self, stack: AsyncExitStack, client: Client, request: Request, wire: WireFormat) -> None:
        """Answer a request, or say in its format's own shape why not.

        Raises
        ------
        ApiError
            The upstream does not answer.
        BrokenOff
            It broke off.
        """
        asked = await _off_the_loop(lambda: _parsed(wire, request.body), len(request.body))
        if self._settings.decisions in ("auto", "pass") and wire.path not in self._absent:
            attempt = await stack.enter_async_context(AsyncExitStack())
            answer = await self._upstream.send(attempt, without_compression(request))
            if self._settings.decisions == "pass" or not await says_no_route(answer):
                await self._pass_on(answer, client, wire, asked)
                return
            self._absent.add(wire.path)
            await attempt.aclose()
        await client.respond(asked if isinstance(asked, Response) else await self._as_texts(wire, asked, request))

    async def _pass_on(
        self, answer: Answer, client: Client, wire: WireFormat, asked: DecisionRequest | Response
    ) -> None:
        """The upstream's answer with blocks; untouched where it is none, or none to this request."""
        if answer.status != 200 or isinstance(asked, Response):
            await relay_untouched(answer, client)
            return
        raw, limit = bytearray(), self._settings.max_scored_bytes
        while len(raw) <= limit and (piece := await answer.piece()):
            raw += piece
        try:
            if len(raw) > limit:
                raise InvalidInput(f"The reply is longer than {limit:,} bytes.")
            changed = await _off_the_loop(lambda: self._with_blocks(bytes(raw), answer.encoding, wire, asked), len(raw))
        except (SemtokenError, ValueError, RecursionError, zlib.error):
            await relay_untouched(answer, client, bytes(raw), "too_large" if len(raw) > limit else "not_understood")
            return
        length = (b"content-length", str(len(changed)).encode())
        await client.begin(answer.status, [*forwarded(answer.headers, *CHANGED), length])
        for at in range(0, len(changed), PIECE):  # so that no more than a piece waits for a slow client
            await client.write(changed[at : at + PIECE])
        await client.end()

    def _with_blocks(self, raw: bytes, encoding: str, wire: WireFormat, asked: DecisionRequest) -> bytes:
        document = Document(unpacked(raw, encoding, self._settings.max_scored_bytes).decode())
        reply = document.value
        answers = wire.answers(asked, reply)
        more = blocks_of(self._calibrators.current, answers, asked.reading or READ_AS_USUAL)
        beside = zip(asked.places, answers, more, strict=True)
        blocks = [
            Put((name, key), KEY, block_beside(reply[name][key], answer, block))
            for (name, key), answer, block in beside
        ]
        return document.changed(blocks).encode()

    async def _as_texts(self, wire: WireFormat, asked: DecisionRequest, request: Request) -> Response:
        options = asked.reading or READ_AS_USUAL
        try:
            found = await self._texts.answers(wire, asked, request, options)
            more = blocks_of(self._calibrators.current, found.answers, options)
            reply = wire.reply(asked, found.model or asked.model or "", found.answers, options, more, found.read)
        except InvalidInput as error:
            return wire.error(ApiError(400, str(error)))
        except ApiError as error:
            return wire.error(error)
        return Response(encode(reply), media_type="application/json")


def _parsed(wire: WireFormat, body: bytes) -> DecisionRequest | Response:
    """A request, or what is answered to one that its format does not allow, should the upstream not judge it."""
    try:
        return wire.parse(body)
    except WireError as error:
        return wire.refusal(error)
    except InvalidInput as error:
        return wire.error(ApiError(400, str(error)))


async def _off_the_loop(work: Callable[[], T], size: int) -> T:
    """Do what takes long for a large body in a thread."""
    return work() if size < LARGE else await anyio.to_thread.run_sync(work)
