"""More or fewer examples for a property than usual, whatever the profile."""

from __future__ import annotations

from hypothesis import settings

from tests.known import known


def examples(times: float) -> settings:
    """Settings of a property with so many times the usual number of examples."""
    return settings(max_examples=int(times * known(settings.default).max_examples))
