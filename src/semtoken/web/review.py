"""People label answers of the journal here, and a thread tests whether the guarantee is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response

from semtoken.errors import SemtokenError
from semtoken.guarantees.journal import labels
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.watch import GuaranteeReport, watch
from semtoken.web.callers import Gate, answer_guarded
from semtoken.web.wire import ApiError

SHOWN = ("id", "question", "answer", "doubts", "model")
"""The fields of an answer that the page gets: neither how sure the model was nor what was decided, which would sway
people."""


def add_review(app: Any, journal: Journal, gate: Gate) -> None:
    """Add GET and POST /semtoken/review, and GET /semtoken/watch."""

    async def state(request: Request) -> Response:
        return await answer_guarded(request, gate, lambda _: watch(journal).to_dict())

    async def review(request: Request) -> Response:
        asked = request.query_params
        return await answer_guarded(
            request, gate, lambda _: _next(journal, asked.get("reviewer", ""), asked.get("queue"))
        )

    async def label(request: Request) -> Response:
        return await answer_guarded(request, gate, lambda body: _labeled(journal, body))

    app.add_route("/semtoken/watch", state, methods=["GET"])
    app.add_route("/semtoken/review", review, methods=["GET"])
    app.add_route("/semtoken/review", label, methods=["POST"])


def _next(journal: Journal, reviewer: str, queue: str | None) -> dict[str, Any]:
    """The answers that a person is to label next, and the progress of everybody."""
    name = queue or "sample"
    if name not in get_args(labels.QueueName):
        raise ApiError(400, f"There is no queue {name[:40]!r}.", param="queue")
    rows = labels.queue(journal, reviewer, name)  # type: ignore[arg-type]
    size = journal.size()
    return {
        "items": [{field: row[field] for field in SHOWN} for row in rows],
        "labels": size.labels,
        "sampled": size.sampled,
        "answers": size.entries,
        "agreement": labels.agreement(journal).sentence,
    }


def _labeled(journal: Journal, body: dict[str, Any]) -> dict[str, Any]:
    reviewer = body.get("reviewer")
    if not isinstance(reviewer, str):
        raise ApiError(400, "`reviewer` must be a name.", param="reviewer")
    if body.get("undo") is True:
        return {"undone": labels.undo(journal, reviewer)}
    entry, correct = body.get("id"), body.get("correct")
    if not isinstance(entry, str) or not isinstance(correct, bool | None) or "correct" not in body:
        raise ApiError(400, "Send `id`, `reviewer` and `correct`: true, false, or null for one who cannot tell.")
    labels.add_label(journal, entry, reviewer, correct)
    return {"labeled": entry}


logger = logging.getLogger("semtoken.watch")

EVERY = 60.0
"""Seconds between two tests of the guarantee."""


class GuaranteeWatch:
    """Tests the guarantee of the calibrator in use every minute."""

    def __init__(self, journal: Journal, every: float = EVERY) -> None:
        self._journal, self._every = journal, every
        self._stop, self._thread = Event(), Thread(target=self._run, name="watch", daemon=True)
        self.on_report: Callable[[GuaranteeReport], None] = lambda report: None
        """Called with the report of each test."""
        self.on_state: Callable[[GuaranteeReport], None] = lambda report: None
        """Called with the report of the first test, and of each one that finds another state than the test before."""

    def start(self) -> None:
        """Start the thread that tests."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait up to five seconds for it."""
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        before = None
        while True:
            try:
                report = watch(self._journal)
                self.on_report(report)
                if report.state != before:
                    self.on_state(report)
                    before = report.state
                    if report.state == "broken":
                        logger.warning(report.sentence)
            except SemtokenError as error:
                logger.warning("The guarantee could not be looked at: %s", error)
            except Exception:
                logger.exception("The guarantee could not be looked at")
            if self._stop.wait(self._every):
                return
