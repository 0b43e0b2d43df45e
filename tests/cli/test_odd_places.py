"""Every command with every option that names a place or an address, and values that are none: no traceback, ever."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semtoken.cli.commands import leaves
from semtoken.cli.help import command_at
from tests.cli.run import invoke

ADDRESSES = ("http://[bad/", "http://a:99999999", "http://a:b/", "http://", "ftp://a/", "postgresql://[bad/", "")
URLS = {"--journal", "URL", "--base-url"}
TEXTS = {"--tokenizer", "--clusters", "--model", "PATH", "SOURCE"}
"""What takes a path, too."""
SKIPPED = {("fetch",): "it would load from the network", ("config",): "it has no place"}
BASES = {
    "decide": ("{questions}", "{lines}", "--output", "{out}"),
    "audit": ("{lines}", "--calibrator", "{folder}"),
    "calibrate": ("{lines}", "--output", "{out}"),
    "proxy": ("--base-url", "http://127.0.0.1:9", "--port", "{port}"),
    "serve": ("--port", "{port}"),
    "score": ("{lines}", "--output", "{out}"),
    "ask": ("Where?", "--model", "{file}"),
    "check": ("{lines}",),
    "label": ("{lines}",),
    "bench compare": ("{lines}", "--model", "{file}"),
    "bench judge": ("{lines}", "--output", "{out}"),
    "bench report": ("{folder}",),
    "bench run": ("{lines}",),
    "cluster make": ("{folder}", "--output", "{out}"),
    "cluster show": ("a",),
    "journal show": ("{db}",),
    "journal export": ("{db}",),
    "journal delete": ("{db}", "--older-than", "1d", "--yes"),
    "doctor": (),
}
"""What stands beside the odd value. The model is the embedded one."""


def places(place: tuple[str, ...]) -> Iterator[Any]:
    """The arguments and options that take a path or an address."""
    for one in command_at(place).assemble_argument_collection():
        if "Path" in str(one.hint) or one.name in URLS | TEXTS:
            yield one


@pytest.fixture
def busy() -> Iterator[int]:
    """A port that is taken, so that nothing is served where the odd value passes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)], ids=["a ninth", "all"])
@pytest.mark.parametrize("place", [one for one in leaves() if one not in SKIPPED], ids=" ".join)
def test_no_place_brings_a_traceback(
    place: tuple[str, ...], step: int, busy: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ninth of the pairs by default, along the diagonals of the table of places and values."""
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
    for row, parameter in enumerate(places(place)):
        values = [*odd, *(ADDRESSES if parameter.name in URLS else ())]
        for value in values[row % step :: step]:
            base = [part.format(**here) for part in BASES[" ".join(place)]]
            if parameter.index is not None:
                base[parameter.index : parameter.index + 1] = [value]
                line = [*place, *base]
            elif parameter.name in base:
                base[base.index(parameter.name) + 1] = value
                line = [*place, *base]
            else:
                line = [*place, *base, parameter.name, value]
            done = invoke(line)
            said = [one for one in done.output.splitlines() if one.startswith(("Error: ", "Usage: "))]
            told = done.exit_code == 0 or (len(said) == 1 and "Traceback" not in done.output)
            if not isinstance(done.exception, SystemExit | None) or not told:
                failures.append(f"{' '.join(line)[-300:]}: {done.exception!r} {said}"[:700])
    assert not failures, "\n".join(failures)
    assert kept == {one: (tmp_path / one).read_bytes() for one in kept}
