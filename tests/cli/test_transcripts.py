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
    """A line of a session with what its command prints, without times; behind `<<<` stand the lines that are typed.

    Numbers have four digits: more are the machine's.
    """
    words, _, typed = line.partition(" <<< ")
    program, *arguments = shlex.split(words)
    if program == "cat":
        output, end = Path(arguments[0]).read_text("utf-8"), ""
    else:
        done = invoke(arguments, stdin="".join(f"{one.removeprefix('ENTER')}\n" for one in typed.split()))
        output, end = done.output, f"[{done.exit_code}]\n"
    text = TIMES.sub(b"TIME", output.encode()).decode()
    text = re.sub(r"\d+\.\d{5,}(e-?\d+)?", lambda number: f"{float(number[0]):.4g}", text)
    text = re.sub(r"(?s)\d+\.\d seconds .*? memory\.|semtoken:[\d.]+|\b(?:[0-9a-f]{16}){1,2}\b", "CHANGING", text)
    return f"$ {line}\n" + re.sub(r"[ \t\r]+$", "", text, flags=re.MULTILINE) + end


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
    lines = re.findall(r"^\$ ((?:semtoken|cat) .+)$", recorded, re.MULTILINE)
    assert "\n".join(map(printed, lines)) == recorded
