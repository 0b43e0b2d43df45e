"""The journal that a command or a server records answers in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semtoken.cli.settings import JournalSection

if TYPE_CHECKING:
    from semtoken.guarantees.journal.entries import Recording
    from semtoken.guarantees.journal.keeper import AnswerKeeper
    from semtoken.guarantees.journal.store import Journal
    from semtoken.web.recorder import AnswerRecorder


@dataclass(frozen=True)
class JournalChoice:
    """Which journal to use, if any, and what to keep in it."""

    url: str | None
    """Where it is; None or empty: nothing is recorded."""
    rules: JournalSection
    """`[journal]` of the settings, whose own `url` counts only for servers, which give it themselves."""

    @property
    def spool(self) -> Path | None:
        """The folder for entries that the database does not have yet, if it was named."""
        return Path(self.rules.spool) if self.rules.spool else None

    def open(self, source: str, **about: Any) -> tuple[Journal, Recording] | None:
        """Open the journal, with what makes its entries; None without one. `about` goes to `AnswerOrigin`."""
        from semtoken.support.extras import require

        if not self.url:
            return None
        require("sqlalchemy", extra="journal")
        from semtoken.guarantees.journal.entries import AnswerOrigin, Recording, text_rule
        from semtoken.guarantees.journal.spool import check_spool, spool_folder
        from semtoken.guarantees.journal.store import Journal

        texts = text_rule(self.rules.texts, self.rules.withhold, self.rules.withhold_with or None)
        journal = Journal.open(self.url)
        check_spool(self.spool or spool_folder(journal.engine.url))
        rule, salt = journal.sampling(self.rules.sample, self.rules.seed or None)
        return journal, Recording(AnswerOrigin(source, **about), rule, salt, texts)

    @contextmanager
    def keeper(self, source: str, **about: Any) -> Iterator[AnswerKeeper | None]:
        """What puts the answers of a command into the journal that `open` gives; None without one."""
        opened = self.open(source, **about)
        if opened is None:
            yield None
            return
        from semtoken.cli.console import tell
        from semtoken.guarantees.journal.keeper import AnswerKeeper
        from semtoken.guarantees.journal.writer import JournalWriter

        journal, recording = opened
        writer = JournalWriter(journal, self.spool)
        writer.start()
        try:
            yield AnswerKeeper(recording, writer)
        finally:
            writer.close()
            figures = writer.figures
            if figures.dropped:
                tell(f"{figures.dropped:,} answers could not be kept in {journal.name}.", style="yellow")
            if figures.set_aside:
                told = f"{figures.set_aside:,} answers can never be written to {journal.name}: they are in "
                tell(f"{told}{writer.set_aside_file}.", style="yellow")
            if figures.problem is not None:
                told = f"{journal.name} takes nothing now ({figures.problem}): the next command that opens it brings "
                tell(f"{told}the answers in.", style="yellow")
            journal.close()

    def recorder(self, source: str, **about: Any) -> AnswerRecorder | None:
        """What puts the answers of a server into the journal that `open` gives; None without one."""
        opened = self.open(source, **about)
        if opened is None:
            return None
        from semtoken.guarantees.journal.writer import JournalWriter
        from semtoken.web.recorder import AnswerRecorder
        from semtoken.web.review import GuaranteeWatch

        journal, recording = opened
        return AnswerRecorder(recording, JournalWriter(journal, self.spool, apart=True), GuaranteeWatch(journal))
