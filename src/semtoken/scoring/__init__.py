"""Semantic Token Clustering: next-token probabilities + chosen ids + clusters -> `ScoredResponse`.

prefixes.py        which tokens spell the beginning of the text that follows
scorer.py          clusters and rules, prepared for scoring as tables; shared by all answers
running.py         the lifecycle of an answer in progress, for all logits and for the best tokens alike, and its flags
rows.py            rows of logits that were read once: normalisers, probable tokens
reduction.py       rows and chosen tokens -> the masses of each step: the sums in numpy, and which rows the kernel takes
kernel.py          the same compiled: one pass over a row, then the columns of the chosen token
published_rule.py  the rule of the paper on one page, for readers
steps.py           what is kept of steps, a few numbers each, and what agrees once the text that follows is known
logits.py          all logits of a step -> its masses; `score_logits`, and the same one token at a time
batches.py         answers that are written together
topk.py            the best tokens of each step -> an interval; `score_top_logprobs`, also one token at a time
topk_answer.py     one such answer in progress with the records of its tokens, also where no vocabulary is known
token_sources.py   a vocabulary, a tokenizer, clusters or a name -> what scoring takes
topk_flags.py      what its reader should know of the lists
endings.py         how probable it was that a number, a string or an array ends where it does
topk_bounds.py     the mass of such a step, at least and at most

Enter by `score_logits`, `score_top_logprobs` or a stream. Backends and payloads add steps to an `AnswerBatch`, a
`LogitsAnswer` or a `TopkAnswer`.
"""

from __future__ import annotations

from semtoken.choices import FunctionWords, Preset
from semtoken.scoring.batches import AnswerBatch
from semtoken.scoring.logits import LogitsAnswer, LogitsStream, check_shape, score_logits
from semtoken.scoring.rows import NormalizedRows, normalized_rows
from semtoken.scoring.scorer import Scorer, scorer_for
from semtoken.scoring.topk import TopLogprobsStream, score_top_logprobs
from semtoken.scoring.topk_answer import TopkAnswer
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
