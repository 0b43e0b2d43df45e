"""Rows of logits with what every reduction of them needs: log normalisers, and which tokens are probable.

A compiled kernel reads rows of large vocabularies on the CPU, in float32 and bfloat16, once and in place. For other
rows, on other devices, and where numba is not installed, numpy and torch do the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.support.arrays import (
    HUGE,
    FloatArray,
    IdArray,
    Rows,
    copy_row,
    is_tensor,
    levelled,
    log_normalizers,
    row_entropies,
    widened,
)
from semtoken.tokens.vocabulary import BoolArray

LISTED = 8  # other tokens of a step that are listed with an answer
LEAST_LISTED = 0.01  # the probability from which on they are
LOG_LEAST = math.log(LEAST_LISTED)
NO_COLUMNS = np.empty(0, dtype=np.int64)
COMPILED_FROM = 16_384
"""Tokens of a vocabulary from which on compiled code pays for loading numba."""


@dataclass(frozen=True, eq=False)
class Likely:
    """The most probable tokens of n rows: at most `LISTED` and the chosen one, of at least `LEAST_LISTED`."""

    ids: IdArray
    """[n, k], -1 where there are fewer."""
    logits: FloatArray
    """The largest logits of each row, falling, [n, k]."""


@dataclass(frozen=True, eq=False)
class NormalizedRows:
    """n rows of logits that were read once."""

    logits: Rows
    """The rows themselves, [m, columns]."""
    row_ids: IdArray
    """[n] which rows of `logits` they are."""
    numbers: IdArray
    """[n] which rows of the batch they were, for messages."""
    log_normalizers: FloatArray
    """[n] log-sum-exp of the vocabulary's columns; not finite for a row that holds no distribution."""
    readable: Any = None
    """The rows as an array that the compiled kernel reads; else None."""
    likely: Likely | None = None
    """What the kernel has found; it comes with `readable`."""
    has_minus_infinity: BoolArray | None = None
    """[n] of those columns, if it was looked for."""
    common: npt.NDArray[np.float32] | None = None
    """[n, k] the logits of columns that every step needs; k is 0 if they were not asked for. With `readable`."""


@dataclass(frozen=True, eq=False)
class WholeRow:
    """One row of logits, kept apart from the others."""

    logits: FloatArray
    """The row itself, [V]."""
    log_normalizer: float

    @classmethod
    def of(cls, rows: NormalizedRows, place: int, size: int) -> WholeRow:
        """A copy of one of some rows."""
        logits = copy_row(rows.logits, int(rows.row_ids[place]), size)
        return cls(logits, float(rows.log_normalizers[place]))

    def log_probs(self, ids: IdArray) -> FloatArray:
        """Log-probabilities of some tokens, in float64."""
        return self.logits[ids].astype(np.float64) - self.log_normalizer


def normalized_rows(
    rows: Rows,
    size: int,
    row_ids: Sequence[int] | IdArray | None = None,
    *,
    into: npt.NDArray[Any] | None = None,
    common: IdArray = NO_COLUMNS,
) -> NormalizedRows:
    """Read rows of logits.

    Parameters
    ----------
    rows
        Shape [m, columns], as `as_rows` gives them.
    size
        V; columns beyond are padding.
    row_ids
        Which rows; default all.
    into
        Memory of `kept_rows`: a copy of the rows is left there, and the result refers to it.
    common
        Tokens whose logits are needed whichever is chosen (`StepTables.neutral_ids`). Taken along while a row is at
        hand, they cost a tenth of what they do when a model has run in between.
    """
    chosen = np.arange(len(rows)) if row_ids is None else np.asarray(row_ids, dtype=np.int64)
    readable = readable_rows(rows, size)
    if readable is not None:
        found = _compiled(rows, readable, size, chosen, into, common)
        if not (np.abs(found.log_normalizers) > HUGE).any():
            return found
    part = rows if np.array_equal(chosen, np.arange(len(rows))) else rows[chosen.tolist()]
    if is_tensor(part) and part.device.type == "cpu":
        part = widened(part)
    part, normalizers = levelled(part, log_normalizers(part, size), size)
    return NormalizedRows(part, np.arange(len(chosen)), chosen, normalizers)


def entropies_of(rows: Rows, size: int, row_ids: Sequence[int]) -> FloatArray:
    """Entropy of the next-token distribution that each of some rows of logits holds [n], in nats, from 0 to ln(size).

    The compiled kernel finds it in a fraction of the time that `row_entropies` takes, which gets what it cannot read.

    Parameters
    ----------
    rows
        Shape [m, columns], as `as_rows` gives them.
    size
        V; columns beyond are padding.
    row_ids
        [n] which rows.
    """
    readable = readable_rows(rows, size)
    if readable is not None:
        from semtoken.scoring.kernel import entropies

        found: FloatArray = np.empty(len(row_ids))
        entropies(readable, np.asarray(row_ids, dtype=np.int64), size, found)
        if np.isfinite(found).all():
            return found
    part = rows[list(row_ids)]
    return row_entropies(part, log_normalizers(part, size), size)


def kept_rows(rows: Rows, count: int, size: int, before: npt.NDArray[Any] | None = None) -> npt.NDArray[Any] | None:
    """Memory for a copy of so many rows, that from before if it is large enough; None for rows of another kind."""
    readable = readable_rows(rows, size)
    if readable is None:
        return None
    if before is not None and len(before) >= count and before.shape[1] == size and before.dtype == readable.dtype:
        return before
    return np.empty((count, size), dtype=readable.dtype)


