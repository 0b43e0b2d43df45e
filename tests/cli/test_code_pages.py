"""A terminal or a pipe that cannot hold every character: no command ends with a traceback, and JSON stays whole."""

from __future__ import annotations

import io
import json
import os
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from semtoken.cli import main
from tests.replies.test_check import reply

SAID = "Łódź ∎ \N{CJK UNIFIED IDEOGRAPH-6771} \N{GRINNING FACE}"


def run(encoding: str, *words: object, errors: str = "strict") -> tuple[object, bytes, str]:
    """A command whose standard streams have an encoding, as on Windows where they are pipes or files: its status and
    what it printed.
    """
    said, told = io.BytesIO(), io.BytesIO()
    out = io.TextIOWrapper(said, encoding=encoding, errors=errors, write_through=True)
    err = io.TextIOWrapper(told, encoding=encoding, errors="backslashreplace", write_through=True)
    given = patch.object(sys, "argv", ["semtoken", *map(str, words)])
    with given, patch.dict(os.environ), redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, said.getvalue(), told.getvalue().decode(encoding)


@pytest.fixture
def replies(tmp_path: Path) -> Path:
    file = tmp_path / "replies.jsonl"
    lines = [json.dumps(reply([(SAID, -0.1), (" and", -2.0), (f" {SAID}.", -1.5)])) for _ in range(2)]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "encoding", [*(pytest.param(one, marks=pytest.mark.slow) for one in ("cp1252", "cp437")), "ascii"]
)
def test_no_character_stops_a_command(encoding: str, replies: Path, tmp_path: Path) -> None:
    status, ranked, told = run(encoding, "check", replies)
    assert not status and "Traceback" not in told, told
    assert "?" in ranked.decode(encoding)
    status, _, told = run(encoding, "check", tmp_path / f"{SAID[:4]}.json")
    assert status == 1 and told.count("Error: ") == 1 and "Traceback" not in told
    (status, as_json, _), (_, exact, _) = (run(name, "check", replies, "--json") for name in (encoding, "utf-8"))
    assert not status
    read = [json.loads(line) for line in as_json.decode(encoding).splitlines()]
    assert read == [json.loads(line) for line in exact.decode("utf-8").splitlines()]
    assert SAID in json.dumps(read, ensure_ascii=False)


@pytest.mark.parametrize("encoding", [pytest.param("cp1252", marks=pytest.mark.slow), "ascii"])
def test_a_journal_is_shown_and_exported(encoding: str, replies: Path, tmp_path: Path) -> None:
    """Polish names and U+220E in answers and in the names of files."""
    journal, table = tmp_path / "Żółć \u220e.db", tmp_path / "Łódź \u220e.jsonl"
    for words in (
        ("check", replies, "--journal", journal, "--journal.texts", "true"),
        ("journal", "show", journal),
        ("journal", "export", journal, "-o", table),
        ("journal", "export", journal, "-o", table.with_suffix(".csv")),
        ("journal", "delete", journal, "--person", "Żaneta \u220e", "--yes"),
    ):
        status, _, told = run(encoding, *words)
        assert not status and "Traceback" not in told, told
    rows = [json.loads(line) for line in table.read_text("utf-8").splitlines()]
    assert len(rows) == 2 and all(SAID in row["answer"] for row in rows)
    assert table.with_suffix(".csv").read_text("utf-8").count(f",{SAID} and {SAID}.,") == 2
    status, _, told = run(encoding, "journal", "show", tmp_path / "nie \u220e ma.db")
    assert status == 1 and told.count("Error: ") == 1 and "Traceback" not in told


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_settings_that_are_shown_are_a_file_of_the_same_settings(encoding: str) -> None:
    _, shown, _ = run(encoding, "config", "--calibration.abstain-text", SAID)
    assert tomllib.loads(shown.decode("utf-8"))["calibration"]["abstain_text"] == SAID


def test_the_choice_of_an_error_handler_stays(replies: Path) -> None:
    """As PYTHONIOENCODING=cp1252:backslashreplace makes the standard output."""
    status, ranked, _ = run("cp1252", "check", replies, errors="backslashreplace")
    assert not status and rb"\u0141" in ranked
