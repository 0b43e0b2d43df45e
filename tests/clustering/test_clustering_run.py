"""Tables and settings that are refused, reports, and how a run can be watched and stopped."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from semtoken.choices import Linkage, Metric
from semtoken.clustering import kmeans
from semtoken.clustering.partition import TableParts, cluster_table, cluster_tokens
from semtoken.clustering.progress import run_all
from semtoken.errors import InvalidInputError
from tests.clustering.clustering_reference import LINKAGES, METRICS, Array, assert_same_partition, tables
from tests.rows import each

# --- degenerate tables -------------------------------------------------------------------------------------------


@each("metric", METRICS)
@each("linkage", LINKAGES)
def test_one_row_one_cluster_all_clusters(linkage: Linkage, metric: Metric) -> None:
    assert cluster_tokens(np.ones((1, 3), np.float32), 1, linkage=linkage, metric=metric).tolist() == [0]
    table = tables("random", 0, n=30)
    assert cluster_tokens(table, 1, linkage=linkage, metric=metric).tolist() == [0] * 30
    assert cluster_tokens(table, 30, linkage=linkage, metric=metric).tolist() == list(range(30))


@each("metric", METRICS)
@each("linkage", LINKAGES)
def test_identical_rows(linkage: Linkage, metric: Metric) -> None:
    for value, k in ((2.5, 1), (2.5, 7), (2.5, 50), (0, 7)):
        table = np.full((50, 4), value, np.float32)
        labels = cluster_tokens(table, k, linkage=linkage, metric=metric)
        assert len(set(labels.tolist())) == k
    table = np.ones((50, 4), np.float32)
    table[::2] = -1
    labels = cluster_tokens(table, 2, linkage=linkage, metric=metric)
    assert labels.tolist() == [0, 1] * 25


def test_rows_of_one_direction_are_equal_under_cosine() -> None:
    table = np.array([[1, 2], [2, 4], [2, 1], [4, 2]], np.float32)
    assert cluster_tokens(table, 2).tolist() == [0, 0, 1, 1]


# --- refusals --------------------------------------------------------------------------------------------------


@each(("k", "message"), [*((k, "from 1 to 30") for k in (0, -1, 31, 2.5, True)), ([], "n_clusters is empty")])
def test_numbers_of_clusters_that_cannot_be(k: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        cluster_tokens(tables("random", 0, n=30), k)


@each("value", [np.nan, np.inf, -np.inf])
@each("dtype", [np.float32, np.float16, "bfloat16"])
def test_rows_that_are_not_finite_are_named(value: float, dtype: Any) -> None:
    table = np.ones((20, 3), np.float32)
    table[[4, 11], 1] = value
    bits = (table.view(np.uint32) >> 16).astype(np.uint16)
    with pytest.raises(InvalidInputError, match=r"2 of the 20 rows .*token ids 4, 11"):
        cluster_tokens(bits if dtype == "bfloat16" else table.astype(dtype), 3)


def test_overflow_of_float16_is_explained() -> None:
    table = np.ones((5, 2), np.float32)
    table[3] = 1e6
    with np.errstate(over="ignore"), pytest.raises(InvalidInputError, match=r"token ids 3.*float16 overflows"):
        cluster_tokens(table.astype(np.float16), 2)


def test_large_numbers_of_float16_do_not_overflow_on_the_way() -> None:
    table = np.array([[60000, 60000], [60000, 59000], [-60000, 60000]], np.float16)
    assert cluster_tokens(table, 2).tolist() == [0, 0, 1]
    assert cluster_tokens(table, 2, metric="euclidean").tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.ones((3, 2), np.int64), "int64"),
        (np.ones(3, np.float32), r"shape \(tokens, columns\)"),
        (np.ones((0, 2), np.float32), "no rows"),
        (np.ones((3, 0), np.float32), "columns"),
        (TableParts((np.ones((3, 2), np.float32), np.ones((4, 2), np.float32))), "3 and 4"),
        (TableParts(()), "no parts"),
    ],
)
def test_tables_that_cannot_be(table: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        cluster_tokens(table, 1)


@pytest.mark.parametrize(
    "setting",
    [
        {"linkage": "ward"},
        {"metric": "manhattan"},
        {"algorithm": "dbscan"},
        {"device": "tpu"},
        {"threads": "two"},
        {"threads": 0},
        {"tile": 0},
    ],
)
def test_settings_that_cannot_be(setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(setting))):
        cluster_table(tables("random", 0, n=30), 3, **setting)


def test_cuda_that_is_not_there() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    table = tables("random", 0, n=30)
    with pytest.raises(InvalidInputError, match="CUDA device"):
        cluster_tokens(table, 3, device="cuda")
    assert cluster_table(table, 3, device="auto").report.engine.endswith("on cpu")


# --- k-means -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_kmeans_finds_groups_and_repeats_itself(metric: Metric) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 6, 300)
    table = (10 * rng.standard_normal((6, 20))[truth] + rng.standard_normal((300, 20))).astype(np.float32)
    labels = cluster_tokens(table, 6, algorithm="kmeans", metric=metric, seed=1)
    assert_same_partition(labels, truth)
    assert labels.dtype == np.int32 and labels[0] == 0
    two = cluster_tokens(table, [12, 6], algorithm="kmeans", metric=metric, seed=1)
    np.testing.assert_array_equal(two[6], labels)
    np.testing.assert_array_equal(two[12], cluster_tokens(table, 12, algorithm="kmeans", metric=metric, seed=1))


def test_kmeans_says_when_there_are_fewer_distinct_rows(caplog: pytest.LogCaptureFixture) -> None:
    table = np.repeat(np.eye(3, dtype=np.float32), 5, axis=0)
    labels = cluster_tokens(table, 6, algorithm="kmeans")
    assert len(set(labels.tolist())) == 3
    assert "3 clusters instead of 6" in caplog.text


def means_and_squares(table: Any, labels: Array) -> tuple[Array, Array]:
    """The mean rows of clusters in float64, and the squared distances of all rows from all of them."""
    means = np.stack([table[labels == label].mean(axis=0) for label in range(labels.max() + 1)])
    return means, ((table[:, None] - means[None]) ** 2).sum(axis=2)


@each(("rows", "k", "metric"), [(60, 5, "cosine"), (900, 40, "euclidean"), (2500, 300, "cosine")])
def test_kmeans_ends_where_no_row_is_nearer_to_another_mean(rows: int, k: Any, metric: Metric) -> None:
    """Over blocks of 1,024 rows, seeds of both kinds, rows of zeros, equal rows, and every number of threads."""
    rng = np.random.default_rng(rows)
    table = rng.standard_normal((rows, 7)).astype(np.float32)
    table[::50], table[1::90] = 0, table[3]
    found = {n: cluster_table(table, k, algorithm="kmeans", metric=metric, threads=n).labels[k] for n in (1, 3)}
    np.testing.assert_array_equal(found[1], found[3])
    points = table.astype(np.float64)
    if metric == "cosine":
        norms = np.linalg.norm(points, axis=1, keepdims=True)
        points = np.divide(points, norms, out=np.zeros_like(points), where=norms > 0)
    _, squares = means_and_squares(points, found[1])
    own = squares[np.arange(rows), found[1]]
    assert len(set(found[1].tolist())) == k
    assert (own <= squares.min(axis=1) + 1e-5 * squares.max()).all()


def test_empty_clusters_take_the_rows_that_are_farthest_from_their_centers() -> None:
    nearest = kmeans._Nearest(np.array([0, 0.5, 3, 1, 0, 2], np.float32), np.array([0, 0, 0, 3, 3, 3]))
    touched = np.zeros(6, bool)
    kmeans._fill_empty(nearest, 5, touched)  # 1, 2 and 4 are empty
    assert nearest.center.tolist() == [0, 0, 1, 4, 3, 2] and nearest.gap.tolist() == [0, 0.5, 0, 0, 0, 0]
    assert touched.tolist() == [True, True, True, True, True, False]
    kmeans._fill_empty(nearest, 6, touched)
    assert nearest.center.tolist() == [0, 5, 1, 4, 3, 2]
    kmeans._fill_empty(nearest, 7, touched)  # no row is away from its center
    assert nearest.center.tolist() == [0, 5, 1, 4, 3, 2]


def test_kmeans_is_as_good_as_that_of_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.cluster")
    rng = np.random.default_rng(3)
    table = rng.standard_normal((80, 24))[rng.integers(0, 80, 1500)] + 0.7 * rng.standard_normal((1500, 24))
    table = table.astype("f4")

    def total(labels: Array) -> float:
        return float(means_and_squares(table.astype(np.float64), labels)[1][np.arange(len(table)), labels].sum())

    ours = [total(cluster_tokens(table, 80, algorithm="kmeans", metric="euclidean", seed=seed)) for seed in range(5)]
    theirs = [total(sklearn.KMeans(80, n_init=1, random_state=seed).fit(table).labels_) for seed in range(5)]
    assert np.mean(ours) < 1.02 * np.mean(theirs)


def test_seeds_that_are_proposed_together_are_drawn_as_one_after_another() -> None:
    """Two further seeds of five rows, against the probabilities of k-means++ by hand."""
    at = np.array([0.0, 1.0, 1.5, 4.0, 9.0])
    squares, random, counts = (at[:, None] - at) ** 2, np.random.default_rng(0), np.zeros((5, 5))
    for _ in range(4000):
        nearest = kmeans._Nearest(squares[0].astype(np.float32), np.zeros(5, np.int64))
        proposed = kmeans._propose_seeds(nearest.gap, 2, random)
        taken = kmeans._choose_seeds(nearest, proposed, squares[proposed].astype(np.float32), 1, 1, random)
        np.testing.assert_array_equal(nearest.gap, squares[[0, *taken]].min(axis=0).astype(np.float32))
        counts[taken[0], taken[1] if len(taken) == 2 else 0] += 1
    first = squares[0] / squares[0].sum()
    both = np.zeros((5, 5))
    for one in range(1, 5):
        left = np.minimum(squares[0], squares[one])
        both[one] = first[one] * first * np.divide(left, squares[0], out=np.zeros(5), where=squares[0] > 0)
        both[one, 0] = first[one] - both[one].sum()  # the second one was not taken
    assert np.abs(counts / 4000 - both).max() < 4 * 0.5 / np.sqrt(4000)


# --- report, progress, stopping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("linkage", LINKAGES)
def test_report_tells_what_was_done(linkage: Linkage) -> None:
    table = tables("clustered", 0, n=300)
    result = cluster_table(table, [40, 10], linkage=linkage)
    report = result.report.to_dict()
    assert result.merges is not None
    assert report["settings"]["n_clusters"] == [40, 10] and report["settings"]["linkage"] == linkage
    assert report["seconds"]["total"] >= report["seconds"]["distances"] > 0
    assert report["peak_memory"] > 10**7 and report["gemm_flops"] > 0 and 0 < report["gemm_share"] <= 1
    assert bool(report["passes"]) == (linkage == "complete") and json.loads(json.dumps(report)) is not None
    for described, k in zip(report["cuts"], (40, 10), strict=True):
        sizes = np.bincount(result.labels[k])
        assert described["largest"] == sizes.max()
        assert described["singletons"] == pytest.approx(np.mean(sizes == 1))
        assert sum(described["sizes"].values()) == k
        assert described["last_height"] == pytest.approx(result.merges.height[300 - k - 1])
        following = described["next_height"]
        assert following is None or following >= described["last_height"]


def test_sizes_are_counted_in_doubling_ranges() -> None:
    table = np.repeat(np.eye(4, dtype=np.float32), [1, 2, 3, 9], axis=0)
    (described,) = cluster_table(table, 4).report.cuts
    assert described.sizes == {"1": 1, "2": 1, "3-4": 1, "9-16": 1}
    assert described.singletons == 0.25


@pytest.mark.parametrize("linkage", LINKAGES)
def test_progress_is_told_phase_by_phase(linkage: Linkage) -> None:
    told = []
    cluster_table(tables("random", 0, n=500), 50, linkage=linkage, progress=lambda *said: told.append(said))
    phases = list(dict.fromkeys(phase for phase, _, _ in told))
    assert phases[0] == "table" and phases.index("distances") < phases.index("merging")
    for phase in phases:
        fractions = [fraction for name, fraction, _ in told if name == phase]
        assert min(fractions) == 0 and max(fractions) == 1
    assert all(left is None or left >= 0 for _, _, left in told)


def test_merging_says_how_far_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few steps, by the share of the clusters from which no chain begins any more."""
    monkeypatch.setattr("semtoken.clustering.progress.INTERVAL", 0)
    monkeypatch.setattr("semtoken.clustering.complete_linkage.STEPS", 40)
    told: list[tuple[str, float]] = []
    cluster_table(tables("random", 0, n=500), 50, progress=lambda *said: told.append(said[:2]))
    shares = [share for phase, share in told if phase == "merging"]
    assert sum(0.1 < share < 0.9 for share in shares) > 10
    assert np.diff(shares).min() > -0.02 and shares.index(1.0) >= len(shares) - 2


