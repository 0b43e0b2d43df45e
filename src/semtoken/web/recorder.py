"""The journal of a server's answers as the server writes it, and its figures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from semtoken.core.results import ScoredAnswer
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.support.extras import require
from semtoken.web.calibrators import CalibratorSlot, add_exchange
from semtoken.web.callers import LOOPBACK_HOSTS, Gate

if TYPE_CHECKING:
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.guarantees.journal.entries import JournalEntry, Recording
    from semtoken.guarantees.journal.recording import RecordingRules
    from semtoken.guarantees.journal.watch import GuaranteeReport
    from semtoken.guarantees.journal.writer import JournalWriter
    from semtoken.web.review import GuaranteeWatch

require("prometheus_client", extra="serve")


from prometheus_client import CollectorRegistry, Counter, Gauge  # noqa: E402

logger = logging.getLogger("semtoken.journal")


class AnswerRecorder:
    """Puts answers into a journal; errors here never reach the client."""

    def __init__(self, recording: Recording, writer: JournalWriter, watch: GuaranteeWatch) -> None:
        self.recording = recording
        self.writer = writer
        self.watch = watch

    def scored(
        self, result: ScoredAnswer, block: Mapping[str, Any], applied: CalibratorInUse | None, **about: Any
    ) -> None:
        """Record a scored answer in the journal; see `Recording.entry`."""
        self._put(lambda: self.recording.entry(result, block, applied=applied, **about))

    def unscored(self, reason: str, **about: Any) -> None:
        """Record an answer without a score in the journal; see `Recording.unscored`."""
        self._put(lambda: self.recording.unscored(reason, **about))

    def uses(self, applied: CalibratorInUse | None) -> None:
        """Record which calibrator decides from now on; `JournalError` if the database does not answer."""
        if applied is not None:
            self.writer.journal.use(applied.file, applied.checksum)

    def health(self) -> dict[str, Any]:
        """The counts of journal entries of this process, for `/health`."""
        return vars(self.writer.figures)

    def _put(self, made: Callable[[], JournalEntry]) -> None:
        try:
            entry = made()
        except Exception:
            logger.exception("An answer could not be made an entry of the journal")
            return
        self.writer.put(entry)


def recorder_into(url: str, rules: RecordingRules, source: str, **about: Any) -> AnswerRecorder:
    """The recorder that puts a server's answers into the journal at an address.

    `source` is the command that serves, and `about` goes to `AnswerOrigin`.
    """
    from semtoken.guarantees.journal.recording import open_to_record
    from semtoken.guarantees.journal.writer import JournalWriter
    from semtoken.web.review import GuaranteeWatch

    journal, recording = open_to_record(url, rules, source, **about)
    writer = JournalWriter(journal, rules.spool, apart=True)
    return AnswerRecorder(recording, writer, GuaranteeWatch(journal))


@contextmanager
def recording(
    recorder: AnswerRecorder | None, calibrators: CalibratorSlot[CalibratorInUse], figures: JournalFigures
) -> Iterator[None]:
    """Record answers and calibrators in the journal while the block runs; does nothing without a recorder."""
    if recorder is None:
        yield
        return
    writer = recorder.writer
    writer.on_change = lambda outcome, n: figures.count(outcome, n, writer.figures.waiting_bytes)
    writer.start()
    recorder.watch.on_report = figures.show
    calibrators.on_change = recorder.uses
    recorder.uses(calibrators.current)
    recorder.watch.start()
    try:
        yield
    finally:
        recorder.watch.stop()
        writer.close()
        writer.journal.close()  # SQLite then brings its log into the file, which alone may be copied


def add_routes(
    app: Any,
    recorder: AnswerRecorder | None,
    calibrators: CalibratorSlot[CalibratorInUse],
    of_decisions: CalibratorSlot[DecisionCalibrator],
    gate: Gate | None,
    hosts: Sequence[str],
) -> None:
    """Add the routes of the journal and of the calibrators to a server that has any of them. Default of the gate: this
    machine, if the server answers to its names only.
    """
    chosen = gate or Gate()
    chosen = replace(chosen, loopback_only=set(hosts) <= set(LOOPBACK_HOSTS))
    if recorder is not None:
        from semtoken.web.review import add_review

        add_review(app, recorder.writer.journal, chosen)
    if calibrators.current is not None:
        add_exchange(app, "/semtoken/calibrator", calibrators, chosen)
    if of_decisions.current is not None:
        add_exchange(app, "/semtoken/decision-calibrator", of_decisions, chosen)


OUTCOMES = ("acknowledged", "written", "dropped", "set_aside")


class JournalFigures:
    """The metrics of one server's journal, as Prometheus reads them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.entries = Counter(
            "semtoken_journal_entries",
            "Entries of the journal: acknowledged, written to the database, dropped, set aside in a file.",
            ["outcome"],
            registry=registry,
        )
        for outcome in OUTCOMES:  # so that they are shown before anything has happened
            self.entries.labels(outcome)
        self.waiting = Gauge(
            "semtoken_journal_waiting_bytes",
            "Entries that the database does not have yet.",
            registry=registry,
            multiprocess_mode="livesum",
        )

        help_text = "1 for the state of the guarantee: kept, unknown, broken or no_guarantee."
        self.state = _newest("semtoken_guarantee_state", help_text, "state", registry)
        help_text = "Bounds on the share that the guarantee limits, and the share that was guaranteed."
        self.share = _newest("semtoken_guarantee_wrong_share", help_text, "bound", registry)
        help_text = "Labels that tell of the guarantee, and those of them that count against it."
        self.labels = _newest("semtoken_guarantee_labels", help_text, "kind", registry)
        help_text = "Distance of the newest scores from those that the calibrator was fitted on."
        self.distance = _newest("semtoken_drift_distance", help_text, "of", registry)

    def show(self, report: GuaranteeReport) -> None:
        """Update the figures from a report on the guarantee."""
        for state in ("kept", "unknown", "broken", "no_guarantee"):
            self.state.labels(state).set(state == report.state)
        for bound, value in (("lower", report.low), ("upper", report.high), ("guaranteed", report.alpha)):
            if value is not None:
                self.share.labels(bound).set(value)
        self.labels.labels("all").set(report.n)
        self.labels.labels("against").set(report.wrong)
        if report.moved is not None:
            self.distance.labels("scores").set(report.moved.distance)

    def count(self, outcome: str, n: int, waiting: int) -> None:
        """Count n entries with this outcome; `waiting` is the number of bytes not yet in the database."""
        self.entries.labels(outcome).inc(n)
        self.waiting.set(waiting)


def _newest(name: str, help_text: str, label: str, registry: CollectorRegistry) -> Gauge:
    """A gauge of which several processes show what the last one set."""
    return Gauge(name, help_text, [label], registry=registry, multiprocess_mode="mostrecent")
