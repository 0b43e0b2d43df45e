"""A value that may be missing by its type, and is there in a test."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def known(value: T | None) -> T:
    """The value, which fails the test where it is missing."""
    assert value is not None
    return value
