"""Former name of `semtoken.bench.read_results`."""

from __future__ import annotations

from semtoken.bench.read_results import collect

__all__ = ["collect"]
