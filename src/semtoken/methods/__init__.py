"""Uncertainty of an answer from what was recorded of it: the methods that STC is compared with.

Every function returns an uncertainty: higher is riskier, also where the published number is a confidence.
Arguments are plain arrays and texts, natural logs throughout; a bad one raises `InvalidInputError` that names it.
The argument names say what is in them: `greedy_logprobs` [T] of the answer itself, `sample_logprobs` M arrays of
M sampled answers, `similarity` [M, M], `nli_..._contra_neutral_entail` [U, U, 3] with rows as premises.

Where published implementations differ, the default is what the comparison uses and an option gives the others.
No option is the number of a defect unless it says so.

`METHODS` lists them with what they need and cost; `score` applies one to a `Generation`. A module put into this folder
is read with the package, so that a method is one function with `@method(...)` above it.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from semtoken.methods.claims import ccp, is_function_word_text, token_text
from semtoken.methods.entropies import (
    epr,
    first_content_entropy,
    first_content_step,
    lowest_group_confidence,
    max_token_entropy,
    mean_token_entropy,
    self_certainty,
    surprise_and_peak,
    trace,
    wepr,
    window_entropy,
)
from semtoken.methods.graphs import affinity_matrix, deg, ecc, eigv, jaccard_affinity
from semtoken.methods.inside import eigenscore, rauq
from semtoken.methods.likelihood import (
    ln_entropy,
    perplexity,
    predictive_entropy,
    sequence_probability,
    stc,
    weakest_token,
)
from semtoken.methods.relevance import sar, sentence_sar, token_sar, token_sar_of_samples
from semtoken.methods.self_evaluation import p_true
from semtoken.methods.semantic import conu, nli_labels, semantic_clusters, semantic_entropy
from semtoken.methods.table import METHODS, ONE_PASS_FAMILIES, Method, method, score
from semtoken.methods.words import (
    confidence,
    length_normalized,
    mean_new_word,
    new_phrases,
    phrase_and_mean,
    weakest_phrase,
)

__all__ = [
    "METHODS",
    "ONE_PASS_FAMILIES",
    "Method",
    "affinity_matrix",
    "ccp",
    "confidence",
    "conu",
    "deg",
    "ecc",
    "eigenscore",
    "eigv",
    "epr",
    "first_content_entropy",
    "first_content_step",
    "is_function_word_text",
    "jaccard_affinity",
    "length_normalized",
    "ln_entropy",
    "lowest_group_confidence",
    "max_token_entropy",
    "mean_new_word",
    "mean_token_entropy",
    "method",
    "new_phrases",
    "nli_labels",
    "p_true",
    "perplexity",
    "phrase_and_mean",
    "predictive_entropy",
    "rauq",
    "sar",
    "score",
    "self_certainty",
    "semantic_clusters",
    "semantic_entropy",
    "sentence_sar",
    "sequence_probability",
    "stc",
    "surprise_and_peak",
    "token_sar",
    "token_sar_of_samples",
    "token_text",
    "trace",
    "weakest_phrase",
    "weakest_token",
    "wepr",
    "window_entropy",
]

for _module in iter_modules(__path__):  # those with methods that nothing above names
    import_module(f"{__name__}.{_module.name}")
