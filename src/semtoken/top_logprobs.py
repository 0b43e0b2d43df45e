"""Former home of the records of `semtoken.engine_tokens` and of `semtoken.scoring.topk`; the names stay importable."""

from __future__ import annotations

from semtoken.engine_tokens import SharedVocabulary, TopStep, TopToken, as_top_steps, check_shared_vocabulary
from semtoken.scoring import score_top_logprobs

__all__ = [
    "SharedVocabulary",
    "TopStep",
    "TopToken",
    "as_top_steps",
    "check_shared_vocabulary",
    "score_top_logprobs",
]
