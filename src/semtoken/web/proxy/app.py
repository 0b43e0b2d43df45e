"""The proxy as an ASGI application: its own few pages, and everything else to the upstream, by `ProxyHandler`."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from semtoken.core.rules import ScoringRules
from semtoken.support.extras import require

for _module in ("fastapi", "aiohttp", "prometheus_client"):
    require(_module, extra="serve")

import anyio  # noqa: E402
from fastapi import FastAPI, Response  # noqa: E402
from prometheus_client import CONTENT_TYPE_LATEST  # noqa: E402
from starlette.routing import BaseRoute, Match  # noqa: E402
from starlette.types import ASGIApp, Receive, Scope, Send  # noqa: E402

from semtoken.core.given_tokens import Tokens  # noqa: E402
from semtoken.core.scorer import scorer_for  # noqa: E402
from semtoken.decisions.calibrating import DecisionCalibrator  # noqa: E402
from semtoken.decisions.remote import ModelTokens  # noqa: E402
from semtoken.errors import InvalidInputError  # noqa: E402
from semtoken.guarantees.apply import CalibratorInUse  # noqa: E402
from semtoken.methods.observers.method_scores import FROM_BEST, methods_reading  # noqa: E402
from semtoken.replies.formats import served_shapes, shapes_at  # noqa: E402
from semtoken.support.garbage import few_collections  # noqa: E402
from semtoken.web.calibrators import CalibratorSlot, slot_of  # noqa: E402
from semtoken.web.callers import Gate, HostGuard  # noqa: E402
from semtoken.web.incoming import ClientGone  # noqa: E402
from semtoken.web.limits import Admission, Workers  # noqa: E402
from semtoken.web.page.facts import page_facts  # noqa: E402
from semtoken.web.page.routes import add_page  # noqa: E402
from semtoken.web.proxy.asking import AnswerRequest, Asking, read_request  # noqa: E402
from semtoken.web.proxy.client import Client  # noqa: E402
from semtoken.web.proxy.decisions import ProxyDecisions  # noqa: E402
from semtoken.web.proxy.distributions import LearnedDistributions  # noqa: E402
from semtoken.web.proxy.metrics import ProxyMetrics  # noqa: E402
from semtoken.web.proxy.paths import check_target, is_own, shows_answers  # noqa: E402
from semtoken.web.proxy.relay import held_back_error, relay_reply, relay_untouched  # noqa: E402
from semtoken.web.proxy.scoring import AnswerScoring, ReplyScorer  # noqa: E402
from semtoken.web.proxy.settings import ProxySettings  # noqa: E402
from semtoken.web.proxy.stream import relay_stream  # noqa: E402
from semtoken.web.proxy.unpacking import can_be_unpacked  # noqa: E402
from semtoken.web.proxy.upstream import (  # noqa: E402
    BrokenOff,
    Request,
    Upstream,
    UpstreamAnswer,
    failure,
    forwarded_headers,
)
from semtoken.web.recorder import AnswerRecorder, add_routes, recording  # noqa: E402
from semtoken.web.running import FRESH_OBJECTS  # noqa: E402
from semtoken.web.wire import ApiError  # noqa: E402

logger = logging.getLogger("semtoken.proxy")

UPSTREAM_OWN = re.compile(r"^/upstream(/|/health|/metrics)$")  # paths that the proxy answers itself
NO_STREAMS = (
    "This proxy shows accepted answers only (abstain_text), and decides on whole answers: ask without `stream`."
)
NO_ROUTE = (
    "This proxy has no such route: /semtoken/review and /semtoken/watch need --journal, /semtoken/calibrator needs "
    "--calibrator. Nothing below /semtoken is forwarded."
)
NOT_READ = "This proxy shows accepted answers only (abstain_text), and could not read the request."
NOT_DECIDED = (
    "This proxy shows accepted answers only (abstain_text), and decides on answers to POST requests whose path ends "
    "with one of: {paths}."
)


class ProxyHandler:
    """An ASGI application that forwards everything to the upstream."""

    def __init__(self, upstream: Upstream, scoring: AnswerScoring, asking: Asking, decisions: ProxyDecisions) -> None:
        self._upstream = upstream
        self._scoring = scoring
        self._settings = scoring.settings
        self._metrics = scoring.metrics
        self._asking = asking
        self._decisions = decisions
        self._admission = Admission(self._settings.max_connections, self._settings.max_connections_per_client)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with scores where there are numbers to score by; whatever goes wrong ends here."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1011, "reason": "This proxy forwards no WebSockets."})
            return
        client = Client(scope, receive, send)
        with self._metrics.in_flight.track_inprogress():
            try:
                # Both last as long as the exchange: the clock of the request, and its place among those admitted.
                with anyio.fail_after(self._settings.request_timeout), self._admission.admitted(client.address):
                    await self._answer(client)
            except Exception as error:
                reason, answer = ending(error)
                self._metrics.failures.labels(reason).inc()
                logger.info("A request did not end well: %s", reason)
                if answer is not None:
                    await client.fail(answer)
            finally:
                status = "none" if client.status is None else str(client.status)
                shape, typed = client.shape, client.asked_in
                endpoint = shape.name if shape else typed.path.strip("/") if typed else "other"
                self._metrics.requests.labels(endpoint, status).inc()

    async def _answer(self, client: Client) -> None:
        """Answer a request; `ApiError` if it is rejected."""
        check_target(client.target)
        if is_own(client.path):
            raise ApiError(404, NO_ROUTE, code="not_found")
        body = await client.body(self._settings.max_request_bytes, self._settings.body_timeout)
        # Taken once: another calibrator may come into use while the answer is written.
        applied = self._scoring.calibrators.current
        asked = _read(client, body)
        if applied is not None and applied.abstain_text is not None:
            _check_decidable(client, asked)
        own = UPSTREAM_OWN.match(client.path)
        target = client.target.replace(b"/upstream", b"", 1) if own else client.target
        headers = forwarded_headers(client.headers, b"host", b"content-length", b"expect")
        request = Request(client.method, target, headers, body)
        with client.until_gone():
            async with AsyncExitStack() as stack:
                if client.asked_in is not None:
                    await self._decisions.answer(stack, client, request, client.asked_in)
                elif asked is None:
                    await relay_untouched(await self._upstream.send(stack, request), client)
                else:
                    answer, top = await self._asking.answer(stack, request, asked)
                    scorer = ReplyScorer(self._scoring, asked, request, top, applied)
                    await self._pass_on(answer, client, scorer)

    async def _pass_on(self, answer: UpstreamAnswer, client: Client, scorer: ReplyScorer) -> None:
        """Pass on an answer with its scores, or as it came where it can have none."""
        if answer.status != 200 and (not scorer.decides or answer.status >= 300):
            await relay_untouched(answer, client)
            return
        if not scorer.decides and answer.is_stream and await can_be_unpacked(answer):
            await relay_stream(answer, client, scorer)
        elif answer.kind == "application/json":
            await relay_reply(answer, client, scorer)
        else:
            reason = "encoded" if answer.is_stream else "not_json"
            scorer.pass_on(reason)
            if scorer.decides:
                raise held_back_error()
            await relay_untouched(answer, client, unscored=reason)
        self._metrics.added_seconds.observe(scorer.clock.seconds)


def _read(client: Client, body: bytes) -> AnswerRequest | None:
    """The request for an answer that can be scored; None for any other."""
    if client.shape is None or client.header(b"content-encoding") not in (None, b"identity"):
        return None
    return next(filter(None, (read_request(shape, body) for shape in shapes_at(client.path))), None)


def _check_decidable(client: Client, asked: AnswerRequest | None) -> None:
    """Check, where only accepted answers may be shown, that the answer to a request can be decided; else `ApiError`."""
    if asked is not None:
        if asked.shape.streams(asked.body):
            raise ApiError(400, NO_STREAMS, param="stream", code="no_streams")
    # What cannot be read cannot be decided either, and might hold an answer that is to be held back.
    elif shows_answers(client.path):
        if client.shape is not None:
            raise ApiError(400, NOT_READ, code="not_read")
        paths = ", ".join(shape.path for shape in served_shapes())
        raise ApiError(403, NOT_DECIDED.format(paths=paths), code="not_decided")


def ending(error: Exception) -> tuple[str, ApiError | None]:
    """The word by which a request that ended with an error is counted, and the answer to its client, if it is there."""
    match error:
        case ClientGone():
            return "client_gone", None
        case BrokenOff():
            return "upstream_stalled" if error.stalled else "upstream_broke_off", failure(error)
        case ApiError():
            return error.code or "upstream_error", error
        case TimeoutError():
            return "request_timeout", ApiError(504, "The request took too long.", code="request_timeout")
    logger.exception("A request failed")
    return "proxy_failed", ApiError(500, "The proxy failed; see its log.", kind="server_error")


IDS_ALONE = (
    "Ids do not say which tokens agree, so intervals would be wider than by the tokens' texts: name the upstream's "
    "tokenizer with --tokenizer, or leave token_ids under [endpoint] out."
)


class AnyRoute(BaseRoute):
    """A route for every request: a mount would answer those itself whose path is none, or holds a line break."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Any]:
        """Match every request, whatever its path."""
        return Match.FULL, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request to the application that forwards it."""
        await self._app(scope, receive, send)


def proxy_app(
    settings: ProxySettings,
    vocabulary: Tokens | None = None,
    rules: ScoringRules | None = None,
    calibrator: CalibratorInUse | CalibratorSlot[CalibratorInUse] | None = None,
    *,
    recorder: AnswerRecorder | None = None,
    page: bool = True,
    gate: Gate | None = None,
    decision_calibrator: DecisionCalibrator | CalibratorSlot[DecisionCalibrator] | None = None,
    tokenizer: Any = None,
) -> FastAPI:
    """An OpenAI-compatible reverse proxy.

    Parameters
    ----------
    settings
        The address of the upstream, and the limits.
    vocabulary
        The vocabulary of the upstream's model, for narrower intervals; the preset `paper` needs its `TokenClusters`.
    rules
        As for `score_logits`.
    calibrator
        Adds the probability and the decision to every final block; in a slot it can be exchanged.
    recorder
        Keeps the answers in a journal.
    page
        Whether to show the page for people at `/`; the upstream's own is then at `/upstream/`.
    gate
        Who may read and write the journal, and exchange the calibrator. Default: this machine, where no other one can
        reach the proxy.
    decision_calibrator
        Adds probability, decision and guarantee to the answers to typed questions; in a slot it can be exchanged.
    tokenizer
        That of the upstream's model, where the settings ask for token ids: typed questions then ask vLLM for the tokens
        of their options, whose probabilities are exact.

    Raises
    ------
    InvalidInputError
        The settings ask for token ids, and there is no vocabulary that says which tokens they are.
    """
    if settings.token_ids and vocabulary is None:
        raise InvalidInputError(IDS_ALONE)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)  # addresses and headers hold keys
    metrics = ProxyMetrics()
    upstream = Upstream(settings)
    scorer = scorer_for(vocabulary, rules or ScoringRules())
    calibrators, of_decisions = slot_of(calibrator), slot_of(decision_calibrator)
    distributions = LearnedDistributions(upstream, settings.distribution)
    workers = Workers(settings.scoring_threads, settings.scoring_queue, metrics.scoring.track_inprogress)
    scoring = AnswerScoring(scorer, settings, metrics, workers, distributions, calibrators, recorder)
    scoring.warm_up()
    asking = Asking(upstream, settings, metrics)
    known = ModelTokens(None if vocabulary is None else scorer.vocabulary, tokenizer)
    decisions = ProxyDecisions(upstream, settings, asking, of_decisions, known)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        with few_collections(FRESH_OBJECTS), recording(recorder, calibrators, metrics.journal):
            yield
        await distributions.aclose()
        await upstream.aclose()

    app = FastAPI(openapi_url=None, lifespan=running)
    app.state.upstream = upstream

    @app.get("/health")
    async def health() -> dict[str, Any]:
        status = await upstream.answers()
        return {
            "status": "ok",
            "upstream": {"answers": status is not None, "status": status},
            "clusters": None if scorer.clusters is None else scorer.clusters.signature,
            **({"distributions": distributions.known} if distributions.known else {}),
            **({} if recorder is None else {"journal": recorder.health()}),
        }

    @app.get("/metrics")
    def figures() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    if page:
        review, methods = recorder is not None, methods_reading(FROM_BEST)
        facts = partial(page_facts, scorer, review=review, upstream=settings.shown_upstream, methods=methods)
        add_page(app, lambda: facts(calibrators.current))
    add_routes(app, recorder, calibrators, of_decisions, gate, settings.allowed_hosts)
    # Last, so that the routes of the proxy itself come before it.
    app.router.routes.append(AnyRoute(ProxyHandler(upstream, scoring, asking, decisions)))
    app.add_middleware(HostGuard, hosts=settings.allowed_hosts, origins=settings.allowed_origins)
    return app
