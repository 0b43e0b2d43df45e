"""`semtoken journal`: look into a journal of scored answers, take it out, delete from it."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semtoken.cli.console import json_line, out, tell, untrusted
from semtoken.cli.journal_options import VARIABLE
from semtoken.cli.options import ForceOption, JsonOption, output_file, output_folder
from semtoken.cli.typer_commands import CommandGroup, ShortHelp
from semtoken.errors import InvalidInput

if TYPE_CHECKING:
    from semtoken.journal.store import Journal


app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, help="Look into a journal of scored answers, take it out, delete from it."
)

UrlArgument = Annotated[
    str,
    typer.Argument(metavar="URL", envvar=VARIABLE, help="A file such as journal.db, or postgresql://user@host/name."),
]
UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}


def open_journal(url: str, spool: Path | None = None) -> Journal:
    """Open an existing journal, after adding the entries that killed processes left in their spools."""
    from semtoken.support.extras import require

    require("sqlalchemy", extra="journal")
    from semtoken.journal.database import database_errors
    from semtoken.journal.spool import SET_ASIDE, spool_folder
    from semtoken.journal.store import Journal
    from semtoken.journal.writer import adopt_left_behind

    journal = Journal.open(url, create=False)
    with database_errors(journal.engine.url):
        refused: list[str] = []
        if n := adopt_left_behind(journal, spool, refused=refused.append):
            tell(f"{n:,} entries of a process that ended early are in the journal now.")
    if refused:
        file = (spool or spool_folder(journal.engine.url)) / SET_ASIDE
        tell(f"{len(refused):,} entries can never be written ({refused[0]}): they are in {file}.", style="yellow")
    return journal


@app.command(cls=ShortHelp)
def show(
    url: UrlArgument,
    n: Annotated[int, typer.Option("--last", "-n", min=1, help="How many of the newest entries.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """The newest entries: when, which model, how sure, what was decided.

    For example:

    - `semtoken journal show journal.db`
    - `semtoken journal show journal.db -n 3 --json`
    """
    from semtoken.journal.entries import record_of, when
    from semtoken.journal.labels import labels_of
    from semtoken.results.headlines import RANKS

    journal = open_journal(url)
    rows = list(journal.entries(newest_first=True, limit=n))
    given = labels_of(journal, rows[-1]["n"], rows[0]["n"]) if rows else {}
    if as_json:
        for row in rows:
            typer.echo(json_line(record_of(row, given.get(row["n"], {}))))
        return
    if not rows:
        tell("The journal is empty.")
    for row in rows:
        out.print(untrusted(f"{when(row['at'])[:19].replace('T', ' ')}  {_row_text(row)}"), soft_wrap=True)
        if row["answer"] is not None:
            said = f"{row['question'] or ''} -> {row['answer']}"
            out.print(untrusted(f"    {' '.join(said.split())[:300]}", style="dim"), soft_wrap=True)
    if any(row["confidence"] is not None and row["chance"] is None for row in rows):
        out.print(untrusted(RANKS, style="dim"), soft_wrap=True)


def _row_text(row: dict[str, Any]) -> str:
    from semtoken.support.text import with_bounds

    parts = [row["source"], row["model"] or "", "sample" if row["sampled"] else ""]
    if row["unscored"] is not None:
        parts.append(f"no score: {row['unscored']}")
    elif row["confidence"] is not None:
        sure = row["confidence"]
        low, high = (sure if row[end] is None else row[end] for end in ("confidence_low", "confidence_high"))
        parts.append(f"confidence {with_bounds(sure, (low, high), digits=2)}")
    if row["chance"] is not None:
        parts.append(f"chance {100 * row['chance']:.0f}%")
    parts += [row["decision"] or "", ", ".join(row["flags"] or ())]
    return " · ".join(filter(None, parts))


@app.command(cls=ShortHelp)
def export(
    url: UrlArgument,
    output: Annotated[Path, output_file("A .jsonl, .parquet or .csv file.", allow_dash=True)] = Path("-"),
    labelled: Annotated[
        bool, typer.Option("--labelled", help="Only answers of the random sample that people have labelled.")
    ] = False,
    force: ForceOption = False,
) -> None:
    """All entries with their labels, oldest first. `semtoken calibrate` and `semtoken label` read the file.

    For example:

    - `semtoken journal export journal.db -o answers.parquet`
    - `semtoken journal export journal.db --labelled -o labelled.jsonl`
    """
    import sqlalchemy as sa

    journal = open_journal(url)
    from semtoken.files.record_files import STANDARD
    from semtoken.journal import export as files
    from semtoken.journal.database import entries, labels

    conditions = []
    if labelled:
        said = sa.select(labels.c.n).where(labels.c.entry == entries.c.n, labels.c.correct.is_not(None)).exists()
        conditions = [entries.c.sampled, said]
    files.export(journal, output, *conditions)
    if str(output) != STANDARD:
        tell(f"The entries are in {output}.")


@app.command(cls=ShortHelp)
def delete(
    url: UrlArgument,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Entries older than 12h, 90d, 8w or 2y.")
    ] = None,
    person: Annotated[
        str | None, typer.Option("--person", help="Entries of requests with this tag (`user` or `safety_identifier`).")
    ] = None,
    spool: Annotated[
        Path | None,
        typer.Option("--journal-spool", file_okay=False, writable=True, help="The server's --journal-spool, if any."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete entries with their labels, by age or by the person who asked; with both, only entries that meet both.

    It fails as long as a file of the journal still holds deleted texts, and says why. Files that you exported before
    keep their texts: delete those yourself.

    For example:

    - `semtoken journal delete journal.db --older-than 90d`
    - `semtoken journal delete journal.db --person user-1234`
    """
    if older_than is None and person is None:
        raise InvalidInput("Say which entries to delete: --older-than 90d, or --person TAG.")
    before = None if older_than is None else time.time() - seconds_of(older_than)
    journal = open_journal(url, spool)
    if not yes:
        typer.confirm(f"Delete these entries of {journal.name} for good?", abort=True)
    deleted = journal.delete(before=before, person=person, spool=spool)
    tell(f"{deleted:,} entries deleted. Files that were exported before keep their texts.")


