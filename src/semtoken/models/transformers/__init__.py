"""Hugging Face transformers, in this process.

Enter by `semtoken.ScoredModel`, `load_transformers(name)` or `TransformersBackend(model, tokenizer)`; with your own
call of
`model.generate`, by `Recorder`. The docstring of `semtoken.models` says what is in each module.
"""

from __future__ import annotations

from semtoken.support.extras import require

require("torch", extra="transformers")
require("transformers", extra="transformers")

from semtoken.models.transformers.loading import load_transformers  # noqa: E402
from semtoken.models.transformers.model import TransformersBackend  # noqa: E402
from semtoken.models.transformers.recorder import Recorder  # noqa: E402

__all__ = ["Recorder", "TransformersBackend", "load_transformers"]
