"""The statistics that methods read, recorded once and shared: `record` runs each expensive step one time.

======================================== ============================================== ====================
steps                                    what they record                               model
======================================== ============================================== ====================
greedy, likelihoods, alternatives        answer, log-probabilities, best tokens         the one that answers
stc, stc_no_clustering, stc_no_prefix,   STC scores, confidence of words and phrases,   none
words                                    in the same pass
sampling, sample_likelihoods,            sampled answers, their log-probabilities,      the one that answers
hidden_states                            middle layer at their end
p_true                                   log P("True"), asked whether the answer is so  the one that answers
entailment, alternative_entailment       NLI between samples, and between tokens        NLI classifier
similarity, token_relevance,             of samples, and of answers with and without    cross-encoder
sample_token_relevance                   each token
======================================== ============================================== ====================

Observers with `@statistic` are steps, too (`semtoken.methods.observers`). Enter by `record`; `steps.STEPS` is the table
of the steps, and decoding.py has the observers that they use.
Every model is called in batches, on different pairs of texts only. `Timings` keeps the seconds of each step.
"""

from __future__ import annotations

from semtoken.bench.statistics.pairs import (
    EntailmentModel,
    SimilarityModel,
    UniquePairs,
    alternative_classes,
    entailment_matrices,
    similarity_matrices,
    token_similarities,
)
from semtoken.bench.statistics.recording import SHARED_PREFIX, AnswerSettings, record, record_greedy, record_samples
from semtoken.bench.statistics.timings import Timings

__all__ = [
    "SHARED_PREFIX",
    "AnswerSettings",
    "EntailmentModel",
    "SimilarityModel",
    "Timings",
    "UniquePairs",
    "alternative_classes",
    "entailment_matrices",
    "record",
    "record_greedy",
    "record_samples",
    "similarity_matrices",
    "token_similarities",
]
