"""A file scored in shards, whoever makes them in whatever order, is the file that one process writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from semtoken.bench.score_file import ScoreItems, ScoringJob, run_in_shards, score_items
from semtoken.errors import BackendError, InvalidInputError
from semtoken.support.executors import LocalExecutor, Work
from semtoken.support.executors.ray import RayExecutor
from tests.bench.test_run_ray import in_a_namespace
from tests.bench.test_score_file import RECORDS, Drawn, write


def load() -> tuple[ScoreItems, None]:
    return partial(score_items, Drawn(), max_new_tokens=3), None


class Backwards(LocalExecutor):
    """Makes the last shard first, and stops before some."""

    def __init__(self, stop_after: int = 1000) -> None:
        super().__init__(load)
        self._stop_after = stop_after

    def run(
        self, work: Work, shards: Sequence[int], done: Callable[[int], None], answered: Any = lambda count: None
    ) -> None:
        super().run(work, list(shards)[::-1][: self._stop_after], done)
        if len(shards) > self._stop_after:
            raise BackendError("a worker was lost")


def job_in(folder: Path, suffix: str = "jsonl") -> ScoringJob:
    folder.mkdir()
    source = write(folder / "in.jsonl", RECORDS)
    return ScoringJob(source, folder / f"out.{suffix}", {"model": "drawn"}, batch_size=2)


@pytest.mark.parametrize(
    ("lines", "executor"), [(3, LocalExecutor(load)), (1, Backwards()), (4, Backwards()), (100, Backwards())]
)
def test_the_output_is_that_of_one_process(tmp_path: Path, lines: int, executor: LocalExecutor) -> None:
    alone, shared = job_in(tmp_path / "alone"), job_in(tmp_path / "shared")
    alone.run(load()[0])
    seen: list[int] = []
    run_in_shards(shared, load, executor, seen.append, lines=lines)
    assert shared.target.read_bytes() == alone.target.read_bytes()
    assert seen == sorted(seen) and seen[-1] == len(RECORDS)
    assert not shared.target.with_name("out.jsonl.shards").exists()
    assert shared.run(load()[0]).done == len(RECORDS)  # it is complete for a run in one process, too


def test_a_job_that_was_stopped_goes_on(tmp_path: Path) -> None:
    alone, shared = job_in(tmp_path / "alone"), job_in(tmp_path / "shared")
    alone.run(load()[0])
    with pytest.raises(KeyboardInterrupt):
        shared.run(load()[0], lambda done: interrupt() if done >= 6 else None)
    with pytest.raises(BackendError, match="lost"):
        run_in_shards(shared, load, Backwards(stop_after=1), lines=4)
    assert alone.target.read_bytes().startswith(shared.target.read_bytes())
    run_in_shards(shared, load, LocalExecutor(load), lines=4)
    assert shared.target.read_bytes() == alone.target.read_bytes()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_table_is_written_at_the_end(tmp_path: Path) -> None:
    alone, shared = job_in(tmp_path / "alone", "csv"), job_in(tmp_path / "shared", "csv")
    alone.run(load()[0])
    run_in_shards(shared, load, Backwards(), lines=2)
    assert shared.target.read_bytes() == alone.target.read_bytes()


def test_other_settings_are_refused(tmp_path: Path) -> None:
    shared = job_in(tmp_path / "shared")
    run_in_shards(shared, load, LocalExecutor(load))
    other = ScoringJob(shared.source, shared.target, {"model": "another"}, batch_size=2)
    with pytest.raises(InvalidInputError, match="model"):
        run_in_shards(other, load, LocalExecutor(load))


@pytest.mark.slow
def test_two_ray_workers_write_the_same_lines(tmp_path: Path) -> None:
    """`semtoken score --executor.kind ray` with two workers, in a network namespace that has only loopback."""
    pytest.importorskip("ray")
    lines = [{"question": f"What is the capital of {country}?"} for country in ("France", "Japan", "Peru")] * 100
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    semtoken = str(Path(sys.executable).with_name("semtoken"))
    ray = ("--executor.kind=ray", "--executor.workers", "2")
    command = (semtoken, "score", str(source), "-o", str(tmp_path / "ray.jsonl"), *ray)
    done = in_a_namespace(*command)
    assert done.returncode == 0, done.stderr
    here = in_a_namespace(semtoken, "score", str(source), "-o", str(tmp_path / "here.jsonl"))
    assert here.returncode == 0, here.stderr
    by_ray, alone = ([json.loads(x) for x in (tmp_path / name).open()] for name in ("ray.jsonl", "here.jsonl"))
    assert [line["response"] for line in by_ray] == [line["response"] for line in alone]
    assert [x["log_confidence"] for x in by_ray] == pytest.approx([x["log_confidence"] for x in alone], abs=1e-4)
    again = in_a_namespace(*command)
    assert again.returncode == 0 and "nothing to do" in again.stderr


def test_ray_has_at_least_one_worker() -> None:
    assert RayExecutor(workers=1).workers == 1
    with pytest.raises(InvalidInputError, match="at least one worker, got 0"):
        RayExecutor(workers=0)
