"""The server as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from semtoken.observers.method_scores import methods_reading, readable_with
from semtoken.support.extras import require

for _module in ("fastapi", "prometheus_client", "pydantic"):
    require(_module, extra="serve")

import msgspec  # noqa: E402
from fastapi import FastAPI, Request, Response  # noqa: E402
from fastapi.responses import JSONResponse  # noqa: E402
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest  # noqa: E402

from semtoken.errors import SemtokenError  # noqa: E402
from semtoken.web.access import (  # noqa: E402
    LOOPBACK_HOSTS,
    App,
    Gate,
    HostGuard,
)
from semtoken.web.admission import Admission, AdmissionLimit  # noqa: E402
from semtoken.web.calibrators import slot_of  # noqa: E402
from semtoken.web.decision_formats import WIRE_FORMATS  # noqa: E402
from semtoken.web.page.facts import page_facts  # noqa: E402
from semtoken.web.page.routes import add_page  # noqa: E402
from semtoken.web.recorder import (  # noqa: E402
    AnswerRecorder,
    JournalFigures,
    add_routes,
    recording,
)
from semtoken.web.running import few_collections  # noqa: E402
from semtoken.web.serve.answering import (  # noqa: E402
    DecisionAnswering,
    Intake,
    ServeLimits,
    until_gone,
)
from semtoken.web.serve.engine import Engine  # noqa: E402
from semtoken.web.serve.requests import AnyRequest, ChatRequest, CompletionRequest, parse  # noqa: E402
from semtoken.web.serve.service import Job, Offer, Service, as_api_error  # noqa: E402
from semtoken.web.serve.worker import Worker  # noqa: E402
from semtoken.web.wire import DONE, EVENT_STREAM, ApiError  # noqa: E402

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
) -> App:
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
        Names under which clients may reach it; "*" for all. See `semtoken.web.access`.
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
    answering, deciding = (Answering(service, offer, intake), DecisionAnswering(worker, offer, intake, of_decisions))

    @asynccontextmanager
    async def closing(_: FastAPI) -> AsyncIterator[None]:
        with few_collections(), recording(recorder, calibrators, figures):
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
        "/v1/chat/completions": partial(answering.answer, form=ChatRequest),
        "/v1/completions": partial(answering.answer, form=CompletionRequest),
        **{f"/v1{wire.path}": partial(deciding.answer, wire=wire) for wire in WIRE_FORMATS},
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

    def __init__(self, app: App, endpoints: Mapping[str, Callable[[Request], Awaitable[App]]]) -> None:
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


class Answering:
    """Handles requests for text: prepares them in threads, and answers or refuses them."""

    def __init__(self, service: Service, offer: Offer, intake: Intake) -> None:
        self._service = service
        self._offer = offer
        self._intake = intake

    async def answer(self, request: Request, form: type[AnyRequest]) -> App:
        """Answer a request for completions, or refuse it."""
        try:
            body = await self._intake.body(request)
            job = await self._intake.prepared(lambda: self._job(body, form), len(body))
            if job.request.stream:
                return EventStream(self._service.stream(job))
            whole = await until_gone(request.receive, self._service.whole(job))
            if whole is None:
                raise ApiError(499, "The client left.")
            return Response(msgspec.json.encode(whole), media_type="application/json")
        except (ApiError, SemtokenError) as error:
            return as_api_error(error).response()

    def _job(self, body: bytes, form: type[AnyRequest]) -> Job:
        asked = parse(form, body)
        self._offer.check_name(asked.model)
        return self._service.job(asked)


class EventStream:
    """A response of server-sent events as they come, ending with `DONE`; cancelled if the client leaves."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        self._events = events

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the events of the stream."""
        await until_gone(receive, self._send(send))

    async def _send(self, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM_HEADERS})
        async with aclosing(self._events) as events:
            async for some in events:
                await send({"type": "http.response.body", "body": some, "more_body": not some.endswith(DONE)})


async def _no_such_page(request: Request, error: Exception) -> Response:
    return _no_such(getattr(error, "status_code", 404), request)


def _no_such(status: int, request: Request) -> Response:
    return ApiError(status, f"There is no {request.method} {request.url.path} on this server.").response()
