"""Ray makes the same files as the local engine. Ray listens on every interface, so it runs where there is only one:
in a network namespace that has nothing but loopback."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

pytestmark = pytest.mark.slow

SETTINGS = {
    "models": ["almanac"],
    "datasets": ["almanac"],
    "limit": 10,
    "shard_size": 4,
    "methods": ["stc", "perplexity", "semantic_entropy"],
    "judges": ["exact"],
}
JOB = """
import json, sys
from pathlib import Path
from semtoken.bench.engines.ray import RayEngine
from semtoken.bench.run import run_benchmark
from semtoken.bench.settings import check_settings

if __name__ == "__main__":
    settings = check_settings(json.loads(sys.argv[2]), "the test")
    failures = run_benchmark(settings, Path(sys.argv[1]), engine=RayEngine(workers=2))
    print(json.dumps([str(failure) for failure in failures]))
"""
ALONE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "alone")


def test_the_network_namespace_has_loopback_only() -> None:
    """What the other tests here rely on."""
    done = in_a_namespace("ip", "-brief", "link")
    assert [line.split()[0] for line in done.splitlines()] == ["lo"]


def in_a_namespace(*command: str) -> str:
    """Standard output of a command that can reach nothing but loopback; skips where that cannot be had."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("Ray is not tested here: unshare and ip, which make a network namespace, are not both installed")
    probe = subprocess.run([*ALONE, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"Ray is not tested here: no network namespace can be made ({probe.stderr.strip()})")
    done = subprocess.run([*ALONE, *command], capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ray_run(folder: Path, settings: dict[str, object]) -> list[str]:
    """Failures of a run by Ray."""
    script = folder.with_suffix(".py")
    script.write_text(JOB)
    return list(
        json.loads(in_a_namespace(sys.executable, str(script), str(folder), json.dumps(settings)).split("\n")[-2])
    )


def records(run: Path) -> dict[str, object]:
    """Name of a file of a stage -> its rows."""
    import pyarrow.parquet

    return {str(path.relative_to(run)): pyarrow.parquet.read_table(path).to_pylist() for path in run.rglob("*.parquet")}


def test_the_same_files_as_the_local_engine(tmp_path: Path) -> None:
    from semtoken.bench.run import run_benchmark
    from semtoken.bench.settings import check_settings

    assert ray_run(tmp_path / "distributed", SETTINGS) == []
    assert run_benchmark(check_settings(SETTINGS, "the test"), tmp_path / "local") == []
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
    failures = ray_run(tmp_path / "distributed", settings)
    assert any("nowhere" in failure and "entailment" in failure for failure in failures)
    assert not any("RayTaskError" in failure for failure in failures)
    assert any("score-stc" in name for name in records(tmp_path / "distributed"))  # the others went on