def seconds_of(age: str) -> float:
    """Parse an age such as 90d into seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([hdwy])", age)
    if match is None:
        raise InvalidInput(f"An age is a number with h, d, w or y, such as 90d; got {age!r}.")
    return float(match[1]) * UNITS[match[2]]


@app.command(cls=ShortHelp)
def size(url: UrlArgument, as_json: JsonOption = False) -> None:
    """How many entries and labels there are, and how much room they take.

    For example: `semtoken journal size journal.db`
    """
    from semtoken.journal.entries import when

    journal = open_journal(url)
    counts = journal.size()
    if as_json:
        typer.echo(json.dumps(asdict(counts)))
        return
    out.print(
        f"{counts.entries:,} entries, {counts.sampled:,} of them in the random sample; {counts.labels:,} labels by "
        f"{counts.reviewers} people; {counts.bytes / 2**20:,.1f} MiB.",
        soft_wrap=True,
    )
    if counts.first is not None and counts.last is not None:
        out.print(f"From {when(counts.first)[:16]} to {when(counts.last)[:16]} UTC.")


@app.command(cls=ShortHelp)
def calibrators(
    url: UrlArgument,
    take: Annotated[
        str | None, typer.Option("--take", metavar="CHECKSUM", help="Write this one; its first digits are enough.")
    ] = None,
    output: Annotated[Path | None, output_folder("Folder for the one that is written.")] = None,
    overwrite: Annotated[bool, typer.Option("--force", help="Replace the calibrator that is there.")] = False,
) -> None:
    """The calibrators that have decided, the newest first. A server goes back to one that is put in its place.

    For example:

    - `semtoken journal calibrators journal.db`
    - `semtoken journal calibrators journal.db --take 3f9c21 -o my-calibrator --force`
    """
    from semtoken.calibration.calibrator import NAME
    from semtoken.journal.entries import when

    used = open_journal(url).in_use()
    if take is None:
        if not used:
            tell("No calibrator has decided anything in this journal.")
        for use in used:
            threshold = use.calibrator.threshold
            promise = "no promise" if threshold is None else threshold.statement
            told = (use.checksum[:12], f"since {when(use.since)[:16]}", f"{use.calibrator.n} labels", promise)
            out.print(untrusted("  ".join(told)), soft_wrap=True)
        return
    matching = [use for use in used if use.checksum.startswith(take.lower())]
    if len(matching) != 1:
        raise InvalidInput(
            f"{len(matching) or 'No'} calibrators of this journal begin with {take!r}. Without --take they are listed."
        )
    if output is None:
        raise InvalidInput("Say where to write it: -o my-calibrator.")
    if (output / NAME).exists() and not overwrite:
        raise InvalidInput(f"There is a calibrator in {output} already. --force replaces it.")
    matching[0].save(output)
    tell(f"{matching[0].checksum[:12]} is in {output}. A server that uses this folder takes it with SIGHUP.")
