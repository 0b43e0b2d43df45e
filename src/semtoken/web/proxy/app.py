"""The proxy as an ASGI application: its own few pages, and everything else to the upstream."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from semtoken.calibration.apply import CalibratorInUse
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.errors import InvalidInput
from semtoken.observers.method_scores import FROM_BEST, methods_reading
from semtoken.scoring.scorer import scorer_for
from semtoken.scoring.token_sources import Tokens
from semtoken.support.extras import require
from semtoken.tokens.rules import ScoringRules

for _module in ("fastapi", "aiohttp", "prometheus_client"):
    require(_module, extra="serve")

from fastapi import FastAPI, Response  # noqa: E402
from prometheus_client import CONTENT_TYPE_LATEST  # noqa: E402
from starlette.routing import BaseRoute, Match  # noqa: E402

from semtoken.web.access import Gate, HostGuard  # noqa: E402
from semtoken.web.admission import Workers  # noqa: E402
from semtoken.web.calibrators import CalibratorSlot, slot_of  # noqa: E402
from semtoken.web.page.facts import page_facts  # noqa: E402
from semtoken.web.page.routes import add_page  # noqa: E402
from semtoken.web.proxy.handler import ProxyHandler  # noqa: E402
from semtoken.web.proxy.metrics import ProxyMetrics  # noqa: E402
from semtoken.web.proxy.reading import Reader  # noqa: E402
from semtoken.web.proxy.scoring import AnswerScoring  # noqa: E402
from semtoken.web.proxy.settings import ProxySettings  # noqa: E402
from semtoken.web.proxy.upstream import Upstream  # noqa: E402
from semtoken.web.recorder import AnswerRecorder, add_routes, recording  # noqa: E402
from semtoken.web.running import few_collections  # noqa: E402

IDS_ALONE = (
    "Ids do not say which tokens agree, so intervals would be wider than by the tokens' texts: name the upstream's "
    "tokenizer with --tokenizer, or leave --token-ids out."
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
    reader: Reader | None = None,
    page: bool = True,
    gate: Gate | None = None,
    decision_calibrator: DecisionCalibrator | CalibratorSlot[DecisionCalibrator] | None = None,
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
        Adds the chance and the decision to every final block; in a slot it can be exchanged.
    recorder
        Keeps the answers in a journal.
    reader
        Scores answers that come without log-probabilities.
    page
        Whether to show the page for people at `/`; the upstream's own is then at `/upstream/`.
    gate
        Who may read and write the journal, and exchange the calibrator. Default: this machine, where no other one can
        reach the proxy.
    decision_calibrator
        Adds chance, decision and promise to the answers to typed questions; in a slot it can be exchanged.

    Raises
    ------
    InvalidInput
        The settings ask for token ids, and there is no vocabulary that says which tokens they are.
    """
    if settings.token_ids and vocabulary is None:
        raise InvalidInput(IDS_ALONE)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)  # addresses and headers hold keys
    metrics = ProxyMetrics()
    upstream = Upstream(settings)
    scorer = scorer_for(vocabulary, rules or ScoringRules())
    calibrators, of_decisions = slot_of(calibrator), slot_of(decision_calibrator)
    scoring = AnswerScoring(scorer, settings, metrics, calibrators, reader, recorder)
    workers = Workers(settings.scoring_threads, settings.scoring_queue, metrics.scoring.track_inprogress)
    scoring.warm_up()

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        with few_collections(), recording(recorder, calibrators, metrics.journal):
            yield
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
    handler = ProxyHandler(upstream, settings, scoring, workers, metrics, of_decisions)
    app.router.routes.append(AnyRoute(handler))
    app.add_middleware(HostGuard, hosts=settings.allowed_hosts, origins=settings.allowed_origins)
    return app