@pytest.mark.parametrize("phase", ["distances", "merging"])
def test_ctrl_c_ends_the_run_and_its_threads(phase: str) -> None:
    def stop(name: str, fraction: float, left: float | None) -> None:
        if name == phase:
            raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        cluster_table(tables("random", 0, n=500), 50, progress=stop, threads=2)
    assert threading.active_count() == before
    assert len(cluster_tokens(tables("random", 0, n=500), 50)) == 500


def test_ctrl_c_stops_workers_that_would_go_on_for_ever() -> None:
    def endless(did: Callable[[float], None]) -> None:
        while True:
            time.sleep(0.001)
            did(0.0)

    def interrupt(fraction: float) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        run_all([(1.0, endless)] * 5, 2, interrupt)
    assert threading.active_count() == before


def test_an_error_in_a_worker_comes_out() -> None:
    def worker(did: Callable[[float], None]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_all([(1.0, worker), (1.0, lambda did: did(1.0))], 2, lambda fraction: None)


# --- what is imported when --------------------------------------------------------------------------------------


def _fresh(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)


def test_a_missing_package_is_told_with_the_line_that_installs_it() -> None:
    done = _fresh(
        """
        import sys
        sys.modules["numba"] = None
        import numpy as np
        from semtoken.clustering.partition import cluster_tokens
        try:
            cluster_tokens(np.ones((3, 2), np.float32), 1)
        except ImportError as error:
            print(type(error).__name__, error)
        """
    )
    assert "MissingExtra" in done.stdout and "semtoken[cluster]" in done.stdout, done.stderr
