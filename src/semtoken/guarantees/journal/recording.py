"""A journal opened to record answers, by rules on what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semtoken.guarantees.journal.entries import AnswerOrigin, Recording
from semtoken.guarantees.journal.kept_texts import text_rule
from semtoken.guarantees.journal.spool import check_spool, spool_folder
from semtoken.guarantees.journal.store import Journal


@dataclass(frozen=True)
class RecordingRules:
    """Rules on what a journal keeps of answers, and on its random sample."""

    texts: bool = False
    """True to keep questions and answers."""
    withhold: tuple[str, ...] = ()
    """Regular expressions; what they match is not kept."""
    withhold_with: str | None = None
    """`module:function`, which takes a text and returns what may be kept of it."""
    sample: float | None = None
    """Share of answers in the random sample, in [0, 1]; None: as before, or the default in a new journal."""
    seed: str | None = None
    """Any text that settles which answers are drawn; None: as before, or a random one in a new journal."""
    spool: Path | None = None
    """Folder for entries that the database does not have yet; None: the journal's own."""


def open_to_record(url: str, rules: RecordingRules, source: str, **about: Any) -> tuple[Journal, Recording]:
    """Open a journal, which is made where there is none, with what makes its entries by these rules.

    `source` is the command that records, and `about` goes to `AnswerOrigin`. `InvalidInputError` if a rule cannot be
    used or nothing can be written into the spool, `JournalError` if the database cannot be opened.
    """
    texts = text_rule(rules.texts, rules.withhold, rules.withhold_with)
    journal = Journal.open(url)
    check_spool(rules.spool or spool_folder(journal.engine.url))
    rule, salt = journal.sampling(rules.sample, rules.seed)
    return journal, Recording(AnswerOrigin(source, **about), rule, salt, texts)
