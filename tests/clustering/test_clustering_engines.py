"""The engines from inside: several passes, little memory, ties that no threshold parts, a device."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from scipy.cluster.hierarchy import cut_tree

from semtoken.choices import Linkage, Metric
from semtoken.clustering import _loops
from semtoken.clustering.agglomerative import Distinct, assemble, make_plan
from semtoken.clustering.complete_linkage import SparsePathEnds, complete_merges
from semtoken.clustering.merges import Merges, by_first_appearance, cut
from semtoken.clustering.near import EVERYTHING
from semtoken.clustering.partition import cluster_table
from semtoken.clustering.progress import Monitor
from semtoken.clustering.rounds import Rounds, WholeRows, rounds_merges
from semtoken.clustering.rows import as_rows
from semtoken.clustering.tiles import CpuTiles, TorchTiles
from semtoken.errors import InsufficientMemory
from tests.clustering.clustering_reference import (
    METRICS,
    assert_same_partition,
    reference_labels,
    reference_tree,
    tables,
)
from tests.rows import each


def sparse(
    table: Any, metric: Metric, needed: int, room: int, tiles: Any = CpuTiles, **options: Any
) -> tuple[Merges, list[dict[str, Any]]]:
    """Complete linkage by the sparse graph with room for so many pairs; merges and passes."""
    monitor = Monitor()
    rows = as_rows(table, metric)
    distinct = Distinct.of(rows)
    found, passes = complete_merges(
        tiles(rows, 64, monitor, **options), distinct.nodes, needed - len(distinct.equal),
        late=len(distinct.zeros), room=room, threads=2, monitor=monitor,
    )  # fmt: skip
    return assemble(rows, distinct, found), passes


@pytest.mark.parametrize(("kind", "metric"), [("random", "cosine"), ("clustered", "euclidean"), ("clique", "cosine")])
def test_little_room_takes_more_passes_to_the_same_merges(kind: str, metric: Metric) -> None:
    table = tables(kind, 7, n=300)
    tree = reference_tree(table, "complete", metric)
    numbers = []
    for room in (50_000, 6_000, 2_500):
        merges, passes = sparse(table, metric, 299, room)
        numbers.append(len(passes))
        limits = [p["gap"] for p in passes]
        assert limits == sorted(limits) and passes[-1]["gap"] == EVERYTHING
        assert all(p["pairs"] <= room for p in passes)
        for k in (2, 30, 150, 280):
            assert_same_partition(cut(merges, k), reference_labels(tree, k))
        np.testing.assert_allclose(merges.height, tree[:, 2], rtol=2e-5, atol=3e-7)
    assert numbers[0] == 1 < numbers[1] <= numbers[2]


@each("metric", METRICS)
@each("seed", range(2))
def test_whatever_float32_leaves_open_is_decided_as_in_float64(metric: Metric, seed: int) -> None:
    """Few distances, each of them many times and never quite the same: nearly every decision is in doubt."""
    rng = np.random.default_rng(seed)
    table = (rng.integers(-2, 3, (90, 6)) + 1e-6 * rng.normal(size=(90, 6))).astype(np.float32)
    tree = reference_tree(table, "complete", metric)
    for room in (10_000, 1_500):
        merges, passes = sparse(table, metric, 89, room)
        assert (len(passes) > 1) == (room < 10_000)
        for k, labels in zip(range(90, 0, -1), cut_tree(tree).T, strict=True):
            assert_same_partition(cut(merges, k), labels)


def test_a_pass_gives_exactly_the_merges_below_its_threshold() -> None:
    table = tables("random", 2, n=300)
    tree = reference_tree(table, "complete", "cosine")
    merges, passes = sparse(table, "cosine", 1, 5_000)
    assert len(passes) == 1
    assert len(merges) == (tree[:, 2] <= passes[0]["gap"]).sum()


def test_clusters_larger_than_a_tile() -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((500, 8)).astype(np.float32)
    table[:300] = table[0] + 0.01 * table[:300]  # 300 rows that become one cluster, tiles of 64
    tree = reference_tree(table, "complete", "cosine")
    merges, passes = sparse(table, "cosine", 499, 46_000)
    assert len(passes) > 1
    for k in (2, 20, 190):
        assert_same_partition(cut(merges, k), reference_labels(tree, k))


def test_ties_that_no_threshold_parts_end_the_sparse_path() -> None:
    with pytest.raises(SparsePathEnds, match="all there is memory for"):
        sparse(np.eye(200, dtype=np.float32), "cosine", 150, 10_000)


def test_fallback_is_named_and_exact(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(1)
    table = np.zeros((400, 402), np.float32)
    table[:, :400] = np.eye(400)
    table[:60, 400:] = rng.standard_normal((60, 2))  # a few distances that differ, thousands that do not
    rows = as_rows(table, "cosine")
    budget = make_plan(rows, "complete", allowed=10**9, threads=1, tile=64).fixed + 1000
    with caplog.at_level(logging.WARNING, logger="semtoken.clustering"):
        result = cluster_table(table, [380, 100], memory_budget=budget, threads=1, tile=64)
    assert result.report.engine == "rounds on cpu"
    assert result.report.fallback and result.report.fallback in caplog.text
    tree = reference_tree(table, "complete", "cosine")
    assert (tree[:20, 2] < 0.99).all()
    assert_same_partition(result.labels[380], reference_labels(tree, 380))
    assert len(np.unique(result.labels[100])) == 100


@pytest.mark.parametrize("metric", METRICS)
def test_rounds_give_the_merges_of_complete_linkage(metric: Metric) -> None:
    table = tables("clique", 3, n=300)
    tree = reference_tree(table, "complete", metric)
    monitor = Monitor()
    rows = as_rows(table, metric)
    distinct = Distinct.of(rows)
    tiles = CpuTiles(rows, 50, monitor)
    state = Rounds(WholeRows(tiles, distinct.nodes, "max"), tiles, distinct.nodes, distinct.weight)
    merges = assemble(rows, distinct, rounds_merges(state, 299, late=0, threads=2, monitor=monitor))
    np.testing.assert_allclose(merges.height, tree[:, 2], rtol=2e-5, atol=3e-7)
    for k in (2, 40, 150):
        assert_same_partition(cut(merges, k), reference_labels(tree, k))


@pytest.mark.parametrize("linkage", ["complete", "average", "single"])
def test_memory_is_checked_before_the_work_and_little_is_enough(linkage: Linkage) -> None:
    table = tables("random", 5, n=3000, d=20)
    asked = []
    with pytest.raises(InsufficientMemory, match=r"3,000 rows.*MB beyond the table, but may take 1 MB.*memory_budget"):
        cluster_table(table, 1000, linkage=linkage, memory_budget=10**6, progress=lambda *told: asked.append(told[0]))
    assert "distances" not in asked
    little = cluster_table(table, 1000, linkage=linkage, memory_budget=9_000_000, threads=1)
    ample = cluster_table(table, 1000, linkage=linkage)
    assert little.report.fallback is None
    np.testing.assert_array_equal(little.labels[1000], ample.labels[1000])


def test_kmeans_checks_memory() -> None:
    with pytest.raises(InsufficientMemory, match="k-means"):
        cluster_table(tables("random", 0), 5, algorithm="kmeans", memory_budget=1000)


@each(("kind", "metric"), [("clustered", "cosine"), ("clique", "euclidean"), ("duplicated", "cosine")])
def test_torch_tiles_give_the_same_merges(kind: str, metric: Metric) -> None:
    pytest.importorskip("torch")
    table = tables(kind, 11)
    ours, _ = sparse(table, metric, 255, 4_000)
    theirs, passes = sparse(table, metric, 255, 4_000, tiles=TorchTiles, device="cpu")
    assert len(passes) > 1
    for k in (5, 50, 200):
        np.testing.assert_array_equal(cut(ours, k), cut(theirs, k))


@each("seed", range(20))
def test_short_lists_hold_the_nearest_and_a_bound_of_those_left_out(seed: int) -> None:
    """Against sorting all of them; gaps are often equal, and then the lesser tie comes first."""
    random = np.random.default_rng(seed)
    n, places = int(random.integers(1, 12)), int(random.integers(1, 6))
    gaps, ties = random.integers(0, 5, n).astype(np.float32), random.permutation(n)
    near, near_gap, near_tie = np.zeros((2, places), int), np.zeros((2, places), np.float32), np.zeros((2, places), int)
    count, bound = np.zeros(2, int), np.full(2, np.inf, np.float32)
    for cluster in range(n):
        _loops.insert(1, cluster, gaps[cluster], ties[cluster], near, near_gap, near_tie, count, bound)
    order = np.lexsort((ties, gaps))
    kept = min(n, places) if n <= places else count[1]
    assert count[1] == kept and near[1, :kept].tolist() == order[:kept].tolist()
    np.testing.assert_array_equal(near_gap[1, :kept], gaps[order[:kept]])
    np.testing.assert_array_equal(near_tie[1, :kept], ties[order[:kept]])
    assert bound[1] == min(gaps[order[kept:]], default=np.inf)
    assert not count[0] and np.isinf(bound[0])


@each("diagonal", [False, True])
def test_gaps_up_to_a_limit_are_kept_with_their_places(diagonal: bool) -> None:
    """Gaps below 0, which rounding makes, count as 0; on the diagonal of the matrix, each pair of rows stands once."""
    gap = np.random.default_rng(0).normal(size=(90, 150)).astype(np.float32)
    limit = float(gap[4, 140])  # one of them is equal to it
    where, value = np.zeros(gap.size, np.uint32), np.zeros(gap.size, np.float32)
    found = _loops.keep_near(gap, limit, diagonal, where, value)
    near = [(i, j) for i, j in np.argwhere(gap <= limit).tolist() if j > i or not diagonal]
    assert [divmod(place, 65536) for place in where[:found].tolist()] == near
    assert value[:found].tolist() == [max(float(gap[place]), 0.0) for place in near]


def test_cut_by_hand() -> None:
    # 2 and 4 merge, then 0 and 3, then {0, 3} and {2, 4}
    merges = Merges(
        5, np.array([2, 0, 0], np.int32), np.array([4, 3, 2], np.int32), np.array([0.1, 0.2, 0.5], np.float32)
    )
    assert cut(merges, 5).tolist() == [0, 1, 2, 3, 4]
    assert cut(merges, 4).tolist() == [0, 1, 2, 3, 2]
    assert cut(merges, 3).tolist() == [0, 1, 2, 0, 2]
    assert cut(merges, 2).tolist() == [0, 1, 0, 0, 0]
    with pytest.raises(ValueError, match="3 merges"):
        cut(merges, 1)


def test_labels_are_numbered_by_first_appearance() -> None:
    assert by_first_appearance(np.array([5, 5, 1, 9, 1])).tolist() == [0, 0, 1, 2, 1]


def test_few_merges_of_many_rows_are_the_lowest_by_single_linkage() -> None:
    """Then a bound from a few sampled rows leaves most pairs out."""
    table = tables("random", 3, n=1200)
    tree = reference_tree(table, "single", "cosine")
    labels = cluster_table(table, [1190, 1100], linkage="single", threads=1).labels
    for k in (1190, 1100):
        assert_same_partition(labels[k], reference_labels(tree, k))
