"""The server as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from semtoken._extras import require

for _module in ("fastapi", "pydantic"):
    require(_module, extra="serve")

from fastapi import FastAPI, Request, Response  # noqa: E402
from fastapi.responses import JSONResponse, StreamingResponse  # noqa: E402

from semtoken.errors import SemtokenError  # noqa: E402
from semtoken.web.hosts import LOOPBACK_HOSTS, HostGuard  # noqa: E402
from semtoken.web.page.routes import add_page  # noqa: E402
from semtoken.web.serve.engine import Engine  # noqa: E402
from semtoken.web.serve.requests import ChatRequest, CompletionRequest, Form, parse  # noqa: E402
from semtoken.web.serve.service import Job, Offer, Service, as_api_error  # noqa: E402
from semtoken.web.serve.worker import Worker  # noqa: E402
from semtoken.web.wire import EVENT_STREAM, ApiError  # noqa: E402

MOST_BYTES = 2**25
STREAM_HEADERS = {"content-type": EVENT_STREAM, "cache-control": "no-cache"}


def serve_app(
    engine: Engine, offer: Offer, *, page: bool = True, allowed_hosts: Sequence[str] = LOOPBACK_HOSTS
) -> FastAPI:
    """An OpenAI-compatible API over a model.

    Parameters
    ----------
    engine
        The model.
    offer
        Its name and what requests may ask for.
    page
        Show the page for people at `/`.
    allowed_hosts
        Names under which clients may reach it; "*" for all. See `semtoken.web.hosts`.
    """
    worker = Worker(engine)
    service = Service(worker, offer)

    @asynccontextmanager
    async def closing(_: FastAPI) -> AsyncIterator[None]:
        yield
        worker.close()

    app = FastAPI(openapi_url=None, lifespan=closing)
    app.add_middleware(HostGuard, hosts=allowed_hosts)
    app.add_exception_handler(404, _no_such_page)
    app.add_exception_handler(405, _no_such_page)
    card = {"id": offer.name, "object": "model", "created": 0, "owned_by": "semtoken"}

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "model": offer.name, "clusters": engine.stc.clusters.signature}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [card]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        return JSONResponse(card) if name == offer.name else _unknown(name, offer).response()

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return await _answered(request, offer, ChatRequest, service.chat, service)

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await _answered(request, offer, CompletionRequest, service.completion, service)

    if page:
        add_page(app, lambda: {"model": offer.name, "clusters": engine.stc.clusters.signature})
    return app


async def _answered(
    request: Request, offer: Offer, form: type[Form], prepare: Callable[[Form], Job], service: Service
) -> Response:
    """The answer to a request for text, or the error that says why there is none."""
    try:
        asked = parse(form, await _body(request))
        if asked.model not in (None, offer.name):
            return _unknown(str(asked.model), offer).response()
        job = prepare(asked)
        if asked.stream:
            return StreamingResponse(
                service.stream(job), media_type=EVENT_STREAM, headers={"cache-control": "no-cache"}
            )
        return JSONResponse(await _unless_gone(request, service.whole(job)))
    except (ApiError, SemtokenError) as error:
        return as_api_error(error).response()


async def _body(request: Request) -> bytes:
    """The body of a request that is not too long."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise ApiError(413, f"The request is larger than {MOST_BYTES:,} bytes.", code="request_too_large")
    return bytes(body)


async def _unless_gone(request: Request, answer: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """The answer; it is given up when the client leaves."""
    answering, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ApiError(499, "The client left.")
        return answering.result()
    finally:
        answering.cancel()
        leaving.cancel()
        await asyncio.gather(answering, leaving, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _unknown(name: str, offer: Offer) -> ApiError:
    return ApiError(
        404,
        f"The model '{name}' does not exist; this server has '{offer.name}'.",
        param="model",
        code="model_not_found",
    )


async def _no_such_page(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return ApiError(status, f"There is no {request.method} {request.url.path} on this server.").response()
