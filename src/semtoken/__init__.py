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
    from semtoken.clustering.partition import cluster_tokens
    from semtoken.clustering.tables import token_table
    from semtoken.clustering.token_clusters import TokenClusters
    from semtoken.clustering.vocabulary import Vocabulary
    from semtoken.core import LogprobsStream, ScoringRules, score_logits, score_logprobs
    from semtoken.core.results import Alternative, ScoredAnswer, ScoredToken, to_frame
    from semtoken.core.results.generation import Generation
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.errors import SemtokenError
    from semtoken.guarantees import Calibrator, Threshold, select
    from semtoken.methods import metrics as metrics
    from semtoken.models.transformers.recorder import Recorder
    from semtoken.replies import ReplyStream, read_reply, score_reply
    from semtoken.replies.checking import rank_replies
    from semtoken.scored_model import ScoredModel

_HOMES = {
    "ScoredModel": "semtoken.scored_model",
    "Recorder": "semtoken.models.transformers.recorder",
    "Calibrator": "semtoken.guarantees",
    "DecisionCalibrator": "semtoken.decisions.calibrating",
    "Threshold": "semtoken.guarantees",
    "select": "semtoken.guarantees",
    "cluster_tokens": "semtoken.clustering.partition",
    "TokenClusters": "semtoken.clustering.token_clusters",
    "SemtokenError": "semtoken.errors",
    "Generation": "semtoken.core.results.generation",
    "Alternative": "semtoken.core.results",
    "ScoredAnswer": "semtoken.core.results",
    "ScoredToken": "semtoken.core.results",
    "ScoringRules": "semtoken.core",
    "to_frame": "semtoken.core.results",
    "score_logits": "semtoken.core",
    "score_reply": "semtoken.replies",
    "read_reply": "semtoken.replies",
    "ReplyStream": "semtoken.replies",
    "rank_replies": "semtoken.replies.checking",
    "LogprobsStream": "semtoken.core",
    "score_logprobs": "semtoken.core",
    "token_table": "semtoken.clustering.tables",
    "Vocabulary": "semtoken.clustering.vocabulary",
}
_MODULES = {"methods": "semtoken.methods", "metrics": "semtoken.methods.metrics"}

__all__ = [
    "Alternative",
    "Calibrator",
    "DecisionCalibrator",
    "Generation",
    "LogprobsStream",
    "Recorder",
    "ReplyStream",
    "ScoredAnswer",
    "ScoredModel",
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
    "rank_replies",
    "read_reply",
    "score_logits",
    "score_logprobs",
    "score_reply",
    "select",
    "to_frame",
    "token_table",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'semtoken' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
