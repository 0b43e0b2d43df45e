"""The journal that a command reads, or that a command or a server records answers in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semtoken.cli.console import tell
from semtoken.cli.settings import JournalSection, path_of
from semtoken.support.extras import require
from semtoken.support.files.safe_files import is_sqlite

if TYPE_CHECKING:
    from semtoken.guarantees.journal.entries import Recording
    from semtoken.guarantees.journal.keeper import AnswerKeeper
    from semtoken.guarantees.journal.store import Journal
    from semtoken.web.recorder import AnswerRecorder


def is_journal(source: str) -> bool:
    """Tell whether a text names a database: an address, or a file that begins as those of SQLite do."""
    return "://" in source or is_sqlite(Path(source))


def open_journal(url: str, spool: Path | None = None) -> Journal:
    """Open an existing journal, after adding the entries that killed processes left in their spools."""
    require("sqlalchemy", extra="journal")
    from semtoken.guarantees.journal.database import database_errors
    from semtoken.guarantees.journal.spool import SET_ASIDE, spool_folder
    from semtoken.guarantees.journal.store import Journal
    from semtoken.guarantees.journal.writer import adopt_left_behind

    journal = Journal.open(url, create=False)
    with database_errors(journal.engine.url):
        refused: list[str] = []
        if n := adopt_left_behind(journal, spool, refused=refused.append):
            tell(f"{n:,} entries of a process that ended early are in the journal now.")
    if refused:
        file = (spool or spool_folder(journal.engine.url)) / SET_ASIDE
        tell(f"{len(refused):,} entries can never be written ({refused[0]}): they are in {file}.", style="yellow")
    return journal


def open_to_record(
    url: str | None, rules: JournalSection, source: str, **about: Any
) -> tuple[Journal, Recording] | None:
    """Open a journal, with what makes its entries by the rules of `[journal]`; None without an address.

    `source` is the command that records, and `about` goes to `AnswerOrigin`.
    """
    if not url:
        return None
    require("sqlalchemy", extra="journal")
    from semtoken.guarantees.journal.entries import AnswerOrigin, Recording
    from semtoken.guarantees.journal.kept_texts import text_rule
    from semtoken.guarantees.journal.spool import check_spool, spool_folder
    from semtoken.guarantees.journal.store import Journal

    texts = text_rule(rules.texts, rules.withhold, rules.withhold_with or None)
    journal = Journal.open(url)
    check_spool(path_of(rules.spool) or spool_folder(journal.engine.url))
    rule, salt = journal.sampling(rules.sample, rules.seed or None)
    return journal, Recording(AnswerOrigin(source, **about), rule, salt, texts)


@contextmanager
def kept_answers(url: str | None, rules: JournalSection, source: str) -> Iterator[AnswerKeeper | None]:
    """The keeper that puts the answers of a command into the journal that `open_to_record` gives; None without one."""
    opened = open_to_record(url, rules, source)
    if opened is None:
        yield None
        return
    from semtoken.guarantees.journal.keeper import AnswerKeeper
    from semtoken.guarantees.journal.writer import JournalWriter

    journal, recording = opened
    writer = JournalWriter(journal, path_of(rules.spool))
    writer.start()
    try:
        yield AnswerKeeper(recording, writer)
    finally:
        writer.close()
        for loss in writer.losses:
            tell(loss, style="yellow")
        journal.close()


def recorder_for(url: str | None, rules: JournalSection, source: str, **about: Any) -> AnswerRecorder | None:
    """The recorder that puts the answers of a server into the journal that `open_to_record` gives; None without one."""
    opened = open_to_record(url, rules, source, **about)
    if opened is None:
        return None
    from semtoken.guarantees.journal.writer import JournalWriter
    from semtoken.web.recorder import AnswerRecorder
    from semtoken.web.review import GuaranteeWatch

    journal, recording = opened
    writer = JournalWriter(journal, path_of(rules.spool), apart=True)
    return AnswerRecorder(recording, writer, GuaranteeWatch(journal))
