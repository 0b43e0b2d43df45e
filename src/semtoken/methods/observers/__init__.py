"""Observers of one pass of the answering model, which record fields of `Generation` for the methods.

steps.py           what a backend shows: `Step`, what may be read of it, `Observer`
table.py           `@statistic`: an observer that fills one field; the table of all of them; those of this package:
                   entropy, divergence from uniform, the best log-probabilities, attention, hidden states
method_scores.py   any methods of one pass, applied to answers as they come (`ScoredModel(..., methods=[...])`), and
                   what these read of a scored answer: confidence of its new words and of its phrases

A statistic is one class with `@statistic` above it; nothing else has to name it.
"""

from __future__ import annotations

from semtoken.methods.observers.table import STATISTICS, Statistic, TokenNumbers, statistic

__all__ = ["STATISTICS", "Statistic", "TokenNumbers", "statistic"]
