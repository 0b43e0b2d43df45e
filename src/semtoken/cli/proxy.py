"""`semtoken proxy`: a reverse proxy that adds a confidence to what any OpenAI-compatible server answers."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semtoken.cli.console import tell
from semtoken.cli.journals import recorder_for
from semtoken.cli.listening import LOOPBACK, warn_if_open, with_events
from semtoken.cli.loading import by_kind, load_calibrator, names_in, rules_of
from semtoken.cli.parameters import BaseUrl, Calibrators, Host, JournalUrl, Port, Tokenizer
from semtoken.cli.server import named_server
from semtoken.cli.settings import Count, Read, Settings, SettingsInUse
from semtoken.cli.statuses import UsageError
from semtoken.support.files.safe_files import MEBIBYTE
from semtoken.support.files.strict_json import parse_object

if TYPE_CHECKING:
    from semtoken.web.proxy.settings import ProxySettings
    from semtoken.web.running import Address


WORKERS_EACH = 16
"""The most processes for each processor: far more than there is work for."""


def proxy(
    *,
    base_url: BaseUrl = None,
    tokenizer: Tokenizer = None,
    calibrator: Calibrators = (),
    journal: JournalUrl = None,
    host: Host = LOOPBACK,
    port: Port = 8001,
    workers: Count = 1,
    in_use: Read[SettingsInUse],
) -> None:
    """Add confidence to the answers of a running server.

    Forwards every request, asks the server for log-probabilities, and adds the key semtoken to each choice. Everything
    else passes through unchanged. If an answer cannot be scored, the key holds the reason. Also answers typed questions
    at /v1/decisions and /v1/systemone. Figures are at /health and /metrics.

    Example: `semtoken proxy --base-url http://127.0.0.1:8000/v1`

    Parameters
    ----------
    workers
        Number of processes.
    """
    from semtoken.methods.observers.method_scores import FROM_BEST, chosen_methods
    from semtoken.web.callers import hosts_for
    from semtoken.web.connections import ConnectionLimits
    from semtoken.web.proxy.settings import ProxySettings
    from semtoken.web.proxy.upstream_tokenizer import ids_and_tokenizer
    from semtoken.web.running import listen, run, run_workers

    if workers > (most := WORKERS_EACH * (os.cpu_count() or 1)):
        raise UsageError(f"{workers:,} processes are more than this machine carries: give --workers at most {most:,}.")
    settings = in_use.settings
    endpoint, limits = settings.endpoint, settings.limits
    server = named_server(base_url, None, in_use, variable=True)
    if server is None:
        raise UsageError("Name the server: --base-url URL, base_url under [endpoint], or OPENAI_BASE_URL.")
    token_ids, tokenizer = ids_and_tokenizer(endpoint.token_ids, server.url, tokenizer, tell)
    asking = ProxySettings(
        server.url,
        top_logprobs=endpoint.top_logprobs,
        methods=chosen_methods(names_in(*settings.scoring.methods), FROM_BEST),
        token_ids=token_ids,
        distribution=endpoint.distribution or None,
        proxy_for=endpoint.answering_model or None,
        allowed_hosts=hosts_for(host, settings.server.allowed_hosts),
        allowed_origins=settings.server.allowed_origins,
        hold=settings.proxy.hold_seconds,
        decisions=settings.decisions.route,
        decision_requests=settings.decisions.concurrency,
        decision_fields=parse_object(settings.decisions.request_fields, "request_fields under [decisions]"),
        max_request_bytes=round(limits.request_mb * MEBIBYTE),
        max_scored_bytes=round(limits.reply_mb * MEBIBYTE),
        max_scored_tokens=limits.scored_tokens,
        max_scoring_seconds=limits.scoring_seconds,
        max_connections=limits.connections,
        connect_timeout=limits.connect_seconds,
        read_timeout=limits.read_seconds,
        request_timeout=limits.request_seconds,
    )
    folders = by_kind(calibrator, settings.calibration.decisions)
    make = partial(_application, asking, tokenizer, folders, journal, settings)
    app = make()  # here first, so that what cannot work is said once
    listener = listen(host, port)
    connections = ConnectionLimits(2 * limits.connections, 2 * asking.max_connections_per_client)

    def ready(address: Address) -> None:
        _announce(address, asking, page=_has_page(settings))

    if workers == 1:
        run(app, listener, ready, grace=limits.shutdown_seconds, limits=connections)
    else:
        run_workers(make, workers, listener, ready, grace=limits.shutdown_seconds, limits=connections)


def _application(
    asking: ProxySettings,
    tokenizer: str | None,
    folders: tuple[Path | None, Path | None],
    journal: str | None,
    settings: Settings,
) -> Any:
    from semtoken.core.given_tokens import as_tokens
    from semtoken.core.scorer import scorer_for
    from semtoken.guarantees import Fingerprint
    from semtoken.web.calibrators import calibrator_slots
    from semtoken.web.callers import Gate
    from semtoken.web.proxy.app import proxy_app
    from semtoken.web.proxy.upstream_tokenizer import loaded_tokenizer

    rules = rules_of(settings.scoring)
    tokens = None if tokenizer is None else as_tokens(tokenizer)
    spelling = loaded_tokenizer(tokenizer) if tokenizer is not None and asking.token_ids else None
    scorer = scorer_for(tokens, rules)
    answering = Fingerprint(signature=scorer.signature, scores="top-k", k=asking.top_logprobs)

    abstain_text = settings.calibration.abstain_text
    load = partial(load_calibrator, clusters=scorer.clusters, known=answering, abstain_text=abstain_text)
    calibrators, deciding = calibrator_slots(*folders, load)
    about = {"engine": asking.shown_upstream, "k": asking.top_logprobs}
    recorder = recorder_for(journal or settings.journal.url, settings.journal, "proxy", **about)
    app = proxy_app(
        asking,
        tokens,
        rules,
        calibrators,
        recorder=recorder,
        page=_has_page(settings),
        gate=Gate.from_environment(),
        decision_calibrator=deciding,
        tokenizer=spelling,
    )
    return with_events(app, settings.telemetry, recorder)


def _has_page(settings: Settings) -> bool:
    """Return True if the page is shown: not where answers may be hidden, because it streams them."""
    return settings.server.page and not settings.calibration.abstain_text


def _announce(address: Address, asking: ProxySettings, *, page: bool) -> None:
    tell(f"semtoken proxy at {address.url}/v1 in front of {asking.shown_upstream} (stop with Ctrl-C).")
    if page:
        tell(f"  a page to ask on: {address.url}")
    tell(f"  health: {address.url}/health   figures: {address.url}/metrics")
    warn_if_open(address)
