"""`Journal`: entries in a database, by URL; what is deleted leaves the spools and the files of the database, too."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from semtoken.errors import InvalidInputError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.calibrator import from_bytes
from semtoken.guarantees.journal.database import (
    SECONDS_FOR_LOCKS,
    JournalError,
    calibrators,
    cause,
    database_errors,
    engine_of,
    entries,
    holds_journal,
    labels,
    settings,
    stay_with_file,
    upgrade,
    url_of,
    without_password,
)
from semtoken.guarantees.journal.entries import COLUMNS, SamplingRule, kept_name, when
from semtoken.guarantees.journal.spool import SUFFIX, forget_set_aside, lines_of, spool_folder
from semtoken.support.inputs import real, text
from semtoken.support.text import with_noun

SECONDS_FOR_SPOOLS = 10.0
"""The seconds to wait until running processes have written the entries in their spools to the database."""
TABLES = "entries, labels"


def why_still_spooled(folder: Path, matches: Callable[[Mapping[str, Any]], bool]) -> str | None:
    """Wait until no spool holds an entry that matches; returns why one still does, or None."""
    end = time.monotonic() + SECONDS_FOR_SPOOLS
    while n := _spooled(folder, matches):
        if time.monotonic() > end:
            return f"{n:,} of them wait in {folder} for the database, where a running process writes"
        time.sleep(0.1)
    return None


def _spooled(folder: Path, matches: Callable[[Mapping[str, Any]], bool]) -> int:
    n = 0
    for file in folder.glob(f"*/*{SUFFIX}"):
        with suppress(FileNotFoundError):  # its entries are in the database by now
            n += sum(matches(line) for line in lines_of(file))
    return n


def why_still_stored(engine: sa.Engine) -> str | None:
    """Rewrite what held deleted rows; returns why the files of the database may still hold some, or None."""
    return _sqlite(engine) if engine.dialect.name == "sqlite" else _postgresql(engine)


def _sqlite(engine: sa.Engine) -> str | None:
    """Bring the write-ahead log into the file, where deleted rows are overwritten, and empty it."""
    with engine.connect() as connection:
        busy = connection.execute(sa.text("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0]
    return f"another program has been reading {engine.url.database} for {SECONDS_FOR_LOCKS} seconds" if busy else None


def _postgresql(engine: sa.Engine) -> str | None:
    """Write the tables to new files without the deleted rows; rows that an open transaction may see are copied."""
    notices: list[tuple[str, str]] = []
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        driver = connection.connection.driver_connection
        assert driver is not None

        def keep(notice: Any) -> None:
            notices.append((notice.severity_nonlocalized, notice.message_detail))

        driver.add_notice_handler(keep)
        try:
            connection.execute(sa.text(f"SET lock_timeout = '{SECONDS_FOR_LOCKS}s'"))
            connection.execute(sa.text(f"VACUUM (FULL, VERBOSE) {TABLES}"))
        except sa.exc.DBAPIError as error:
            return f"PostgreSQL could not vacuum the tables ({cause(error)})"
        finally:
            driver.remove_notice_handler(keep)
            with suppress(sa.exc.DBAPIError):
                connection.execute(sa.text("RESET lock_timeout"))
    left = [re.match(r"\d+", detail or "") for severity, detail in notices if severity == "INFO"]
    counts = [int(match[0]) for match in left if match]
    if len(counts) < len(TABLES.split(", ")):
        return f"{engine.url.username or 'this user'} does not own the tables, so PostgreSQL did not vacuum them"
    return "an open transaction of PostgreSQL may still see them" if any(counts) else None


Row: TypeAlias = dict[str, Any]
BYTES = {
    "sqlite": "(SELECT page_count * page_size FROM pragma_page_count, pragma_page_size)",
    "postgresql": "pg_total_relation_size('entries') + pg_total_relation_size('labels')",
}
"""The size of the tables with their indexes, in SQL, by the kind of database."""
AT_ONCE = 5_000
"""The number of rows that are read or deleted at one time."""
DEFAULT_RATE = 0.05
PAGE = 4096
"""The bytes of SQLite's first page: a database of no more has no table."""


