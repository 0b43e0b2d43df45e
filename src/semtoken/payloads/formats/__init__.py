"""The shapes of replies that are understood, one class a file; `registry.SHAPES` lists them."""

from __future__ import annotations

from semtoken.payloads.formats.base import Delta, Question, Shape
from semtoken.payloads.formats.registry import FORMATS, SHAPES, Format

__all__ = ["FORMATS", "SHAPES", "Delta", "Format", "Question", "Shape"]
