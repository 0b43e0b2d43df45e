"""Semantic Token Clustering: next-token probabilities + chosen ids + clusters -> `ScoredResponse`.

prefixes.py        which tokens spell the beginning of the text that follows
scorer.py          a vocabulary, a tokenizer, clusters or a name, and rules -> tables for scoring, shared by all answers
running.py         the lifecycle of an answer in progress, for all logits and for the best tokens alike, and its flags
rows.py            rows of logits that were read once: normalisers, probable tokens
kernel.py          the same compiled: one pass over a row, then the columns of the chosen token
published_rule.py  the rule of the paper on one page, for readers
steps.py           rows and chosen tokens -> the masses of each step, summed in numpy or by the kernel; what is kept
                   of steps, and what agrees once the text that follows is known
logits.py          all logits of a step -> its masses; `score_logits`, and the same one token at a time or
                   for answers that are written together
topk.py            the best tokens of each step -> an interval; `score_top_logprobs`, also one token at a time and
                   where no vocabulary is known, with flags about the lists
endings.py         how probable it was that a number, a string or an array ends where it does
topk_bounds.py     the mass of such a step, at least and at most

Enter by `score_logits`, `score_top_logprobs` or a stream. Backends and payloads add steps to an `AnswerBatch`, a
`LogitsAnswer` or a `TopkAnswer`.
"""

from __future__ import annotations

from semtoken.choices import FunctionWords, Preset
from semtoken.scoring.logits import AnswerBatch, LogitsAnswer, LogitsStream, check_shape, score_logits
from semtoken.scoring.rows import NormalizedRows, normalized_rows
from semtoken.scoring.scorer import Scorer, scorer_for
from semtoken.scoring.topk import TopkAnswer, TopLogprobsStream, score_top_logprobs
from semtoken.tokens.rules import ScoringRules

__all__ = [
    "AnswerBatch",
    "FunctionWords",
    "LogitsAnswer",
    "LogitsStream",
    "NormalizedRows",
    "Preset",
    "Scorer",
    "ScoringRules",
    "TopLogprobsStream",
    "TopkAnswer",
    "check_shape",
    "normalized_rows",
    "score_logits",
    "score_top_logprobs",
    "scorer_for",
]
