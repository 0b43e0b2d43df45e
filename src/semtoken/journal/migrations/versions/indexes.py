"""Indexes by which large journals find the random sample, and the answers that one calibrator decided."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the indexes of the second version. SQLite uses a partial index only for queries with the same condition."""
    op.create_index("entries_calibrator", "entries", ["calibrator", "n"])
    op.drop_index("entries_sampled", "entries")
    spelled = sa.text("sampled = 1")
    op.create_index("entries_sampled", "entries", ["n"], sqlite_where=spelled, postgresql_where=sa.text("sampled"))
