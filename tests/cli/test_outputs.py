"""No command writes over what it reads, or over a file of somebody else: all commands that take an output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semtoken.cli.commands import leaves
from semtoken.cli.help import command_at
from semtoken.cli.statuses import CHECKING
from semtoken.guarantees.journal.store import Journal
from tests.cli.conftest import RunCommand, assert_told
from tests.json_lines import write_lines
from tests.replies.test_check import reply

FOLDERS = {("calibrate",), ("bench", "report"), ("bench", "run"), ("cluster", "make")}
"""Commands whose output is a folder."""
WRITING = [
    place
    for place in leaves()
    if any(one.name == "--output" for one in command_at(place).assemble_argument_collection())
]


def files_read(place: tuple[str, ...]) -> Iterator[Any]:
    """The arguments and options of a command that name a file or folder that it reads."""
    for one in command_at(place).assemble_argument_collection():
        if one.name != "--output" and "Path" in str(one.hint):
            yield one


def words_of(place: tuple[str, ...], given: Path, **named: object) -> list[object]:
    """A command line with what the command requires, and some options besides."""
    words: list[object] = [*place]
    for one in command_at(place).assemble_argument_collection():
        if one.index is not None and (one.required or one.name in named):
            words.append(named.get(one.name, given))
    for name, value in named.items():
        words += [name, value] if name.startswith("--") else []
    return words


NAMING = [
    (place, one)
    for place in leaves()
    for one in command_at(place).assemble_argument_collection()
    if "Path" in str(one.hint) or one.name.lower() in ("path", "source")
]
"""The arguments and options that name files or folders."""


@pytest.mark.parametrize(
    ("place", "one"), [pytest.param(*row, id=f"{' '.join(row[0])} {row[1].name}") for row in NAMING]
)
def test_an_empty_name_is_not_the_working_directory(
    place: tuple[str, ...], one: Any, semtoken: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is that of an unset variable of the shell: `-o "$OUT"` wrote into the folder, `check "$IN"` read it."""
    monkeypatch.chdir(tmp_path)
    named: dict[str, object] = {
        other.name: "" if other.name == one.name else "given.jsonl"
        for other in command_at(place).assemble_argument_collection()
        if other.name == one.name or (other.required and other.name == "--output")
    }
    assert_told(
        semtoken(*words_of(place, Path("given.jsonl"), **named)),
        "The name of a file or folder is empty",
        status=2 if place[0] in CHECKING else 1,
    )
    assert not list(tmp_path.iterdir())


def test_the_working_directory_itself_is_a_folder_like_any_other(
    semtoken: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command, status in ((["score", "."], 2), (["label", "."], 1), (["bench", "judge", "."], 1)):
        assert_told(semtoken(*command), "folder", status=status)
    assert_told(semtoken("check", ".", "--methods", ""), ". holds no file that ends in .json")


READ = [(place, one) for place in WRITING for one in files_read(place)]
ALIASES = ("same", "link", "hard link")


@pytest.mark.parametrize(
    ("place", "read", "alias"),
    [
        pytest.param(*one, ALIASES[row % (2 if one[0] in FOLDERS else 3)], id=f"{' '.join(one[0])} {one[1].name}")
        for row, one in enumerate(READ)
    ],
)
def test_an_input_is_never_written_over(
    place: tuple[str, ...], read: Any, alias: str, semtoken: RunCommand, tmp_path: Path
) -> None:
    """Each command meets some of the names in turn, since one function tells them apart."""
    given = tmp_path / "mine.jsonl"
    folder = place in FOLDERS
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
    named = {} if read.index is not None else {read.name: given}
    words = words_of(place, given, **named, **{"--output": target})
    if "--force" in {one.name for one in command_at(place).assemble_argument_collection()}:
        words.append("--force")
    result = semtoken(*words)
    assert result.exit_code in (1, 2) and "Traceback" not in result.output, result.output
    assert "is the input" in result.stderr or place == ("bench", "run"), result.output  # whose settings are no folder
    assert (given / "kept.txt" if folder else given).read_text() == "kept"


@pytest.mark.parametrize("place", [place for place in WRITING if place not in FOLDERS], ids=" ".join)
def test_the_ending_of_an_output_is_its_format(place: tuple[str, ...], semtoken: RunCommand, tmp_path: Path) -> None:
    given = tmp_path / "mine.jsonl"
    write_lines(given, [{"question": "Where?", "response": "Oslo", "answers": ["Oslo"], "state": "Oslo", "id": "1"}])
    Journal.open(f"sqlite:///{tmp_path / 'journal.db'}").close()
    for name in ("it.xlsx", "it.jsonl.gz", "it"):  # no command writes these
        result = semtoken(*words_of(place, given, **{"URL": tmp_path / "journal.db", "--output": tmp_path / name}))
        ending = ".csv" if place == ("bench", "compare") else ".jsonl"
        assert_told(result, name, ending, status=2 if place[0] in ("audit", "decide", "label") else 1)
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize("place", WRITING, ids=" ".join)
def test_a_place_that_takes_no_output_is_refused_before_any_work(
    place: tuple[str, ...], semtoken: RunCommand, tmp_path: Path
) -> None:
    (given := tmp_path / "mine.jsonl").write_text("nothing that any command can read")
    result = semtoken(*words_of(place, given, **{"--output": given / "below" / "it.jsonl"}))
    assert result.exit_code in (1, 2) and "Traceback" not in result.output
    assert "it.jsonl cannot be written: " in result.stderr, result.output


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
    page.write_text("")
    assert semtoken("check", tmp_path / "scored.jsonl", "-o", page).exit_code == 0  # nothing is lost


def test_a_file_that_is_redirected_to_standard_input_is_an_input(tmp_path: Path) -> None:
    replies = tmp_path / "replies.jsonl"
    replies.write_text(json.dumps(reply([("Oslo", -0.1)])) + "\n")
    before = replies.read_bytes()
    command = [sys.executable, "-m", "semtoken", "check", "-", "-o", str(replies), "--force"]
    with replies.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "is the input" in done.stderr, done.stderr
    assert replies.read_bytes() == before
