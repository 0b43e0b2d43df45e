"""Semantic Token Clustering: next-token probabilities + chosen ids + clusters -> `ScoredResponse`.

prefixes.py        which tokens spell the beginning of the text that follows
scorer.py          clusters and rules, prepared for scoring as tables; shared by all answers
running.py         the lifecycle of an answer in progress, for all logits and for the best tokens alike
rows.py            rows of logits that were read once: normalisers, probable tokens
reduction.py       rows and chosen tokens -> the masses of each step: the sums in numpy, and which rows the kernel takes
kernel.py          the same compiled: one pass over a row, then the columns of the chosen token
masses.py          what agrees with the token of each step, once the text that follows is known
published_rule.py  the rule of the paper on one page, for readers
steps.py           what is kept of steps, a few numbers each, in arrays
logits.py          all logits of a step -> its masses; `score_logits`
batches.py         answers that are written together
topk.py            the best tokens of each step -> an interval; `score_top_logprobs`
topk_answer.py     one such answer in progress, also where no vocabulary is known but what the lists name
topk_records.py    the records of its tokens, and flags that its reader should know
token_sources.py   a vocabulary, a tokenizer, clusters or a name -> what scoring takes
mass_flags.py      flags of answers whose score rests on tokens other than their own
endings.py         how probable it was that a number, a string or an array ends where it does
topk_bounds.py     the mass of such a step, at least and at most
streams.py         both, one token at a time, for users

Enter by `score_logits`, `score_top_logprobs` or a stream. Backends and payloads add steps to an `AnswerBatch`, a
`LogitsAnswer` or a `TopkAnswer`.
"""

from __future__ import annotations

from semtoken.choices import FunctionWords, Preset
from semtoken.scoring.batches import AnswerBatch
from semtoken.scoring.logits import LogitsAnswer, check_shape, score_logits
from semtoken.scoring.rows import NormalizedRows, normalized_rows
from semtoken.scoring.scorer import Scorer, scorer_for
from semtoken.scoring.streams import LogitsStream, TopLogprobsStream
from semtoken.scoring.topk import score_top_logprobs
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
