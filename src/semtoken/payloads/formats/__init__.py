"""The shapes of replies that are understood, one class a file; `registry.SHAPES` lists them.

A `Shape` detects its replies, writes the request that asks for them, and reads them whole or chunk by chunk into
`Delta`s. `base.py` says what a shape has to do; openai_choices.py is what OpenAI's two older shapes share. Enter by
`semtoken.payloads.read_payload`; a new shape is a file here and a line in the registry (docs/development.md).
"""

from __future__ import annotations

from semtoken.payloads.formats.base import Delta, ProbeQuestion, Shape
from semtoken.payloads.formats.registry import FORMATS, SHAPES, Format

__all__ = ["FORMATS", "SHAPES", "Delta", "Format", "ProbeQuestion", "Shape"]
