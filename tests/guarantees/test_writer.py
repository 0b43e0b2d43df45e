"""No acknowledged entry is lost: processes killed, disks that are full, databases that go away and come back."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from semtoken.guarantees.journal.database import JournalError, engine_of, url_of
from semtoken.guarantees.journal.spool import Spool, check_spool, lines_of
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.writer import PAUSE, JournalWriter, adopt_left_behind, longer_pause
from semtoken.guarantees.journal.writer_process import can_never_be_written
from tests.guarantees.databases import Postgres
from tests.guarantees.made_up import entry

WRITING = """
import json, os, resource, signal, sys, threading, time
from pathlib import Path
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.writer import JournalWriter
from tests.guarantees.made_up import entry
url, spool, first, seconds, apart = sys.argv[1:]
writer = JournalWriter(Journal.open(url), Path(spool), apart=bool(apart))
writer.start()
"""
UNTIL_KILLED = """
for i in range(int(first), int(first) + 100_000):
    assert writer.put(entry(i))
    print(i, flush=True)
    time.sleep(float(seconds))
"""


def program(
    code: str, url: object, spool: Path, first: int = 0, seconds: float = 0.0, apart: str = ""
) -> subprocess.Popen[str]:
    """A process that writes into a journal as the code says."""
    words = [sys.executable, "-c", WRITING + code, *map(str, (url, spool, first, seconds, apart))]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def begun(process: subprocess.Popen[str], first: int = 0) -> IO[str]:
    """The words of a process that writes until it is killed, once it has said the first number."""
    assert process.stdout is not None and process.stdout.readline() == f"{first}\n"
    return process.stdout


def names(journal: Journal) -> list[str]:
    return [row["id"] for row in journal.entries()]


@pytest.mark.parametrize(
    ("url", "seconds", "times"),
    [
        ("sqlite", 0.0, 1),
        *(
            pytest.param(kind, wait, 2, marks=pytest.mark.slow)
            for kind in ("sqlite", "postgresql")
            for wait in (0.0, 0.15, 0.4)
        ),
    ],
    indirect=["url"],
)
def test_a_process_that_is_killed_loses_nothing(url: str, tmp_path: Path, seconds: float, times: int) -> None:
    spool, acknowledged = tmp_path / "spool", 0
    for attempt in range(times):
        first = 1_000_000 * attempt
        process = program(UNTIL_KILLED, url, spool, first)
        said = begun(process, first)
        time.sleep(seconds)
        process.kill()
        lines = said.read().splitlines()  # those that it had acknowledged and said so
        process.wait()
        acknowledged += 1 + len([line for line in lines if line.isdigit()])
    journal = Journal.open(url)
    adopt_left_behind(journal, spool)
    found = names(journal)
    assert len(found) == len(set(found))
    assert acknowledged <= len(found) <= acknowledged + times  # an entry may be there and not yet said
    assert list(spool.iterdir()) == []


@pytest.mark.slow
def test_many_clients_at_once_lose_and_mix_nothing(url: str, tmp_path: Path) -> None:
    """Three processes with 50 threads in all, each with its own spool, into one database."""
    code = """
def client(number):
    for i in range(40):
        assert writer.put(entry(1000 * number + i, person=f"client-{number}", answer=f"{number}:{i}"))
