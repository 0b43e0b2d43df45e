"""Databases by URL, SQLite with a write-ahead log and PostgreSQL, and their tables, the same for both.

The table of entries has the fields of `JournalEntry` as its columns, in the same order.

A journal that a former release made gets the columns that it lacks when it is opened, so a new column must be one that
may be null: it is so in all rows that are there.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from msgspec import inspect
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from semtoken.errors import InvalidInputError, MissingExtra, SemtokenError
from semtoken.guarantees.journal.entries import JournalEntry
from semtoken.support.files.safe_files import locked
from semtoken.support.inputs import text as checked_text


class UtcTime(TypeDecorator[float]):
    """Seconds since 1970 in Python, a time stamp in UTC in the database, which people can read there."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        """Convert a time to the form that the database stores."""
        return None if value is None else datetime.fromtimestamp(value, UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        """Convert a time from the form that the database stores."""
        return None if value is None else value.replace(tzinfo=UTC).timestamp()


SQL_TYPES: Mapping[type[inspect.Type], Any] = {
    inspect.FloatType: Double,
    inspect.IntType: Integer,
    inspect.BoolType: Boolean,
    inspect.DictType: JSON,
    inspect.VarTupleType: JSON,
}


def column_of(field: inspect.Field) -> Column[Any]:
    """The column that holds a field of `JournalEntry`: one that may be None, or holds JSON, may be null."""
    kinds = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
    [kind] = [kind for kind in kinds if not isinstance(kind, inspect.NoneType)]
    if isinstance(kind, inspect.StrType):
        held: Any = Text() if kind.max_length is None else String(kind.max_length)
    else:
        held = SQL_TYPES[type(kind)]
    return Column(field.name, held, nullable=len(kinds) > 1 or held is JSON, unique=field.name == "id" or None)


metadata = MetaData()
NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up by itself only here

entries = Table(
    "entries",
    metadata,
    Column("n", NUMBER, primary_key=True, autoincrement=True),
    *(
        Column(field.name, UtcTime, nullable=False) if field.name == "at" else column_of(field)
        for field in inspect.type_info(JournalEntry).fields  # type: ignore[attr-defined]
    ),
)
Index("entries_at", entries.c.at)
Index("entries_calibrator", entries.c.calibrator, entries.c.n)
_tagged, _drawn = entries.c.person.is_not(None), entries.c.sampled
Index("entries_person", entries.c.person, sqlite_where=_tagged, postgresql_where=_tagged)
# SQLite uses a partial index only for queries that spell its condition, as the library does.
Index("entries_sampled", entries.c.n, sqlite_where=text("sampled = 1"), postgresql_where=_drawn)

labels = Table(
    "labels",
    metadata,
    Column("n", NUMBER, primary_key=True, autoincrement=True),
    Column("entry", NUMBER, ForeignKey("entries.n", ondelete="CASCADE"), nullable=False),
    Column("reviewer", String(200), nullable=False),
    Column("correct", Boolean),  # null: the reviewer cannot tell
    Column("at", UtcTime, nullable=False),
    UniqueConstraint("entry", "reviewer"),
)

calibrators = Table(
    "calibrators",
    metadata,
    Column("n", NUMBER, primary_key=True, autoincrement=True),
    Column("checksum", String(64), nullable=False),
    Column("since", UtcTime, nullable=False),  # one row each time that one comes into use
    Column("file", LargeBinary, nullable=False),
)

settings = Table(
    "settings",
    metadata,
    Column("n", NUMBER, primary_key=True, autoincrement=True),
    Column("since", UtcTime, nullable=False),
    Column("salt", LargeBinary, nullable=False),
    Column("seed", String(200), nullable=False),
    Column("rate", Double, nullable=False),
)


SECONDS_FOR_LOCKS = 30


HINTS = {
    "disk I/O error": ". Its disk may be full, or gone.",
    "database or disk is full": ". Make room on its disk.",
    "readonly database": ". Its file and folder must be writable, to read it, too.",
    "unable to open database file": ". Its file and folder must be writable, to read it, too.",
    "file is not a database": ". It holds something else.",
    "database is locked": ". Another program holds it.",
    "disk image is malformed": ". It is damaged, or a part is missing. Put a copy in its place; what is left can be "
    "read with the command .recover of the program sqlite3.",
}
"""Advice that follows an error of SQLite, by words of its message."""


GONE = "its file was deleted or moved while it was in use. Put it back, or start again with a new one"


class JournalError(SemtokenError):
    """The journal's database cannot be used: it is not there, is full, or belongs to another release."""


def url_of(place: str | os.PathLike[str]) -> sa.URL:
    """The database of a URL (SQLite, not in memory, or PostgreSQL) or of a path; else `InvalidInputError`."""
    given = checked_text(os.fspath(place) if isinstance(place, os.PathLike) else place, "the journal's address")
    if not given.isprintable():
        raise InvalidInputError(
            f"The journal's address {without_password(given)!r:.80} holds characters that no name should."
        )
    try:
        url = sa.make_url(given) if "://" in given else sa.URL.create("sqlite", database=given)
    except (ArgumentError, ValueError) as error:
        raise InvalidInputError(f"The journal's address is no URL: {without_password(given)}.") from error
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise InvalidInputError(
            f"The journal can be in SQLite or PostgreSQL, got {url.drivername!r}. Write sqlite:///journal.db or "
            "postgresql://user@host/database."
        )
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise InvalidInputError("The journal must be a file, so that it outlives the command: sqlite:///journal.db.")
    return url


