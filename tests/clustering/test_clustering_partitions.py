"""The partition is SciPy's, for every linkage, metric and kind of table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import cut_tree

from semtoken.choices import Linkage, Metric
from semtoken.clustering.partition import TableParts, cluster_table, cluster_tokens
from tests.clustering.clustering_reference import (
    KINDS,
    LINKAGES,
    METRICS,
    Array,
    assert_same_partition,
    reference_labels,
    reference_tree,
    tables,
)
from tests.rows import each


@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_same_partition_and_heights_as_scipy(first: int) -> None:
    """Every kind with every linkage, by one metric and then the other."""
    for number, (kind, linkage) in enumerate(itertools.product(KINDS, LINKAGES)):
        assert_scipys(kind, linkage, METRICS[(first + number) % 2])


def assert_scipys(kind: str, linkage: Linkage, metric: Metric) -> None:
    table = tables(kind, 0, n=170)  # three tiles
    tree = reference_tree(table, linkage, metric)
    distinct = len(np.unique(table, axis=0))
    cuts = [distinct, distinct - 1, 130, 26, 7, 2, 1]  # SciPy fills in the rows themselves only if they come first
    result = cluster_table(table, cuts, linkage=linkage, metric=metric, threads=1)
    for k, expected in zip(cuts, cut_tree(tree, cuts).T, strict=True):
        assert_same_partition(result.labels[k], expected)
    assert result.merges is not None
    heights = result.merges.height
    assert len(heights) == len(table) - 1
    np.testing.assert_allclose(heights, tree[:, 2], rtol=2e-5, atol=3e-7)
    assert np.all(np.diff(heights) >= 0)


@given(st.data(), st.sampled_from(LINKAGES), st.sampled_from(METRICS))
def test_same_partition_as_scipy_on_any_table(data: st.DataObject, linkage: Linkage, metric: Metric) -> None:
    n, d = data.draw(st.integers(2, 30)), data.draw(st.integers(1, 6))
    value = st.floats(-8, 8, width=32, allow_subnormal=False)
    table = np.array(data.draw(st.lists(value, min_size=n * d, max_size=n * d)), np.float32).reshape(n, d)
    tree = reference_tree(table, linkage, metric)
    k = data.draw(st.integers(1, n))
    # Where equal distances decide, the partition is a matter of convention.
    assume(_no_near_ties(tree[:, 2]))
    assert_same_partition(cluster_tokens(table, k, linkage=linkage, metric=metric), reference_labels(tree, k))


def _no_near_ties(heights: Array) -> bool:
    return bool(np.all(np.diff(heights) > 1e-4 * np.maximum(heights[1:], 1e-3)))


@given(st.data(), st.sampled_from(LINKAGES), st.sampled_from(METRICS))
def test_many_ties_still_give_the_clusters_asked_for(data: st.DataObject, linkage: Linkage, metric: Metric) -> None:
    n, d = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3))
    flat = data.draw(st.lists(st.integers(-1, 1), min_size=n * d, max_size=n * d))
    table = np.array(flat, np.float32).reshape(n, d)
    k = data.draw(st.integers(1, n))
    labels = cluster_tokens(table, k, linkage=linkage, metric=metric)
    assert labels.dtype == np.int32
    first = [labels.tolist().index(c) for c in range(k)]
    assert len(set(labels.tolist())) == k and first == sorted(first)


@each(("linkage", "metric"), [("complete", "cosine"), ("average", "euclidean"), ("single", "cosine")])
def test_tile_size_and_threads_change_nothing(linkage: Linkage, metric: Metric) -> None:
    rng = np.random.default_rng(5)
    table = rng.integers(-2, 3, (200, 4)).astype(np.float32)  # full of equal rows and equal distances
    cuts = [3, 20, 60, 120]
    one = cluster_tokens(table, cuts, linkage=linkage, metric=metric)
    for tile, threads in [(64, 3), (199, 2), (1000, 1)]:
        other = cluster_table(table, cuts, linkage=linkage, metric=metric, tile=tile, threads=threads)
        for k in cuts:
            np.testing.assert_array_equal(one[k], other.labels[k])


def test_one_run_serves_several_cuts() -> None:
    table = tables("random", 4)
    several = cluster_tokens(table, (90, 12, 12, 200))
    assert sorted(several) == [12, 90, 200]
    for k, labels in several.items():
        np.testing.assert_array_equal(labels, cluster_tokens(table, k))


@each("linkage", LINKAGES)
def test_rows_of_zeros_are_at_distance_one_from_everything(linkage: Linkage) -> None:
    table = tables("random", 0, n=120, d=30)
    table[[7, 50, 51]] = 0
    tree = reference_tree(table, linkage, "cosine")
    below = int((tree[:, 2] < 0.999).sum())  # at 1 and above the ties among zeros decide
    result = cluster_table(table, [120 - below, 2], linkage=linkage)
    assert_same_partition(result.labels[120 - below], reference_labels(tree, 120 - below))
    assert result.merges is not None
    np.testing.assert_allclose(result.merges.height[:below], tree[:below, 2], atol=1e-6)
    for zero in (7, 50, 51):
        assert (result.labels[120 - below] == result.labels[120 - below][zero]).sum() == 1
    assert result.merges.height[below] == pytest.approx(1.0, abs=1e-3)


@each("linkage", LINKAGES)
@each("scale", [1e-30, 1e30])
def test_euclidean_is_not_disturbed_by_scale(linkage: Linkage, scale: float) -> None:
    table = tables("random", 1, n=80)
    scaled = (table.astype(np.float64) * scale).astype(np.float32)
    np.testing.assert_array_equal(
        cluster_tokens(table, 20, linkage=linkage, metric="euclidean"),
        cluster_tokens(scaled, 20, linkage=linkage, metric="euclidean"),
    )


@each("metric", METRICS)
@each("linkage", LINKAGES)
def test_parts_are_the_concatenated_unit_rows(linkage: Linkage, metric: Metric) -> None:
    rng = np.random.default_rng(2)
    halves = [rng.standard_normal((150, d)).astype(np.float32) * 4 for d in (9, 5)]
    halves[0][3] = 0  # one part of a row may be zero
    norms = [np.linalg.norm(half, axis=1, keepdims=True) for half in halves]
    whole = np.concatenate(
        [half / np.where(norm > 0, norm, 1) for half, norm in zip(halves, norms, strict=True)], axis=1
    )
    assert_same_partition(
        cluster_tokens(TableParts(tuple(halves)), 40, linkage=linkage, metric=metric),
        reference_labels(reference_tree(whole, linkage, metric), 40),
    )


def test_half_precision_tables_are_read_as_they_are() -> None:
    table = tables("random", 6, n=200).astype(np.float16)
    wide = table.astype(np.float32)
    np.testing.assert_array_equal(cluster_tokens(table, 50), cluster_tokens(wide, 50))
    bits = (wide.view(np.uint32) >> 16).astype(np.uint16)
    cut_off = (bits.astype(np.uint32) << 16).view(np.float32)
    for metric in METRICS:
        np.testing.assert_array_equal(
            cluster_tokens(bits, 50, metric=metric), cluster_tokens(cut_off, 50, metric=metric)
        )


def test_nearly_equal_rows_in_half_precision_keep_their_digits() -> None:
    rng = np.random.default_rng(0)
    wide = (1 + rng.integers(0, 4, (120, 24)) / 1024).astype(np.float32)  # exact in float16
    tree = reference_tree(wide, "complete", "cosine")
    labels = cluster_tokens(wide.astype(np.float16), 30)
    assert_same_partition(labels, reference_labels(tree, 30))


def test_torch_tensors_are_accepted() -> None:
    torch = pytest.importorskip("torch")
    table = tables("random", 8, n=150)
    expected = cluster_tokens(table, 30)
    np.testing.assert_array_equal(cluster_tokens(torch.from_numpy(table), 30), expected)
    short = torch.from_numpy(table).to(torch.bfloat16)
    np.testing.assert_array_equal(cluster_tokens(short, 30), cluster_tokens(short.float(), 30))
    weight = torch.nn.Parameter(torch.from_numpy(table))
    np.testing.assert_array_equal(cluster_tokens(weight, 30), expected)


@pytest.mark.slow
def test_same_labels_as_scipy_on_a_larger_table() -> None:
    table = tables("clustered", 0, n=6000, d=64)
    tree = reference_tree(table, "complete", "cosine")
    result = cluster_table(table, [3000, 600])
    for k in (3000, 600):
        assert_same_partition(result.labels[k], reference_labels(tree, k))


def test_merges_within_the_error_of_float32_are_those_of_float64() -> None:
    """Two merges of this table differ by less than a product in float32 can tell, and the rest hangs on them."""
    rng = np.random.default_rng(16)
    table = (rng.normal(size=(1400, 96)) + 1.5 * rng.normal(size=96)) * np.linspace(1, 0.02, 96)
    table = table.astype(np.float32)
    tree = reference_tree(table, "complete", "cosine")
    wanted = [5, 40, 300, 1000]
    labels = cluster_table(table, wanted).labels
    for k in wanted:
        assert_same_partition(labels[k], reference_labels(tree, k))
