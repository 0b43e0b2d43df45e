from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

import semtoken.choices
from semtoken import Threshold, __version__
from semtoken.cli import SPINS, wait_briefly
from semtoken.cli.commands import leaves
from semtoken.cli.help import command_at
from semtoken.core import ScoringRules
from semtoken.core.parts import parts_of
from semtoken.core.rules import EQUALITIES, PRESETS
from semtoken.decisions import ReadingOptions
from semtoken.errors import SemtokenError
from semtoken.guarantees.curves import FITS
from semtoken.models import BACKENDS
from semtoken.support.checkpoints.fetch import fetch as fetch_model
from tests.cli.conftest import RunCommand
from tests.json_lines import write_lines

ROOT = Path(__file__).parents[2]


def test_version_and_help_are_light() -> None:
    """Neither torch nor numpy, and no command, is loaded to say what the command can do."""
    code = (
        "import sys; from semtoken.cli.app import launch; launch(sys.argv[1:])\n"
        "print(sorted({'torch', 'transformers', 'numpy', 'numba', 'semtoken.cli.ask'} & set(sys.modules)))"
    )
    for argument, shown in (("--version", f"semtoken {__version__}"), ("--help", "Usage")):
        result = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, check=True)
        assert shown in result.stdout
        assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("by", ["the installed command", pytest.param("python -m", marks=pytest.mark.slow)])
def test_the_entry_point_is_installed(by: str) -> None:
    command = (
        [str(Path(sys.executable).with_name("semtoken"))] if "command" in by else [sys.executable, "-m", "semtoken"]
    )
    result = subprocess.run([*command, "no-such-command"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "Unknown command" in result.stderr and "Traceback" not in result.stderr


def test_choices_are_those_of_the_library() -> None:
    """Every command offers what the library takes."""
    library: dict[str, Any] = {
        "--preset": inspect.signature(ScoringRules).parameters["preset"],
        "--parts": inspect.signature(parts_of).parameters["by"],
        "--guarantee": inspect.signature(Threshold.fit).parameters["guarantee"],
        "--reading": inspect.signature(ReadingOptions).parameters["reading"],
        "--source": inspect.signature(fetch_model).parameters["origin"],
    }
    offered: set[str] = set()
    for place in leaves():
        for argument in command_at(place).assemble_argument_collection():
            if choices := choices_of(argument.hint):
                offered.add(argument.name)
                named = str(library[argument.name].annotation).split(" | ")[0]
                assert choices == get_args(getattr(semtoken.choices, named)), (place, argument.name)
    assert offered == set(library)


def choices_of(hint: Any) -> tuple[str, ...]:
    """The names that an option of this type can have; none for numbers, texts and so on."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next(filter(None, map(choices_of, get_args(hint))), ())


def test_every_choice_is_taken_by_the_library() -> None:
    """The names are those of what the library knows how to do, not a list beside it."""
    assert set(get_args(semtoken.choices.Preset)) == set(PRESETS)
    assert set(get_args(semtoken.choices.Equality)) == set(EQUALITIES)
    assert get_args(semtoken.choices.BackendName) == BACKENDS
    assert set(get_args(semtoken.choices.CurveName)) == {*FITS, "blend", "venn-abers"}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {"GOMP_SPINCOUNT": SPINS}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
)
def test_threads_wait_briefly_unless_the_environment_says_how(given: dict[str, str], found: dict[str, str]) -> None:
    wait_briefly(given)
    assert given == found


def test_errors_become_a_message_and_a_status(semtoken: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise SemtokenError("what [red] was wrong")

    monkeypatch.setattr("semtoken.cli.fetch.fetched_path", fail)
    result = semtoken("fetch")
    assert (result.exit_code, result.stderr) == (1, "Error: what [red] was wrong\n")


INTERRUPTING = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has background processes ignore it

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[-1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from semtoken.cli import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="processes are interrupted in another way there")
@pytest.mark.parametrize("module", ["semtoken.cli.app", "semtoken.cli.outputs", "semtoken.cli.fetch"])
def test_ctrl_c_is_one_line_also_while_modules_are_imported(module: str) -> None:
    """The command is interrupted as it imports this module; those of the command line take most of a tenth of a
    second."""
    command = [sys.executable, "-c", INTERRUPTING, "fetch", module]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "Interrupted.\n")


def test_unexpected_errors_keep_their_traceback(semtoken: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("semtoken.cli.fetch.fetched_path", fail)
    assert isinstance(semtoken("fetch").exception, RuntimeError)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes end in another way there")
@pytest.mark.parametrize(
    "words",
    [
        ["ask", "--json", *["What is the capital of Peru?"] * 12],
        ["check", str(ROOT / "examples" / "replies")],
    ],  # more than a buffer
    ids=["printed", "by rich"],
)
def test_a_reader_that_ends_early_gets_no_traceback(words: list[str]) -> None:
    """Nor a status that says something else: 1 is a broken guarantee for an audit."""
    code = "from semtoken.cli import main; main()"
    command = [sys.executable, "-c", code, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    ("words", "when_full"),
    [(["--version"], 1), (["--help"], 1), (["config"], 1), (["doctor", "--report"], 2)],
    ids=["version", "help", "settings", "status of a check"],
)
def test_a_short_output_that_cannot_be_written_is_an_error_like_any_other(words: list[str], when_full: int) -> None:
    """It waits in Python's buffer until the command has ended."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "semtoken", *words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=buffered)
    assert (done.returncode, done.stderr) == (
        when_full,
        "Error: There is no space left on the disk. Free some and try again.\n",
    )
    read_end, write_end = os.pipe()
    os.close(read_end)  # as `head` does when it has seen enough
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False, env=buffered)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes end in another way there")
@pytest.mark.skipif(os.name != "posix", reason="closes a stream as a shell does")
@pytest.mark.parametrize(
    ("words", "closed", "said"),
    [
        (["config"], ">&-", ""),
        (["bench", "judge", "answers.jsonl", "-o", "-"], ">&-", "exact"),
        (["score", "-", "-o", "-"], "<&-", "standard input holds no lines"),
        (["score", "no-such-file.jsonl"], "2>&-", ""),
    ],
)
def test_a_stream_that_is_closed_is_an_empty_one(words: list[str], closed: str, said: str, tmp_path: Path) -> None:
    """As cron and services of some systems start programs."""
    answer = {"id": "1", "question": "Where?", "response": "Oslo", "answers": ["Oslo"]}
    write_lines(tmp_path / "answers.jsonl", [answer])
    command = [sys.executable, "-m", "semtoken", *words]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == (0 if closed == ">&-" else 1), done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr
    assert not done.stdout, "messages are never printed to standard output"


def test_a_table_is_written_though_the_reader_of_the_list_ends_early(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    words = ["check", str(ROOT / "examples" / "replies"), "-o", str(table)]
    command = [sys.executable, "-c", "from semtoken.cli import main; main()", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        running.stdout.close()
    assert running.returncode == 141
    assert len(table.read_text("utf-8").splitlines()) == 1 + 6


@pytest.mark.slow
@pytest.mark.parametrize(("words", "shown"), [([], False), (["--verbose"], True)])
def test_messages_of_libraries_are_shown_only_if_wanted(words: list[str], shown: bool) -> None:
    """In a new process, without the variables that commands have set in this one."""
    command = [sys.executable, "-m", "semtoken", "ask", "--device", "cpu", "Who?", *words]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_HUB_", "TRANSFORMERS_"))}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=clean)
    assert ("Loading weights" in done.stderr) is shown, done.stderr
