"""What other installed packages bring to semtoken: objects that they name as entry points of their metadata."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import entry_points
from typing import Any

METHODS = "semtoken.methods"
"""Functions with `@method`, or modules of some."""
STATISTICS = "semtoken.statistics"
"""Observers with `@statistic`, or modules of some."""
PAYLOAD_SHAPES = "semtoken.payload_shapes"
"""Shapes of replies: subclasses of `semtoken.payloads.formats.base.Shape`."""
DATASETS = "semtoken.datasets"
"""Name -> a `semtoken.bench.datasets.KnownSet`."""


@cache
def installed(group: str) -> dict[str, Any]:
    """The objects of a group, by the names that their packages give them.

    One that cannot be loaded is left out with a warning that names its package: it must not keep others from working.
    """
    found: dict[str, Any] = {}
    for point in sorted(entry_points(group=group), key=lambda one: one.name):
        try:
            found[point.name] = point.load()
        except Exception as error:  # whatever a package of others raises
            owner = "a package" if point.dist is None else point.dist.name
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(f"{point.name!r} of {owner} ({group}) cannot be loaded: {reason}", stacklevel=2)
    return found
