"""Defaults of one and the same setting at every door where it can be given."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import semtoken
from semtoken.bench.settings import ClusteringSettings, DecodingSettings
from semtoken.bench.statistics import AnswerSettings
from semtoken.cli.ask import ask
from semtoken.cli.score import score
from semtoken.cli.settings import AuditSection
from semtoken.clustering.partition import cluster_table, cluster_tokens
from semtoken.clustering.token_clusters import ClusterSettings, TokenClusters
from semtoken.models.base import Decoding
from semtoken.stream import stream_generate

PAPER = {"algorithm": "agglomerative", "linkage": "complete", "metric": "cosine", "embedding": "concatenated"}
"""Settings of clusters in the published code."""


def defaults(door: Any) -> dict[str, Any]:
    """The default of each argument of a function, and of each field of a class."""
    given = {name: one.default for name, one in inspect.signature(door).parameters.items()}
    return {name: value for name, value in given.items() if value is not inspect.Parameter.empty}


@pytest.mark.parametrize(
    "door", [ClusterSettings, ClusteringSettings, TokenClusters.from_model, cluster_table, cluster_tokens]
)
def test_clusters_are_made_in_the_way_of_the_paper(door: Any) -> None:
    found = defaults(door)
    expected = PAPER | {"n_clusters": 16_000, "seed": 0}
    if door is ClusteringSettings:
        expected["n_clusters"] = None  # as many, or fewer for a small vocabulary
    assert found.items() >= {name: value for name, value in expected.items() if name in found}.items()
    assert set(expected) - set(found) <= {"embedding"}  # a table is of one kind


def test_an_audit_fails_for_nothing_but_a_broken_guarantee_unless_limits_are_set() -> None:
    assert AuditSection(max_distance=0, min_accepted=0, undecided_passes=True) == AuditSection()


DOORS = [ask, score, semtoken.ScoredModel.generate, stream_generate, Decoding, DecodingSettings, AnswerSettings]


@pytest.mark.parametrize("door", DOORS)
def test_an_answer_has_at_most_256_tokens(door: Any) -> None:
    found = defaults(door)
    assert [found[name] for name in ("max_tokens", "max_new_tokens") if name in found] == [256]
