"""Judges of correctness: one interface, six kinds, and how far they agree.

============ ===================================================================== ==================
kind         correct if                                                            needs
============ ===================================================================== ==================
exact        the answer equals an accepted one after normalisation                 nothing
contains     it holds the words of an accepted one                                 nothing
rouge        its ROUGE-L F1 with an accepted one is above a threshold              rouge-score
similarity   a cross-encoder finds it similar to an accepted one                   sentence-transformers
llm          a language model says "True" to the paper's prompt                    an endpoint
imported     a file says so                                                        the file
============ ===================================================================== ==================

Enter by `bench run --judge` or `bench judge`; in Python settings.py makes a judge, and `correctness` asks it.
"No usable verdict" is NaN, never a guess: it is counted, and whoever shows figures shows that count.
"""

from __future__ import annotations

from semtoken.bench.judges.base import (
    Agreement,
    AnswerToJudge,
    Judge,
    OnJudged,
    Tally,
    Verdict,
    agreement,
    correctness,
    tally,
)

__all__ = ["Agreement", "AnswerToJudge", "Judge", "OnJudged", "Tally", "Verdict", "agreement", "correctness", "tally"]
