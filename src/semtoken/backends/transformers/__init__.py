"""Hugging Face transformers, in this process."""

from __future__ import annotations

from semtoken.backends.transformers.model import STC
from semtoken.backends.transformers.recorder import ClusterRecorder

__all__ = ["STC", "ClusterRecorder"]
