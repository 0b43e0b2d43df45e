"""The journal in SQLite and in PostgreSQL: what goes in comes out, twice is once, deleted is gone."""

from __future__ import annotations

import csv
import json
import math
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from datetime import date
from pathlib import Path
from threading import Barrier

import pandas as pd
import pyarrow.parquet
import pytest
import sqlalchemy as sa

import semtoken as st
from semtoken.errors import InvalidInputError
from semtoken.guarantees.answer_records import read_answers
from semtoken.guarantees.journal.database import JournalError, engine_of, entries, metadata, url_of, without_password
from semtoken.guarantees.journal.entries import COLUMNS, AnswerOrigin, Recording, SamplingRule, fingerprint_of_prompt
from semtoken.guarantees.journal.export import check_nothing_lost
from semtoken.guarantees.journal.labels import add_label
from semtoken.guarantees.journal.spool import Spool, spool_folder
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.writer_process import write_file
from tests.cli.run import invoke
from tests.guarantees.made_up import entry, rows_of
from tests.json_lines import read_lines, write_lines


def test_entries_come_out_as_they_went_in(journal: Journal) -> None:
    made = [entry(i, flags=("a", "b"), doubts=({"start": 1, "end": 2, "confidence": 0.25},)) for i in range(20)]
    journal.add(rows_of(made))
    journal.add(rows_of(made))  # again: each once
    found = list(journal.entries())
    assert [{name: row[name] for name in COLUMNS} for row in found] == rows_of(made)
    assert [row["id"] for row in journal.entries(newest_first=True, limit=3)] == ["entry-19", "entry-18", "entry-17"]


@pytest.mark.parametrize("words", [("journal", "show"), ("journal", "export"), ("journal", "delete", "--person", "a")])
def test_a_database_of_another_program_is_not_changed_by_a_command_that_reads(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "empty.jsonl").touch()
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("create table notes (line text)")
    connection.close()
    for name in ("empty.jsonl", "other.db"):
        before = (tmp_path / name).read_bytes()
        result = invoke([*words, tmp_path / name])
        assert result.exit_code == 1 and f"{name} holds no journal." in result.stderr, result.output
        assert (tmp_path / name).read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["empty.jsonl", "other.db"]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_an_export_says_how_many_entries_it_holds(ending: str, tmp_path: Path) -> None:
    """Also if there are none: somebody may take the file for what is kept of deleted entries."""
    with closing(Journal.open(str(tmp_path / "journal.db"))) as journal:
        journal.add(rows_of(entry(i) for i in range(3)))
    words = ("journal", "export", tmp_path / "journal.db", "-o", tmp_path / f"all.{ending}")
    assert f"{tmp_path / 'all'}.{ending} holds 3 entries." in invoke(words).stderr
    assert " holds 0 entries." in invoke([*words[:-1], tmp_path / f"labeled.{ending}", "--labeled"]).stderr


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_an_export_replaces_no_file_that_holds_more(ending: str, tmp_path: Path) -> None:
    """It was the only copy of what had been deleted from the journal since."""
    target = tmp_path / f"all.{ending}"
    with closing(Journal.open(str(tmp_path / "journal.db"))) as journal:
        journal.add(rows_of(entry(i) for i in range(3)))
        words = ("journal", "export", tmp_path / "journal.db", "-o", target)
        assert invoke(words).exit_code == 0
        journal.add(rows_of([entry(3)]))
        assert " holds 4 entries." in invoke(words).stderr
        whole = target.read_bytes()
        refused = f"{target} holds 4 entries that this export would not, such as entry-0. Choose another output"
        assert refused in invoke([*words, "--labeled"]).stderr
        journal.delete(before=1.7e9 + 1)
        after = invoke(words)
        assert after.exit_code == 1 and f"{target} holds 1 entry that this export would not" in after.stderr
        assert target.read_bytes() == whole
        assert " holds 3 entries." in invoke([*words, "--force"]).stderr


