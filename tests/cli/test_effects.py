"""A walk of the surface: each option of each command is on a page with its command, and has an effect or is refused."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from semtoken.cli.commands import leaves, program
from semtoken.cli.help import COMMON, command_at, rows
from tests.cli.conftest import TIMES
from tests.cli.run import invoke

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
DEAD = "http://127.0.0.1:9/v1"
"""An address where nothing listens."""


class ElsewhereTried(NamedTuple):
    """A test that tries options, since they need a server, a download or minutes; some of its words are theirs."""

    file: str


PRESET = ElsewhereTried("tests/clustering/test_default_without_clusters.py")
DOWNLOADS = ElsewhereTried("tests/support/test_checkpoints.py")
REPLACES = ElsewhereTried("tests/cli/test_outputs.py")
JOURNAL = ElsewhereTried("tests/guarantees/test_store.py")
SERVED = ElsewhereTried("tests/cli/test_effects.py")
PLANS = ElsewhereTried("tests/bench/test_run_command.py")

VALUES: dict[str, str | ElsewhereTried] = {
    "--model": "nowhere",
    "--device": "nowhere",
    "--preset": "paper",
    "--clusters": "almanac",
    "--calibrator": "cal",
    "--tokenizer": "nowhere",
    "--host": "256.1.1.1",
    "--port": "70000",
    "--parts": "word",
    "--schema": "schema.json",
    "--methods": "perplexity",
    "--max-tokens": "1",
    "--limit": "1",
    "--labels": "labels.csv",
    "--questions": "questions.yaml",
    "--force": REPLACES,
    **dict.fromkeys(("--tokens", "--alternatives", "--no-chat-template", "--strict", "--json"), ""),
}
"""For each option that several commands have, a value that has to change what comes of them."""

WALK: dict[str, tuple[str, dict[str, str | ElsewhereTried]]] = {
    "ask": ("'Who wrote Emma?'", {"--image": "none.png"}),
    "score": ("prompts.jsonl -o scored.jsonl", {"--output": "other.csv"}),
    "check": (
        "replies -o table.csv",
        {"--output": "ranked.csv", "--questions": "none.jsonl", "--journal": "new.db", "--format": "gemini"},
    ),
    "decide": (
        "questions.yaml items.jsonl -o decided.jsonl",
        {"--output": "decided.csv", "--base-url": DEAD, "--reading": "words", "--orders": "0"},
    ),
    "label": ("labeled.jsonl", {"--output": "mine.jsonl", "--limit": "2"}),
    "calibrate": (
        "labeled.jsonl -o made --alpha 0.02",
        {
            "--output": "elsewhere",
            "--alpha": "0.2",
            "--delta": "0.2",
            "--guarantee": "miss_rate",
            "--label-field": "other",
            "--judge": "exact",
            "--by": "mine",
            "--group-by": "group",
            "--unlabeled": "unlabeled.jsonl",
            "--require": "",
        },
    ),
    "audit": (
        "newer.jsonl --calibrator cal",
        {
            "--calibrator": "none",
            "--base-url": DEAD,
            "--model": "its-name",
            "--rewordings": "questions.yaml",
            "--output": "kept.jsonl",
        },
    ),
    "proxy": (
        f"--base-url {DEAD} --port TAKEN",
        {"--base-url": "nowhere", "--calibrator": "none", "--journal": "nowhere://", "--workers": "0"},
    ),
    "serve": (
        "--port 0 --journal nowhere://",
        {
            "--preset": PRESET,
            "--calibrator": "none",
            "--journal": "elsewhere://",
            "--served-model-name": SERVED,
            "--mcp": "",
        },
    ),
    "doctor": (
        f"--base-url {DEAD}",
        {
            "--base-url": "http://127.0.0.1:10/v1",
            "--model": SERVED,
            "--quick": SERVED,
            "--report": "",
            "--json": SERVED,
        },
    ),
    "fetch": ("gemma3-270m", {"--source": DOWNLOADS, "--accept-license": "", "--force": DOWNLOADS}),
    "journal show": ("journal.db", {}),
    "journal export": (
        "journal.db -o exported.jsonl",
        {"--output": "exported.csv", "--labeled": "", "--checksum": "0000"},
    ),
    "journal delete": ("journal.db --older-than 2y --yes", {"--older-than": "0h", "--person": JOURNAL, "--yes": ""}),
    "config": ("", {}),
    "bench run": (
        "-m almanac -d almanac-dev --methods stc -o planned --dry-run",
        {
            "--output": "replies",
            "--clusters": "none",
            "--dataset": "almanac",
            "--methods": "stc,p_true",
            "--judge": "luck",
            "--limit": "3",
            "--controls": PLANS,
            "--device": PLANS,
            "--dry-run": PLANS,
            "--estimate": "",
        },
    ),
    "bench report": (
        "run --n-resamples 20",
        {
            "--output": "report",
            "--judge": "nobody",
            "--n-resamples": "0",
            "--no-texts": "",
            "--scores": "none.csv",
            "--reference": "perplexity",
            "--calibrator": "none",
        },
    ),
    "bench judge": (
        "judged.jsonl",
        {
            "--judge": "contains",
            "--output": "verdicts.csv",
            "--llm-model": "nobody",
            "--base-url": "ftp://nowhere",
            "--imported": "people.csv",
        },
    ),
    "bench compare": (
        "almanac-dev --limit 4 --methods perplexity",
        {
            "--preset": ElsewhereTried("tests/bench/test_compare.py"),
            "--clusters": "none",
            "--limit": "5",
            "--methods": "luck",
            "--calibrator": "none",
            "--scores": "none.csv",
            "--output": "figures.csv",
        },
    ),
    "cluster make": ("nowhere", {"--output": "labels.csv", "--n-clusters": "0", "--memory-budget": "much"}),
    "cluster show": ("USA", {"--clusters": "nowhere"}),
}
"""Command -> words with which it ends by itself, and the values of its own options, or of VALUES' in its own way."""

