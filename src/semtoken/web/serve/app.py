"""The server as an ASGI application: requests are read within limits, made ready off the event loop, and answered."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from threading import Lock
from typing import Any, TypeVar

from semtoken.support.extras import require

for _module in ("fastapi", "prometheus_client", "pydantic"):
    require(_module, extra="serve")

import msgspec  # noqa: E402
from fastapi import FastAPI, Request, Response  # noqa: E402
from fastapi.responses import JSONResponse  # noqa: E402
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest  # noqa: E402
from starlette.types import ASGIApp  # noqa: E402

from semtoken.clustering.vocabulary import Vocabulary  # noqa: E402
from semtoken.decisions import DecisionRequest  # noqa: E402
from semtoken.decisions.calibrating import DecisionCalibrator, blocks_of  # noqa: E402
from semtoken.decisions.deciding import PreparedRequest, prepare  # noqa: E402
from semtoken.decisions.questions import READ_AS_USUAL  # noqa: E402
from semtoken.decisions.wire import WireError, WireRequest  # noqa: E402
from semtoken.decisions.wire.shapes import SERVED_SHAPES, QuestionShape, parsed_request  # noqa: E402
from semtoken.errors import InvalidInputError, SemtokenError  # noqa: E402
from semtoken.methods.observers.method_scores import methods_reading, readable_with  # noqa: E402
from semtoken.support.files.safe_files import MEBIBYTE  # noqa: E402
from semtoken.support.garbage import few_collections  # noqa: E402
from semtoken.web.calibrators import CalibratorSlot, slot_of  # noqa: E402
from semtoken.web.callers import LOOPBACK_HOSTS, Gate, HostGuard  # noqa: E402
from semtoken.web.incoming import ClientGone, read_body, until_gone  # noqa: E402
from semtoken.web.limits import Admission, AdmissionLimit, Busy, Workers  # noqa: E402
from semtoken.web.page.facts import page_facts  # noqa: E402
from semtoken.web.page.routes import add_page  # noqa: E402
from semtoken.web.recorder import AnswerRecorder, JournalFigures, add_routes, recording  # noqa: E402
from semtoken.web.running import FRESH_OBJECTS  # noqa: E402
from semtoken.web.serve.engine import Engine  # noqa: E402
from semtoken.web.serve.requests import AnyRequest, ChatRequest, CompletionRequest, parse  # noqa: E402
from semtoken.web.serve.service import Job, Offer, Service, as_api_error  # noqa: E402
from semtoken.web.serve.worker import MOST_TOGETHER, Worker  # noqa: E402
from semtoken.web.wire import DONE, EVENT_STREAM, ApiError, failure_of, refusal_of  # noqa: E402

T = TypeVar("T")

DISCARDED = 8  # a body that is too long is read to its end, up to so many times the limit, so that its sender hears


@dataclass(frozen=True)
class ServeLimits:
    """Limits on what clients may send and ask for at one time.

    What a connection may do is limited by `semtoken.web.connections.ConnectionLimits`.
    """

    request_bytes: int = 2 * MEBIBYTE
    """Requests of more bytes than this are rejected (413)."""
    together: int = MOST_TOGETHER
    """The most answers that are written at one time; further ones wait."""
    requests: int = 500
    """The most requests under way at one time; further ones are rejected (503)."""
    body_timeout: float = 120.0
    """Seconds that a client has for the body of a request (408)."""
    prepared_inline_bytes: int = 2048
    """Requests of at most this many bytes are read and tokenized in the event loop, which takes a millisecond or so."""
    prepared_at_once: int = 2
    """The most longer requests that are read and tokenized at one time, in threads of their own."""
    prepared_later: int = 64
    """The most requests that wait for such a thread; more are rejected (503)."""


class Intake:
    """Reads the bodies of requests within limits of size and time."""

    def __init__(self, limits: ServeLimits) -> None:
        self.limits = limits
        self._preparing = Workers(limits.prepared_at_once, limits.prepared_later)

    async def body(self, request: Request) -> bytes:
        """Read the body of a request; `ApiError` if it is too long (413), too slow (408), or does not arrive (499)."""
        limit = self.limits.request_bytes
        return await read_body(request.receive, limit, self.limits.body_timeout, discarded=DISCARDED * limit)

    async def prepared(self, work: Callable[[], T], size: int | None) -> T:
        """The result of `work`, done at once for a body of few bytes (`size`), else in a thread (`size` None: always).

        `ApiError` (503) if too many requests wait for a thread.
        """
        if size is not None and size <= self.limits.prepared_inline_bytes:
            return work()
        try:
            return await self._preparing.run(work)
        except Busy:
            message = "Too many requests wait to be read. Try again later."
            raise ApiError(503, message, kind="overloaded_error", code="overloaded", retry_after=1) from None


@dataclass(frozen=True, eq=False)
class _Prompts:
    """A tokenizer of its own: while it reads a text in which control tokens are plain, it is set otherwise."""

    tokenizer: Any
    vocabulary: Vocabulary
    max_length: int | None


class DecisionAnswering:
    """Handles requests with typed questions: prepares them in threads, and answers or refuses them.

    A calibrator adds probability, decision and guarantee to the answers of the questions that it knows.
    """

    def __init__(
        self,
        worker: Worker,
        offer: Offer,
        intake: Intake,
        calibrators: CalibratorSlot[DecisionCalibrator],
    ) -> None:
        self._worker = worker
        self._offer = offer
        self._intake = intake
        self._calibrators = calibrators
        self._one_at_a_time = Lock()

    async def answer(self, request: Request, shape: QuestionShape) -> ASGIApp:
        """Answer a request for typed questions, or refuse it."""
        try:
            body = await self._intake.body(request)
            # Always in a thread: each question is a prompt of its own, so a short body can take long.
            (shape, asked), prepared = await self._intake.prepared(lambda: self._prepared(body, shape), None)
            with until_gone(request.receive):
                inquiry_answers = await self._worker.answers(prepared)
            options = prepared.inquiry.options
            more = blocks_of(self._calibrators.current, inquiry_answers.answers, options)
            return JSONResponse(
                shape.reply(
                    asked, self._offer.name, inquiry_answers.answers, options, more, inquiry_answers.input_tokens
                )
            )
        except WireError as error:
            return refusal_of(shape, error)
        except InvalidInputError as error:
            return failure_of(shape, ApiError(400, str(error)))
        except (ApiError, SemtokenError) as error:
            return failure_of(shape, as_api_error(error))

    def _prepared(self, body: bytes, shape: QuestionShape) -> tuple[tuple[QuestionShape, WireRequest], PreparedRequest]:
        spoken, asked = parsed_request(shape, body)
        self._offer.check_name(asked.model)
        options = asked.reading or READ_AS_USUAL
        with self._one_at_a_time:
            return (spoken, asked), prepare(self._prompts, DecisionRequest(asked.state, asked.questions, options))

    @cached_property
    def _prompts(self) -> _Prompts:
        backend = self._worker.engine.stc.backend
        tokenizer = backend.tokenizer
        own = copy.deepcopy(tokenizer) if hasattr(tokenizer, "backend_tokenizer") else tokenizer
        return _Prompts(own, backend.vocabulary, backend.max_length)


EVENT_STREAM_HEADERS = [(b"cache-control", b"no-cache"), (b"content-type", f"{EVENT_STREAM}; charset=utf-8".encode())]


def serve_app(
    engine: Engine,
    offer: Offer,
    *,
    page: bool = True,
    recorder: AnswerRecorder | None = None,
    gate: Gate | None = None,
    allowed_hosts: Sequence[str] = LOOPBACK_HOSTS,
    limits: ServeLimits | None = None,
) -> ASGIApp:
    """An OpenAI-compatible API over a model.

    Parameters
    ----------
    engine
        The model.
    offer
        The model's name, and what requests may ask for.
    page
        Whether to show the page for people at `/`.
    recorder
        Keeps the answers in a journal.
    gate
        Who may read and write the journal, and exchange the calibrator. Default: this machine, where no other one can
        reach the server.
    allowed_hosts
        Names under which clients may reach it; "*" for all. See `semtoken.web.callers`.
    limits
        The limits on what clients may take.
    """
    limits = limits or ServeLimits()
    worker = Worker(engine, limits.together)
    calibrators, of_decisions = slot_of(offer.calibrator), slot_of(offer.decision_calibrator)
    service = Service(worker, replace(offer, calibrator=calibrators), recorder)
    registry = CollectorRegistry()
    figures = JournalFigures(registry)
    intake = Intake(limits)
    text = partial(answer_text, service=service, offer=offer, intake=intake)
    deciding = DecisionAnswering(worker, offer, intake, of_decisions)

    @asynccontextmanager
    async def closing(_: FastAPI) -> AsyncIterator[None]:
        with few_collections(FRESH_OBJECTS), recording(recorder, calibrators, figures):
            yield
        worker.close()

    app = FastAPI(openapi_url=None, lifespan=closing)
    app.add_exception_handler(404, _no_such_page)
    app.add_exception_handler(405, _no_such_page)
    _add_facts(app, engine, offer, recorder, registry)
    if page:
        methods = methods_reading(readable_with(engine.stc.methods))
        review, scorer = recorder is not None, engine.stc.scorer
        facts = partial(page_facts, scorer, review=review, model=offer.name, disputes=True, methods=methods)
        add_page(app, lambda: facts(calibrators.current))
    add_routes(app, recorder, calibrators, of_decisions, gate, allowed_hosts)
    endpoints = {
        "/v1/chat/completions": partial(text, form=ChatRequest),
        "/v1/completions": partial(text, form=CompletionRequest),
        **{f"/v1{shape.path}": partial(deciding.answer, shape=shape) for shape in SERVED_SHAPES},
    }
    admission = Admission(limits.requests, limits.requests)
    return HostGuard(AdmissionLimit(Endpoints(app, endpoints), admission), allowed_hosts)


def _add_facts(
    app: FastAPI, engine: Engine, offer: Offer, recorder: AnswerRecorder | None, registry: CollectorRegistry
) -> None:
    """The routes that say how the server is and which model it has; with a journal, its figures."""
    card = {"id": offer.name, "object": "model", "created": 0, "owned_by": "semtoken"}

    @app.get("/health")
    async def health() -> dict[str, Any]:
        clusters = engine.stc.scorer.clusters
        return {
            "status": "ok",
            "model": offer.name,
            "clusters": None if clusters is None else clusters.signature,
            **({} if recorder is None else {"journal": recorder.health()}),
        }

    if recorder is not None:

        @app.get("/metrics")
        def shown_figures() -> Response:
            return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [card]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        return JSONResponse(card) if name == offer.name else offer.unknown(name).response()


class Endpoints:
    """The requests for text and for decisions, in front of the application that has everything else: its layers and
    routes would cost a request more than its prompt does.
    """

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, Callable[[Request], Awaitable[ASGIApp]]]) -> None:
        self._app = app
        self._endpoints = endpoints

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer the request, or pass it on."""
        endpoint = self._endpoints.get(scope["path"]) if scope["type"] == "http" else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        response = await endpoint(request) if request.method == "POST" else _no_such(405, request)
        await response(scope, receive, send)


