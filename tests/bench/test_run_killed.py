"""A run that is killed at random moments ends with the numbers, and the files, of one that was left alone."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
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
    content: dict[str, Any] = tiny_settings(folder) | {"shard_size": 2}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def command(settings: Path, run: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, str(settings), "--output", str(run), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    """Its output, once it has ended well."""
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    return output


def run_here(settings: Path, run: Path) -> None:
    """The command in this process, which has loaded torch already."""
    result = invoke(["bench", "run", str(settings), "--output", str(run)])
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def undisturbed(settings: Path) -> Path:
    run = settings.parent / "undisturbed"
    finished(command(settings, run))
    return run


def kill_after(settings: Path, run: Path, new_files: int, wait: float) -> bool:
    """Start or go on, and kill once so many files have come; whether there was something to kill."""
    process = command(settings, run)
    before = len(list(run.rglob("*.parquet")))
    end = time.monotonic() + PATIENCE
    while len(list(run.rglob("*.parquet"))) < before + new_files and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.002)
    time.sleep(wait)
    alive = process.poll() is None
    process.kill()
    process.communicate()
    return alive


def kills(count: int, seed: int) -> Iterator[tuple[int, float]]:
    """Numbers of new files, and seconds more, after which to kill."""
    generator = random.Random(seed)
    for _ in range(count):
        yield generator.randrange(0, 40), generator.random() * 0.1


def assert_same_run(run: Path, undisturbed: Path) -> None:
    assert same(shards(run), shards(undisturbed))
    assert not list(run.rglob(f"{WORKING}*"))
    (one,), (two,) = collect(run).cells, collect(undisturbed).cells
    assert one.question_ids == two.question_ids
    for mine, other in (
        (one.uncertainty, two.uncertainty),
        (one.variants, two.variants),
        (one.judgements, two.judgements),
    ):
        assert mine.keys() == other.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], other[name], err_msg=name)
    assert one.seconds.keys() == two.seconds.keys() and all(seconds > 0 for seconds in one.seconds.values())
    assert json.loads((run / "manifest.json").read_text())["status"] == "complete"


def killed_and_resumed(settings: Path, run: Path, count: int, seed: int) -> int:
    alive = sum(kill_after(settings, run, files, wait) for files, wait in kills(count, seed))
    finished(command(settings, run))
    return alive


@pytest.mark.slow
def test_one_kill_leaves_no_trace(settings: Path, tmp_path: Path) -> None:
    few = yaml.safe_load(settings.read_text()) | {"methods": ["stc", "ln_entropy"], "sensitivity": {}}
    path = tmp_path / "few.yaml"
    path.write_text(yaml.safe_dump(few))
    assert kill_after(path, tmp_path / "run", new_files=9, wait=0.0)
    killed = set(tmp_path.rglob("*.parquet"))
    run_here(path, tmp_path / "run")
    assert len(killed) < len(set(tmp_path.rglob("*.parquet")))
    run_here(path, tmp_path / "undisturbed")
    assert_same_run(tmp_path / "run", tmp_path / "undisturbed")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_kills_leave_no_trace(settings: Path, undisturbed: Path, tmp_path: Path, seed: int) -> None:
    assert killed_and_resumed(settings, tmp_path / "run", count=5, seed=seed) >= 2
    assert_same_run(tmp_path / "run", undisturbed)


@pytest.mark.slow
def test_the_almanac_killed(tmp_path: Path) -> None:
    path = tmp_path / "almanac.yaml"
    path.write_text(yaml.safe_dump({"models": ["almanac"], "datasets": ["almanac"], "limit": 30, "shard_size": 8}))
    finished(command(path, tmp_path / "undisturbed"))
    assert killed_and_resumed(path, tmp_path / "run", count=4, seed=11) >= 2
    assert_same_run(tmp_path / "run", tmp_path / "undisturbed")


@pytest.mark.slow
def test_a_second_process_is_refused_while_the_first_goes_on(settings: Path, undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = command(settings, run)
    end = time.monotonic() + PATIENCE
    while not (run / "plan.json").exists() and time.monotonic() < end:
        time.sleep(0.002)
    second = command(settings, run)
    output, _ = second.communicate(timeout=PATIENCE)
    assert "Another run is at work" in output and "Traceback" not in output and second.returncode == 1
    finished(first)
    assert_same_run(run, undisturbed)
