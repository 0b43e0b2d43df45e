"""The tables of a journal, the same for SQLite and PostgreSQL. A change here needs a migration beside it."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

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


class UtcTime(TypeDecorator[float]):
    """Seconds since 1970 in Python, a time stamp in UTC in the database, which people can read there."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        """Convert a time to the form that the database stores."""
        return None if value is None else datetime.fromtimestamp(value, timezone.utc).replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        """Convert a time from the form that the database stores."""
        return None if value is None else value.replace(tzinfo=timezone.utc).timestamp()


metadata = MetaData()
NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up by itself only here

entries = Table(
    "entries",
    metadata,
    Column("n", NUMBER, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("at", UtcTime, nullable=False),
    Column("source", String(20), nullable=False),
    Column("sampled", Boolean, nullable=False),
    Column("seen_twice", Boolean, nullable=False),
    *(Column(name, String(200)) for name in ("model", "engine", "prompt", "person")),
    Column("unscored", Text),
    *(Column(name, Double) for name in ("log_score", "log_score_low", "log_score_high")),
    Column("method", String(10)),
    Column("k", Integer),
    *(Column(name, String(20)) for name in ("preset", "distribution")),
    Column("signature", Text),
    Column("headline", String(100)),
    *(Column(name, Double) for name in ("headline_value", "confidence_low", "confidence_high", "confidence")),
    *(Column(name, Double) for name in ("uncertainty", "uncertainty_low", "uncertainty_high")),
    Column("numbers", JSON),
    Column("n_tokens", Integer),
    Column("truncated", Boolean),
    Column("flags", JSON),
    Column("doubts", JSON),
    *(Column(name, Double) for name in ("chance", "chance_low", "chance_high")),
    Column("decision", String(20)),
    Column("reason", String(40)),
    Column("calibrator", String(64)),
    Column("question", Text),
    Column("answer", Text),
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