PLACES = {" ".join(place): place for place in leaves()}


@cache
def options_of(place: tuple[str, ...]) -> dict[str, set[str]]:
    """The options of a command by their first names, with all names of each."""
    named = [row.names for row in rows(command_at(place)) if not row.is_argument]
    return {names.split()[0].rstrip(","): {name.split()[0] for name in names.split(", ")} for names in named}


@cache
def values_of(command: str) -> dict[str, str | ElsewhereTried]:
    """A value for each option of a command."""
    own = WALK[command][1]
    return {option: own[option] if option in own else VALUES[option] for option in options_of(PLACES[command])}


def test_the_walk_has_every_option_of_every_command() -> None:
    """And there are at most 150; those of every command among them: --config, --verbose, --help, --version."""
    assert set(WALK) == set(PLACES)
    for command, (_, own) in WALK.items():
        assert own.keys() <= values_of(command).keys(), command
    assert len(COMMON) + sum(len(values_of(command)) for command in WALK) <= 150


def command_lines() -> Iterator[str]:
    """The code of the pages: each line of a block, and each piece of a sentence between back quotes."""
    for page in PAGES:
        text = page.read_text("utf-8").replace("\\\n", " ")
        yield from (piece for line in text.splitlines() for piece in re.split(r"\||&&", line))
        yield from re.findall(r"`(semtoken [^`]*)`", text)


def test_every_option_is_on_a_page_with_its_command() -> None:
    lines = [line.partition("semtoken ")[2] for line in command_lines()]
    shown = [(line, set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", line))) for line in lines if line]
    for command, place in PLACES.items():
        found = set().union(*(names for line, names in shown if re.match(rf"{command}\b", line)))
        missing = {first for first, names in options_of(place).items() if not names & found}
        assert not missing, command


def test_the_lines_of_the_page_of_commands_are_understood() -> None:
    block = (ROOT / "docs" / "cli.md").read_text("utf-8").partition("```text\n")[2].partition("```")[0]
    for line in block.splitlines():
        program().parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)


def test_what_is_tried_elsewhere_is() -> None:
    for option, value in ((option, value) for command in WALK for option, value in values_of(command).items()):
        if isinstance(value, ElsewhereTried):
            assert re.search(rf"{option}\b", (ROOT / value.file).read_text("utf-8")), option


def outcome(words: list[str]) -> tuple[object, ...]:
    """The effects of a command line: its status, what it prints, and the files that it leaves, without times."""
    done = invoke(words, stdin="")
    files = {
        path.as_posix(): TIMES.sub(b"", path.read_bytes())
        for path in sorted(Path().rglob("*"))
        if path.is_file()
        and ".db" not in path.name
        and path.suffix not in (".parquet", ".png", ".svg")
        and "cache" not in path.parts
    }
    texts = (TIMES.sub(b"", text.encode()) for text in (done.stdout, done.stderr))
    return done.exit_code, *texts, files


LONG = ("ask", "score", "check", "decide", "calibrate", "proxy", "serve", "bench run", "bench report", "bench compare")
"""Commands each of whose runs loads a model or clusters, fits or draws something."""
COMMANDS = [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in WALK if name != "config"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_an_effect_or_is_refused(
    command: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin() -> None:
        """Work in a new copy of the folder, always at the same place."""
        monkeypatch.chdir(made)
        shutil.rmtree(tmp_path / "here", ignore_errors=True)
        monkeypatch.chdir(shutil.copytree(made, tmp_path / "here"))

    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    if command == "fetch":
        (tmp_path / "cache").write_text("no folder: nothing can be fetched")
    if command == "bench report":
        made_by = "bench run -m almanac -d almanac-dev --methods stc,perplexity -n 8 -o run"
        begin()
        assert invoke(shlex.split(made_by)).exit_code == 0
        shutil.copytree("run", made / "run")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        base = shlex.split(f"{command} {WALK[command][0]}".replace("TAKEN", str(taken.getsockname()[1])))
        begin()
        without = outcome(base)
        begin()
        assert outcome(base) == without, "what comes of it is not the same each time"
        for option, value in values_of(command).items():
            if isinstance(value, ElsewhereTried):
                continue
            names = options_of(PLACES[command])[option]
            words = [*base]
            if at := next((place for place, word in enumerate(base) if word in names), 0):
                del words[at : at + (2 if value else 1)]
                words += [option, value] if value else []
            else:
                words += [option, *filter(None, [value])]
            begin()
            assert outcome(words) != without, words


@pytest.mark.slow
def test_what_a_server_is_called_and_how_the_doctor_examines_it() -> None:
    serve = [sys.executable, "-m", "semtoken", "serve", "--port", "0", "--served-model-name", "mine"]
    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        told = next(line for line in server.stderr if "serves" in line)
        found = re.search(r"'mine' at (http://\S+/v1)", told)
        try:
            assert found is not None, told
            doctor = ["doctor", "--base-url", found[1]]
            whole, quick = invoke(doctor), invoke([*doctor, "--quick"])
            assert whole.exit_code == quick.exit_code == 0 and len(quick.stdout) < len(whole.stdout)
            assert json.loads(invoke([*doctor, "--quick", "--json"]).stdout)["model"] == "mine"
            assert invoke([*doctor, "--quick", "--model", "another"]).exit_code != 0
        finally:
            server.terminate()