threads = [threading.Thread(target=client, args=(n,)) for n in range(int(first), 50, 3)]
[t.start() for t in threads]; [t.join() for t in threads]
assert writer.flush(60), writer.figures
writer.close()
"""
    processes = [program(code, url, tmp_path / "spool", first) for first in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    rows = list(Journal.open(url).entries())
    assert Counter(row["person"] for row in rows) == {f"client-{n}": 40 for n in range(50)}
    assert {row["answer"] for row in rows} == {f"{n}:{i}" for n in range(50) for i in range(40)}
    assert all(row["answer"].split(":")[0] == row["person"].removeprefix("client-") for row in rows)


def test_a_database_that_goes_away_and_comes_back(
    server: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = started(Journal.open(server.database()), tmp_path)
    put(writer, range(100))
    assert writer.flush(30)
    server.stop()
    try:
        slowest = put(writer, range(100, 300))
        wait_until(lambda: writer.figures.problem is not None, 30)
        assert writer.figures.waiting_bytes > 0 and "cannot be written, entries wait" in caplog.text
    finally:
        server.start()
    assert writer.flush(60), writer.figures
    assert sorted(names(writer.journal)) == sorted(f"entry-{i}" for i in range(300))
    assert slowest < 0.5  # nobody waited for the database
    writer.close()


def wait_until(done: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def started(journal: Journal, folder: Path, **options: Any) -> JournalWriter:
    writer = JournalWriter(journal, folder / "spool", **options)
    writer.start()
    return writer


def started_on_file(folder: Path, **options: Any) -> JournalWriter:
    """A writer into a database of SQLite, of its own."""
    return started(Journal.open(str(folder / "journal.db")), folder, **options)


def put(writer: JournalWriter, numbers: Any) -> float:
    """Put entries; the longest that one took, in seconds."""
    slowest = 0.0
    for i in numbers:
        begun = time.monotonic()
        assert writer.put(entry(i))
        slowest = max(slowest, time.monotonic() - begun)
    return slowest


FULL_DISK = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
kept = [i for i in range(50) if writer.put(entry(i))]
assert writer.flush(30)
limit = os.path.getsize(url + "-wal") + 20_000  # no file may become longer from here on
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
kept += [i for i in range(50, 3000) if writer.put(entry(i, answer="x" * 500))]
end = time.monotonic() + 30
while writer.figures.problem is None and time.monotonic() < end:
    time.sleep(0.02)
during = vars(writer.figures)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
kept += [i for i in range(3000, 3010) if writer.put(entry(i))]
assert writer.flush(60), writer.figures
after = vars(writer.figures)
writer.close()
print(json.dumps({"kept": kept, "during": during, "after": after}))
"""


def test_a_disk_that_takes_no_more(tmp_path: Path) -> None:
    """Files that may not grow, as a full disk has it: what is dropped is counted, the rest is kept."""
    path = tmp_path / "journal.db"
    process = program(FULL_DISK, path, tmp_path / "spool")
    said, error = process.communicate()
    assert process.returncode == 0, error
    told = json.loads(said)
    assert told["during"]["dropped"] > 0 and told["after"]["problem"] is None
    assert told["after"]["acknowledged"] == len(told["kept"]) and len(told["kept"]) + told["after"]["dropped"] == 3010
    assert sorted(names(Journal.open(str(path)))) == sorted(f"entry-{i}" for i in told["kept"])


@contextmanager
def somebody_else_writing(journal: Journal) -> Iterator[None]:
    """Nothing leaves the spool."""
    with journal.engine.connect() as busy:
        busy.exec_driver_sql("BEGIN IMMEDIATE")
        yield
        busy.exec_driver_sql("ROLLBACK")


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("other", [False, True])
def test_entries_wait_while_the_file_is_gone(tmp_path: Path, apart: bool, other: bool) -> None:
    """Also while `other` one has taken its place. A server that is started then begins another journal with them."""
    file, moved = tmp_path / "journal.db", tmp_path / "moved.db"
    writer = started_on_file(tmp_path, apart=apart)
    put(writer, range(10))
    assert writer.flush(30)
    file.rename(moved)
    if other:
        Journal.open(tmp_path / "new.db").close()
        (tmp_path / "new.db").rename(file)
    put(writer, range(10, 20))
    wait_until(lambda: writer.figures.problem is not None, 30)
    [said] = writer.losses
    assert said.startswith(f"{writer.journal.name} takes nothing now (") and "its file was deleted or moved" in said
    with pytest.raises(JournalError, match=r"deleted or moved while it was in use\. Put it back, or start again"):
        writer.journal.newest()
    assert file.exists() == other and writer.figures.written == 10 and writer.figures.waiting_bytes > 0
    moved.replace(file)
    assert writer.flush(30) and writer.figures.written == 20
    assert sorted(names(writer.journal)) == sorted(f"entry-{i}" for i in range(20))

    file.unlink()
    put(writer, range(20, 30))
    writer.close()
    again = started_on_file(tmp_path)
    wait_until(lambda: len(names(again.journal)) == 10)
    assert sorted(names(again.journal)) == sorted(f"entry-{i}" for i in range(20, 30))
    again.close()


