"""The models of a run: loaded when they are needed, one at a time, and what is asked of the one that answers."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError

from semtoken.bench.settings import ModelSettings, RunSettings
from semtoken.bench.statistics.pairs import AskPairs, asked
from semtoken.errors import BackendError, ModelError, one_line_of
from semtoken.models import load_backend
from semtoken.models.base import Backend
from semtoken.support.checkpoints.gguf import load_tokenizer
from semtoken.support.checkpoints.sources import resolve

log = logging.getLogger(__name__)
T = TypeVar("T")


class Models:
    """Loads the models that a run names, and keeps only the last one, since a GPU rarely holds two."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._held: tuple[str, Any] | None = None
        self._failed: dict[str, str] = {}
        self._tokenizers: dict[str, Any] = {}

    def answering(self, label: str) -> Backend:
        """The loaded model with this label; loading it releases the one before it."""
        choice = self._settings.choice(label)
        return self._take(f"model {label}", lambda: _load(choice))

    def asking(self, kind: str) -> AskPairs:
        """The function that puts pairs of texts to the model of the run of the kind "nli" or "similarity"."""
        name, size = getattr(self._settings, kind), self._settings.pair_batch_size
        spoken = {"nli": "NLI model", "similarity": "similarity model"}[kind]
        return self._take(f"{spoken} {name}", lambda: asked(kind, name, batch_size=size))

    def tokenizer(self, label: str) -> Any:
        """The tokenizer of the model with this label, loaded without the model's weights."""
        from transformers import AutoTokenizer

        if label not in self._tokenizers:
            choice = self._settings.choice(label)
            source = resolve(choice.source)
            if source.is_gguf:
                self._tokenizers[label] = load_tokenizer(Path(source.path))
            else:
                self._tokenizers[label] = AutoTokenizer.from_pretrained(
                    source.path, revision=choice.revision, trust_remote_code=choice.trust_remote_code
                )
        return self._tokenizers[label]

    def release(self) -> None:
        """Free the memory of the loaded model."""
        if self._held is None:
            return
        self._held = None
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def _take(self, name: str, load: Callable[[], T]) -> T:
        """The model that is held under this name, or else loaded by `load`; one that failed once is not tried again."""
        if name in self._failed:
            raise ModelError(self._failed[name])
        if self._held is None or self._held[0] != name:
            # Before the next one is loaded: both together may not fit.
            self.release()
            log.info("Loading the %s", name)
            try:
                self._held = (name, load())
            except (OSError, ValueError, RuntimeError, SafetensorError) as error:
                reason = one_line_of(error)
                ours = isinstance(error, ModelError)
                self._failed[name] = reason if ours else f"The {name} cannot be loaded: {reason}"
                raise ModelError(self._failed[name]) from error
        held: T = self._held[1]
        return held


def _load(choice: ModelSettings) -> Backend:
    backend = load_backend(
        choice.backend,
        choice.source,
        **choice.model_dump(include={"device", "dtype", "revision", "trust_remote_code"}),
        **(choice.engine if choice.backend == "vllm" else {}),
    )
    if choice.backend == "transformers":
        from semtoken.models.transformers.loading import spare_threads

        spare_threads(backend.model)
    require_raw(backend)
    return backend


def require_raw(backend: Backend) -> None:
    """Raise `BackendError` unless log-probabilities are those of temperature 1, before any processing."""
    if backend.distribution != "raw":
        raise BackendError(
            f"A run needs raw log-probabilities; the {backend.name} engine gives those of the {backend.distribution} "
            "distribution."
        )
