from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from typer.main import get_command

import semtoken.choices
from semtoken import STC, Calibrator, Threshold, __version__, cluster_tokens, score_payload, token_table
from semtoken.choices import DType
from semtoken.cli import SPINS, wait_briefly
from semtoken.cli.options import ModelChoice
from semtoken.cli.typer_app import app
from semtoken.cli.typer_commands import ESSENTIAL, PLACES
from semtoken.core import ScoringRules
from semtoken.core.parts import parts_of
from semtoken.decisions import ReadingOptions
from semtoken.errors import SemtokenError
from tests.cli.conftest import RunCommand

COMMANDS = [
    ("ask",),
    ("score",),
    ("cluster", "make"),
    ("cluster", "show"),
    ("cluster", "list"),
    ("cluster", "remove"),
    ("calibrate",),
    ("watch",),
    ("compare",),
    ("demo",),
    ("check",),
    ("check",),
    ("bench",),
    ("bench", "run"),
    ("bench", "judge"),
    ("bench", "report"),
    ("bench", "lm-eval"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(semtoken: RunCommand, command: tuple[str, ...]) -> None:
    result = semtoken(*command, "--help")
    assert result.exit_code == 0
    assert f"semtoken {' '.join(command)}" in result.stdout


@pytest.mark.parametrize("group", ["decide", "cluster", "bench"])
def test_a_group_shows_an_example_and_its_commands(
    semtoken: RunCommand, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = semtoken(group, "--help").stdout.splitlines()
    commands = dict(commands_of(get_command(app)))
    assert lines[1].startswith(f"For example: semtoken {group} ")
    listed = {line.split()[0] for line in lines if re.match(r"  \S+  ", line)}
    assert {path[1] for path in commands if path[0] == group} <= listed


def test_help_fits_a_screen_and_has_an_example(semtoken: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for place, command in commands_of(get_command(app)):
        shown = semtoken(*place, "--help").stdout
        lines = shown.splitlines()
        assert len(lines) <= 50 and max(map(len, lines)) <= 80, place
        assert "xample" in shown and " x>=" not in shown, place
        whole = semtoken(*place, "--help-all").stdout
        for option in command.params:
            if option.param_type_name == "option" and not option.hidden:
                assert option.opts[0] in whole, (place, option.opts)


def test_essential_options_are_there() -> None:
    commands = {
        " ".join(place): {option.name for option in command.params} for place, command in commands_of(get_command(app))
    }
    for name, options in ESSENTIAL.items():
        assert set(options) <= commands[name], name


def test_help_names_every_command(semtoken: RunCommand) -> None:
    result = semtoken("--help")
    for name in {command[0] for command in COMMANDS}:
        assert f" {name} " in result.stdout


def test_summaries_are_what_the_commands_say() -> None:
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        first = " ".join(inspect.cleandoc(command.help).partition("\n\n")[0].split())
        assert PLACES[name].summary == first.replace("`", ""), name


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


@pytest.mark.parametrize("by", ["the installed command", "python -m"])
def test_the_entry_point_is_installed(by: str) -> None:
    command = (
        [str(Path(sys.executable).with_name("semtoken"))] if "command" in by else [sys.executable, "-m", "semtoken"]
    )
    result = subprocess.run([*command, "no-such-command"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "Unknown command" in result.stderr and "Traceback" not in result.stderr


def commands_of(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its place, those of subcommands too."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, *path, name)
        else:
            yield (*path, name), command


def choices_of(annotation: Any) -> tuple[str, ...]:
    """The names that an option of this type can have; none for numbers, texts and so on."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next(filter(None, map(choices_of, get_args(annotation))), ())


def test_choices_are_those_of_the_library() -> None:
    """What the command line offers is what the library takes, in every command."""
    library: dict[str, Any] = {
        "preset": inspect.signature(ScoringRules).parameters["preset"],
        "function_words": inspect.signature(ScoringRules).parameters["function_words"],
        "equality": inspect.signature(STC.from_pretrained).parameters["equality"],
        "algorithm": inspect.signature(cluster_tokens).parameters["algorithm"],
        "linkage": inspect.signature(cluster_tokens).parameters["linkage"],
        "metric": inspect.signature(cluster_tokens).parameters["metric"],
        "embedding": inspect.signature(token_table).parameters["kind"],
        "backend": inspect.signature(STC.from_pretrained).parameters["backend"],
        "parts": inspect.signature(parts_of).parameters["by"],
        "distribution": inspect.signature(score_payload).parameters["distribution"],
        "segment": inspect.signature(score_payload).parameters["segment"],
        "promise": inspect.signature(Threshold.fit).parameters["promise"],
        "method": inspect.signature(Calibrator.fit).parameters["method"],
        "reading": inspect.signature(ReadingOptions).parameters["reading"],
    }
    offered: set[str] = set()
    for place, command in commands_of(get_command(app)):
        for name, option in inspect.signature(command.callback, eval_str=True).parameters.items():
            choices = choices_of(option.annotation)
            if not choices or name in ("against", "executor"):
                continue
            offered.add(name)
            if name == "dtype":
                assert choices == get_args(DType), place
                continue
            named = str(library[name].annotation).split(" | ")[0]
            assert choices == get_args(getattr(semtoken.choices, named)), (place, name)
    assert offered == {*library, "dtype"}


def test_every_choice_is_taken_by_the_library() -> None:
    """The names are those of what the library knows how to do, not a list beside it."""
    from semtoken.core.rules import EQUALITIES, PRESETS
    from semtoken.guarantees.curves import FITS
    from semtoken.models import BACKENDS

    assert set(get_args(semtoken.choices.Preset)) == set(PRESETS)
    assert set(get_args(semtoken.choices.Equality)) == set(EQUALITIES)
    assert get_args(semtoken.choices.BackendName) == BACKENDS
    assert set(get_args(semtoken.choices.CurveName)) == {*FITS, "blend", "venn-abers"}


ONLY_OF_A_MODEL = ("dtype", "trust_remote_code")
"""Options that no command has for another reason."""


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


def test_commands_with_a_model_take_the_same_options() -> None:
    """A field of `ModelChoice` is an option of every command that reads one, with the same type and help."""
    commands = dict(commands_of(get_command(app)))
    names = {field.name for field in fields(ModelChoice)}
    first = {p.name: p for p in commands["ask",].params if p.name in names}
    assert set(first) == names
    with_a_model = {
        place for place, command in commands.items() if any(p.name in ONLY_OF_A_MODEL for p in command.params)
    }
    assert {("ask",), ("score",), ("compare",), ("calibrate",)} <= with_a_model
    for place in sorted(with_a_model):
        own = {p.name: p for p in commands[place].params if p.name in names}
        assert set(own) == names, place
        for name, option in own.items():
            if (place, name) == (("compare",), "methods"):  # there it is a choice of what to compare
                continue
            assert (option.opts, option.help) == (first[name].opts, first[name].help), (place, name)
            assert option.default == ("paper" if place == ("compare",) and name == "preset" else first[name].default)


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [(SemtokenError("what [red] was wrong"), 1, "Error: what [red] was wrong\n"), (KeyboardInterrupt(), 130, "Interr")],
)
def test_errors_become_a_message_and_a_status(
    semtoken: RunCommand, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, told: str
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("semtoken.clustering.cache.list_cached", fail)
    result = semtoken("cluster", "list")
    assert result.exit_code == status
    assert result.stderr.startswith(told)


def test_unexpected_errors_keep_their_traceback(semtoken: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("semtoken.clustering.cache.list_cached", fail)
    assert isinstance(semtoken("cluster", "list").exception, RuntimeError)


@pytest.mark.parametrize(
    "arguments",
    [["ask", "who?", "--device", "cpu"], ["cluster", "make", "model"], ["demo"], ["compare"]],
    ids=lambda given: given[0],
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
