"""Confidence of the parts of an answer: words, phrases, sentences, numbers, JSON fields, tool-call arguments, code.

`parts_of` is what `ScoredAnswer.parts` calls. Finders say where parts stand (`prose`, `figures`, `fields`,
`code`); `answers` turns the log masses of their tokens into confidences. Nothing here asks a model.

Enter by `ScoredAnswer.parts(by)`; a finder of your own is a function that says where parts stand (`Finder`).
"""

from __future__ import annotations

from semtoken.core.parts.answers import AnswerTokens
from semtoken.core.parts.fields import CallConfidence, ToolCall, call_confidences
from semtoken.core.parts.finding import Finder, parts_of
from semtoken.core.parts.part import Part, Parts

__all__ = ["AnswerTokens", "CallConfidence", "Finder", "Part", "Parts", "ToolCall", "call_confidences", "parts_of"]
