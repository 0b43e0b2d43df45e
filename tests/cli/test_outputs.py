"""No command writes over what it reads, or over a file of somebody else: all commands that take an output."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperCommand
from typer.main import get_command

from semtoken.cli.typer_app import app
from semtoken.cli.typer_commands import output_names
from tests.cli.conftest import RunCommand, assert_told
from tests.replies.test_check import reply

READ = {
    *("calibrator", "directory", "include_path", "decision_calibrator", "first", "other", "questions", "recent", "run"),
    *("labels", "schema", "scored", "scores", "second", "settings", "source", "sources", "unlabelled", "verdicts_file"),
    *("wording", "url", "model", "image"),
}
"""Parameters that name what commands read. One that names what a command writes has `writable=True` instead."""


def _commands(found: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    found = found or get_command(app)
    if not hasattr(found, "commands"):
        yield path, found
        return
    for name in found.commands:
        yield from _commands(found.commands[name], (*path, name))


COMMANDS = list(_commands())


def test_every_path_of_a_command_is_read_or_written() -> None:
    for path, command in COMMANDS:
        written = output_names(command)
        for name, one in inspect.signature(command.callback, eval_str=True).parameters.items():  # type: ignore[arg-type]
            if "pathlib.Path" in str(one.annotation):
                assert (name in READ) != (name in written), f"{' '.join(path)}: is {name} read, or writable=True?"


def _cases() -> Iterator[Any]:
    for path, command in COMMANDS:
        options = {one.name: one for one in command.params}
        for output in output_names(command):
            for read in options:
                if read in READ and not getattr(options[read], "is_flag", False):
                    yield pytest.param(path, options, output, read, id=f"{' '.join(path)}-{output}-{read}")


@pytest.mark.parametrize("alias", ["same", "link", "hard link"])
@pytest.mark.parametrize(("path", "options", "output", "read"), list(_cases()))
def test_an_input_is_never_written_over(
    path: tuple[str, ...],
    options: dict[str, Any],
    output: str,
    read: str,
    alias: str,
    semtoken: RunCommand,
    tmp_path: Path,
) -> None:
    given = tmp_path / "mine.jsonl"
    folder = _takes_folder(options[output])
    if folder and alias == "hard link":
        return
    if folder:
        given.mkdir()
        (given / "kept.txt").write_text("kept")
    else:
        given.write_text("kept")
    target = given if alias == "same" else tmp_path / "other.jsonl"
    if alias == "link":
        target.symlink_to(given)
    elif alias == "hard link":
        os.link(given, target)
    filled = {one.name: given for one in options.values() if one.required}  # only to get past the parser
    words: list[object] = [*path]
    for name, value in (filled | {read: given, output: target}).items():
        words += [value] if options[name].opts[0] == name else [options[name].opts[0], value]
    result = semtoken(*words, *(["--force"] if "force" in options else []))
    if "is the input" in result.stderr:
        assert result.exit_code in (1, 2) and "Traceback" not in result.output
    else:
        assert result.exit_code == 2 and "Invalid value" in result.stderr, result.output
    assert (given / "kept.txt" if folder else given).read_text() == "kept"


@pytest.mark.parametrize(
    ("path", "command", "output"),
    [
        pytest.param(path, command, output, id=f"{' '.join(path)}-{output}")
        for path, command in COMMANDS
        for output in output_names(command)
    ],
)
def test_a_place_that_takes_no_output_is_refused_before_any_work(
    path: tuple[str, ...], command: TyperCommand, output: str, semtoken: RunCommand, tmp_path: Path
) -> None:
    options: dict[str, Any] = {str(option.name): option for option in command.params}
    (given := tmp_path / "mine.jsonl").write_text("nothing that any command can read")
    (folder := tmp_path / "folder").mkdir()
    words: list[object] = [*path]
    for name in [name for name, option in options.items() if option.required and name != output]:
        value = (
            tmp_path / "other" if name in output_names(command) else folder if _takes_folder(options[name]) else given
        )
        words += [value] if options[name].opts[0] == name else [options[name].opts[0], value]
    words += [*([] if options[output].opts[0] == output else [options[output].opts[0]]), given / "below" / "it.jsonl"]
    result = semtoken(*words)
    assert result.exit_code in (1, 2) and "Traceback" not in result.output
    assert "it.jsonl cannot be written: " in result.stderr or "Invalid value" in result.stderr, result.output


def _takes_folder(option: Any) -> bool:
    found = option.type_descriptor.parameter_info
    return found.dir_okay and not found.file_okay


@pytest.mark.parametrize("name", ["r.jsonl", "new.jsonl"])
def test_nothing_is_written_into_a_folder_where_it_would_be_read(
    name: str, semtoken: RunCommand, tmp_path: Path
) -> None:
    (tmp_path / "replies").mkdir()
    kept = tmp_path / "replies" / "r.jsonl"
    kept.write_text(json.dumps(reply([("Oslo", -0.1)])) + "\n")
    before = kept.read_bytes()
    assert_told(semtoken("check", kept.parent, "-o", kept.parent / name, "--force"), "read with the folder")
    assert kept.read_bytes() == before
    assert [one.name for one in kept.parent.iterdir()] == ["r.jsonl"]
    pattern = str(kept.parent / "*.jsonl")
    assert_told(semtoken("check", pattern, "-o", kept, "--force"), "is the input")
    assert semtoken("check", kept.parent, "-o", kept.parent / "page.html").exit_code == 0  # pages are not read
    assert semtoken("check", kept.parent, "-o", kept.parent / "page.html").exit_code == 0
    assert kept.read_bytes() == before


def test_files_that_the_command_did_not_write_are_replaced_only_by_force(semtoken: RunCommand, tmp_path: Path) -> None:
    replies = tmp_path / "replies.jsonl"
    replies.write_text(json.dumps(reply([("Oslo", -0.1)])) + "\n")
    table, page = tmp_path / "doubtful.csv", tmp_path / "page.html"
    table.write_text("my own notes\n")
    assert_told(semtoken("check", replies, "-o", table), "did not write it", "--force")
    assert table.read_text() == "my own notes\n"
    assert semtoken("check", replies, "-o", table, "--force").exit_code == 0
    assert semtoken("check", replies, "-o", table).exit_code == 0  # its own file
    edited = table.read_text() + "a row of mine\n"
    table.write_text(edited)
    assert_told(semtoken("check", replies, "-o", table), "changed since")
    assert table.read_text() == edited
    assert semtoken("check", replies, "-o", page).exit_code == 0
    assert semtoken("check", replies, "-o", tmp_path / "scored.jsonl").exit_code == 0
    assert_told(semtoken("view", tmp_path / "scored.jsonl", "-o", page), "did not write it")  # another command's
    page.write_text("")
    assert semtoken("view", tmp_path / "scored.jsonl", "-o", page).exit_code == 0  # nothing is lost


def test_a_file_that_is_redirected_to_standard_input_is_an_input(tmp_path: Path) -> None:
    replies = tmp_path / "replies.jsonl"
    replies.write_text(json.dumps(reply([("Oslo", -0.1)])) + "\n")
    before = replies.read_bytes()
    command = [sys.executable, "-m", "semtoken", "check", "-", "-o", str(replies), "--force"]
    with replies.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "is the input" in done.stderr, done.stderr
    assert replies.read_bytes() == before