def test_what_waits_beyond_the_limit_is_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal.open(str(path))
    with somebody_else_writing(journal):
        writer = started(journal, tmp_path, most_waiting=20_000)
        taken = sum(writer.put(entry(i)) for i in range(200))
        assert 0 < taken < 200 and writer.figures.dropped == 200 - taken
    assert writer.flush(60)
    assert len(names(journal)) == taken == writer.figures.written
    writer.close()


def test_what_a_database_cannot_take_keeps_nothing_else_back(url: str, tmp_path: Path) -> None:
    writer = started(Journal.open(url), tmp_path)
    assert writer.put(entry(1)) and writer.put(entry(2, source="x" * 30, at=None)) and writer.put(entry(3))
    assert writer.flush(30)
    writer.close()
    assert names(writer.journal) == ["entry-1", "entry-3"]
    assert (writer.figures.set_aside, writer.figures.written) == (1, 2)
    [kept] = lines_of(writer.set_aside_file)
    assert kept["id"] == "entry-2" and kept["refused"] and writer.figures.dropped == 0
    assert writer.set_aside_file.stat().st_mode & 0o777 == 0o600


REFUSING = {
    "read-only, as a standby": (
        "ALTER DATABASE {name} SET default_transaction_read_only = on",
        "SET default_transaction_read_only = off; ALTER DATABASE {name} RESET default_transaction_read_only",
    ),
    "the table is being replaced": (
        "ALTER TABLE entries RENAME TO entries_old",
        "ALTER TABLE entries_old RENAME TO entries",
    ),
    "no right to insert": ("REVOKE INSERT ON entries FROM limited", "GRANT INSERT ON entries TO limited"),
}
"""States in which PostgreSQL refuses writes for a while: how each begins and ends."""


@pytest.mark.parametrize(
    ("state", "apart"),
    [
        *((state, False) for state in REFUSING),
        *(pytest.param(state, True, marks=pytest.mark.slow) for state in REFUSING),
    ],
)
def test_entries_wait_while_the_database_refuses_to_write(
    server: Postgres, tmp_path: Path, state: str, *, apart: bool
) -> None:
    import psycopg

    owner = server.database()
    name = owner.partition("@/")[2].partition("?")[0]
    Journal.open(owner).close()

    def say(statements: str) -> None:
        with psycopg.connect(owner, autocommit=True) as connection:
            for statement in statements.format(name=name).split("; "):
                connection.execute(statement.encode())

    say(
        "DROP ROLE IF EXISTS limited; CREATE ROLE limited LOGIN; "
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO limited; "
        "GRANT INSERT ON entries TO limited; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO limited"
    )
    begins, ends = REFUSING[state]
    say(begins)
    limited = owner.replace(f"//{server.user}@", "//limited@")
    writer = started(Journal(engine_of(url_of(limited))), tmp_path, apart=apart)
    put(writer, range(3))
    wait_until(lambda: writer.figures.problem is not None)
    assert writer.figures.waiting_bytes > 0
    say(ends)
    assert writer.flush(60), writer.figures
    writer.close()
    assert names(Journal.open(owner)) == [f"entry-{i}" for i in range(3)]
    assert (writer.figures.dropped, writer.figures.set_aside, writer.figures.problem) == (0, 0, None)
    assert not writer.set_aside_file.exists()
    say("DROP OWNED BY limited; DROP ROLE limited")