def test_a_column_that_somebody_added_does_not_matter_to_an_export(journal: Journal, tmp_path: Path) -> None:
    """Only the ids of a table are read, and no reader of answers takes a column of dates."""
    journal.add(rows_of([entry(0)]))
    frame = pd.DataFrame({"id": ["entry-0", "gone"], "seen": [date(2026, 12, 1)] * 2})
    for rows, entries_lost in ((frame[:1], 0), (frame, 1), (frame[["seen"]], 1)):
        rows.to_parquet(tmp_path / "all.parquet")
        with pytest.raises(InvalidInputError, match="holds 1 entry") if entries_lost else nullcontext():
            check_nothing_lost(journal, tmp_path / "all.parquet")


def test_an_export_to_the_output_looks_at_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-").write_text('{"id": "another"}\n')
    with closing(Journal.open("journal.db")) as journal:
        journal.add(rows_of([entry(0)]))
    assert '"entry-0"' in invoke(["journal", "export", "journal.db"]).stdout


def test_large_journals_are_asked_through_indexes(tmp_path: Path) -> None:
    """SQLite says how it would answer; one that reads the whole table says SCAN without an index."""
    journal = Journal.open(str(tmp_path / "journal.db"))
    asked = {
        "entries_sampled": sa.select(entries.c.n).where(entries.c.sampled).order_by(entries.c.n),
        "entries_person": sa.select(entries.c.n).where(entries.c.person == "me"),
        "entries_calibrator": sa.select(entries).where(entries.c.calibrator == "x").order_by(entries.c.n.desc()),
        "entries_at": sa.select(entries.c.n).where(entries.c.at < 1.7e9),
    }
    with journal.engine.connect() as connection:
        for index, query in asked.items():
            told = str(query.compile(journal.engine, compile_kwargs={"literal_binds": True}))
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {told}").all()
            assert any(f"INDEX {index}" in row[3] for row in plan), (index, plan)


def test_a_journal_of_a_former_release_gets_the_columns_and_indexes_that_it_lacks(journal: Journal, url: str) -> None:
    journal.add(rows_of([entry(0)]))
    with journal.engine.begin() as connection:
        connection.execute(sa.text("DROP INDEX entries_person"))
        connection.execute(sa.text("ALTER TABLE entries DROP COLUMN person"))
        connection.execute(sa.text("ALTER TABLE entries DROP COLUMN truncated"))
        connection.execute(sa.text("DROP TABLE labels"))
    journal.close()
    opened = Journal.open(url)
    assert [(row["id"], row["person"]) for row in opened.entries()] == [("entry-0", None)]
    opened.add(rows_of([entry(1, person="ann", truncated=True)]))
    add_label(opened, "entry-1", "me", True)
    assert [(row["id"], row["truncated"]) for row in opened.entries(entries.c.person == "ann")] == [("entry-1", True)]
    there = sa.inspect(opened.engine)
    for table in metadata.sorted_tables:
        assert {column["name"] for column in there.get_columns(table.name)} == set(table.columns.keys())
        named = {index["name"] for index in there.get_indexes(table.name) if "duplicates_constraint" not in index}
        assert named == {index.name for index in table.indexes}


def test_a_journal_of_a_later_release_is_refused(journal: Journal, url: str) -> None:
    with journal.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE labels ADD COLUMN colour VARCHAR(20)"))
    with pytest.raises(JournalError, match="later release"):
        Journal.open(url)


def test_several_may_make_the_tables_of_one_journal_at_one_time(url: str) -> None:
    start = Barrier(4)

    def open_with_others(_: int) -> Journal:
        start.wait()
        return Journal.open(url)

    with ThreadPoolExecutor(4) as threads:
        opened = list(threads.map(open_with_others, range(4)))
    for number, one in enumerate(opened):
        one.add(rows_of([entry(number)]))
    assert opened[0].size().entries == 4


def with_text(folder: Path, text: bytes) -> list[str]:
    return [str(file) for file in folder.rglob("*") if file.is_file() and text in file.read_bytes()]


