"""semtoken: an honest uncertainty score for every answer of a language model.

Public names load when first used, so that importing semtoken stays cheap and needs neither torch nor
transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from semtoken.version import __version__

if TYPE_CHECKING:
    from semtoken import methods as methods
    from semtoken import metrics as metrics
    from semtoken.backends.transformers.recorder import Recorder
    from semtoken.calibration import Calibrator, Threshold, select
    from semtoken.clustering import cluster_tokens
    from semtoken.clusters import TokenClusters
    from semtoken.clusters.tables import token_table
    from semtoken.core import ScoringRules, score_logits, score_top_logprobs
    from semtoken.errors import SemtokenError
    from semtoken.payloads import score_payload
    from semtoken.results import Alternative, ScoredResponse, ScoredToken, to_frame
    from semtoken.results.generation import Generation
    from semtoken.stc import STC
    from semtoken.tokens.vocabulary import Vocabulary

_HOMES = {
    "STC": "semtoken.stc",
    "Recorder": "semtoken.backends.transformers.recorder",
    "Calibrator": "semtoken.calibration",
    "Threshold": "semtoken.calibration",
    "select": "semtoken.calibration",
    "cluster_tokens": "semtoken.clustering",
    "TokenClusters": "semtoken.clusters",
    "SemtokenError": "semtoken.errors",
    "Generation": "semtoken.results.generation",
    "Alternative": "semtoken.results",
    "ScoredResponse": "semtoken.results",
    "ScoredToken": "semtoken.results",
    "ScoringRules": "semtoken.core",
    "to_frame": "semtoken.results",
    "score_logits": "semtoken.core",
    "score_payload": "semtoken.payloads",
    "score_top_logprobs": "semtoken.core",
    "token_table": "semtoken.clusters.tables",
    "Vocabulary": "semtoken.tokens.vocabulary",
}
_MODULES = ("methods", "metrics")

__all__ = [
    "STC",
    "Alternative",
    "Calibrator",
    "Generation",
    "Recorder",
    "ScoredResponse",
    "ScoredToken",
    "ScoringRules",
    "SemtokenError",
    "Threshold",
    "TokenClusters",
    "Vocabulary",
    "__version__",
    "cluster_tokens",
    "methods",
    "metrics",
    "score_logits",
    "score_payload",
    "score_top_logprobs",
    "select",
    "to_frame",
    "token_table",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"semtoken.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'semtoken' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
