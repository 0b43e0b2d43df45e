"""Defaults of one and the same setting at every door where it can be given."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import semtoken
from semtoken.bench.settings import ClusteringSettings, DecodingSettings
from semtoken.bench.statistics import AnswerSettings
from semtoken.cli.ask import ask
from semtoken.cli.check import check
from semtoken.cli.journal import show
from semtoken.cli.score import score
from semtoken.cli.settings import AuditSection, Settings, key_of
from semtoken.clustering.partition import cluster_table, cluster_tokens
from semtoken.clustering.token_clusters import ClusterSettings, TokenClusters
from semtoken.decisions.auditing import audit as audit_decisions
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.guarantees import Threshold
from semtoken.guarantees.auditing import audit_answers
from semtoken.guarantees.journal.watch import watch
from semtoken.models.base import Decoding
from semtoken.stream import stream_generate
from semtoken.web.proxy.settings import ProxySettings
from tests.rows import each

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
    expected: dict[str, Any] = PAPER | {"n_clusters": 16_000, "seed": 0}
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


def test_a_list_in_the_terminal_has_20_lines_unless_more_are_wanted() -> None:
    assert defaults(check)["limit"] == defaults(show)["limit"] == 20


MEBIBYTE = 2**20
FITS = (Threshold.fit, DecisionCalibrator.fit)
OF_THE_LIBRARY: list[tuple[str, Any, str, float]] = [
    ("endpoint.top_logprobs", ProxySettings, "top_logprobs", 1),
    ("proxy.hold_seconds", ProxySettings, "hold", 1),
    ("decisions.route", ProxySettings, "decisions", 1),
    ("decisions.concurrency", ProxySettings, "decision_requests", 1),
    ("limits.request_mb", ProxySettings, "max_request_bytes", MEBIBYTE),
    ("limits.reply_mb", ProxySettings, "max_scored_bytes", MEBIBYTE),
    ("limits.scored_tokens", ProxySettings, "max_scored_tokens", 1),
    ("limits.scoring_seconds", ProxySettings, "max_scoring_seconds", 1),
    ("limits.connections", ProxySettings, "max_connections", 1),
    ("limits.connect_seconds", ProxySettings, "connect_timeout", 1),
    ("limits.read_seconds", ProxySettings, "read_timeout", 1),
    ("limits.request_seconds", ProxySettings, "request_timeout", 1),
    *(("guarantee.alpha", fit, "alpha", 1) for fit in FITS),
    *(("guarantee.delta", fit, "delta", 1) for fit in FITS),
    *(("guarantee.kind", fit, "guarantee", 1) for fit in FITS),
    *(("audit.level", audited, "level", 1) for audited in (audit_answers, audit_decisions, watch)),
    ("model.batch_size", semtoken.ScoredModel.generate, "batch_size", 1),
    *((f"model.{name}", semtoken.ScoredModel.from_pretrained, name, 1) for name in ("backend", "dtype")),
    ("model.trust_remote_code", semtoken.ScoredModel.from_pretrained, "trust_remote_code", 1),
]
"""A key of the settings of commands, what it is given to, the argument there, and its unit in that of the argument."""


@each(("key", "door", "argument", "unit"), OF_THE_LIBRARY)
def test_a_command_without_settings_does_what_the_library_does(key: str, door: Any, argument: str, unit: float) -> None:
    assert key_of(Settings(), key) * unit == defaults(door)[argument]
