"""The journal that a command reads, or that a command or a server records answers in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semtoken.cli.console import tell
from semtoken.cli.settings import JournalSection
from semtoken.support.files.safe_files import is_sqlite

if TYPE_CHECKING:
    from semtoken.guarantees.journal.keeper import AnswerKeeper
    from semtoken.guarantees.journal.store import Journal
    from semtoken.web.recorder import AnswerRecorder


def is_journal(source: str) -> bool:
    """Tell whether a text names a database: an address, or a file that begins as those of SQLite do."""
    return "://" in source or is_sqlite(Path(source))


def open_journal(url: str, spool: Path | None = None) -> Journal:
    """Open an existing journal, after adding the entries that killed processes left in their spools."""
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


def kept_answers(url: str | None, rules: JournalSection, source: str) -> AbstractContextManager[AnswerKeeper | None]:
    """The keeper that puts the answers of a command into a journal by the rules of `[journal]`; None without one."""
    if not url:
        return nullcontext()
    from semtoken.guarantees.journal.keeper import keeping

    return keeping(url, rules.recording, source, on_loss=partial(tell, style="yellow"))


def recorder_for(url: str | None, rules: JournalSection, source: str, **about: Any) -> AnswerRecorder | None:
    """The recorder that puts the answers of a server into a journal by the rules of `[journal]`; None without one.

    `source` is the command that records, and `about` goes to `AnswerOrigin`.
    """
    if not url:
        return None
    from semtoken.web.recorder import recorder_into

    return recorder_into(url, rules.recording, source, **about)