def test_deleted_texts_are_not_in_the_files(tmp_path: Path) -> None:
    """Rows of many sizes, so that pages are split, merged and rewritten; the database stays open meanwhile."""
    journal = Journal.open(str(tmp_path / "journal.db"))
    for start in range(0, 400, 40):
        rows = [entry(i, person="ann", answer="a secret" * (i * i % 601)) for i in range(start + 1, start + 40, 2)]
        rows += [entry(i, person="bob", answer="plain " * (i * i % 701)) for i in range(start, start + 40, 2)]
        journal.add(rows_of(rows))
    assert with_text(tmp_path, b"secret")
    assert journal.delete(person="ann") == 200
    assert not with_text(tmp_path, b"secret") and not with_text(tmp_path, b"ann")
    assert journal.size().entries == 200


@pytest.mark.parametrize("tag", ["p" * 250, "ann \ud800", "a\0b"])
def test_entries_are_deleted_by_the_tag_that_the_request_carried(url: str, tag: str) -> None:
    """The journal keeps 200 characters of it, and those that every database takes."""
    journal = Journal.open(url)
    recording = Recording(AnswerOrigin("proxy"), *journal.sampling())
    made = [recording.unscored("none", person=person) for person in (tag, "another", None)]
    journal.add(rows_of(made))
    assert journal.delete(person="") == 0
    assert journal.delete(person=tag) == 1
    assert [row["person"] for row in journal.entries()] == ["another", None]


def test_texts_that_another_programs_transaction_keeps_are_not_called_gone(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semtoken.guarantees.journal.database.SECONDS_FOR_LOCKS", 1)
    monkeypatch.setattr("semtoken.guarantees.journal.store.SECONDS_FOR_LOCKS", 1)
    journal = Journal.open(url)
    journal.add(rows_of([entry(1, person="ann", answer="a very secret answer"), entry(2, person="bob")]))
    other = engine_of(url_of(url)).connect().execution_options(isolation_level="SERIALIZABLE")
    if url.endswith("journal.db"):
        other.exec_driver_sql("BEGIN")  # Python's driver begins none for reading
    other.execute(sa.text("SELECT count(*) FROM settings")).all()
    journal.add(rows_of([entry(3, person="ann", answer="another secret answer")]))
    with pytest.raises(JournalError, match=r"2 entries are deleted .* still in its files"):
        journal.delete(person="ann")
    failed = invoke(["journal", "delete", url, "--person", "ann", "--yes"])
    assert failed.exit_code == 1 and "still in its files" in " ".join(failed.output.split())
    other.close()
    assert journal.delete(person="ann") == 0
    assert not with_text(tmp_path, b"secret")


def test_entries_in_the_spool_of_a_running_process_are_deleted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semtoken.guarantees.journal.store.SECONDS_FOR_SPOOLS", 0.2)
    journal = Journal.open(str(tmp_path / "journal.db"))
    spool = Spool(spool_folder(journal.engine.url), 10**6)
    spool.append(entry(1, person="ann", answer="a secret").line())
    spool.take()  # the next one is in another file
    spool.append(entry(2, person="ann", answer="a secret").line())
    with pytest.raises(JournalError, match=r"2 of them wait in .*journal\.db\.spool"):
        journal.delete(person="ann")
    assert journal.delete(person="bob") == 0  # whose entries do not wait
    with ThreadPoolExecutor(1) as pool:  # a process that writes while the command waits
        monkeypatch.setattr("semtoken.guarantees.journal.store.SECONDS_FOR_SPOOLS", 10)
        deleted = pool.submit(journal.delete, person="ann")
        time.sleep(0.2)
        for file in spool.take():
            write_file(journal, file, lambda why: None)
            spool.remove(file)
        assert deleted.result() == 2
    assert not with_text(tmp_path, b"secret")


def test_the_rule_of_the_sample_stays_until_it_is_changed(journal: Journal) -> None:
    rule, salt = journal.sampling(0.1, "x")
    assert (rule, salt) == (SamplingRule("x", 0.1), salt)
    assert journal.sampling() == (rule, salt)
    assert journal.sampling(0.2) == (SamplingRule("x", 0.2), salt)


def test_new_entries_follow_the_rule_of_the_sample_and_never_share_an_identifier() -> None:
    recording = Recording(AnswerOrigin("proxy"), SamplingRule("seed", 0.3), b"salt")
    token = {"token": "Lima", "logprob": -0.1, "top_logprobs": [{"token": "Lima", "logprob": -0.1}]}
    choice = {"index": 0, "message": {"role": "assistant", "content": "Lima"}, "logprobs": {"content": [token]}}
    [answer] = st.score_reply({"object": "chat.completion", "choices": [choice]})
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: recording.entry(answer, {}), range(2_000)))
    assert len({one.id for one in made}) == 2_000
    assert all(one.sampled == recording.sampling.takes(one.id) for one in made)
    assert all(one.seen_twice == (one.sampled and recording.sampling.takes_twice(one.id)) for one in made)
    assert {one.sampled for one in made} == {one.seen_twice for one in made} == {True, False}
    assert len({recording.entry(answer, {}, identifier=name).id for name in ("", "", None, "own", "own")}) == 4


