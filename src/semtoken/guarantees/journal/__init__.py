"""A journal of scored answers, in SQLite or PostgreSQL, and what is read from it: labels, and whether a guarantee
holds.

entries.py    a scored answer as one entry of plain values, and which entries are in the random sample
kept_texts.py what is kept of questions and answers
database.py   the tables, and how a database is opened and gets the columns that it lacks
store.py      `Journal`: open, add, read, delete, size, by URL
spool.py      files that hold entries until the database has them
writer.py     `JournalWriter`: takes entries without delay, and brings them into the database, which
              writer_process.py may do in a process of its own
recording.py  a journal opened to record answers, by rules on what is kept of them
keeper.py     answers of files, each of which goes into the journal once
export.py     all entries under the names that files of scored answers have
labels.py     people's labels: the queue of each, undo, agreement, and what a calibrator may be fitted on
watch.py      what the journal says of a guarantee now, in words, by tests that may be looked at at any time

It needs the extra `journal`; PostgreSQL needs the extra `postgresql`. Enter at `Journal` and `JournalWriter`.
"""

from __future__ import annotations

from semtoken.support.extras import require

require("sqlalchemy", extra="journal")
