"""A journal of scored answers, in SQLite or PostgreSQL, and what is read from it: labels, and whether a promise holds.

entries.py        a scored answer as one entry of plain values; which entries belong to the random sample
texts.py          whether texts are kept, and what of them is withheld
tables.py         the tables; migrations/ brings a database to their newest form, and database.py opens it
store.py          `Journal`: open, add, read, delete, size, by URL
spool.py          files that hold entries until the database has them
writing.py        from a file of the spool into the database, here or in a process of its own
writer.py         `JournalWriter`: takes entries without delay, and brings them into the database
entry_records.py  entries under the names that files of scored answers have; export.py all of them
labels.py         people's labels: the queue of each, undo, agreement, and what a calibrator may be fitted on
betting.py        tests of a promise that may be looked at at any time (pure functions)
watch.py          what the journal says of a promise now, in words

It needs the extra `journal`; PostgreSQL needs the extra `postgresql`. Enter at `Journal` and `JournalWriter`.
"""

from __future__ import annotations

from semtoken.support.extras import require

require("sqlalchemy", extra="journal")
require("msgspec", extra="journal")
