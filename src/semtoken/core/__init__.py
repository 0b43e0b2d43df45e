"""Semantic Token Clustering: next-token probabilities + chosen tokens -> `ScoredAnswer`, for rows and for lists.

prefixes.py        the tokens that spell the beginning of the text that follows
endings.py         the probability that a number, a string or an array ends where it does
given_tokens.py    the tokens that a user gives, or names -> a vocabulary, or clusters
rules.py           the rules by which tokens agree: equalities, presets, switches
scorer.py          a vocabulary, clusters, names in lists, and rules -> which tokens agree, and why
columns.py         the one form of steps: the chosen tokens, and an entry for each token that may count
rows.py            rows of logits -> columns; kernel.py reads them, compiled
score.py           columns -> the mass that agrees, at least and at most: the one interval
growing.py         an answer in progress; batch.py: several together
records.py         the records of the tokens of a scored answer, whose classes are in scored_token.py
flags.py           notes for a reader of the score
api.py             the front functions
published_rule.py  the rule of the paper on one page, for readers; default_rule.py is that of the preset `default`

Enter by `score_logits`, `score_logprobs` or a stream. Backends and replies add steps to a `GrowingAnswer` or an
`AnswerBatch`.
"""

from __future__ import annotations

from semtoken.choices import FunctionWords, Preset
from semtoken.core.api import LogitsStream, LogprobsStream, check_shape, score_logits, score_logprobs
from semtoken.core.batch import AnswerBatch
from semtoken.core.growing import GrowingAnswer
from semtoken.core.rows import NormalizedRows, normalized_rows
from semtoken.core.rules import ScoringRules
from semtoken.core.scorer import Scorer, scorer_for

__all__ = [
    "AnswerBatch",
    "FunctionWords",
    "GrowingAnswer",
    "LogitsStream",
    "LogprobsStream",
    "NormalizedRows",
    "Preset",
    "Scorer",
    "ScoringRules",
    "check_shape",
    "normalized_rows",
    "score_logits",
    "score_logprobs",
    "scorer_for",
]
