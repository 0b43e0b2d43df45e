"""A run that is killed ends with the numbers, and the files, of one that was left alone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from semtoken.bench.read_results import collect
from semtoken.support.files.temporary import WORKING
from tests.bench.runs import same, shards, tiny_settings
from tests.cli.run import invoke

COMMAND = (sys.executable, "-c", "from semtoken.cli import main; main()", "bench", "run")
PATIENCE = 900.0  # the machine may be busy


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    few = {"shard_size": 2, "methods": ["stc", "ln_entropy"], "sensitivity": {}}
    content: dict[str, Any] = tiny_settings(folder) | few
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def command(settings: Path, run: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, str(settings), "--output", str(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_here(settings: Path, run: Path) -> None:
    """The command in this process, which has loaded torch already."""
    result = invoke(["bench", "run", str(settings), "--output", str(run)])
    assert result.exit_code == 0, result.output


def kill_after(settings: Path, run: Path, files: int) -> bool:
    """Start a run, and kill it once so many files have come; whether there was something to kill."""
    process = command(settings, run)
    end = time.monotonic() + PATIENCE
    while len(list(run.rglob("*.parquet"))) < files and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.002)
    alive = process.poll() is None
    process.kill()
    process.communicate()
    return alive


def assert_same_run(run: Path, undisturbed: Path) -> None:
    assert same(shards(run), shards(undisturbed))
    assert not list(run.rglob(f"{WORKING}*"))
    (one,), (two,) = collect(run).cells, collect(undisturbed).cells
    assert one.question_ids == two.question_ids
    for mine, other in (
        (one.uncertainty, two.uncertainty),
        (one.variants, two.variants),
        (one.judgments, two.judgments),
    ):
        assert mine.keys() == other.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], other[name], err_msg=name)
    assert one.seconds.keys() == two.seconds.keys() and all(seconds > 0 for seconds in one.seconds.values())
    assert json.loads((run / "manifest.json").read_text())["status"] == "complete"


@pytest.mark.slow
def test_kills_leave_no_trace(settings: Path, tmp_path: Path) -> None:
    for files in (1, 5, 9):
        assert kill_after(settings, tmp_path / "run", files)
    killed = set(tmp_path.rglob("*.parquet"))
    run_here(settings, tmp_path / "run")
    assert len(killed) < len(set(tmp_path.rglob("*.parquet")))
    run_here(settings, tmp_path / "undisturbed")
    assert_same_run(tmp_path / "run", tmp_path / "undisturbed")


@pytest.mark.slow
def test_a_second_process_is_refused_while_the_first_goes_on(settings: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = command(settings, run)
    end = time.monotonic() + PATIENCE
    while not (run / "plan.json").exists() and time.monotonic() < end:
        time.sleep(0.002)
    second = command(settings, run)
    output, _ = second.communicate(timeout=PATIENCE)
    assert "Another run is at work" in output and "Traceback" not in output and second.returncode == 1
    output, _ = first.communicate(timeout=PATIENCE)
    assert first.returncode == 0, output
    run_here(settings, tmp_path / "undisturbed")
    assert_same_run(run, tmp_path / "undisturbed")
