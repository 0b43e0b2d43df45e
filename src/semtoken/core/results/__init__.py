"""The results of scoring: frozen records of a scored answer and its tokens.

They know no model and no file format; in a notebook they show themselves.

confidence.py   the confidence of an answer
responses.py    a scored answer, and several of them (its tokens: semtoken.core.scored_token)
on_demand.py    its fields that are found when somebody reads them
running.py      the score of an answer in progress
frames.py       scored answers as a data frame
cards.py        pieces of the card that an answer shows in a notebook
blocks.py       the `semtoken` blocks that our own servers have put into a reply
generation.py   everything recorded of one answer for the methods; the hidden state at its end
"""

from __future__ import annotations

from semtoken.choices import Distribution
from semtoken.core.results.frames import to_frame
from semtoken.core.results.generation import HiddenState
from semtoken.core.results.on_demand import TokensLater
from semtoken.core.results.responses import Answers, Decision, ScoredAnswer
from semtoken.core.results.running import SLACK, Running
from semtoken.core.scored_token import Alternative, Flag, MassShares, ScoredToken, Source, ValueEnds

__all__ = [
    "SLACK",
    "Alternative",
    "Answers",
    "Decision",
    "Distribution",
    "Flag",
    "HiddenState",
    "MassShares",
    "Running",
    "ScoredAnswer",
    "ScoredToken",
    "Source",
    "TokensLater",
    "ValueEnds",
    "to_frame",
]
