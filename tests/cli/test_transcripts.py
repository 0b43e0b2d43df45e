"""Sessions of commands: all that they print, word by word, and their exit status."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import TIMES
from tests.cli.run import invoke

SESSIONS = Path(__file__).with_name("transcripts")
EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(line: str) -> str:
    """A line of a session with what its command prints, without times; behind `<<<` stand the lines that are typed."""
    words, _, typed = line.partition(" <<< ")
    done = invoke(shlex.split(words), stdin="".join(f"{one.removeprefix('ENTER')}\n" for one in typed.split()))
    text = re.sub(r"[ \t]+$", "", TIMES.sub(b"TIME", done.output.encode()).decode(), flags=re.MULTILINE)
    text = re.sub(r"(?s)\d+\.\d seconds .*? memory\.|semtoken:[\d.]+", "CHANGING", text)
    return f"$ semtoken {line}\n{text}[{done.exit_code}]\n"


@pytest.mark.parametrize("session", sorted(path.stem for path in SESSIONS.glob("*.txt")))
def test_commands_print_what_they_printed(
    session: str, made: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a change is meant, what this test prints goes into the file of the session."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "here"))
    for name in ("decisions", "extraction", "gate"):
        shutil.copytree(EXAMPLES / name, name)
    shutil.copytree(model, "tiny")
    recorded = (SESSIONS / f"{session}.txt").read_text("utf-8")
    lines = re.findall(r"^\$ semtoken (.+)$", recorded, re.MULTILINE)
    assert "\n".join(map(printed, lines)) == recorded
