"""Semantic Token Clustering from the k best log-probabilities a step, as APIs and serving engines show them.

steps.py      what engines give           -> TopStep
names.py      bytes or string of a token  -> which tokens are meant
listed.py     TopStep                     -> tokens and probabilities, checked
mass.py       one step                    -> bounds of its clustered probability
noticed.py    the lists of an answer      -> flags, or a refusal
answers.py    the steps of an answer      -> score with an interval, at the end or on the way
shared.py     names in a payload          -> whether two models have the same tokenizer
"""

from __future__ import annotations

from semtoken.top_logprobs.answers import TopAnswerScorer, score_top_logprobs
from semtoken.top_logprobs.shared import SharedVocabulary, check_shared_vocabulary
from semtoken.top_logprobs.steps import TopStep, TopToken, as_top_steps

__all__ = [
    "SharedVocabulary",
    "TopAnswerScorer",
    "TopStep",
    "TopToken",
    "as_top_steps",
    "check_shared_vocabulary",
    "score_top_logprobs",
]
