"""One file for each version of the journal's tables, in a chain: each names the one before it as `down_revision`.

`first.py` makes the tables. Alembic runs those that a database has not seen, in a transaction where the database can.
What a release has run stays as it is: a change is a new file.
"""