async def answer_text(
    request: Request, form: type[AnyRequest], service: Service, offer: Offer, intake: Intake
) -> ASGIApp:
    """Answer a request for completions, or refuse it."""

    def prepare_job() -> Job:
        asked = parse(form, body)
        offer.check_name(asked.model)
        return service.job(asked)

    try:
        body = await intake.body(request)
        job = await intake.prepared(prepare_job, len(body))
        if job.request.stream:
            return EventStream(service.stream(job))
        with until_gone(request.receive):
            whole = await service.whole(job)
        return Response(msgspec.json.encode(whole), media_type="application/json")
    except (ApiError, SemtokenError) as error:
        return as_api_error(error).response()


class EventStream:
    """A response of server-sent events as they come, ending with `DONE`; canceled if the client leaves."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        self._events = events

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the events of the stream."""
        with suppress(ClientGone), until_gone(receive):
            await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM_HEADERS})
            async with aclosing(self._events) as events:
                async for some in events:
                    await send({"type": "http.response.body", "body": some, "more_body": not some.endswith(DONE)})


async def _no_such_page(request: Request, error: Exception) -> Response:
    return _no_such(getattr(error, "status_code", 404), request)


def _no_such(status: int, request: Request) -> Response:
    return ApiError(status, f"There is no {request.method} {request.url.path} on this server.").response()