class KeptRows:
    """Copies of the rows of several steps, each read once when it comes; what the kernel finds is taken together.

    Beside a model every call of Python costs ten times as much as alone, since the processor's caches are empty then.
    So a step is one call of the kernel, which writes to memory that is there.

    Parameters
    ----------
    steps
        How many steps wait at one time.
    like
        The readable rows of one step.
    size
        V.
    common
        As for `normalized_rows`.
    """

    def __init__(self, steps: int, like: npt.NDArray[Any], size: int, common: IdArray) -> None:
        self._size, self._common, self._next = size, common, 0
        shape = (steps, len(like))
        self._numbers = np.zeros(shape, dtype=np.int64)
        self._rows = np.empty((*shape, size), dtype=like.dtype)
        self._values = np.empty((*shape, len(common)), dtype=np.float32)
        self._normalizers, self._minus_infinity = np.zeros(shape), np.zeros(shape, dtype=bool)
        self._likely_ids = np.empty((*shape, LISTED + 1), dtype=np.int64)
        self._likely = np.empty((*shape, LISTED + 1))
        found = (self._values, self._normalizers, self._minus_infinity, self._likely_ids, self._likely)
        self._steps = list(zip(self._rows, *found, strict=True))

    def fits(self, steps: int, like: npt.NDArray[Any]) -> bool:
        """Whether it was made for so many steps and such rows, of the same vocabulary."""
        return self._numbers.shape == (steps, len(like)) and self._rows.dtype == like.dtype

    def read(self, readable: npt.NDArray[Any], row_ids: IdArray) -> int:
        """Read some rows of a step, and copy them over those of the oldest step; the place of the step."""
        from semtoken.scoring.kernel import normalize

        place, self._next = self._next, (self._next + 1) % len(self._steps)
        rows, *found = self._steps[place]
        self._numbers[place, : len(row_ids)] = row_ids
        normalize(readable, row_ids, self._size, LOG_LEAST, rows, self._common, *found)
        return place

    def taken(self, steps: Iterable[tuple[int, Sequence[int]]]) -> NormalizedRows:
        """Rows of some steps, one after the other: the place of each step, and which of the rows that were read."""
        width = self._numbers.shape[1]
        at = np.array([place * width + k for place, rows in steps for k in rows], dtype=np.int64)
        kept = self._rows.reshape(-1, self._size)
        numbers, minus_infinity = self._numbers.ravel()[at], self._minus_infinity.ravel()[at]
        normalizers = self._normalizers.ravel()[at]
        if (np.abs(normalizers) > HUGE).any():
            found = normalized_rows(_logits_of(kept), self._size, at)
            return replace(found, numbers=numbers, has_minus_infinity=minus_infinity)
        likely = Likely(self._likely_ids.reshape(-1, LISTED + 1)[at], self._likely.reshape(-1, LISTED + 1)[at])
        values = self._values.reshape(self._normalizers.size, len(self._common))[at]
        return NormalizedRows(
            _logits_of(kept), at, numbers, normalizers, _read_only(kept), likely, minus_infinity, values
        )


def readable_rows(rows: Rows, size: int) -> npt.NDArray[Any] | None:
    """Rows on the CPU as an array that the kernel reads, without a copy if they lie close together; or None."""
    if not COMPILED_FROM <= size <= rows.shape[1] or not _has_numba():
        return None
    if is_tensor(rows):
        if not rows.is_cpu or str(rows.dtype) != "torch.bfloat16":
            return None
        import torch

        readable: npt.NDArray[Any] = rows.contiguous().view(torch.int16).numpy().view(np.uint16)
    elif rows.dtype == np.float32:
        readable = np.ascontiguousarray(rows)
    else:
        return None
    return _read_only(readable)


@cache
def _has_numba() -> bool:
    return find_spec("numba") is not None


def _compiled(
    rows: Rows,
    readable: npt.NDArray[Any],
    size: int,
    chosen: IdArray,
    into: npt.NDArray[Any] | None,
    common: IdArray,
) -> NormalizedRows:
    from semtoken.scoring.kernel import normalize

    count = len(chosen)
    kept = np.empty((0, size), dtype=readable.dtype) if into is None else into[:count]
    normalizers, minus_infinity = np.empty(count), np.empty(count, dtype=bool)
    likely = Likely(np.empty((count, LISTED + 1), dtype=np.int64), np.empty((count, LISTED + 1)))
    values = np.empty((count, len(common)), dtype=np.float32)
    normalize(
        readable, chosen, size, LOG_LEAST, kept, common, values, normalizers, minus_infinity, likely.ids, likely.logits
    )
    if into is None:
        return NormalizedRows(rows, chosen, chosen, normalizers, readable, likely, minus_infinity, values)
    places, held = np.arange(count), _read_only(kept)
    return NormalizedRows(_logits_of(kept), places, chosen, normalizers, held, likely, minus_infinity, values)


def _read_only(readable: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view, as the arrays of some callers are read-only: the kernel is compiled once for both."""
    view = readable.view()
    view.flags.writeable = False
    return view


def _logits_of(readable: npt.NDArray[Any]) -> Rows:
    """The logits that such an array holds, without a copy."""
    if readable.dtype == np.float32:
        return readable
    import torch

    return torch.from_numpy(readable.view(np.int16)).view(torch.bfloat16)