def without_password(given: str | sa.URL) -> str:
    """A database address without its password, for messages."""
    try:
        url = sa.make_url(given) if isinstance(given, str) and "://" in given else given
    except (ArgumentError, ValueError):
        return "(an address that cannot be read)"
    return url if isinstance(url, str) else url.render_as_string(hide_password=True)


def engine_of(url: sa.URL) -> sa.Engine:
    """Make an engine without connecting to the database yet; `MissingExtra` if the driver is not installed."""
    try:
        if url.get_backend_name() == "postgresql":
            # Errors go to logs, so they must not quote parameters, which hold people's texts.
            return sa.create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 10}, hide_parameters=True)
        engine = sa.create_engine(url, connect_args={"timeout": SECONDS_FOR_LOCKS}, hide_parameters=True)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise MissingExtra(
            "PostgreSQL needs the package 'psycopg', which is not installed. Install it with: pip install "
            "'semtoken[postgresql]'"
        ) from error
    sa.event.listen(engine, "connect", partial(_as_we_want_sqlite, Path(str(url.database))))
    return engine


def holds_journal(url: sa.URL) -> bool:
    """True if a file of SQLite has the tables of a journal. Nothing in it is changed; `JournalError` if it cannot be
    read.
    """
    with database_errors(url):
        return sa.inspect(sa.create_engine(url, poolclass=sa.NullPool)).has_table(entries.name)


def stay_with_file(engine: sa.Engine) -> None:
    """Have connections to SQLite use the file that is at its path now, and fail while that is not there.

    SQLite itself goes on writing into a file that was deleted or moved, where nobody finds it, or makes an empty one.
    It would mix its log with another file that has taken the place.
    """
    if engine.dialect.name != "sqlite":
        return
    file = Path(str(engine.url.database))
    used = _number_of(file)

    def check(*_: Any) -> None:
        if used is None or _number_of(file) != used:
            raise sqlite3.OperationalError(GONE)

    sa.event.listen(engine, "do_connect", check)
    sa.event.listen(engine, "checkout", check)


def _number_of(file: Path) -> int | None:
    """The number by which its file system knows a file, whatever its name; None if there is no such file."""
    try:
        return file.stat().st_ino
    except OSError:
        return None


def _as_we_want_sqlite(file: Path, connection: Any, _: Any) -> None:
    """Have SQLite let readers in beside a writer, keep commits in a power cut, and overwrite deleted texts."""
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        # The file keeps this mode. SQLite does not wait for a lock here: of two that set it at one time, one may fail.
        busy = f"Another program has been making the journal {file} for {SECONDS_FOR_LOCKS} seconds. Try again later."
        with locked(file.with_name(f".{file.name}.lock"), busy, remove=True, seconds=SECONDS_FOR_LOCKS):
            connection.execute("PRAGMA journal_mode=WAL")
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")


@contextmanager
def database_errors(url: sa.URL) -> Iterator[None]:
    """Turn errors of the database inside the block into `JournalError` with a message for users."""
    try:
        yield
    except SQLAlchemyError as error:
        message = cause(error)
        hint = next((hint for said, hint in HINTS.items() if said in message), "")
        raise JournalError(f"The journal {without_password(url)} cannot be used: {message}{hint}") from error


def cause(error: Exception) -> str:
    """The message of a database driver's error on one line of at most 300 characters, without statement and values."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(str(original).split())[:300]


def upgrade(engine: sa.Engine) -> None:
    """Make the tables, columns and indexes that a journal lacks; `JournalError` if a later release made its tables."""
    while lacking := _lacking(engine):
        try:
            with engine.begin() as connection:
                for statement in lacking:
                    connection.execute(statement)
        except DBAPIError:
            if len(_lacking(engine)) == len(lacking):  # else another process was faster, with some of them or with all
                raise


def _lacking(engine: sa.Engine) -> list[sa.Executable]:
    """The statements that make what a journal lacks, in order; none for a journal of this release."""
    statements: list[sa.Executable] = []
    there = sa.inspect(engine)
    for table in metadata.sorted_tables:
        if not there.has_table(table.name):
            statements += [CreateTable(table), *map(CreateIndex, table.indexes)]
            continue
        columns = {column["name"] for column in there.get_columns(table.name)}
        if columns - set(table.columns.keys()):
            raise JournalError(
                f"A later release of semtoken made the journal {without_password(engine.url)}. Use that release."
            )
        for column in table.columns:
            if column.name not in columns:
                added = CreateColumn(column).compile(dialect=engine.dialect)
                statements.append(text(f"ALTER TABLE {table.name} ADD COLUMN {added}"))
        indexes = {index["name"] for index in there.get_indexes(table.name)}
        statements += [CreateIndex(index) for index in table.indexes if index.name not in indexes]
    return statements
