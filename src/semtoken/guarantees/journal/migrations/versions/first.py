"""The first version of the tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables of the first version."""
    op.create_table(
        "entries",
        sa.Column("n", NUMBER, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False, unique=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("source", sa.String(20), nullable=False),
        sa.Column("sampled", sa.Boolean, nullable=False),
        sa.Column("seen_twice", sa.Boolean, nullable=False),
        sa.Column("model", sa.String(200)),
        sa.Column("engine", sa.String(200)),
        sa.Column("prompt", sa.String(200)),
        sa.Column("person", sa.String(200)),
        sa.Column("unscored", sa.Text),
        sa.Column("log_score", sa.Double),
        sa.Column("log_score_low", sa.Double),
        sa.Column("log_score_high", sa.Double),
        sa.Column("method", sa.String(10)),
        sa.Column("k", sa.Integer),
        sa.Column("preset", sa.String(20)),
        sa.Column("distribution", sa.String(20)),
        sa.Column("signature", sa.Text),
        sa.Column("headline", sa.String(100)),
        sa.Column("headline_value", sa.Double),
        sa.Column("confidence_low", sa.Double),
        sa.Column("confidence_high", sa.Double),
        sa.Column("confidence", sa.Double),
        sa.Column("uncertainty", sa.Double),
        sa.Column("uncertainty_low", sa.Double),
        sa.Column("uncertainty_high", sa.Double),
        sa.Column("numbers", sa.JSON),
        sa.Column("n_tokens", sa.Integer),
        sa.Column("truncated", sa.Boolean),
        sa.Column("flags", sa.JSON),
        sa.Column("doubts", sa.JSON),
        sa.Column("chance", sa.Double),
        sa.Column("chance_low", sa.Double),
        sa.Column("chance_high", sa.Double),
        sa.Column("decision", sa.String(20)),
        sa.Column("reason", sa.String(40)),
        sa.Column("calibrator", sa.String(64)),
        sa.Column("question", sa.Text),
        sa.Column("answer", sa.Text),
    )
    op.create_index("entries_at", "entries", ["at"])
    op.create_index("entries_calibrator", "entries", ["calibrator", "n"])
    told = sa.text("person IS NOT NULL")
    op.create_index("entries_person", "entries", ["person"], sqlite_where=told, postgresql_where=told)
    # SQLite uses a partial index only for queries with the same condition.
    spelled = sa.text("sampled = 1")
    op.create_index("entries_sampled", "entries", ["n"], sqlite_where=spelled, postgresql_where=sa.text("sampled"))
    op.create_table(
        "labels",
        sa.Column("n", NUMBER, primary_key=True, autoincrement=True),
        sa.Column("entry", NUMBER, sa.ForeignKey("entries.n", ondelete="CASCADE"), nullable=False),
        sa.Column("reviewer", sa.String(200), nullable=False),
        sa.Column("correct", sa.Boolean),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.UniqueConstraint("entry", "reviewer"),
    )
    op.create_table(
        "calibrators",
        sa.Column("n", NUMBER, primary_key=True, autoincrement=True),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("since", sa.DateTime, nullable=False),
        sa.Column("file", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "settings",
        sa.Column("n", NUMBER, primary_key=True, autoincrement=True),
        sa.Column("since", sa.DateTime, nullable=False),
        sa.Column("salt", sa.LargeBinary, nullable=False),
        sa.Column("seed", sa.String(200), nullable=False),
        sa.Column("rate", sa.Double, nullable=False),
    )
