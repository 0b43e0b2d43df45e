"""A file scored in shards, whoever makes them in whatever order, is the file that one process writes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from semtoken.bench.score_file import ScoreItems, ScoringJob, run_in_shards, score_items
from semtoken.errors import BackendError, InvalidInputError
from semtoken.support.executors import LocalExecutor
from semtoken.support.executors.ray import RayExecutor
from tests.bench.test_score_file import RECORDS, Drawn, job_in
from tests.executors import Backwards
from tests.json_lines import read_lines, write_lines
from tests.ray_runs import here_and_by_ray


def load() -> tuple[ScoreItems, None]:
    return partial(score_items, Drawn(), max_new_tokens=3), None


def alone_and_shared(folder: Path, target: str = "out.jsonl") -> tuple[ScoringJob, ScoringJob]:
    """A job that is done in one process, and the same one that is not."""
    for name in ("alone", "shared"):
        (folder / name).mkdir()
    alone, shared = (job_in(folder / name, target, batch_size=2) for name in ("alone", "shared"))
    alone.run(load()[0])
    return alone, shared


@pytest.mark.parametrize(
    ("lines", "executor", "target"),
    [
        (3, LocalExecutor(load), "out.jsonl"),
        (1, Backwards(load), "out.jsonl"),
        (4, Backwards(load), "out.jsonl"),
        (100, Backwards(load), "out.jsonl"),
        (2, Backwards(load), "out.csv"),  # which is written at the end
    ],
)
def test_the_output_is_that_of_one_process(tmp_path: Path, lines: int, executor: LocalExecutor, target: str) -> None:
    alone, shared = alone_and_shared(tmp_path, target)
    seen: list[int] = []
    run_in_shards(shared, load, executor, seen.append, lines=lines)
    assert shared.target.read_bytes() == alone.target.read_bytes()
    assert seen == sorted(seen) and seen[-1] == len(RECORDS)
    assert not shared.target.with_name(f"{target}.shards").exists()
    assert shared.run(load()[0]).done == len(RECORDS)  # it is complete for a run in one process, too
    other = replace(shared, settings={"model": "another"})
    with pytest.raises(InvalidInputError, match="model"):
        run_in_shards(other, load, executor)


def test_a_job_that_was_stopped_goes_on(tmp_path: Path) -> None:
    alone, shared = alone_and_shared(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        shared.run(load()[0], lambda done: interrupt() if done >= 6 else None)
    with pytest.raises(BackendError, match="lost"):
        run_in_shards(shared, load, Backwards(load, most=1), lines=4)
    assert alone.target.read_bytes().startswith(shared.target.read_bytes())
    run_in_shards(shared, load, LocalExecutor(load), lines=4)
    assert shared.target.read_bytes() == alone.target.read_bytes()


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_two_ray_workers_write_the_same_lines(tmp_path: Path) -> None:
    """`semtoken score --executor.kind ray` with two workers, in a network namespace that has only loopback."""
    pytest.importorskip("ray")
    lines = [{"question": f"What is the capital of {country}?"} for country in ("France", "Japan", "Peru")] * 100
    source, ray, here = (tmp_path / name for name in ("in.jsonl", "ray.jsonl", "here.jsonl"))
    here_and_by_ray("score", write_lines(source, lines), here=here, by_ray=ray)
    by_ray, alone = read_lines(ray), read_lines(here)
    assert [line["response"] for line in by_ray] == [line["response"] for line in alone]
    assert [x["log_confidence"] for x in by_ray] == pytest.approx([x["log_confidence"] for x in alone], abs=1e-4)


def test_ray_has_at_least_one_worker() -> None:
    assert RayExecutor(workers=1).workers == 1
    with pytest.raises(InvalidInputError, match="at least one worker, got 0"):
        RayExecutor(workers=0)
