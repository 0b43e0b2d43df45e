"""`semtoken journal`: look into a journal of scored answers, take it out, delete from it."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from semtoken.cli.console import agrees, out, print_json, say, tell
from semtoken.cli.journals import open_journal
from semtoken.cli.parameters import Force, Json, Limit, ToFile
from semtoken.cli.settings import Read, SettingsInUse, path_of
from semtoken.cli.statuses import UsageError
from semtoken.errors import InvalidInputError
from semtoken.support.text import with_noun

Url = Annotated[
    str | None,
    Parameter(metavar="URL", help="SQLite file or postgresql://user@host/name. Default: url under [journal]."),
]
UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}


def journal_url(given: str | None, in_use: SettingsInUse) -> str:
    """The journal's address: the typed one, else that of `[journal]`."""
    url = given or in_use.settings.journal.url
    if not url:
        raise UsageError("Name the journal: a file such as journal.db, or url under [journal] of semtoken.toml.")
    return url


def show(
    url: Url = None,
    /,
    *,
    limit: Limit[int] = 20,
    as_json: Json = False,
    in_use: Read[SettingsInUse],
) -> None:
    """Show the newest entries, the size of the journal, and its calibrators.

    With --json the first line is the size with the calibrators, and each further line an entry.

    Example: `semtoken journal show journal.db --limit 5`

    Parameters
    ----------
    limit
        Number of entries.
    """
    from semtoken.core.results.confidence import RANKS
    from semtoken.guarantees.journal.entries import line_of, record_of, when
    from semtoken.guarantees.journal.labels import labels_of

    journal = open_journal(journal_url(url, in_use))
    rows = list(journal.entries(newest_first=True, limit=limit))
    given = labels_of(journal, rows[-1]["n"], rows[0]["n"]) if rows else {}
    counts = journal.size()
    if as_json:
        print_json({"size": asdict(counts), "calibrators": [use.to_dict() for use in journal.in_use()]})
        for row in rows:
            print_json(record_of(row, given.get(row["n"], {})))
        return
    say(counts.sentence)
    if counts.first is not None and counts.last is not None:
        out().print(f"From {when(counts.first)[:16]} to {when(counts.last)[:16]} UTC.")
    for use in journal.in_use():
        say(use.in_words)
    for row in rows:
        say(f"{when(row['at'])[:19].replace('T', ' ')}  {line_of(row)}")
        if row["answer"] is not None:
            said = f"{row['question'] or ''} -> {row['answer']}"
            say(f"    {' '.join(said.split())[:300]}", "dim")
    if any(row["confidence"] is not None and row["probability_correct"] is None for row in rows):
        say(RANKS, "dim")


def export(
    url: Url = None,
    /,
    *,
    output: ToFile[Path] = Path("-"),
    labeled: bool = False,
    checksum: Annotated[str | None, Parameter(metavar="ID")] = None,
    force: Force = False,
    in_use: Read[SettingsInUse],
) -> None:
    """Export entries with their labels, or a calibrator that was used.

    Entries come oldest first; calibrate and label read the file. The first digits of a checksum are enough.

    Example: `semtoken journal export journal.db --labeled -o labeled.jsonl`

    Parameters
    ----------
    output
        Write here; the ending sets the format (.jsonl, .csv, .parquet). Default: standard output.
    labeled
        Only labeled answers of the random sample.
    checksum
        Export the calibrator with this checksum instead, to a folder.
    """
    if checksum is not None:
        if labeled:
            raise UsageError("--labeled has no effect with --checksum, which exports a calibrator: leave it out.")
        _export_calibrator(journal_url(url, in_use), checksum, output, force=force)
        return
    journal = open_journal(journal_url(url, in_use))
    from semtoken.guarantees.journal.export import check_nothing_lost
    from semtoken.guarantees.journal.export import export as write_entries
    from semtoken.support.files.record_files import STANDARD

    if not force:
        check_nothing_lost(journal, output, labeled=labeled)
    exported = write_entries(journal, output, labeled=labeled)
    if str(output) != STANDARD:
        tell(f"{output} holds {with_noun(exported, 'entry')}.")


def _export_calibrator(url: str, checksum: str, output: Path, *, force: bool) -> None:
    from semtoken.guarantees.calibrator import NAME

    if str(output) == "-":
        raise UsageError("A calibrator is a folder: say where to write it, -o my-calibrator.")
    use = open_journal(url).used(checksum)
    if (output / NAME).exists() and not force:
        raise InvalidInputError(f"There is a calibrator in {output} already. --force replaces it.")
    use.save(output)
    tell(f"{use.checksum[:12]} is in {output}. A server that uses this folder takes it with SIGHUP.")


def delete(
    url: Url = None,
    /,
    *,
    older_than: Annotated[str | None, Parameter(metavar="AGE")] = None,
    person: Annotated[str | None, Parameter(metavar="TAG")] = None,
    yes: Annotated[bool, Parameter(name=("--yes", "-y"))] = False,
    in_use: Read[SettingsInUse],
) -> None:
    """Delete entries with their labels.

    With both an age and a person, only entries that meet both. It fails as long as a file of the journal still holds
    deleted texts, and says why. Files that you exported before keep their texts: delete those yourself.

    Example: `semtoken journal delete journal.db --older-than 90d`

    Parameters
    ----------
    older_than
        Entries older than 12h, 90d, 8w or 2y.
    person
        Entries of this person (user or safety_identifier of the request).
    yes
        Do not ask.
    """
    if older_than is None and person is None:
        raise UsageError("Say which entries to delete: --older-than 90d, or --person TAG.")
    # No entry is from before 1970, and an age may be longer than any calendar.
    before = None if older_than is None else max(0.0, time.time() - seconds_of(older_than))
    spool = path_of(in_use.settings.journal.spool)
    journal = open_journal(journal_url(url, in_use), spool)
    if not yes and not agrees(f"Delete these entries of {journal.name} for good?"):
        raise InvalidInputError("Nothing was deleted: say yes, or give --yes.")
    deleted = journal.delete(before=before, person=person, spool=spool)
    tell(f"{with_noun(deleted, 'entry')} deleted. Files that were exported before keep their texts.")


def seconds_of(age: str) -> float:
    """Parse an age such as 90d into seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([hdwy])", age)
    if match is None:
        raise InvalidInputError(f"An age is a number with h, d, w or y, such as 90d; got {age!r}.")
    return float(match[1]) * UNITS[match[2]]
