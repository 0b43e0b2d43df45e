"""Whether one text entails another: an NLI model of transformers, and what is asked of it about samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from semtoken.backends.prompts import in_batches_by_length, pad
from semtoken.errors import InvalidInput, ModelError
from semtoken.statistics.loading import explained
from semtoken.statistics.pairs import AskPairs, FloatArray, Pair, with_question
from semtoken.support.extras import require

require("torch", extra="transformers")
require("transformers", extra="transformers")

import torch  # noqa: E402
from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: E402

DEFAULT_NLI = "microsoft/deberta-large-mnli"
_SPELLINGS = (("contra",), ("neutral",), ("entail",))
IDENTICAL = (-math.inf, -math.inf, 0.0)
"""Logits of a text with itself, which is never asked: entailment for certain, at any temperature."""


class EntailmentModel:
    """A sequence classifier with the classes contradiction, neutral and entailment, whatever their order.

    Parameters
    ----------
    model, tokenizer
        Of transformers.
    batch_size
        Pairs read together.

    Raises
    ------
    ModelError
        The model's config does not name three such classes.
    """

    def __init__(self, model: Any, tokenizer: Any, *, batch_size: int = 64) -> None:
        if batch_size < 1:
            raise InvalidInput(f"batch_size must be positive, got {batch_size}.")
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self._columns = label_columns(model.config)
        self._max_length = longest_input(model, tokenizer)

    @classmethod
    def from_pretrained(
        cls,
        model_or_path: str = DEFAULT_NLI,
        *,
        device: str | None = None,
        revision: str | None = None,
        batch_size: int = 64,
    ) -> EntailmentModel:
        """Load from a directory or the hub; "almanac" is the small one inside the package.

        Raises
        ------
        ModelError
            There is no such model, it cannot be read, or it names no three such classes.
        """
        if model_or_path == "almanac":
            from semtoken.almanac.encoders import almanac_nli_path

            model_or_path = str(almanac_nli_path())
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        with explained("NLI model", model_or_path):
            tokenizer = AutoTokenizer.from_pretrained(model_or_path, revision=revision)
            model = AutoModelForSequenceClassification.from_pretrained(
                model_or_path, revision=revision, dtype=torch.float32
            )
            return cls(model.to(device).eval(), tokenizer, batch_size=batch_size)

    @torch.inference_mode()
    def logits(self, pairs: Sequence[Pair]) -> FloatArray:
        """Logits [n, 3] in the order contradiction, neutral, entailment; the first text of a pair is the premise."""
        found = np.empty((len(pairs), 3))
        if not pairs:
            return found
        first, second = zip(*pairs, strict=True)
        encoded = self.tokenizer(list(first), list(second), truncation=True, max_length=self._max_length)
        for batch in in_batches_by_length([len(ids) for ids in encoded["input_ids"]], self.batch_size):
            inputs = {name: self._padded(name, [rows[i] for i in batch]) for name, rows in encoded.items()}
            found[batch] = self.model(**inputs).logits[:, self._columns].double().cpu().numpy()
        return found

    def _padded(self, name: str, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        """One of the tokenizer's outputs, filled up on the right: encoders count positions from the left."""
        padding = {"input_ids": self.tokenizer.pad_token_id, "token_type_ids": self.tokenizer.pad_token_type_id}
        return torch.from_numpy(pad(rows, padding.get(name, 0), left=False).ids).to(self.model.device)


def label_columns(config: Any) -> list[int]:
    """Columns of contradiction, neutral and entailment, from the names in the model's config.

    Raises
    ------
    ModelError
        There are not exactly three classes, one name for each.
    """
    names = {int(column): str(name) for column, name in (config.id2label or {}).items()}
    columns = [
        [column for column, name in names.items() if name.strip().lower().startswith(spellings)]
        for spellings in _SPELLINGS
    ]
    if len(names) != 3 or [len(found) for found in columns] != [1, 1, 1]:
        raise ModelError(
            f"The NLI model's classes are {names}; they must be named contradiction, neutral and entailment. "
            "If they are these under other names, set id2label in the model's config.json."
        )
    return [found[0] for found in columns]


def longest_input(model: Any, tokenizer: Any) -> int | None:
    """Tokens that an encoder reads at most; None if neither config nor tokenizer says so."""
    limits = [getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length]
    sensible = [int(limit) for limit in limits if limit is not None and 0 < limit < 1_000_000]
    return min(sensible, default=None)


def entailment_matrices(ask: AskPairs, samples: Sequence[tuple[str | None, Sequence[str]]]) -> list[FloatArray]:
    """NLI logits of every ordered pair of samples, for each of several questions.

    Parameters
    ----------
    ask
        `EntailmentModel.logits`, or `UniquePairs` of it.
    samples
        Question and M texts. The question is put before both texts, one blank between; None leaves the texts bare.

    Returns
    -------
    list of float arrays of shape (M, M, 3)
        Contradiction, neutral, entailment; row: premise, column: hypothesis. Texts that are equal once stripped,
        the diagonal among them, are `IDENTICAL`.
    """
    full = [[with_question(question, text) for text in texts] for question, texts in samples]
    pairs = [(a, b) for texts in full for a in texts for b in texts if a != b]
    answers = iter(ask(pairs) if pairs else ())
    return [
        np.array([[IDENTICAL if a == b else next(answers) for b in texts] for a in texts], dtype=np.float64)
        for texts in full
    ]
