"""Hugging Face transformers, in this process."""

from __future__ import annotations

from semtoken.backends.transformers.loading import load_transformers
from semtoken.backends.transformers.model import TransformersBackend
from semtoken.backends.transformers.recorder import ClusterRecorder
from semtoken.stc import STC

__all__ = ["STC", "ClusterRecorder", "TransformersBackend", "load_transformers"]
