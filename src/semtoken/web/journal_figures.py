"""Figures of a journal for Prometheus: its entries, and whether the promise is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semtoken.support.extras import require

if TYPE_CHECKING:
    from semtoken.journal.watch import PromiseReport

require("prometheus_client", extra="serve")

from prometheus_client import CollectorRegistry, Counter, Gauge  # noqa: E402

OUTCOMES = ("acknowledged", "written", "dropped")


class JournalFigures:
    """The figures of one server's journal.

    Parameters
    ----------
    registry
        Of the server.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.entries = Counter(
            "semtoken_journal_entries",
            "Entries of the journal: acknowledged, written to the database, dropped.",
            ["outcome"],
            registry=registry,
        )
        self._counted = {outcome: self.entries.labels(outcome) for outcome in OUTCOMES}
        self.waiting = Gauge(
            "semtoken_journal_waiting_bytes",
            "Entries that the database does not have yet.",
            registry=registry,
            multiprocess_mode="livesum",
        )

        self.state = Gauge(
            "semtoken_promise_state",
            "1 for the state of the promise: kept, unknown, broken or no_promise.",
            ["state"],
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self.share = Gauge(
            "semtoken_promise_wrong_share",
            "Bounds on the share that the promise limits, and the share that was promised.",
            ["bound"],
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self.labels = Gauge(
            "semtoken_promise_labels",
            "Labels that tell of the promise, and those of them that count against it.",
            ["kind"],
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self.distance = Gauge(
            "semtoken_drift_distance",
            "Distance of the newest scores, and hidden states, from those that the calibrator was fitted on.",
            ["of"],  # states only where a number was learned from them
            registry=registry,
            multiprocess_mode="mostrecent",
        )

    def show(self, report: PromiseReport) -> None:
        """Show what a look at the promise found."""
        for state in ("kept", "unknown", "broken", "no_promise"):
            self.state.labels(state).set(state == report.state)
        for bound, value in (("lower", report.low), ("upper", report.high), ("promised", report.alpha)):
            if value is not None:
                self.share.labels(bound).set(value)
        self.labels.labels("all").set(report.n)
        self.labels.labels("against").set(report.wrong)
        for name, moved in (("scores", report.moved), ("states", report.states_moved)):
            if moved is not None:
                self.distance.labels(name).set(moved.distance)

    def begin(self) -> None:
        """Show zeros for what has not happened."""
        for counter in self._counted.values():
            counter.inc(0)

    def count(self, outcome: str, n: int, waiting: int) -> None:
        """Count entries; `waiting` bytes are not in the database."""
        self._counted[outcome].inc(n)
        self.waiting.set(waiting)
