"""Options that name an address or a place: what cannot be used ends in one line, without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from semtoken.cli.app import app
from semtoken.errors import SemtokenError

ADDRESSES = ("http://[bad/", "http://a:99999999", "http://a:b/", "http://", "ftp://a/", "\ud800", "http://\x00")


def ends_in_one_line(*arguments: str) -> None:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code not in (0, None), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit | SemtokenError), repr(done.exception)
    assert "Traceback" not in done.output


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("command", [("proxy", "--upstream"), ("doctor",)])
def test_addresses_that_are_none(command: tuple[str, ...], address: str) -> None:
    ends_in_one_line(*command, address)


@pytest.mark.parametrize("address", ADDRESSES)
def test_endpoints_of_questions_that_are_none(address: str, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text("late: {type: predicate, instructions: 'Late?'}\n")
    (tmp_path / "items.jsonl").write_text('{"state": "a"}\n')
    places = [str(tmp_path / name) for name in ("q.yaml", "items.jsonl")]
    ends_in_one_line("decide", "run", *places, "-o", str(tmp_path / "o.jsonl"), "--endpoint", address)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that nobody can write to")
@pytest.mark.parametrize(
    "options",
    [
        ("--journal", "/proc/journal.db"),
        ("--journal", "/proc/missing/journal.db"),
        ("--journal", "/"),
        ("--journal", "postgresql://[bad/"),
        ("--journal", "{there}", "--journal-spool", "/proc/spool"),
        ("--journal", "{there}", "--journal-spool", "{file}"),
    ],
)
def test_journals_that_cannot_be_written(options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    given = [one.format(there=tmp_path / "journal.db", file=tmp_path / "file") for one in options]
    ends_in_one_line("proxy", "--upstream", "http://127.0.0.1:9", "--port", "0", *given)
