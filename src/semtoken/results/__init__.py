"""What scoring returns: frozen records of a scored answer and its tokens. They know no model, widget or file format.

responses.py    a scored answer and its tokens, and an answer in progress
flags.py        what the reader of a score should know about it
generation.py   everything recorded of one answer for the methods
"""

from __future__ import annotations

from semtoken.results.flags import Flag
from semtoken.results.responses import (
    SLACK,
    Alternative,
    Answers,
    Borrowed,
    Decision,
    Distribution,
    Running,
    ScoredResponse,
    ScoredToken,
    Source,
    TokensLater,
    ValueEnds,
    to_frame,
)

__all__ = [
    "SLACK",
    "Alternative",
    "Answers",
    "Borrowed",
    "Decision",
    "Distribution",
    "Flag",
    "Running",
    "ScoredResponse",
    "ScoredToken",
    "Source",
    "TokensLater",
    "ValueEnds",
    "to_frame",
]
