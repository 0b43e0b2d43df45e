"""Deleted entries leave the files: the spools first, then the database file and its write-ahead log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from semtoken.journal.database import SECONDS_FOR_LOCKS, cause
from semtoken.journal.spool import SUFFIX, lines_of

SECONDS_FOR_SPOOLS = 10.0
"""How long to wait until running processes have written the entries in their spools to the database."""
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
    told: list[tuple[str, str]] = []
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        driver = connection.connection.driver_connection
        assert driver is not None

        def keep(notice: Any) -> None:
            told.append((notice.severity_nonlocalized, notice.message_detail))

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
    left = [re.match(r"\d+", detail or "") for severity, detail in told if severity == "INFO"]
    counts = [int(found[0]) for found in left if found]
    if len(counts) < len(TABLES.split(", ")):
        return f"{engine.url.username or 'this user'} does not own the tables, so PostgreSQL did not vacuum them"
    return "an open transaction of PostgreSQL may still see them" if any(counts) else None
