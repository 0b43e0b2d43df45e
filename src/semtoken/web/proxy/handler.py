"""What becomes of one request: read, forwarded, answered; every way in which that can go wrong."""

from __future__ import annotations

import logging
import re
from contextlib import AsyncExitStack
from unicodedata import normalize
from urllib.parse import unquote, unquote_to_bytes

import anyio

from semtoken.calibration.apply import CalibratorInUse
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.payloads.formats import served_shapes, shapes_at
from semtoken.web.admission import Admission, Workers
from semtoken.web.calibrators import CalibratorSlot
from semtoken.web.proxy.asking import Asking
from semtoken.web.proxy.client import Client, ClientGone, Message, Receive, Send
from semtoken.web.proxy.decisions import ProxyDecisions
from semtoken.web.proxy.editing import Editor, Withheld
from semtoken.web.proxy.metrics import ProxyMetrics
from semtoken.web.proxy.relay import Scoring, held_back_error, is_stream, relay_reply, relay_stream, relay_untouched
from semtoken.web.proxy.rewriting import AnswerRequest, read_request
from semtoken.web.proxy.scoring import AnswerScoring, ReplyScorer
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.proxy.upstream import BrokenOff, Request, Upstream, can_be_unpacked, failure, forwarded_headers
from semtoken.web.wire import ApiError

DECODED = 3
"""How many times a path is decoded to see what it may mean: servers behind gateways decode more than once."""
ANSWERING = frozenset(
    {"batch", "batches", "chat", "conversations", "edits", "infer", "infill", "interactions", "invocations", "messages"}
    | {"predict", "responses", "slots", "threads"}
)
"""Segments of the paths at which servers give answers, besides those that hold "completion" or "generat"."""


def check_target(target: bytes) -> None:
    """Check that a path stays below the upstream's.

    Raises
    ------
    ApiError
        It does not begin with a slash, or has a fragment or a segment "." or "..", in whatever spelling.
    """
    if not target.startswith(b"/") or b"#" in target:
        raise ApiError(400, "The proxy forwards to its upstream only: ask for a path.", code="bad_target")
    path = target.partition(b"?")[0]
    for _ in range(DECODED):
        segments = re.split(rb"[/\\]", path)
        if any(segment.partition(b";")[0] in (b".", b"..") for segment in segments):
            raise ApiError(400, 'A path must not have the segments "." and "..".', code="bad_target")
        path = unquote_to_bytes(path)


def shows_answers(path: str) -> bool:
    """Whether any server might take a path, in any spelling, for one that answers prompts.

    Servers drop slashes at the end, parameters of segments and blanks, decode more than once, and fold letters.

    >>> shows_answers("/v1/Chat/completions%20;x/"), shows_answers("/v1/embeddings")
    (True, False)
    """
    for _ in range(DECODED):
        path = unquote(path)
    segments = re.split(r"[/\\]", normalize("NFKC", path).casefold())
    names = ["".join(filter(str.isalpha, segment.partition(";")[0])) for segment in segments]
    return any(name in ANSWERING or "completion" in name or "generat" in name for name in names)


logger = logging.getLogger("semtoken.proxy")

UPSTREAM_OWN = re.compile(r"^/upstream(/|/health|/metrics)$")  # paths that the proxy answers itself
REFUSED = "The upstream refuses to give log-probabilities for this request, so there is nothing to score."
NO_STREAMS = (
    "This proxy shows accepted answers only (--abstain-text), and decides on whole answers: ask without `stream`."
)
NOT_READ = "This proxy shows accepted answers only (--abstain-text), and could not read the request."


