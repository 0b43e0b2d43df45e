"""The proxy as an ASGI application: its own few pages, and everything else to the upstream, by `ProxyHandler`."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any
from unicodedata import normalize
from urllib.parse import unquote, unquote_to_bytes

from semtoken.core.rules import ScoringRules
from semtoken.support.extras import require

for _module in ("fastapi", "aiohttp", "prometheus_client"):
    require(_module, extra="serve")

import anyio  # noqa: E402
from fastapi import FastAPI, Response  # noqa: E402
from prometheus_client import CONTENT_TYPE_LATEST  # noqa: E402
from starlette.routing import BaseRoute, Match  # noqa: E402

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
from semtoken.web.limits import Admission, Workers  # noqa: E402
from semtoken.web.page.facts import page_facts  # noqa: E402
from semtoken.web.page.routes import add_page  # noqa: E402
from semtoken.web.proxy.asking import AnswerRequest, Asking, read_request  # noqa: E402
from semtoken.web.proxy.client import Client, ClientGone, Message, Receive, Send  # noqa: E402
from semtoken.web.proxy.decisions import ProxyDecisions  # noqa: E402
from semtoken.web.proxy.distributions import LearnedDistributions  # noqa: E402
from semtoken.web.proxy.editing import Editor, Withheld  # noqa: E402
from semtoken.web.proxy.headers import forwarded_headers  # noqa: E402
from semtoken.web.proxy.metrics import ProxyMetrics  # noqa: E402
from semtoken.web.proxy.relay import Scoring, held_back_error, is_stream, relay_reply, relay_stream, relay_untouched  # noqa: E402
from semtoken.web.proxy.scoring import AnswerScoring, ReplyScorer  # noqa: E402
from semtoken.web.proxy.settings import ProxySettings  # noqa: E402
from semtoken.web.proxy.unpacking import can_be_unpacked  # noqa: E402
from semtoken.web.proxy.upstream import BrokenOff, Request, Upstream, failure  # noqa: E402
from semtoken.web.recorder import AnswerRecorder, add_routes, recording  # noqa: E402
from semtoken.web.running import FRESH_OBJECTS  # noqa: E402
from semtoken.web.wire import ApiError  # noqa: E402

DECODED = 3
"""How many times a path is decoded to see what it may mean: servers behind gateways decode more than once."""
ANSWERING = frozenset(
    {"batch", "batches", "chat", "conversations", "edits", "infer", "infill", "interactions", "invocations", "messages"}
    | {"predict", "responses", "slots", "threads"}
)
"""Segments of the paths at which servers give answers, besides those that hold "completion" or "generat"."""


def check_target(target: bytes) -> None:
    """Check that a path stays below the upstream's.

    `ApiError` if it does not begin with a slash, or has a fragment or a segment "." or "..", in whatever spelling.
    """
    # HTTP allows a whole address here, and an HTTP client would go to that one.
    if not target.startswith(b"/") or b"#" in target:
        raise ApiError(400, "The proxy forwards to its upstream only: ask for a path.", code="bad_target")
    path = target.partition(b"?")[0]
    for _ in range(DECODED):
        segments = re.split(rb"[/\\]", path)
        # Java's servers take what follows a semicolon for parameters and drop it.
        if any(segment.partition(b";")[0] in (b".", b"..") for segment in segments):
            raise ApiError(400, 'A path must not have the segments "." and "..".', code="bad_target")
        path = unquote_to_bytes(path)


def shows_answers(path: str) -> bool:
    """Whether a server might take a path, in any spelling that servers accept, for one that answers prompts.

    >>> shows_answers("/v1/Chat/completions%20;x/"), shows_answers("/v1/embeddings")
    (True, False)
    """
    for _ in range(DECODED):
        path = unquote(path)
    # Servers differ in which of these they take for equal, so the loosest one decides.
    segments = re.split(r"[/\\]", normalize("NFKC", path).casefold())
    names = ["".join(filter(str.isalpha, segment.partition(";")[0])) for segment in segments]
    return any(name in ANSWERING or "completion" in name or "generat" in name for name in names)


def is_own(path: str) -> bool:
    """Whether a path, in any spelling, is below `/semtoken`: requests there may carry the token of this proxy's own
    routes, which the upstream must not see, whether or not there is such a route.

    >>> is_own("/semtoken/review"), is_own("//%73emtoken;x/%2e"), is_own("/v1/models")
    (True, True, False)
    """
    for _ in range(DECODED):
        path = unquote(path)
    segments = filter(None, re.split(r"[/\\]", normalize("NFKC", path).casefold()))
    return next(segments, "").partition(";")[0].strip() == "semtoken"


logger = logging.getLogger("semtoken.proxy")

UPSTREAM_OWN = re.compile(r"^/upstream(/|/health|/metrics)$")  # paths that the proxy answers itself
REFUSED = "The upstream does not give log-probabilities for this request, so there is nothing to score."
NO_STREAMS = (
    "This proxy shows accepted answers only (abstain_text), and decides on whole answers: ask without `stream`."
)
NO_ROUTE = (
    "This proxy has no such route: /semtoken/review and /semtoken/watch need --journal, /semtoken/calibrator needs "
    "--calibrator. Nothing below /semtoken is forwarded."
)
NOT_READ = "This proxy shows accepted answers only (abstain_text), and could not read the request."


def _not_decided() -> str:
    """The message for a request at a path that no shape has."""
    paths = ", ".join(shape.path for shape in served_shapes())
    return (
        "This proxy shows accepted answers only (abstain_text), and decides on answers to POST requests whose path "
        f"ends with one of: {paths}."
    )


class ProxyHandler:
    """An ASGI application that forwards everything to the upstream."""

    def __init__(
        self,
        upstream: Upstream,
        settings: ProxySettings,
        scoring: AnswerScoring,
        workers: Workers,
        metrics: ProxyMetrics,
        of_decisions: CalibratorSlot[DecisionCalibrator],
        tokens: ModelTokens,
    ) -> None:
        self._upstream = upstream
        self._settings = settings
        self._scoring = scoring
        self._workers = workers
        self._metrics = metrics
        self._asking = Asking(upstream, settings, metrics)
        self._decisions = ProxyDecisions(upstream, settings, self._asking, of_decisions, tokens)
        self._admission = Admission(settings.max_connections, settings.max_connections_per_client)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, with scores where there are numbers to score by; all that can go wrong is told here."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1011, "reason": "This proxy forwards no WebSockets."})
            return
        client = Client(scope, receive, send)
        with self._metrics.in_flight.track_inprogress():
            try:
                # Both last as long as the exchange: the clock of the request, and its place among those admitted.
                with anyio.fail_after(self._settings.request_timeout), self._admission.admitted(client.address):
                    body, asked = await self._received(client)
                    with client.until_gone():
                        async with AsyncExitStack() as stack:
                            request = self._request(client, body)
                            if client.asked_in is not None:
                                await self._decisions.answer(stack, client, request, client.asked_in)
                            elif asked is None:
                                await relay_untouched(await self._upstream.send(stack, request), client)
                            else:
                                await self._scored(stack, client, asked)
            except ClientGone:
                self._count("client_gone")
            except BrokenOff as broken:
                self._count("upstream_stalled" if broken.stalled else "upstream_broke_off")
                await client.fail(failure(broken))
            except ApiError as error:
                self._count(error.code or "upstream_error")
                await client.fail(error)
            except TimeoutError:
                self._count("request_timeout")
                await client.fail(ApiError(504, "The request took too long.", code="request_timeout"))
            except Exception:
                logger.exception("A request failed")
                self._count("proxy_failed")
                await client.fail(ApiError(500, "The proxy failed; see its log.", kind="server_error"))
            finally:
                status = "none" if client.status is None else str(client.status)
                shape, typed = client.shape, client.asked_in
                endpoint = shape.name if shape else typed.path.strip("/") if typed else "other"
                self._metrics.requests.labels(endpoint, status).inc()

    def _count(self, reason: str) -> None:
        """Count a request that did not end well."""
        self._metrics.failures.labels(reason).inc()
        logger.info("A request did not end well: %s", reason)

    async def _received(self, client: Client) -> tuple[bytes, AnswerRequest | None]:
        """The body of a request, and what it asks for if its answer can be scored; `ApiError` if it is rejected."""
        check_target(client.target)
        if is_own(client.path):
            raise ApiError(404, NO_ROUTE, code="not_found")
        try:
            with anyio.fail_after(self._settings.body_timeout):
                body = await client.body(self._settings.max_request_bytes)
        except TimeoutError:
            raise ApiError(408, "The body of the request took too long.", code="body_timeout") from None
        encoded = client.header(b"content-encoding") not in (None, b"identity")
        shapes = [] if client.shape is None or encoded else shapes_at(client.path)
        asked = next(filter(None, (read_request(shape, body) for shape in shapes)), None)
        # What cannot be read cannot be decided either, and might hold an answer that is to be held back.
        if asked is None and withheld(self._scoring.calibrators.current) is not None and shows_answers(client.path):
            if client.shape is None:
                raise ApiError(403, _not_decided(), code="not_decided")
            raise ApiError(400, NOT_READ, code="not_read")
        return body, asked

    @staticmethod
    def _request(client: Client, body: bytes) -> Request:
        own = UPSTREAM_OWN.match(client.path)
        target = client.target.replace(b"/upstream", b"", 1) if own else client.target
        return Request(
            client.method, target, forwarded_headers(client.headers, b"host", b"content-length", b"expect"), body
        )

    async def _scored(self, stack: AsyncExitStack, client: Client, asked: AnswerRequest) -> None:
        """Pass on an answer that is to be scored."""
        # Taken once: another calibrator may come into use while the answer is written.
        applied = self._scoring.calibrators.current
        replaced = withheld(applied)
        if replaced is not None and asked.shape.streams(asked.body):
            raise ApiError(400, NO_STREAMS, param="stream", code="no_streams")
        request = self._request(client, b"")
        answer, top = await self._asking.answer(stack, request, asked)
        if answer.status != 200 and (replaced is None or answer.status >= 300):
            await relay_untouched(answer, client)
            return
        refused = not top and asked.kept is None
        obstacle = asked.obstacle or (REFUSED if refused else None)
        scorer = ReplyScorer(self._scoring, asked, obstacle, applied)
        hidden = asked.hidden(token_ids=self._settings.token_ids) if top else None
        settings = self._settings
        editor = Editor(asked.shape, hidden, replaced)

        async def settle() -> None:
            if self._scoring.distributions is not None:
                await self._scoring.distributions.settle(scorer.model, scorer.format, request, asked, top)

        scoring = Scoring(scorer, editor, self._workers, settings.max_scored_bytes, settings.hold, settle)
        if replaced is None and is_stream(answer) and await can_be_unpacked(answer):
            await relay_stream(answer, client, scoring)
        elif answer.kind == "application/json":
            await relay_reply(answer, client, scoring)
        else:
            reason = "encoded" if is_stream(answer) else "not_json"
            scorer.pass_on(reason)
            if replaced is not None:
                raise held_back_error()
            await relay_untouched(answer, client, unscored=reason)
        self._metrics.added_seconds.observe(scorer.seconds)


def withheld(applied: CalibratorInUse | None) -> Withheld | None:
    """The rule that says which answers are replaced by a text; None if all are shown."""
    if applied is None or applied.abstain_text is None:
        return None
    return lambda block: applied.abstain_text if applied.withholds(block) else None


IDS_ALONE = (
    "Ids do not say which tokens agree, so intervals would be wider than by the tokens' texts: name the upstream's "
    "tokenizer with --tokenizer, or leave token_ids under [endpoint] out."
)


class AnyRoute(BaseRoute):
    """A route for every request: a mount would answer those itself whose path is none, or holds a line break."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def matches(self, scope: Any) -> tuple[Match, Any]:
        """Match every request, whatever its path."""
        return Match.FULL, {}

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
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
    scoring = AnswerScoring(scorer, settings, metrics, calibrators, recorder, distributions)
    workers = Workers(settings.scoring_threads, settings.scoring_queue, metrics.scoring.track_inprogress)
    scoring.warm_up()

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
    known = None if vocabulary is None else scorer.vocabulary
    handler = ProxyHandler(upstream, settings, scoring, workers, metrics, of_decisions, ModelTokens(known, tokenizer))
    # Last, so that the routes of the proxy itself come before it.
    app.router.routes.append(AnyRoute(handler))
    app.add_middleware(HostGuard, hosts=settings.allowed_hosts, origins=settings.allowed_origins)
    return app
