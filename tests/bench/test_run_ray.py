"""Ray makes the same files as the local executor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from semtoken.bench.storage import COORDINATES
from tests.bench.runs import start
from tests.json_lines import read_lines
from tests.ray_runs import TWO_WORKERS, in_a_namespace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),  # imported by what is tested alone
]

SETTINGS = {
    "models": ["almanac"],
    "datasets": ["almanac"],
    "limit": 10,
    "shard_size": 4,
    "methods": ["stc", "perplexity", "semantic_entropy", "eigenscore"],
    "judges": ["exact"],
}


def test_the_network_namespace_has_loopback_only() -> None:
    """The other tests here rely on it."""
    done = in_a_namespace("ip", "-brief", "link")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["lo"]


def ray_run(folder: Path, settings: dict[str, object]) -> subprocess.CompletedProcess[str]:
    """`semtoken bench run --executor.kind ray`."""
    file = folder.with_suffix(".yaml")
    file.write_text(json.dumps(settings))  # JSON is YAML
    semtoken = Path(sys.executable).with_name("semtoken")
    return in_a_namespace(str(semtoken), "bench", "run", str(file), "--output", str(folder), *TWO_WORKERS)


def records(run: Path) -> dict[str, object]:
    """Name of a file of a stage -> its rows."""
    import pyarrow.parquet

    tables = {path.relative_to(run): pyarrow.parquet.read_table(path) for path in run.rglob("*.parquet")}
    # Coordinates stand for inner products only; those are compared by the scores of EigenScore.
    return {
        str(path): table.drop_columns([name for name in table.column_names if name == COORDINATES]).to_pylist()
        for path, table in tables.items()
    }


def test_the_same_files_as_the_local_executor(tmp_path: Path) -> None:
    done = ray_run(tmp_path / "distributed", SETTINGS)
    assert done.returncode == 0, done.stderr
    assert "listens on every network interface" in done.stderr
    assert start(SETTINGS, tmp_path / "local") == []
    by_ray, here = records(tmp_path / "distributed"), records(tmp_path / "local")
    assert sorted(by_ray) == sorted(here)
    assert any("score" in name for name in here)
    for name, rows in here.items():  # threads may be fewer there, and sums then differ in the last bits
        assert flat(by_ray[name]) == pytest.approx(flat(rows), abs=1e-5, nan_ok=True), name


def flat(value: object) -> list[object]:
    """Leaves of nested rows, in order."""
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in flat(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def test_a_failure_of_a_worker_is_told_as_it_was_raised(tmp_path: Path) -> None:
    settings = {**SETTINGS, "nli": str(tmp_path / "nowhere")}
    done = ray_run(tmp_path / "distributed", settings)
    told = " ".join(done.stderr.split())
    assert done.returncode == 1
    assert "entailment" in told and "nowhere" in told
    assert "RayTaskError" not in told and "Traceback" not in told
    assert any("score-stc" in name for name in records(tmp_path / "distributed"))  # the others went on


def works_by_ray(how: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """The words of tests/bench/ray_workers.py, and the lines that the shards of each work wrote."""
    monkeypatch.setenv("LOADED", str(folder / "loaded"))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    )
    done = in_a_namespace(sys.executable, "-m", "tests.bench.ray_workers", how, str(folder))
    assert done.returncode == 0, done.stderr
    lines = {path.stem: read_lines(path) for path in folder.glob("*.jsonl")}
    return json.loads((folder / "told").read_text()), lines


def test_the_same_workers_serve_all_works_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, lines = works_by_ray("serve", tmp_path, monkeypatch)
    assert told["failure"] is None
    for name, count in (("first", 6), ("second", 1), ("third", 6)):
        assert sorted(told["done"][name]) == sorted(one["shard"] for one in lines[name]) == [*range(count)]
    made_by = [{one["pid"] for one in lines[name]} for name in ("first", "third")]
    assert made_by[0] == made_by[1] and len(made_by[0]) == 2
    loaded = [int(x) for x in (tmp_path / "loaded").read_text().split()]
    assert sorted(loaded) == sorted(made_by[0])  # and each loaded its model once


def test_a_killed_worker_is_replaced_and_no_shard_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, lines = works_by_ray("kill", tmp_path, monkeypatch)
    assert told["failure"] is None and (tmp_path / "died").exists()
    for name, count in (("first", 6), ("third", 6)):
        assert sorted(told["done"][name]) == sorted(one["shard"] for one in lines[name]) == [*range(count)]
    assert len({one["pid"] for one in lines["third"]}) == 2


def test_a_shard_that_always_kills_its_worker_ends_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, lines = works_by_ray("always", tmp_path, monkeypatch)
    assert "A Ray worker was lost" in told["failure"]
    assert told["done"] == {} and 3 not in [one["shard"] for one in lines["first"]]