def _not_decided() -> str:
    """The message for a request at a path that no shape has."""
    paths = ", ".join(shape.path for shape in served_shapes())
    return (
        "This proxy shows accepted answers only (--abstain-text), and decides on answers to POST requests whose path "
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
        decision_calibrator: CalibratorSlot[DecisionCalibrator] | None = None,
    ) -> None:
        self._upstream = upstream
        self._settings = settings
        self._scoring = scoring
        self._workers = workers
        self._metrics = metrics
        self._asking = Asking(upstream, settings, metrics)
        self._decisions = ProxyDecisions(upstream, settings, self._asking, decision_calibrator)
        self._admission = Admission(settings.max_connections, settings.max_connections_per_client)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, with scores where there are numbers to score by."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1011, "reason": "This proxy forwards no WebSockets."})
            return
        client = Client(scope, receive, send)
        with self._metrics.in_flight.track_inprogress():
            try:
                with anyio.fail_after(self._settings.request_timeout):
                    await self._serve(client)
            except TimeoutError:
                await self._report_failure(client, ApiError(504, "The request took too long.", code="request_timeout"))
            except ClientGone:
                self._fail("client_gone")
            except Exception:
                logger.exception("A request failed")
                await self._report_failure(client, ApiError(500, "The proxy failed; see its log.", kind="server_error"))
            finally:
                status = "none" if client.status is None else str(client.status)
                shape, wire = client.shape, client.wire
                endpoint = shape.name if shape else wire.path.strip("/") if wire else "other"
                self._metrics.requests.labels(endpoint, status).inc()

    async def _serve(self, client: Client) -> None:
        try:
            with self._admission.admitted(client.address):
                await self._counted_request(client)
        except ApiError as error:
            await self._report_failure(client, error)

    async def _report_failure(self, client: Client, error: ApiError) -> None:
        """Count a failure and tell it if there is still a way to."""
        self._fail(error.code or "upstream_error")
        if client.status is None:
            await client.fail(error)

    async def _counted_request(self, client: Client) -> None:
        check_target(client.target)
        try:
            with anyio.fail_after(self._settings.body_timeout):
                body = await client.body(self._settings.max_request_bytes)
        except TimeoutError:
            raise ApiError(408, "The body of the request took too long.", code="body_timeout") from None
        shape = client.shape
        encoded = client.header(b"content-encoding") not in (None, b"identity")
        shapes = [] if shape is None or encoded else shapes_at(client.path)
        asked = next(filter(None, (read_request(one, body) for one in shapes)), None)
        if asked is None and withheld(self._scoring.calibrator) is not None and shows_answers(client.path):
            raise (
                ApiError(400, NOT_READ, code="not_read") if shape else ApiError(403, _not_decided(), code="not_decided")
            )
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await client.wait_until_gone()
                if not client.ended:
                    self._fail("client_gone")
                    tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            await self._exchange(client, asked, body)
            tasks.cancel_scope.cancel()

    async def _exchange(self, client: Client, asked: AnswerRequest | None, body: bytes) -> None:
        """Forward the request and pass the answer on; a failure is reported while that is still possible."""
        try:
            async with AsyncExitStack() as stack:
                if client.wire is not None:
                    await self._decisions.answer(stack, client, self._request(client, body), client.wire)
                elif asked is None:
                    answer = await self._upstream.send(stack, self._request(client, body))
                    await relay_untouched(answer, client)
                else:
                    await self._scored(stack, client, asked)
        except ApiError as error:
            await self._report_failure(client, error)
        except BrokenOff as error:
            self._fail("upstream_stalled" if error.stalled else "upstream_broke_off")
            if client.status is None:
                await client.fail(failure(error))

    def _fail(self, reason: str) -> None:
        self._metrics.failures.labels(reason).inc()
        logger.info("A request did not end well: %s", reason)

    @staticmethod
    def _request(client: Client, body: bytes) -> Request:
        own = UPSTREAM_OWN.match(client.path)
        target = client.target.replace(b"/upstream", b"", 1) if own else client.target
        return Request(
            client.method, target, forwarded_headers(client.headers, b"host", b"content-length", b"expect"), body
        )

    async def _scored(self, stack: AsyncExitStack, client: Client, asked: AnswerRequest) -> None:
        """Pass on an answer that is to be scored."""
        as_of_now = self._scoring.as_of_now()
        replaced = withheld(as_of_now.calibrator)
        if replaced is not None and asked.shape.streams(asked.body):
            raise ApiError(400, NO_STREAMS, param="stream", code="no_streams")
        request = self._request(client, b"")
        answer, top = await self._asking.answer(stack, request, asked)
        if answer.status != 200 and (replaced is None or answer.status >= 300):
            await relay_untouched(answer, client)
            return
        refused = not top and asked.kept is None and as_of_now.reader is None
        obstacle = asked.obstacle or (REFUSED if refused else None)
        scorer = ReplyScorer(as_of_now, asked, obstacle)
        hidden = asked.hidden(token_ids=self._settings.token_ids) if top else None
        settings = self._settings
        editor = Editor(asked.shape, hidden, replaced)
        scoring = Scoring(scorer, editor, self._workers, settings.max_scored_bytes, settings.hold)
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
