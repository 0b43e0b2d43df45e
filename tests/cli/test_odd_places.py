"""Every command with every option that names a place or an address, and values that are none: no traceback, ever."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from semtoken.cli.typer_app import app
from tests.cli.run import invoke

ADDRESSES = ("http://[bad/", "http://a:99999999", "http://a:b/", "http://", "ftp://a/", "postgresql://[bad/", "")
URLS = {"journal", "url", "endpoint", "base_url", "upstream"}
TEXTS = {"tokenizer", "read_with", "clusters", "model", "decisions", "decision_calibrator"}
"""Options of text that take a path, too."""
SKIPPED = {
    "bench lm-eval": "its package takes seconds to import",
    "cluster list": "it has no place",
}
BASES = {
    "decide run": ("{questions}", "{lines}", "--output", "{out}"),
    "decide fit": ("{lines}", "--output", "{out}", "--labels", "{lines}"),
    "decide audit": ("{folder}", "{lines}"),
    "calibrate": ("{lines}", "--output", "{out}"),
    "score": ("{lines}", "--output", "{out}"),
    "ask": ("Where?", "--model", "{file}"),
    "compare": ("{lines}", "--model", "{file}"),
    "demo": ("--model", "{file}"),
    "bench judge": ("{lines}", "--output", "{out}"),
    "cluster make": ("{folder}", "--output", "{out}"),
    "cluster show": ("a",),
    "bench run": ("{lines}",),
}
"""What stands beside the odd value; other commands have their arguments alone. The model is the embedded one."""


def commands(group: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name in getattr(group, "commands", ()):
        command = group.commands[name]
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))
        else:
            yield " ".join((*names, name)), command


ALL = dict(commands(typer.main.get_command(app)))


def places(command: Any) -> Iterator[Any]:
    """The parameters that take a path or an address."""
    for parameter in command.params:
        kind = str(getattr(vars(parameter).get("type_descriptor"), "annotation", ""))
        if "Path" in kind or parameter.name in URLS | TEXTS or parameter.metavar in ("URL", "REPLIES...", "FILE"):
            yield parameter


@pytest.fixture
def busy() -> Iterator[int]:
    """A port that is taken, so that nothing is served where the odd value passes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("name", [name for name in ALL if name not in SKIPPED])
def test_no_place_brings_a_traceback(name: str, busy: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path / "cache"))
    here = {one: str(tmp_path / one) for one in ("folder", "file", "lines", "questions", "out", "db")} | {"port": busy}
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"\xff\x00{[")
    (tmp_path / "lines").write_text('{"question": "Where?", "answer": "Oslo", "state": "a"}\n')
    (tmp_path / "questions").write_text("late: {type: predicate, instructions: 'Late?'}\n")
    kept = {one: (tmp_path / one).read_bytes() for one in ("file", "lines", "questions")}
    odd = [here["folder"], here["file"], f"{tmp_path}/none/a.jsonl", f"{here['file']}/a.jsonl", "/proc/a.jsonl"]
    odd += ["/proc/none/a.jsonl", "a" * 5000, "a\udcff"]
    failures = []
    for parameter in places(ALL[name]):
        for value in [*odd, *(ADDRESSES if parameter.name in URLS else ())]:
            base = [part.format(**here) for part in BASES.get(name, ())]
            given = [value] if not parameter.opts[0].startswith("-") else [parameter.opts[0], value]
            line = [*name.split(), *(base if given[0].startswith("-") else [*given, *base[1:]])]
            line += given if given[0].startswith("-") else []
            done = invoke(line)
            said = [one for one in done.output.splitlines() if one.startswith(("Error: ", "Usage: "))]
            told = done.exit_code == 0 or (len(said) == 1 and "Traceback" not in done.output)
            if not isinstance(done.exception, SystemExit | None) or not told:
                failures.append(f"{' '.join(line)[-300:]}: {done.exception!r} {said}"[:700])
    assert not failures, "\n".join(failures)
    assert kept == {one: (tmp_path / one).read_bytes() for one in kept}
