from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from semtoken import __version__
from semtoken.cli import cluster, options
from semtoken.errors import SemtokenError
from tests.cli.conftest import RunCommand

COMMANDS = [
    ("ask",),
    ("score",),
    ("cluster",),
    ("clusters",),
    ("clusters", "show"),
    ("clusters", "list"),
    ("clusters", "remove"),
    ("label",),
    ("calibrate",),
    ("drift",),
    ("compare",),
    ("demo",),
    ("score-payload",),
    ("serve",),
    ("proxy",),
    ("doctor",),
    ("bench",),
    ("bench", "run"),
    ("bench", "judge"),
    ("bench", "report"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(semtoken: RunCommand, command: tuple[str, ...]) -> None:
    result = semtoken(*command, "--help")
    assert result.exit_code == 0
    assert f"semtoken {' '.join(command)}" in result.stdout


def test_help_names_every_command(semtoken: RunCommand) -> None:
    result = semtoken("--help")
    for name in {command[0] for command in COMMANDS}:
        assert f" {name} " in result.stdout


def test_version_and_help_are_light() -> None:
    """Neither torch nor numpy is loaded to say what the command can do."""
    code = (
        "import sys; from semtoken.cli.app import app; app(sys.argv[1:], standalone_mode=False)\n"
        "print(sorted({'torch', 'transformers', 'numpy', 'numba'} & set(sys.modules)))"
    )
    for argument, shown in (("--version", f"semtoken {__version__}"), ("--help", "Usage")):
        result = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, check=True)
        assert shown in result.stdout
        assert result.stdout.splitlines()[-1] == "[]"


def test_the_entry_point_is_installed() -> None:
    command = Path(sys.executable).with_name("semtoken")
    result = subprocess.run([str(command), "no-such-command"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "No such command" in result.stderr and "Traceback" not in result.stderr


def test_choices_are_those_of_the_library() -> None:
    from semtoken import clustering, tables
    from semtoken.clustering.rows import Metric
    from semtoken.scoring import rules

    for choices, literal in (
        (options.Preset, rules.Preset),
        (options.FunctionWords, rules.FunctionWords),
        (cluster.Algorithm, clustering.Algorithm),
        (cluster.Linkage, clustering.Linkage),
        (cluster.Metric, Metric),
        (cluster.Embedding, tables.Kind),
    ):
        assert {choice.value for choice in choices} == set(get_args(literal))


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [(SemtokenError("what [red] was wrong"), 1, "Error: what [red] was wrong\n"), (KeyboardInterrupt(), 130, "Interr")],
)
def test_errors_become_a_message_and_a_status(
    semtoken: RunCommand, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, told: str
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("semtoken.cluster_cache.list_cached", fail)
    result = semtoken("clusters", "list")
    assert result.exit_code == status
    assert result.stderr.startswith(told)


def test_unexpected_errors_keep_their_traceback(semtoken: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("semtoken.cluster_cache.list_cached", fail)
    assert isinstance(semtoken("clusters", "list").exception, RuntimeError)


@pytest.mark.parametrize(
    "arguments", [["ask", "who?"], ["cluster", "model"], ["demo"], ["compare"]], ids=lambda given: given[0]
)
def test_a_missing_extra_is_told_with_its_install_line(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    blocked = "import sys; sys.modules['torch'] = sys.modules['transformers'] = None"
    program = f"{blocked}; sys.argv = ['semtoken', *{arguments!r}]; from semtoken.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "pip install 'semtoken[transformers]'" in done.stderr
    assert "Traceback" not in done.stderr
