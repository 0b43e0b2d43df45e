"""Migrations of the journal's tables, run by Alembic when a journal is opened for writing.

`env.py` is what Alembic loads; each file of `versions` changes the tables of one version into those of the next. Add a
file there when a table of `semtoken.guarantees.journal` changes, and never edit one that has been released.
"""
