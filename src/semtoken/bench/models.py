"""The models of a run in one process, loaded when they are needed, one at a time."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from safetensors import SafetensorError

from semtoken.backends.load import load_backend
from semtoken.bench.answering import RunAnswerer
from semtoken.bench.settings import ModelSettings, RunSettings
from semtoken.errors import ModelError
from semtoken.models.gguf import load_tokenizer
from semtoken.models.sources import resolve

if TYPE_CHECKING:
    from semtoken.statistics import EntailmentModel, SimilarityModel

log = logging.getLogger(__name__)
T = TypeVar("T")


class Models:
    """Loads the models that a run names and keeps the last one; a GPU rarely holds two.

    Parameters
    ----------
    settings
        Of the run.
    """

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._held: tuple[str, Any] | None = None
        self._failed: dict[str, str] = {}
        self._tokenizers: dict[str, Any] = {}

    def answering(self, label: str) -> RunAnswerer:
        """The model of that label."""
        choice = self.choice(label)
        return self._take(f"model {label}", lambda: _load(choice))

    def nli(self) -> EntailmentModel:
        """The NLI classifier that methods and judges share."""
        from semtoken.statistics import EntailmentModel

        name, size = self._settings.nli, self._settings.pair_batch_size
        return self._take(f"NLI model {name}", lambda: EntailmentModel.from_pretrained(name, batch_size=size))

    def similarity(self) -> SimilarityModel:
        """The cross-encoder for similarity that methods and judges share."""
        from semtoken.statistics import SimilarityModel

        name, size = self._settings.similarity, self._settings.pair_batch_size
        return self._take(f"similarity model {name}", lambda: SimilarityModel.from_pretrained(name, batch_size=size))

    def tokenizer(self, label: str) -> Any:
        """The tokenizer of the model of that label, without its weights."""
        from transformers import AutoTokenizer

        if label not in self._tokenizers:
            choice = self.choice(label)
            source = resolve(choice.source)
            if source.is_gguf:
                self._tokenizers[label] = load_tokenizer(Path(source.path))
            else:
                self._tokenizers[label] = AutoTokenizer.from_pretrained(
                    source.path, revision=choice.revision, trust_remote_code=choice.trust_remote_code
                )
        return self._tokenizers[label]

    def choice(self, label: str) -> ModelSettings:
        """The settings of the model of that label."""
        return next(model for model in self._settings.models if model.label == label)

    def release(self) -> None:
        """Give the memory of the model that is held back."""
        self._held = None
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def _take(self, name: str, load: Callable[[], T]) -> T:
        """What is held under this name, or what `load` gives; a model that failed once is not tried again."""
        if name in self._failed:
            raise ModelError(self._failed[name])
        if self._held is None or self._held[0] != name:
            self.release()
            log.info("Loading the %s", name)
            try:
                self._held = (name, load())
            except (OSError, ValueError, RuntimeError, SafetensorError) as error:
                reason = " ".join(str(error).split())
                ours = isinstance(error, ModelError)
                self._failed[name] = reason if ours else f"The {name} cannot be loaded: {reason}"
                raise ModelError(self._failed[name]) from error
        found: T = self._held[1]
        return found


def _load(choice: ModelSettings) -> RunAnswerer:
    backend = load_backend(
        choice.backend,
        choice.source,
        device=choice.device,
        dtype=choice.dtype,
        revision=choice.revision,
        trust_remote_code=choice.trust_remote_code,
        **(choice.engine if choice.backend == "vllm" else {}),
    )
    return RunAnswerer(backend, choice.batch_size)
