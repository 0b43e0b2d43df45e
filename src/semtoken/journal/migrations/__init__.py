"""Migrations of the journal's tables, run by Alembic when a journal is opened for writing."""
