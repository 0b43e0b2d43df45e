"""From a file of a spool into the database: each entry once, and one that is refused keeps no other back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from semtoken.journal.database import cause
from semtoken.journal.spool import lines_of
from semtoken.journal.store import Journal

TOGETHER = 2_000
"""Entries of one transaction."""


def write_file(journal: Journal, file: Path, refused: Callable[[str], None]) -> int:
    """Write the entries of a file of a spool, each once; how many there were.

    Raises
    ------
    SQLAlchemyError
        The database is away or full. Those that were written are left out at the next attempt.
    """
    n = 0
    for rows in _together(lines_of(file)):
        try:
            journal.add(rows)
            n += len(rows)
        except (OperationalError, InterfaceError):
            raise
        except (DBAPIError, SQLAlchemyError, ValueError, TypeError):  # one of them is not to its taste
            for row in rows:
                n += _written_alone(journal, row, refused)
    return n


def _written_alone(journal: Journal, row: Mapping[str, Any], refused: Callable[[str], None]) -> int:
    try:
        journal.add([row])
    except (OperationalError, InterfaceError):
        raise
    except (SQLAlchemyError, ValueError, TypeError) as error:
        refused(cause(error))
        return 0
    return 1


def _together(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while some := list(islice(rows, TOGETHER)):
        yield some
