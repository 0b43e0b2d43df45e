"""The README shows what its commands print, and it stays short."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.run import invoke

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text("utf-8")
SHOWN = [block.split("\n", 1) for block in re.findall(r"```console\n\$ semtoken (.*?)```", PAGE, re.DOTALL)]


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_its_outputs_are_those_of_its_commands(command: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = invoke(shlex.split(command))
    assert done.exit_code == 0, done.output
    for line in shown.splitlines():
        assert line in done.output, line


def test_the_audits_that_pages_show_are_those_of_the_files_in_a_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console blocks of docs/decisions.md, line by line, and the same commands in the README."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page = (ROOT / "docs" / "decisions.md").read_text("utf-8")
    statuses = []
    for block in re.findall(r"```console\n\$ semtoken ((?:calibrate|audit) .*?)```", page, re.DOTALL):
        for command, shown in (one.split("\n", 1) for one in block.split("$ semtoken ")):
            done = invoke(shlex.split(command))
            printed = [*done.stdout.splitlines(), " ".join(done.stderr.split())]
            for line in (line for line in shown.splitlines() if line not in ("", "...")):
                assert any(one.startswith(line.removesuffix(" ...")) for one in printed), line
            statuses.append(done.exit_code)
    assert statuses == [0, 1, 0]
    for ran, run in (("266", "234"), ("443", "57")):
        assert f"correct: {ran} of 500 run, {run} go to a person" in PAGE.replace("$", "")


def test_it_fits_in_850_words_and_the_top_folder_in_eight() -> None:
    assert len(PAGE.split()) <= 850
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    made = {"build", "dist", "runs", "__pycache__"}
    assert folders - made == {"benchmarks", "docs", "examples", "packaging", "research", "scripts", "src", "tests"}
