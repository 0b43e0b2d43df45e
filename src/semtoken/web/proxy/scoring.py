"""The uncertainty of each choice of a reply or stream; a reason in its place where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semtoken.clusters import TokenClusters
from semtoken.rules import ScoringRules
from semtoken.web.proxy.metrics import ProxyMetrics
from semtoken.web.proxy.rewriting import Asked


class AnswerScoring:
    def __init__(self, clusters: TokenClusters, rules: ScoringRules, proxy_for: str | None, metrics: ProxyMetrics):
        pass

    def of(self, asked: Asked, obstacle: str | None) -> ReplyScorer:
        return ReplyScorer()


class ReplyScorer:
    def give_up(self, reason: str) -> None:
        pass

    def reply(self, reply: Mapping[str, Any]) -> dict[int, Any]:
        return {c.get("index", 0): {"version": 1, "reason": "stub"} for c in reply["choices"]}

    chunk = reply
