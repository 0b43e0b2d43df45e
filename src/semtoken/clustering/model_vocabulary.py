"""The vocabulary of a model: of a tokenizer that is given, or of the one saved with the weights."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.errors import InvalidInputError, SemtokenError, VocabularyError, one_line_of
from semtoken.support.checkpoints.gguf import load_tokenizer
from semtoken.support.checkpoints.hub import require_on_hub
from semtoken.support.checkpoints.sources import resolve
from semtoken.support.extras import require


def vocabulary_of(
    model_or_path: Any,
    tokenizer: Any,
    *,
    stopwords: Collection[str] | None = None,
    revision: str | None = None,
) -> Vocabulary:
    """The vocabulary to cluster: of the tokenizer given, or of the one saved with the weights.

    `InvalidInputError` for a model in memory without its tokenizer, `ModelError` if there is no model of this name, and
    `VocabularyError` if its tokenizer cannot be read.
    """
    if isinstance(tokenizer, Vocabulary):
        return tokenizer
    if tokenizer is None:
        tokenizer = _load_tokenizer(model_or_path, revision)
    return Vocabulary.from_tokenizer(tokenizer, stopwords)


def _load_tokenizer(model_or_path: Any, revision: str | None) -> Any:
    if not isinstance(model_or_path, str | Path):
        raise InvalidInputError("Give the model's tokenizer too: a model in memory does not know it.")
    transformers = require("transformers", extra="transformers")
    source = resolve(model_or_path)
    if not Path(source.path).expanduser().exists():
        require_on_hub(source.path, revision)
    try:
        if source.is_gguf:
            return load_tokenizer(Path(source.path))
        return transformers.AutoTokenizer.from_pretrained(source.path, revision=revision)
    except SemtokenError:
        raise
    except Exception as error:  # `tokenizers` raises no other kind for a file that it cannot use
        raise VocabularyError(
            f"No tokenizer could be loaded from '{model_or_path}': {one_line_of(error).rstrip('.')}. "
            "Pass the tokenizer yourself."
        ) from error