def test_what_was_set_aside_is_deleted_by_person_and_by_age(tmp_path: Path) -> None:
    """These have no time, which no database takes: nobody can say that they are younger than any age."""
    writer = started_on_file(tmp_path)
    for i, person in enumerate(("ann", "ben")):
        assert writer.put(entry(i, person=person, at=None))
    assert writer.flush(30)
    writer.close()
    writer.journal.delete(person="ann", spool=writer.set_aside_file.parent)
    assert [kept["person"] for kept in lines_of(writer.set_aside_file)] == ["ben"]
    writer.journal.delete(before=1.0, spool=writer.set_aside_file.parent)
    assert list(lines_of(writer.set_aside_file)) == []


@pytest.mark.parametrize("value", ["a\0b", 2**80, "x" * 5000, {"a": 1}])
def test_values_that_no_database_takes_are_told_from_a_database_that_is_away(url: str, value: Any) -> None:
    journal = Journal.open(url)
    row = json.loads(entry(1).line()) | {"source": value}
    try:
        journal.add([row])
    except Exception as error:
        assert can_never_be_written(error), error
    else:
        assert "sqlite" in journal.engine.dialect.name  # which has no lengths, and types of values only


def test_lines_that_are_damaged_or_cut_off_are_left_out(tmp_path: Path) -> None:
    whole = entry(1).line().decode()
    path = tmp_path / "1.jsonl"
    path.write_text("[" * 100_000 + "\n" + whole + whole[: len(whole) // 2])
    assert [row["id"] for row in lines_of(path)] == ["entry-1"]


def test_the_file_that_is_written_stays_where_no_other_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the entries that come after it was taken would be deleted with it."""
    spool = Spool(tmp_path, 10**6)
    spool.append(entry(1).line())
    [first] = spool.take()
    spool.append(entry(2).line())

    def full() -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(spool, "_open_new_file", full)
        assert spool.take() == [first]
        spool.remove(first)
        assert spool.take() == []
    spool.append(entry(3).line())
    [second] = spool.take()
    assert [row["id"] for row in lines_of(second)] == ["entry-2", "entry-3"]
    assert spool.waiting_bytes == second.stat().st_size


def test_a_spool_in_use_is_left_alone(tmp_path: Path) -> None:
    journal = Journal.open(str(tmp_path / "journal.db"))
    with somebody_else_writing(journal):
        writer = started(journal, tmp_path)
        put(writer, range(5))
    assert adopt_left_behind(journal, tmp_path / "spool") == 0
    assert writer.flush(60)
    writer.close()
    assert len(names(journal)) == 5


def test_a_writer_begins_with_what_earlier_processes_left(tmp_path: Path) -> None:
    for first in (0, 4):
        spool = Spool(tmp_path / "spool", 10**6)
        for i in range(first, first + 4):
            assert spool.append(entry(i).line()) is None
        spool.close()
    writer = started_on_file(tmp_path)
    put(writer, [8])
    assert writer.flush(60) and writer.figures.written == 9
    writer.close()
    assert sorted(names(writer.journal)) == [f"entry-{i}" for i in range(9)]


def test_another_process_goes_on_where_the_one_that_wrote_is_killed(tmp_path: Path) -> None:
    writer = started_on_file(tmp_path, apart=True)
    put(writer, range(50))
    assert writer.put(entry(50, source="x" * 30, at=None))  # refused by every database
    assert writer.flush(60)
    written_by = writing_process(os.getpid())
    if sys.platform == "linux":  # where processors are scarce, whoever answers requests goes first
        assert os.sched_getscheduler(written_by) == os.SCHED_BATCH != os.sched_getscheduler(0)
        assert os.getpriority(os.PRIO_PROCESS, written_by) > os.getpriority(os.PRIO_PROCESS, 0)
    os.kill(written_by, signal.SIGKILL)
    put(writer, range(51, 60))
    assert writer.flush(60), writer.figures
    assert writing_process(os.getpid()) != written_by
    assert writer.figures.problem is None and writer.figures.set_aside == 1 and writer.figures.written == 59
    writer.close()
    assert names(writer.journal) == [f"entry-{i}" for i in range(60) if i != 50]


def test_the_process_that_writes_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    path, spool = str(tmp_path / "journal.db"), tmp_path / "spool"
    process = program(UNTIL_KILLED, path, spool, seconds=0.001, apart="apart")
    said = begun(process)
    journal = Journal.open(path)
    wait_until(lambda: bool(names(journal)))
    child = writing_process(process.pid)
    os.kill(child, signal.SIGTERM)  # as service managers send it to all processes at once; it has more to write
    process.kill()
    acknowledged = 1 + len([line for line in said.read().splitlines() if line.isdigit()])
    process.wait()
    wait_until(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2])
    adopt_left_behind(journal, spool)
    assert len(names(journal)) in (acknowledged, acknowledged + 1)


def writing_process(of: int) -> int:
    """The process that writes for another one, once it is there."""
    end = time.monotonic() + 60
    while True:
        for task in Path(f"/proc/{of}/task").iterdir():
            for child in (task / "children").read_text().split():
                if b"semtoken.guarantees.journal.writer_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_line_that_was_written_in_part_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool, first = Spool(tmp_path / "spool", 10**6), entry(1).line()
    assert spool.append(first) is None and spool.waiting_bytes == len(first)
    write = os.write
    monkeypatch.setattr("semtoken.guarantees.journal.spool.os.write", lambda file, line: write(file, line[:50]))
    assert spool.append(entry(2).line()) == "disk"
    monkeypatch.setattr("semtoken.guarantees.journal.spool.os.write", write)
    assert spool.append(entry(3).line()) is None
    [file] = spool.take()
    assert file.read_bytes() == first + entry(3).line()
    assert spool.take() == [file] and spool.waiting_bytes == file.stat().st_size
    spool.remove(file)
    assert spool.waiting_bytes == 0 and spool.take() == []
    spool.close()
    assert not list((tmp_path / "spool").iterdir())


def test_as_many_bytes_may_wait_as_were_allowed(tmp_path: Path) -> None:
    lines = [entry(number).line() for number in (1, 2, 3)]
    spool = Spool(tmp_path / "spool", len(lines[0]) + len(lines[1]))
    assert [spool.append(line) for line in lines] == [None, None, "full"]
    spool.close()


def test_every_count_is_told_as_it_grows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told: Counter[str] = Counter()
    writer = JournalWriter(Journal.open(str(tmp_path / "journal.db")), tmp_path / "spool")
    writer.on_change = lambda what, n: told.update({what: n})
    assert not writer.put(entry(0))  # it is not started
    none = {"acknowledged": 0, "written": 0, "set_aside": 0, "waiting_bytes": 0, "problem": None}
    assert vars(writer.figures) == none | {"dropped": 1}
    writer.start()
    put(writer, range(1, 4))
    assert writer.put(entry(4, source="x" * 30, at=None))  # the database refuses it
    assert writer.flush(30)
    writer.close()
    assert [path for path in (tmp_path / "spool").iterdir() if path.is_dir()] == []  # nobody has to take anything over
    assert told == {"acknowledged": 4, "written": 3, "dropped": 1, "set_aside": 1}
    assert told == {name: n for name, n in vars(writer.figures).items() if name in told}
    assert writer.losses == [
        f"1 answer could not be kept in {writer.journal.name}.",
        f"1 answer can never be written to {writer.journal.name}. See {writer.set_aside_file}.",
    ]
    dropped, aside = [one.getMessage() for one in caplog.records]
    assert dropped == "The journal drops entries: closed" and str(writer.set_aside_file) in aside


def test_pauses_double_up_to_five_seconds_while_the_database_is_away() -> None:
    pauses = itertools.accumulate(range(6), lambda pause, _: longer_pause(pause), initial=PAUSE)
    assert list(pauses) == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]


def test_nobody_else_may_read_a_spool(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        spool = Spool(tmp_path / "spool", 10**6)
        spool.append(entry(1).line())
        check_spool(tmp_path / "checked")
    finally:
        os.umask(before)
    [file] = spool.path.iterdir()
    modes = [one.stat().st_mode & 0o777 for one in (tmp_path / "spool", spool.path, file, tmp_path / "checked")]
    assert modes == [0o700, 0o700, 0o600, 0o700]
    spool.close()
