"""Requests for texts and decisions: read within limits, made ready off the event loop, answered or refused."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from semtoken.decisions import Inquiry
from semtoken.decisions.calibrating import DecisionCalibrator, blocks_of
from semtoken.decisions.deciding import PreparedInquiry, prepare
from semtoken.decisions.questions import READ_AS_USUAL
from semtoken.decisions.wire import DecisionRequest, WireError
from semtoken.errors import InvalidInput, SemtokenError
from semtoken.files.safe_files import MEBIBYTE
from semtoken.tokens.vocabulary import Vocabulary
from semtoken.web.access import App
from semtoken.web.admission import Busy, Workers
from semtoken.web.calibrators import CalibratorSlot, slot_of
from semtoken.web.decision_formats import WireFormat, parsed_request
from semtoken.web.serve.service import Offer, as_api_error
from semtoken.web.serve.worker import MOST_TOGETHER, Worker
from semtoken.web.wire import ApiError

T = TypeVar("T")

DISCARDED = 8  # a body that is too long is read to its end, up to so many times the limit, so that its sender hears


@dataclass(frozen=True)
class ServeLimits:
    """How much clients may send and ask for at one time.

    What a connection may do is limited by `semtoken.web.connections.ConnectionLimits`.
    """

    request_bytes: int = 2 * MEBIBYTE
    """Requests of more bytes than this are refused (413)."""
    together: int = MOST_TOGETHER
    """How many answers are written at one time; further ones wait."""
    requests: int = 500
    """How many requests may be under way at one time; further ones are refused (503)."""
    body_timeout: float = 120.0
    """Seconds that a client has for the body of a request (408)."""
    prepared_inline_bytes: int = 2048
    """Requests of at most this many bytes are read and tokenised in the event loop, which takes a millisecond or so."""
    prepared_at_once: int = 2
    """How many longer requests are read and tokenised at one time, in threads of their own."""
    prepared_later: int = 64
    """How many requests may wait for such a thread; more are refused (503)."""


class Intake:
    """Reads the bodies of requests within limits of size and time."""

    def __init__(self, limits: ServeLimits) -> None:
        self.limits = limits
        self._preparing = Workers(limits.prepared_at_once, limits.prepared_later)

    async def body(self, request: Request) -> bytes:
        """Read the body of a request.

        Raises
        ------
        ApiError
            The body is too long (413), takes too long (408), or does not arrive (499).
        """
        limit = self.limits.request_bytes
        body, size = bytearray(), 0
        try:
            with anyio.fail_after(self.limits.body_timeout):
                async for piece in request.stream():
                    size += len(piece)
                    if size <= limit:
                        body += piece
                    elif size > DISCARDED * limit:
                        break
        except TimeoutError:
            raise ApiError(408, "The body of the request took too long.", code="body_timeout") from None
        except ClientDisconnect:  # or what it sent was broken off
            raise ApiError(499, "The client left.") from None
        if size > limit:
            raise ApiError(413, f"The request is larger than {limit:,} bytes.", code="request_too_large")
        return bytes(body)

    async def prepared(self, work: Callable[[], T], size: int | None) -> T:
        """The result of `work`, which is done at once for a body of few bytes (`size`), and otherwise in a thread.
        `size` None: always in a thread.

        Raises
        ------
        ApiError
            Too many requests wait for a thread (503).
        """
        if size is not None and size <= self.limits.prepared_inline_bytes:
            return work()
        try:
            return await self._preparing.run(work)
        except Busy:
            message = "Too many requests wait to be read. Try again later."
            raise ApiError(503, message, kind="overloaded_error", code="overloaded", retry_after=1) from None


async def until_gone(receive: Callable[[], Awaitable[Any]], answer: Coroutine[Any, Any, T]) -> T | None:
    """Wait for a result, or cancel it and return None if the client closes the connection."""
    answering, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(_wait_until_gone(receive))
    leaving.add_done_callback(lambda _: answering.cancel())
    try:
        return await answering
    except asyncio.CancelledError:
        if leaving.done():
            return None
        raise
    finally:
        leaving.cancel()


async def _wait_until_gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(frozen=True, eq=False)
class _Prompts:
    """A tokenizer of its own: while it reads a text in which control tokens are plain, it is set otherwise."""

    tokenizer: Any
    vocabulary: Vocabulary
    max_length: int | None


class DecisionAnswering:
    """Handles requests with typed questions: prepares them in threads, and answers or refuses them.

    A calibrator adds chance, decision and promise to the answers of the questions that it knows.
    """

    def __init__(
        self,
        worker: Worker,
        offer: Offer,
        intake: Intake,
        calibrator: DecisionCalibrator | CalibratorSlot[DecisionCalibrator] | None = None,
    ) -> None:
        self._worker = worker
        self._offer = offer
        self._intake = intake
        self._calibrators = slot_of(calibrator)
        self._one_at_a_time = Lock()
        self._prompts: _Prompts | None = None

    async def answer(self, request: Request, wire: WireFormat) -> App:
        """Answer a request for typed questions, or refuse it."""
        try:
            body = await self._intake.body(request)
            (wire, asked), prepared = await self._intake.prepared(lambda: self._prepared(body, wire), None)
            found = await until_gone(request.receive, self._worker.answers(prepared))
            if found is None:
                raise ApiError(499, "The client left.")
            options = prepared.inquiry.options
            more = blocks_of(self._calibrators.current, found.answers, options)
            return JSONResponse(wire.reply(asked, self._offer.name, found.answers, options, more, found.input_tokens))
        except WireError as error:
            return wire.refusal(error)
        except InvalidInput as error:
            return wire.error(ApiError(400, str(error)))
        except (ApiError, SemtokenError) as error:
            return wire.error(as_api_error(error))

    def _prepared(self, body: bytes, wire: WireFormat) -> tuple[tuple[WireFormat, DecisionRequest], PreparedInquiry]:
        spoken, asked = parsed_request(wire, body)
        self._offer.check_name(asked.model)
        options = asked.reading or READ_AS_USUAL
        with self._one_at_a_time:
            return (spoken, asked), prepare(self._own_prompts(), Inquiry(asked.state, asked.questions, options))

    def _own_prompts(self) -> _Prompts:
        if self._prompts is None:
            backend = self._worker.engine.stc.backend
            tokenizer = backend.tokenizer
            own = copy.deepcopy(tokenizer) if hasattr(tokenizer, "backend_tokenizer") else tokenizer
            self._prompts = _Prompts(own, backend.vocabulary, backend.max_length)
        return self._prompts
