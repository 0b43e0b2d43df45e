"""Inputs that can be read only once, as `<(zcat lines.jsonl.gz)` of a shell: used, or refused, and never half read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand, assert_told
from tests.cli.test_calibrate import answers
from tests.json_lines import read_lines, write_lines

pytestmark = pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no names for open files")


@contextmanager
def pipe_of(file: Path) -> Iterator[str]:
    """The name of a pipe that holds what is in a file."""
    read_end, write_end = os.pipe()
    os.write(write_end, file.read_bytes())
    os.close(write_end)
    try:
        yield f"/dev/fd/{read_end}"
    finally:
        os.close(read_end)


def test_commands_that_read_lines_give_what_they_give_of_a_file(
    semtoken: RunCommand, model: str, tmp_path: Path
) -> None:
    prompts = write_lines(
        tmp_path / "in.jsonl", [{"prompt": f"The capital {i} of", "answers": ["x"]} for i in range(3)]
    )
    scored = tmp_path / "of-file.jsonl"
    scoring = ["--model", model, "--max-tokens", 4]
    assert semtoken("score", prompts, "-o", scored, *scoring).exit_code == 0
    with pipe_of(prompts) as pipe:
        result = semtoken("score", pipe, "-o", tmp_path / "of-pipe.jsonl", *scoring)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "of-pipe.jsonl").read_bytes() == scored.read_bytes()
    with pipe_of(scored) as pipe:
        assert semtoken("bench", "judge", pipe, "-o", tmp_path / "judged.jsonl").exit_code == 0
    assert len(read_lines(tmp_path / "judged.jsonl")) == 3


def test_a_calibrator_is_fitted_on_all_answers_of_a_pipe(semtoken: RunCommand, tmp_path: Path) -> None:
    labeled = write_lines(tmp_path / "labeled.jsonl", answers(60))
    with pipe_of(labeled) as pipe:
        of_pipe = semtoken("calibrate", pipe, "-o", tmp_path / "of-pipe")
    of_file = semtoken("calibrate", labeled, "-o", tmp_path / "of-file")
    assert (of_pipe.exit_code, of_pipe.stdout.replace("of-pipe", "of-file")) == (0, of_file.stdout)


def test_items_of_a_pipe_are_refused_and_never_called_complete(semtoken: RunCommand, tmp_path: Path) -> None:
    items = write_lines(tmp_path / "items.jsonl", [{"state": "a"}])
    (questions := tmp_path / "q.yaml").write_text("late: {type: predicate, instructions: Late}")
    with pipe_of(items) as pipe:
        result = semtoken("decide", questions, pipe, "-o", tmp_path / "out.jsonl")
    assert result.exit_code == 1 and not (tmp_path / "out.jsonl").exists()
    assert_told(result, "is a pipe, and this is read more than once: write it into a file first.")
