"""How alike two texts are: a cross-encoder of sentence-transformers, and what is asked of it about samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np

from semtoken.errors import InvalidInput, ModelError
from semtoken.statistics.loading import explained
from semtoken.statistics.pairs import AskPairs, FloatArray, Pair, with_question
from semtoken.support.extras import require

DEFAULT_SIMILARITY = "cross-encoder/stsb-roberta-large"


class SimilarityModel:
    """A cross-encoder with one output, taken through one sigmoid.

    Parameters
    ----------
    cross_encoder
        A `sentence_transformers.CrossEncoder`.
    batch_size
        Pairs read together.

    Raises
    ------
    ModelError
        The model has more outputs than one.
    """

    def __init__(self, cross_encoder: Any, *, batch_size: int = 64) -> None:
        if batch_size < 1:
            raise InvalidInput(f"batch_size must be positive, got {batch_size}.")
        if cross_encoder.num_labels != 1:
            raise ModelError(
                f"The similarity model has {cross_encoder.num_labels} outputs; it must be a cross-encoder with one, "
                f"as {DEFAULT_SIMILARITY} is."
            )
        self.cross_encoder = cross_encoder
        self.batch_size = batch_size

    @classmethod
    def from_pretrained(
        cls,
        model_or_path: str = DEFAULT_SIMILARITY,
        *,
        device: str | None = None,
        revision: str | None = None,
        batch_size: int = 64,
    ) -> SimilarityModel:
        """Load from a directory or the hub; "almanac" is the small one inside the package.

        Raises
        ------
        ModelError
            There is no such model, it cannot be read, or it has more outputs than one.
        """
        library = require("sentence_transformers", extra="similarity")
        if model_or_path == "almanac":
            from semtoken.almanac.encoders import almanac_sts_path

            model_or_path = str(almanac_sts_path())
        with explained("similarity model", model_or_path):
            return cls(library.CrossEncoder(model_or_path, device=device, revision=revision), batch_size=batch_size)

    def similarities(self, pairs: Sequence[Pair]) -> FloatArray:
        """Similarity of each pair, [n] in [0, 1]."""
        if not pairs:
            return np.empty(0)
        import torch

        # Checkpoints disagree on whether the sigmoid is in their config: it is said here, and so applied once.
        found = self.cross_encoder.predict(
            list(pairs), batch_size=self.batch_size, activation_fn=torch.nn.Sigmoid(), show_progress_bar=False
        )
        return np.asarray(found, dtype=np.float64).reshape(len(pairs))


def similarity_matrices(ask: AskPairs, samples: Sequence[tuple[str | None, Sequence[str]]]) -> list[FloatArray]:
    """Similarity of every two samples, the mean of both directions, for each of several questions.

    Parameters
    ----------
    ask
        `SimilarityModel.similarities`, or `UniquePairs` of it.
    samples
        Question and M texts. The question is put before both texts, one blank between; None leaves the texts bare.
        Samples with equal texts keep the value that the model gives to a text and itself.

    Returns
    -------
    list of float arrays of shape (M, M)
        Symmetric, 1 on the diagonal.
    """
    full = [[with_question(question, text) for text in texts] for question, texts in samples]
    answers = iter(ask([(a, b) for texts in full for a, b in permutations(texts, 2)]))
    matrices = []
    for texts in full:
        matrix = np.eye(len(texts))
        for i, j in permutations(range(len(texts)), 2):
            matrix[i, j] = next(answers)
        matrices.append(0.5 * (matrix + matrix.T))
    return matrices
