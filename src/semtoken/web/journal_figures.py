"""Figures of a journal for Prometheus: its entries, and whether the promise is kept."""

from __future__ import annotations

from semtoken.support.extras import require

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
        self.waiting = Gauge(
            "semtoken_journal_waiting_bytes",
            "Entries that the database does not have yet.",
            registry=registry,
            multiprocess_mode="livesum",
        )

    def begin(self) -> None:
        """Show zeros for what has not happened."""
        for outcome in OUTCOMES:
            self.entries.labels(outcome).inc(0)

    def count(self, outcome: str, n: int, waiting: int) -> None:
        """Count entries; `waiting` bytes are not in the database."""
        self.entries.labels(outcome).inc(n)
        self.waiting.set(waiting)
