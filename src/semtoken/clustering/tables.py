"""A model's embeddings as a token table, for clustering. Nothing here knows what the tokens mean."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from semtoken.choices import Embedding
from semtoken.clustering.matrices import Matrix, Origin, Pair, matrices_of
from semtoken.clustering.rows import TableParts, to_float32
from semtoken.errors import InvalidInputError, ModelError

CHUNK = 4096  # rows made float32 at a time
SAME_ROW = 0.98
"""Cosine from which two rows are one row that was quantized twice: Q4_K against Q6_K leaves .996 in every row of a real
table of 151,936, while the rows of matrices that were trained apart have less than that nearly everywhere."""


@dataclass(frozen=True, eq=False)
class EmbeddingTable:
    """Embedding matrices as they are stored, rows beyond the vocabulary (padding) included."""

    parts: tuple[Matrix, ...]
    """One matrix, or the input and the output embeddings. A tied model has one matrix for both, which stands here
    once: rows concatenated with themselves have the same cosine distances, at twice the arithmetic."""
    origin: Origin
    tied: bool = False
    """True if input and output embeddings are the same matrix."""
    least_cosine: float | None = None
    """The least cosine between the rows of the two, where they are one matrix that was quantized twice; else None. The
    output's copy, which files keep with more bits, stands for both."""

    @property
    def n_rows(self) -> int:
        """The number of rows that every part of the table has."""
        return min(len(part) for part in self.parts)

    def rows(self, size: int) -> TableParts:
        """The first `size` rows, for clustering, not copied; `ModelError` if there are fewer."""
        if self.n_rows < size:
            raise ModelError(
                f"The tokenizer has {size:,} tokens but the embeddings of {self.origin.model or 'this model'} only "
                f"{self.n_rows:,} rows. Use the tokenizer that belongs to this model; if tokens were added to it, "
                "resize the model's embeddings, or choose embedding='input' if only the output head is shorter."
            )
        first = [part[:size] for part in self.parts]
        return TableParts(tuple(part.astype(np.float32) if part.dtype == np.float64 else part for part in first))

    def normalized(self) -> npt.NDArray[np.float32]:
        """All rows in float32, each part of Euclidean norm 1 (zeros stay zeros); `ModelError` for NaN or infinity."""
        out = np.empty((self.n_rows, sum(part.shape[1] for part in self.parts)), np.float32)
        column = 0
        for part in self.parts:
            for start in range(0, self.n_rows, CHUNK):
                block = to_float32(part[start : min(start + CHUNK, self.n_rows)]).astype(np.float64)
                norms = np.sqrt(np.einsum("ij,ij->i", block, block))[:, None]
                if not np.isfinite(norms).all():
                    row = start + int(np.flatnonzero(~np.isfinite(norms[:, 0]))[0])
                    raise ModelError(f"Row {row} of the embeddings holds NaN or infinity; is the checkpoint damaged?")
                # Rows of zeros are padding of the table, and have no direction.
                unit = np.divide(block, norms, out=np.zeros_like(block), where=norms > 0)
                out[start : start + len(block), column : column + part.shape[1]] = unit
            column += part.shape[1]
        return out

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of the matrices' bytes: the same for a model in memory and the files it was loaded from."""
        digest = hashlib.sha256()
        for part in self.parts:
            # With shape and type, since the same bytes can be another matrix.
            digest.update(f"{part.shape}{part.dtype.str};".encode())
            digest.update(np.ascontiguousarray(part).reshape(-1).data)
        return digest.hexdigest()


def token_table(
    model_or_path: Any, kind: Embedding = "concatenated", *, revision: str | None = None
) -> npt.NDArray[np.float32]:
    """The embeddings of a model's tokens, as the paper clusters them.

    Parameters
    ----------
    model_or_path
        A directory with safetensors weights, a GGUF file, a hub id (only the files that hold the matrices are
        downloaded), or a transformers model in memory.
    kind
        The rows of the input embedding matrix, of the output embedding matrix, or both, concatenated. Where both
        are one matrix (tied embeddings) the concatenated table is that matrix once: its clusters are the same. Where
        they are one matrix that was quantized twice it is the output's copy; its clusters may differ a little.
    revision
        Branch, tag or commit of a hub id.

    Returns
    -------
    float32 array of shape (rows, d)
        Each part of a row has Euclidean norm 1 (rows of zeros stay zero). All rows of the matrices, padding too:
        take `[:vocab.size]`. Where the two matrices have unequal numbers of rows, the rows that both have.

    Raises
    ------
    InvalidInputError
        There is no such kind of table.
    ModelError
        The matrices are missing, quantized, ambiguous or damaged.
    """
    return read_table(model_or_path, kind, revision=revision).normalized()


def read_table(model_or_path: Any, kind: Embedding = "concatenated", *, revision: str | None = None) -> EmbeddingTable:
    """Read the matrices behind `token_table` as they are stored: not copied, and not widened from 16 bits to 32.

    Parameters and errors are those of `token_table`.
    """
    if kind not in get_args(Embedding):
        raise InvalidInputError(f"The embedding must be one of {', '.join(get_args(Embedding))}, got {kind!r}.")
    origin, matrices = matrices_of(model_or_path, revision)
    return _table(matrices(kind), kind, origin)


def origin_of(model_or_path: Any, *, revision: str | None = None) -> Origin:
    """The place that a token table would be read from; for a hub id only its commit is looked up."""
    return matrices_of(model_or_path, revision)[0]


def _table(pair: Pair, kind: Embedding, origin: Origin) -> EmbeddingTable:
    source, head = pair
    tied = source is not None and source is head
    if kind == "concatenated" and not tied and source is not None and head is not None:
        least = _least_cosine(source, head)
        if least is not None:
            return EmbeddingTable((head,), origin, tied=True, least_cosine=least)
    wanted = {"input": [source], "output": [head], "concatenated": [source, None if tied else head]}[kind]
    return EmbeddingTable(tuple(matrix for matrix in wanted if matrix is not None), origin, tied)


def _least_cosine(first: Matrix, second: Matrix) -> float | None:
    """The least cosine between the rows of two matrices; None once a pair of rows is too far apart to be one row."""
    if first.shape != second.shape:
        return None
    least = 1.0
    for start in range(0, len(first), CHUNK):
        a, b = (to_float32(part[start : start + CHUNK]).astype(np.float64) for part in (first, second))
        products = np.einsum("ij,ij->i", a, b)
        lengths = np.sqrt(np.einsum("ij,ij->i", a, a) * np.einsum("ij,ij->i", b, b))
        cosines = np.divide(products, lengths, out=(a == b).all(axis=1).astype(np.float64), where=lengths > 0)
        if not cosines.min(initial=1.0) >= SAME_ROW:  # NaN, too
            return None
        least = min(least, float(cosines.min(initial=1.0)))
    return least
