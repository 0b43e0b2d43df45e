"""Figures for Prometheus. Labels come from short fixed lists, never from requests."""

from __future__ import annotations

import os

from semtoken.support.extras import require

require("prometheus_client", extra="serve")

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest  # noqa: E402
from prometheus_client.multiprocess import MultiProcessCollector  # noqa: E402

from semtoken.web.recorder import JournalFigures  # noqa: E402
from semtoken.web.running import SHARED_FIGURES  # noqa: E402

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_WIDTHS = (0.0, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


class ProxyMetrics:
    """The figures of one proxy."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "semtoken_proxy_requests", "Requests answered.", ["endpoint", "status"], registry=self._registry
        )
        self.failures = Counter(
            "semtoken_proxy_failures", "Requests that did not end well.", ["reason"], registry=self._registry
        )
        self.scored = Counter(
            "semtoken_proxy_scored_answers", "Choices with an uncertainty.", ["endpoint"], registry=self._registry
        )
        self.unscored = Counter(
            "semtoken_proxy_unscored_answers", "Choices without one.", ["reason"], registry=self._registry
        )
        self.read_again = Counter(
            "semtoken_proxy_answers_read_again",
            "Choices without log-probabilities that a model in the proxy read.",
            ["endpoint"],
            registry=self._registry,
        )
        self.added_seconds = Histogram(
            "semtoken_proxy_added_seconds",
            "Time spent in the proxy itself for a scored answer.",
            registry=self._registry,
            buckets=_SECONDS,
        )
        self.widths = Histogram(
            "semtoken_proxy_interval_width",
            "Width of the uncertainty interval of scored choices.",
            registry=self._registry,
            buckets=_WIDTHS,
        )
        self.refusals = Counter(
            "semtoken_proxy_refusals",
            "Refusals of log-probabilities by the upstream; given: what it was asked for then.",
            ["endpoint", "given"],
            registry=self._registry,
        )
        self.refusals_remembered = Gauge(
            "semtoken_proxy_refusals_remembered",
            "Shapes of requests for which the upstream is asked for fewer log-probabilities, or none.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self.journal = JournalFigures(self._registry)
        self.scoring = Gauge(
            "semtoken_proxy_scoring_work",
            "Pieces of scoring work that run or wait.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self.in_flight = Gauge(
            "semtoken_proxy_requests_in_flight",
            "Requests being answered.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )

    def text(self) -> bytes:
        """All figures in Prometheus' text format: those of all processes of this proxy."""
        if not os.environ.get(SHARED_FIGURES):
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
