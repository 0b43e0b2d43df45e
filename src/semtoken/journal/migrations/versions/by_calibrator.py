"""An index by which the answers that one calibrator decided are found without reading all."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index."""
    op.create_index("entries_calibrator", "entries", ["calibrator", "n"])