@dataclass(frozen=True)
class Size:
    """The numbers of entries and labels in a journal, and of the bytes that they take."""

    entries: int
    sampled: int
    labels: int
    reviewers: int
    bytes: int
    """Size on disk in bytes, with indexes."""
    first: float | None
    """Seconds since 1970 of the oldest entry."""
    last: float | None

    @property
    def sentence(self) -> str:
        """The numbers of entries, labels and people, and the size on disk."""
        people = "1 person" if self.reviewers == 1 else f"{self.reviewers} people"
        return (
            f"{with_noun(self.entries, 'entry')}, {self.sampled:,} of them in the random sample; "
            f"{with_noun(self.labels, 'label')} by {people}; {self.bytes / 2**20:,.1f} MiB."
        )


@dataclass(frozen=True)
class InUse(CalibratorInUse):
    """A calibrator and the time since which it has been deciding, in seconds since 1970."""

    since: float = 0.0

    @property
    def guarantee(self) -> str:
        """The guarantee of the calibrator as a sentence, or "no guarantee"."""
        threshold = self.calibrator.threshold
        return "no guarantee" if threshold is None else str(threshold.statement)

    @property
    def in_words(self) -> str:
        """A line on the calibrator for people: its checksum, since when it decides, its labels and its guarantee."""
        facts = (f"calibrator {self.checksum[:12]}", f"since {when(self.since)[:16]}", f"{self.n} labels")
        return "  ".join((*facts, self.guarantee))

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {"checksum": self.checksum, "since": when(self.since), "n": self.n, "guarantee": self.guarantee}


def _remove_without_tables(file: Path) -> None:
    """Delete a database that could not be made into a journal, as on a full disk: one page, and nothing in its log."""
    log, index = (file.with_name(f"{file.name}{ending}") for ending in ("-wal", "-shm"))
    with suppress(OSError):
        if file.stat().st_size <= PAGE and not (log.exists() and log.stat().st_size):
            for one in (file, log, index):
                one.unlink(missing_ok=True)


class NotYetGone(JournalError):
    """Entries are deleted, but a file still holds their texts."""