def test_equal_prompts_have_equal_fingerprints_under_one_salt_alone() -> None:
    one, same = {"a": [1, "é\ud800"], "b": None}, {"b": None, "a": [1, "é\ud800"]}
    assert fingerprint_of_prompt(one, b"x") == fingerprint_of_prompt(same, b"x") != fingerprint_of_prompt(one, b"y")
    odd = [fingerprint_of_prompt(text, b"x") for text in ("\ud800", "\ud801", "?", [["?"]])]  # half characters
    assert len(set(odd)) == 4


@pytest.mark.parametrize("address", ["mysql://host/db", "sqlite://", "sqlite:///:memory:", "a://b::c"])
def test_other_databases_are_refused(address: str) -> None:
    with pytest.raises(InvalidInputError):
        url_of(address)


def test_no_password_is_shown() -> None:
    assert "secret" not in without_password(url_of("postgresql://me:secret@host/db"))
    assert "secret" not in without_password("postgresql://me:secret@host:bad/db")


def run(*arguments: str) -> str:
    done = invoke(["journal", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_exports_hold_everything_and_no_formula(journal: Journal, url: str, tmp_path: Path) -> None:
    journal.add(rows_of([entry(1, sampled=True, answer="=cmd|' /C calc'!A0", numbers={}), entry(2, method="top-k")]))
    add_label(journal, "entry-1", "me", False)
    targets = [tmp_path / f"e.{kind}" for kind in ("jsonl", "parquet", "csv")]
    for target in targets:
        run("export", url, "-o", str(target))
    lines = read_lines(targets[0])
    assert [line["answer"] for line in lines] == ["=cmd|' /C calc'!A0", "answer 2"]
    assert lines[0]["correct"] is False and lines[0]["labels"] == [{"reviewer": "me", "correct": False}]
    assert lines[1]["log_confidence_interval"] == [-0.02, -0.02] and lines[1]["score_perplexity"] == 1.5
    assert pyarrow.parquet.read_table(targets[1])["id"].to_pylist() == ["entry-1", "entry-2"]
    with targets[2].open(newline="") as file:
        assert next(csv.DictReader(file))["answer"].startswith("'=cmd")


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
def test_an_exported_journal_is_read_as_answers_of_which_the_random_sample_is_labeled(
    journal: Journal, url: str, tmp_path: Path, kind: str
) -> None:
    """Labels of answers that were chosen for their doubt enter no guarantee, and one without a score stops nothing."""
    nothing = dict.fromkeys(("log_confidence", "log_confidence_lower", "log_confidence_upper", "confidence", "method"))
    unscored = entry(6, sampled=False, unscored="no log-probabilities", signature=None, distribution=None, **nothing)
    journal.add(rows_of([*(entry(i, sampled=i % 2 == 0) for i in range(6)), unscored]))
    for i in range(4):
        add_label(journal, f"entry-{i}", "me", i != 2)
    target = tmp_path / f"all.{kind}"
    assert f"{target} holds 7 entries." in run("export", url, "-o", str(target))
    answers = read_answers(target)
    assert [(one.text, one.correct) for one in answers] == [
        (f"answer {i}", {0: True, 2: False}.get(i)) for i in range(6)
    ]
    if kind == "jsonl":
        assert [len(line.get("labels", ())) for line in read_lines(target)] == [1, 1, 1, 1, 0, 0, 0], "none is lost"
        own = write_lines(tmp_path / "own.jsonl", [line | {"unscored": "by the jury"} for line in read_lines(target)])
        assert len(read_answers(own)) == 6, "somebody else's field leaves out no answer that has a score"


def test_the_command_shows_sizes_and_deletes(journal: Journal, url: str) -> None:
    journal.add(rows_of(entry(i, person="ann") for i in range(5)))
    shown = run("show", url, "-n", "2")
    assert "answer 4" in shown and "%" not in shown and "confidence 0." in shown
    assert shown.count("Confidence ranks answers; it is not a probability of being right.") == 1
    assert json.loads(run("show", url, "--json").splitlines()[0])["size"]["entries"] == 5
    assert "0 entries deleted." in run("delete", url, "--older-than", "99999999y", "--yes"), "older than any calendar"
    said = run("delete", url, "--older-than", "1d", "--yes")
    assert "5 entries deleted. Files that were exported before keep their texts." in said
    assert json.loads(run("show", url, "--json"))["size"]["entries"] == 0


def test_the_size_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal.open(str(path))
    journal.add(rows_of(entry(i) for i in range(30)))
    size = journal.size()
    journal.close()
    assert size.bytes == path.stat().st_size


def test_a_journal_that_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    done = invoke(["journal", "show", str(tmp_path / "none.db")])
    assert done.exit_code == 1 and list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no such limit")
@pytest.mark.parametrize("room", [0, 4096])
def test_a_journal_that_cannot_be_made_leaves_no_file(room: int, tmp_path: Path) -> None:
    """A full disk left one, which later commands refused as no journal."""
    code = """
import resource, sys
from semtoken.guarantees.journal.store import Journal
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
Journal.open(sys.argv[1])
"""
    command = [sys.executable, "-c", code, str(tmp_path / "new.db"), str(room)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode and "JournalError" in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())
    (tmp_path / "new.db").touch()  # of somebody who made it beforehand, with the rights that it shall have
    assert subprocess.run(command, capture_output=True, check=False).returncode
    assert (tmp_path / "new.db").exists()


def test_a_journal_that_was_cut_off_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal.open(path).close()
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(half)
    done = invoke(["journal", "show", str(path)])
    assert done.exit_code == 1 and f"{path} cannot be used: database disk image is malformed" in done.output
    assert "It is damaged, or a part is missing. Put a copy in its place" in done.output
    assert path.read_bytes() == half


def test_sqlite_has_a_write_ahead_log(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal.open(str(path)).close()
    assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_bounds_of_a_confidence_are_each_in_their_own_column() -> None:
    """A step at p = 0.5 whose list leaves 0.3 of the probability open: the ends differ, and enclose the value."""
    listed = [{"token": name, "logprob": math.log(p)} for name, p in (("Lima", 0.5), (" Cusco", 0.2))]
    choice = {"index": 0, "message": {"role": "assistant", "content": "Lima"}}
    choice["logprobs"] = {"content": [{"token": "Lima", "logprob": math.log(0.5), "top_logprobs": listed}]}
    [answer] = st.score_reply({"object": "chat.completion", "choices": [choice]})
    found = Recording(AnswerOrigin("proxy"), SamplingRule("seed", 0.3), b"salt").entry(answer, {})
    low, high = answer.confidence_interval
    assert (found.confidence_lower, found.confidence_upper) == (low, high) and low < high
    assert found.confidence is not None and low <= found.confidence <= high
    assert low == pytest.approx(0.5, abs=1e-4) and high <= 0.8 + 1e-4
