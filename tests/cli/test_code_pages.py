"""A terminal or a pipe that cannot hold every character: no command ends with a traceback, and JSON stays whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.replies.test_check import reply

SAID = "Łódź ∎ \N{CJK UNIFIED IDEOGRAPH-6771} \N{GRINNING FACE}"


def run(encoding: str, *words: object) -> subprocess.CompletedProcess[bytes]:
    """A command whose standard streams have an encoding, as on Windows where they are pipes or files."""
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "semtoken", *map(str, words)]
    return subprocess.run(command, capture_output=True, check=False, env=environment)


@pytest.fixture
def replies(tmp_path: Path) -> Path:
    file = tmp_path / "replies.jsonl"
    lines = [json.dumps(reply([(SAID, -0.1), (" and", -2.0), (f" {SAID}.", -1.5)])) for _ in range(2)]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


@pytest.mark.parametrize("encoding", ["cp1252", "cp437", "ascii"])
def test_no_character_stops_a_command(encoding: str, replies: Path, tmp_path: Path) -> None:
    ranked = run(encoding, "check", replies)
    assert ranked.returncode == 0 and b"Traceback" not in ranked.stderr, ranked.stderr
    assert "?" in ranked.stdout.decode(encoding)
    missing = run(encoding, "check", tmp_path / f"{SAID[:4]}.json")
    assert missing.returncode == 1 and missing.stderr.count(b"Error: ") == 1 and b"Traceback" not in missing.stderr
    as_json, exact = (run(name, "check", replies, "--json") for name in (encoding, "utf-8"))
    assert as_json.returncode == 0, as_json.stderr
    read = [json.loads(line) for line in as_json.stdout.decode(encoding).splitlines()]
    assert read == [json.loads(line) for line in exact.stdout.decode("utf-8").splitlines()]
    assert SAID in json.dumps(read, ensure_ascii=False)


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_settings_that_are_shown_are_a_file_of_the_same_settings(encoding: str, tmp_path: Path) -> None:
    shown = run(encoding, "config", "--calibration.abstain-text", SAID).stdout
    assert tomllib.loads(shown.decode("utf-8"))["calibration"]["abstain_text"] == SAID


def test_the_choice_of_an_error_handler_stays(replies: Path) -> None:
    assert rb"\u0141" in run("cp1252:backslashreplace", "check", replies).stdout