class Journal:
    """A journal in SQLite or PostgreSQL. Make one with `Journal.open`; several processes may use it at one time."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        stay_with_file(engine)

    @classmethod
    def open(cls, given: str | os.PathLike[str], *, create: bool = True) -> Journal:
        """Open a journal, and bring its tables to their newest form.

        `given` is `sqlite:///journal.db`, the path of a file, or `postgresql://user@host/database`. `create`: a file is
        made where there is none; PostgreSQL's database must exist. `InvalidInputError` if it is none of these, or there
        is no such file, or the file holds something else; `JournalError` if the database does not answer, or a later
        release made its tables.
        """
        url = url_of(given)
        if url.get_backend_name() == "sqlite" and not create and not Path(str(url.database)).is_file():
            raise InvalidInputError(
                f"There is no journal {url.database}. --journal of serve, proxy or check makes one."
            )
        if url.get_backend_name() == "sqlite" and not (folder := Path(str(url.database)).parent).is_dir():
            raise InvalidInputError(f"The folder {folder} of the journal does not exist.")
        if url.get_backend_name() == "sqlite" and not create and not holds_journal(url):
            raise InvalidInputError(
                f"{url.database} holds no journal. --journal of serve, proxy or check makes one. Nothing was changed."
            )
        engine = engine_of(url)
        file = Path(str(url.database))
        is_new = url.get_backend_name() == "sqlite" and not file.exists()
        try:
            with database_errors(url):
                upgrade(engine)
        except JournalError:
            engine.dispose()
            if is_new:
                _remove_without_tables(file)
            raise
        return cls(engine)

    def close(self) -> None:
        """Close the connections to the database."""
        self.engine.dispose()

    @property
    def name(self) -> str:
        """The address of the database without its password."""
        return without_password(self.engine.url)

    def read(self, query: sa.Executable) -> Sequence[Any]:
        """All rows of a query (`sqlalchemy.Row`); `JournalError` if the database does not answer."""
        with database_errors(self.engine.url), self.engine.connect() as connection:
            return connection.execute(query).all()

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction: what is written in the block is there at its end, all or none. `JournalError` as in `read`."""
        with database_errors(self.engine.url), self.engine.begin() as connection:
            yield connection

    # ---- entries ----------------------------------------------------------------------------------------------------

    def newest(self) -> int:
        """The number `n` of the newest entry; 0 if there is none."""
        [(n,)] = self.read(sa.select(sa.func.coalesce(sa.func.max(entries.c.n), 0)))
        return int(n)

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write entries as rows of column -> value, all or none (`SQLAlchemyError`).

        Those whose `id` is already there stay unchanged.
        """
        if not rows:
            return
        known = [{name: row.get(name) for name in COLUMNS} for row in rows]
        # Both dialects have it under one name, and SQLAlchemy has none for all.
        insert = postgresql.insert if self.engine.dialect.name == "postgresql" else sqlite.insert
        with self.engine.begin() as connection:
            connection.execute(insert(entries).on_conflict_do_nothing(index_elements=["id"]), known)

    def entries(self, *conditions: Any, newest_first: bool = False, limit: int | None = None) -> Iterator[Row]:
        """Read entries that meet all conditions (SQLAlchemy's), in the order of writing, a few thousand at a time.

        `newest_first` turns the order round, and `limit` is the most to give. `JournalError` if the database does not
        answer.
        """
        names = [column.name for column in entries.c]
        for page in self.pages(list(entries.c), *conditions, newest_first=newest_first, limit=limit):
            for row in page:
                yield dict(zip(names, row, strict=True))

    def pages(
        self, wanted: Sequence[Any], *conditions: Any, newest_first: bool = False, limit: int | None = None
    ) -> Iterator[Sequence[sa.Row[Any]]]:
        """Read pages of up to `AT_ONCE` rows by the primary key: the values of SQL expressions, of which the first is
        `n`.

        Each page is a query of its own: one that was open for as long as a large export lasts would hold up what a
        database does behind its back (SQLite's write-ahead log and PostgreSQL's dead rows would grow until its end).
        """
        last, left = None, limit
        ordered = sa.select(*wanted).where(*conditions)
        ordered = ordered.order_by(entries.c.n.desc() if newest_first else entries.c.n)
        while left is None or left > 0:
            query = ordered.limit(min(AT_ONCE, left or AT_ONCE))
            if last is not None:
                query = query.where(entries.c.n < last if newest_first else entries.c.n > last)
            if rows := self.read(query):
                yield rows
            if not rows or (left is None and len(rows) < AT_ONCE):
                return
            last, left = rows[-1][0], None if left is None else left - len(rows)

    def delete(self, *, before: float | None = None, person: str | None = None, spool: Path | None = None) -> int:
        """Delete entries with their labels: older ones, a person's, or with both arguments those that are both.

        Returns how many they were, once neither the database's files nor a spool holds them. `before` is in seconds
        since 1970, `person` the tag that requests carried, `spool` by default the folder of `spool_folder`.
        PostgreSQL's log of writes, its replicas and backups keep them by rules of their own. `InvalidInputError` if
        neither is given, or `before` is no number; `NotYetGone` if the entries are deleted, but their texts may still
        be in a file, so that another call must try again.
        """
        if before is None and person is None:
            raise InvalidInputError("Say which entries to delete: by age, or by person.")
        before = None if before is None else real(before, "before")
        tag = None if person is None else kept_name(text(person, "person"))
        conditions = [] if before is None else [entries.c.at < before]
        conditions += [] if tag is None else [entries.c.person == tag]

        def matches(row: Mapping[str, Any]) -> bool:
            old = before is None or (row.get("at") or 0.0) < before
            return old and (tag is None or row.get("person") == tag)

        # The spools come first: what they hold would be written after the rows are deleted.
        waiting = why_still_spooled(spool or spool_folder(self.engine.url), matches)
        forget_set_aside(spool or spool_folder(self.engine.url), matches)
        with database_errors(self.engine.url):
            n = self._delete(*conditions)
            stored = why_still_stored(self.engine)
        if reasons := " and ".join(filter(None, (waiting, stored))):
            raise NotYetGone(
                f"{n:,} entries are deleted from {self.name}, but texts of deleted entries are still in its files: "
                f"{reasons}. Delete again when that has ended."
            )
        return n

    def _delete(self, *conditions: Any) -> int:
        deleted = 0
        # A part at a time, so that a writer never waits for one long transaction.
        some = sa.select(entries.c.n).where(*conditions).limit(AT_ONCE)
        while True:
            with self.engine.begin() as connection:
                count = connection.execute(sa.delete(entries).where(entries.c.n.in_(some))).rowcount
            deleted += count
            if count == 0:
                return deleted

    def size(self) -> Size:
        """Count the entries and labels, and the bytes that they take."""
        parts = {
            "entries": sa.select(sa.func.count()).select_from(entries),
            "sampled": sa.select(sa.func.count()).select_from(entries).where(entries.c.sampled),
            "labels": sa.select(sa.func.count()).select_from(labels),
            "reviewers": sa.select(sa.func.count(labels.c.reviewer.distinct())),
            "bytes": sa.select(sa.literal_column(BYTES[self.engine.dialect.name])),
            "first": sa.select(sa.func.min(entries.c.at)),
            "last": sa.select(sa.func.max(entries.c.at)),
        }
        [row] = self.read(sa.select(*(part.scalar_subquery().label(name) for name, part in parts.items())))
        return Size(**row._mapping)

    # ---- what is fixed beforehand -----------------------------------------------------------------------------------

    def sampling(self, rate: float | None = None, seed: str | None = None) -> tuple[SamplingRule, bytes]:
        """The rule of the random sample and the journal's salt. A changed rule applies to new entries only.

        `rate` is the share of the sample in [0, 1], `seed` any text, else `InvalidInputError`. None: as they are, or 5%
        and a random seed where there are none yet.
        """
        if rate is not None and not 0 <= (rate := real(rate, "rate")) <= 1:
            raise InvalidInputError(f"The share of the random sample must be from 0 to 1, got {rate:g}.")
        seed = None if seed is None else text(seed, "seed")
        newest = sa.select(settings).order_by(settings.c.n.desc()).limit(1)
        with self.writing() as connection:
            there = connection.execute(newest).mappings().first()
            salt = secrets.token_bytes(16) if there is None else bytes(there["salt"])
            before = None if there is None else SamplingRule(there["seed"], there["rate"])
            default = before or SamplingRule(secrets.token_hex(8), DEFAULT_RATE)
            rule = SamplingRule(seed or default.seed, default.rate if rate is None else rate)
            if rule != before:
                values = {"since": time.time(), "salt": salt, "seed": rule.seed, "rate": rule.rate}
                connection.execute(sa.insert(settings).values(values))
        return rule, salt

    def use(self, file: bytes, checksum: str) -> None:
        """Store a calibrator, the bytes of its file and their SHA-256, as the one that decides from now on.

        Nothing changes if it does already.
        """
        newest = sa.select(calibrators.c.checksum).order_by(calibrators.c.n.desc()).limit(1)
        with self.writing() as connection:
            if connection.execute(newest).scalar() != checksum:
                connection.execute(sa.insert(calibrators).values(checksum=checksum, since=time.time(), file=file))

    def in_use(self) -> list[InUse]:
        """The calibrators that have decided, the newest first; each once, since it last came into use."""
        by_checksum: dict[str, InUse] = {}
        for row in self.read(sa.select(calibrators).order_by(calibrators.c.n.desc())):
            if row.checksum not in by_checksum:
                file = bytes(row.file)
                by_checksum[row.checksum] = InUse(from_bytes(file), saved=file, since=row.since)
        return list(by_checksum.values())

    def used(self, checksum: str) -> InUse:
        """The calibrator that has decided and whose checksum begins so; case does not matter.

        `InvalidInputError` if none does, or several do.
        """
        matching = [use for use in self.in_use() if use.checksum.startswith(checksum.lower())]
        if len(matching) != 1:
            raise InvalidInputError(
                f"{len(matching) or 'No'} calibrators of this journal begin with {checksum!r}. `semtoken journal show` "
                "lists them."
            )
        return matching[0]
