"""Figures for Prometheus. Labels come from short fixed lists, never from requests."""

from __future__ import annotations

import os
from collections.abc import Sequence

from semtoken.support.extras import require

require("prometheus_client", extra="serve")

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest  # noqa: E402
from prometheus_client.multiprocess import MultiProcessCollector  # noqa: E402

from semtoken.web.recorder import JournalFigures  # noqa: E402
from semtoken.web.running import SHARED_FIGURES  # noqa: E402

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_WIDTHS = (0.0, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


class ProxyMetrics:
    """The metrics of one proxy, as Prometheus reads them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = self._counter("requests", "Requests answered.", "endpoint", "status")
        self.failures = self._counter("failures", "Requests that did not end well.", "reason")
        self.scored = self._counter("scored_answers", "Choices with an uncertainty.", "endpoint")
        self.unscored = self._counter("unscored_answers", "Choices without one.", "reason")
        help_text = "Time spent in the proxy itself for a scored answer."
        self.added_seconds = self._histogram("added_seconds", help_text, _SECONDS)
        self.widths = self._histogram("interval_width", "Width of the uncertainty interval of scored choices.", _WIDTHS)
        help_text = "Refusals of log-probabilities by the upstream; given: what it was asked for then."
        self.refusals = self._counter("refusals", help_text, "endpoint", "given")
        help_text = "Shapes of requests for which the upstream is asked for fewer log-probabilities, or none."
        self.refusals_remembered = self._gauge("refusals_remembered", help_text)
        self.journal = JournalFigures(self._registry)
        self.scoring = self._gauge("scoring_work", "Pieces of scoring work that run or wait.")
        self.in_flight = self._gauge("requests_in_flight", "Requests being answered.")

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"semtoken_proxy_{name}", help_text, labels, registry=self._registry)

    def _histogram(self, name: str, help_text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"semtoken_proxy_{name}", help_text, registry=self._registry, buckets=buckets)

    def _gauge(self, name: str, help_text: str) -> Gauge:
        return Gauge(f"semtoken_proxy_{name}", help_text, registry=self._registry, multiprocess_mode="livesum")

    def text(self) -> bytes:
        """All figures in Prometheus' text format: those of all processes of this proxy."""
        if not os.environ.get(SHARED_FIGURES):
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
