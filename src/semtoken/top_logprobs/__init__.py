"""The k best log-probabilities of a step, as APIs and serving engines show them, read and checked.

steps.py      what engines give           -> TopStep
names.py      bytes or string of a token  -> which tokens are meant
listed.py     TopStep                     -> tokens and probabilities, checked
shared.py     names in a payload          -> whether two models have the same tokenizer

Scores are made of them in `semtoken.scoring.topk`.
"""

from __future__ import annotations

from semtoken.top_logprobs.shared import SharedVocabulary, check_shared_vocabulary
from semtoken.top_logprobs.steps import TopStep, TopToken, as_top_steps

__all__ = ["SharedVocabulary", "TopStep", "TopToken", "as_top_steps", "check_shared_vocabulary"]
