"""The shapes of replies that are understood, one class each; `known_shapes()` lists them.

A `Shape` asks one API for log-probabilities, detects its replies, reads them whole or chunk by chunk into `Delta`s, and
says where choices, texts and numbers stand in them. `base.py` says what a shape has to do. Enter by
`semtoken.replies.read_reply`; a new shape is a file here and a line in the registry (docs/extending.md).
"""

from __future__ import annotations

from semtoken.replies.formats.base import Delta, HiddenFields, Place, ProbeQuestion, Shape
from semtoken.replies.formats.fields import ALL
from semtoken.replies.formats.registry import Format, known_formats, known_shapes, served_shapes, shape_at, shapes_at

__all__ = [
    "ALL",
    "Delta",
    "Format",
    "HiddenFields",
    "Place",
    "ProbeQuestion",
    "Shape",
    "known_formats",
    "known_shapes",
    "served_shapes",
    "shape_at",
    "shapes_at",
]
