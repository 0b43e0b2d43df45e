"""Uncertainty of an answer from what was recorded of it: the methods that STC is compared with.

Every function returns an uncertainty: higher is riskier, also where the published number is a confidence.
Arguments are plain arrays and texts, natural logs throughout; a bad one raises `InvalidInput` that names it.
The argument names say what is in them: `greedy_logprobs` [T] of the answer itself, `sample_logprobs` M arrays of
M sampled answers, `similarity` [M, M], `nli_..._contra_neutral_entail` [U, U, 3] with rows as premises.

Where published implementations differ, the default is what the comparison uses and an option gives the others.
No option is the number of a defect unless it says so.

`METHODS` lists them with what they need and cost; `score` applies one to a `Generation`.
"""

from __future__ import annotations

from semtoken.methods.claims import ccp, is_function_word_text, token_text
from semtoken.methods.frequency import conu
from semtoken.methods.graphs import affinity_matrix, deg, ecc, eigv, jaccard_affinity
from semtoken.methods.likelihood import (
    ln_entropy,
    perplexity,
    predictive_entropy,
    sequence_probability,
    stc,
)
from semtoken.methods.prompted import p_true
from semtoken.methods.relevance import sar, sentence_sar, token_sar, token_sar_of_samples
from semtoken.methods.semantic import nli_labels, semantic_clusters, semantic_entropy
from semtoken.methods.states import eigenscore
from semtoken.methods.table import METHODS, Method, score

__all__ = [
    "METHODS",
    "Method",
    "affinity_matrix",
    "ccp",
    "conu",
    "deg",
    "ecc",
    "eigenscore",
    "eigv",
    "is_function_word_text",
    "jaccard_affinity",
    "ln_entropy",
    "nli_labels",
    "p_true",
    "perplexity",
    "predictive_entropy",
    "sar",
    "score",
    "semantic_clusters",
    "semantic_entropy",
    "sentence_sar",
    "sequence_probability",
    "stc",
    "token_sar",
    "token_sar_of_samples",
    "token_text",
]
