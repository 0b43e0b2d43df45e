"""What computes the files of a run: one work for each pass over the questions of a model and a data set.

A `CellWork` is plain data and can be sent to another process or machine that sees the run's folder. Opened there, it
makes the files of one shard after another; an executor (`semtoken.executors`) decides where and in what order.

========================================== ===========================================================================
work                                       steps
========================================== ===========================================================================
greedy, samples, p_true                    of the same names, by the model that answers
stc                                        stc, stc_no_clustering, stc_no_prefix, one for each clustering of the study
watched                                    one for each statistic of the answering model
entailment, alternative_entailment         of the same names, by the NLI model
similarity, token_relevance,               of the same names, by the cross-encoder
sample_token_relevance
scores                                     one for each method
judge:NAME                                 of the same name
========================================== ===========================================================================
"""

from __future__ import annotations

from semtoken.bench.stages.work import CellWork

__all__ = ["CellWork"]
