"""`AnswerKeeper`: answers that were read from files go into a journal, each once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from semtoken.core.results import ScoredAnswer
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.journal.entries import Recording
from semtoken.guarantees.journal.recording import RecordingRules, open_to_record
from semtoken.guarantees.journal.writer import JournalWriter


class AnswerKeeper:
    """Puts answers into a journal, each once, for work that ends by itself and may be done again.

    `writer` has to be started before the first answer, and closed after the last one.
    """

    def __init__(self, recording: Recording, writer: JournalWriter) -> None:
        self._recording, self._writer = recording, writer

    def uses(self, applied: CalibratorInUse | None) -> None:
        """Store the calibrator that decides, so that its guarantee can be watched."""
        if applied is not None:
            self._writer.journal.use(applied.file, applied.checksum)

    def keep(
        self,
        result: ScoredAnswer,
        block: Mapping[str, Any] | None,
        applied: CalibratorInUse | None,
        *,
        place: str,
        question: str | None,
    ) -> None:
        """Put an answer into the journal, once: work that is resumed does not add the same answer again.

        `place` says where the answer is from, such as file and line; equal answers from two places are two. `block` is
        what the calibrator said of it (`CalibratorInUse.block`). The question is the prompt, too, as `Recording.entry`
        takes it.
        """
        name = _identifier(place, question, result.text, None if applied is None else applied.checksum)
        entry = self._recording.entry(
            result, block or {}, applied=applied, prompt=question, question=question, identifier=name
        )
        self._writer.put(entry)


@contextmanager
def keeping(url: str, rules: RecordingRules, source: str, *, on_loss: Callable[[str], None]) -> Iterator[AnswerKeeper]:
    """The keeper that puts answers into the journal at an address while the block runs.

    `source` is the command that records. `on_loss` is called at the end with a sentence on each kind of entries that
    the journal does not have.
    """
    journal, recording = open_to_record(url, rules, source)
    writer = JournalWriter(journal, rules.spool)
    writer.start()
    try:
        yield AnswerKeeper(recording, writer)
    finally:
        writer.close()
        for loss in writer.losses:
            on_loss(loss)
        journal.close()


def _identifier(*parts: object) -> str:
    """The same for the same answer, whenever it is kept."""
    return hashlib.sha256("\n".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
