"""The rows to be clustered: checked, described by a few numbers each, never copied.

A table of 152,064 x 10,240 numbers is 3 GB as bfloat16 and twice that as float32, so rows become float32
only in blocks of a few thousand, at the moment when their distances are computed. A block carries two
columns more than the table, arranged so that one plain matrix product gives the *gap* of two rows:

    [-x, 1, h(x)] . [y, h(y), 1] = h(x) + h(y) - x.y = |x - y|^2 / 2

    cosine      unit rows, h = 1/2      distance = gap             (a zero row has the gap 1 to every row)
    euclidean   h = |x|^2 / 2           distance = sqrt(2 gap)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from semtoken.choices import Metric
from semtoken.errors import InvalidInputError
from semtoken.support.arrays import real_numbers
from semtoken.support.extras import require

AnyArray: TypeAlias = NDArray[Any]

CHUNK = 4096
"""The number of rows that are read at a time while the table is checked."""


@dataclass(frozen=True)
class TableParts:
    """A token table kept as the raw matrices it is made of, for tables too large for float32.

    The row of token i is the concatenation of row i of every part, each divided by its Euclidean norm
    (a zero row stays zero): the token table of input and output embeddings, without storing it.

    Parameters
    ----------
    parts : arrays of shape (n, d), (n, e), ...
        float32, float16, or bfloat16 given as its raw bits in uint16; NumPy arrays or torch tensors.

    Examples
    --------
    >>> table = TableParts((np.eye(3, dtype=np.float32), 5 * np.eye(3, dtype=np.float32)))
    """

    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Rows:
    """A checked token table: raw parts, and for each row the factor by which it enters matrix products."""

    parts: tuple[AnyArray, ...]
    scales: tuple[NDArray[np.float64], ...]
    """For each part, [n] the factors by which its rows are multiplied."""
    metric: Metric
    zero: NDArray[np.bool_]
    """[n] which rows are zero and so have no direction: under cosine their distance to everything is 1."""
    center: NDArray[np.float32]
    """The point that is subtracted from every scaled row, for small |x|^2 and exact gaps; zeros for cosine."""
    unit: float
    """The factor between a computed distance and that of the rows as they were given."""

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.parts[0])

    @property
    def columns(self) -> int:
        """The length of a row."""
        return len(self.center)

    @property
    def width(self) -> int:
        """Numbers per row of a block: the columns and two more."""
        return self.columns + 2

    def block(self, index: NDArray[np.int64], *, left: bool) -> NDArray[np.float32]:
        """Rows `index` in float32, [rows, width], as the left or the right factor of the product that gives gaps."""
        loops = compiled_loops()
        out = np.empty((len(index), self.width), np.float32)
        column = 0
        for part, scale in zip(self.parts, self.scales, strict=True):
            source, factor = index, scale[index]
            if part.dtype == np.float16:  # no half precision in compiled loops: NumPy converts it
                part, source = part[index].astype(np.float32), np.arange(len(index))
            loops.gather(part, source, factor, out, column)
            column += part.shape[1]
        loops.finish_block(out, self.center, left, self.metric == "cosine")
        return out

    def exact_gaps(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Gaps of pairs of rows, from their differences in float64.
        h(x) + h(y) - x.y loses all its digits when x and y are nearly equal; the difference does not.
        """
        gap = np.zeros(len(first))
        for part, scale in zip(self.parts, self.scales, strict=True):
            one, other, factor = first, second, scale
            if part.dtype == np.float16:
                needed, place = np.unique(np.concatenate([first, second]), return_inverse=True)
                part, factor = part[needed].astype(np.float32), scale[needed]
                one, other = place[: len(first)], place[len(first) :]
            compiled_loops().exact_gaps(part, factor, one, other, gap)
        if self.metric == "cosine":
            # A row of zeros has no direction; half its squared distance from a unit row would be 1/2.
            gap[self.zero[first] | self.zero[second]] = 1.0
        return gap

    def distance(self, gap: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert gaps between rows of this table to distances in the units of the metric, at least 0."""
        gap = np.maximum(gap, np.float32(0))
        return gap if self.metric == "cosine" else np.sqrt(2 * gap) * np.float32(self.unit)


def as_rows(table: Any, metric: Metric) -> Rows:
    """Check a table, and compute the norms of its rows.
    `InvalidInputError` if it is not two-dimensional, empty, of no float type, or holds NaN or infinity.
    """
    is_parts = isinstance(table, TableParts)
    parts = tuple(_as_numpy(part) for part in (table.parts if is_parts else (table,)))
    if not parts:
        raise InvalidInputError("The token table has no parts.")
    for part in parts:
        _check_shape(part, len(parts[0]))
    norms = [_norms(part) for part in parts]
    _check_finite(parts, norms)
    zero = np.all([norm == 0 for norm in norms], axis=0)
    scales = [_inverse(norm) if is_parts else np.ones(len(norm)) for norm in norms]
    if metric == "cosine":
        whole = np.sqrt(sum((norm * scale) ** 2 for norm, scale in zip(norms, scales, strict=True)))
        scales = [scale * _inverse(whole) for scale in scales]
        return Rows(parts, tuple(scales), metric, zero, np.zeros(sum(part.shape[1] for part in parts), np.float32), 1.0)
    largest = max(float((norm * scale).max()) for norm, scale in zip(norms, scales, strict=True))
    # A power of two changes no digit, and keeps squares far from overflow and underflow.
    unit = 2.0 ** np.floor(np.log2(largest)) if largest > 0 else 1.0
    scales = [scale / unit for scale in scales]
    return Rows(parts, tuple(scales), metric, zero, _center(parts, scales), float(unit))


def compiled_loops() -> Any:
    """The module of compiled loops, loaded when first needed."""
    require("numba", extra="cluster")
    from semtoken.clustering import _loops

    return _loops


def _as_numpy(part: Any) -> AnyArray:
    """A NumPy view of an array or a tensor (bfloat16 as uint16), without importing torch."""
    if type(part).__module__.split(".")[0] == "torch":
        import torch  # already loaded: we were given one of its tensors

        if part.layout != torch.strided or part.device.type == "meta":
            raise InvalidInputError("The token table must be a dense tensor with content; call to_dense() first.")
        part = part.detach().cpu()
        part = part.view(torch.uint16) if part.dtype == torch.bfloat16 else part
        part = part.numpy()
    part = real_numbers(part, "table")
    # A memory map of a file may be in the other order of bytes, which compiled loops do not read.
    part = part.astype(part.dtype.newbyteorder("="), copy=False)
    if part.dtype == np.float64:
        with np.errstate(over="ignore"):  # what overflows is refused below as infinite
            part = part.astype(np.float32)
    return np.ascontiguousarray(part)


def _check_shape(part: AnyArray, n: int) -> None:
    if part.dtype not in (np.float32, np.float16, np.uint16):
        raise InvalidInputError(
            f"The token table holds {part.dtype}; float32, float16, bfloat16 tensors, or bfloat16 bits "
            "in uint16 can be clustered."
        )
    if part.ndim != 2 or part.shape[1] == 0:
        raise InvalidInputError(f"The token table must have the shape (tokens, columns); this one is {part.shape}.")
    if len(part) == 0:
        raise InvalidInputError("The token table has no rows: there is nothing to cluster.")
    if len(part) != n:
        raise InvalidInputError(f"The parts of the token table have different numbers of rows: {n} and {len(part)}.")


def _chunks(n: int) -> list[slice]:
    return [slice(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK)]


def to_float32(part: AnyArray) -> NDArray[np.float32]:
    """Stored rows as float32; bfloat16, which is held as uint16, is the upper half of one."""
    if part.dtype == np.uint16:
        return (part.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return part.astype(np.float32, copy=False)


def _norms(part: AnyArray) -> NDArray[np.float64]:
    """Euclidean norms in float64, where neither the squares of 1e30 nor those of 1e-30 are lost."""
    if part.dtype == np.float16:
        wide: list[NDArray[np.float64]] = []
        for rows in _chunks(len(part)):
            block = part[rows].astype(np.float64)
            wide.append(np.sqrt(np.einsum("ij,ij->i", block, block)))
        return np.concatenate(wide)
    norms = np.empty(len(part))
    compiled_loops().norms(part, norms)
    return norms


def _check_finite(parts: Sequence[AnyArray], norms: Sequence[NDArray[np.float64]]) -> None:
    bad = np.flatnonzero(~np.all([np.isfinite(norm) for norm in norms], axis=0))
    if len(bad) == 0:
        return
    ids = ", ".join(map(str, bad[:10])) + (", ..." if len(bad) > 10 else "")
    hint = ""
    if any(part.dtype == np.float16 for part in parts):
        hint = " A table stored in float16 overflows above 65,504: read it as bfloat16 or float32."
    raise InvalidInputError(
        f"{len(bad)} of the {len(parts[0])} rows of the token table hold NaN or infinity (token ids {ids}): "
        f"no distance can be computed for them.{hint}"
    )


def _inverse(norm: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)


def _center(parts: Sequence[AnyArray], scales: Sequence[NDArray[np.float64]]) -> NDArray[np.float32]:
    """Mean row, rounded to sixteenths of the largest norm so that small integers stay exact."""
    means: list[AnyArray] = []
    for part, scale in zip(parts, scales, strict=True):
        total = np.zeros(part.shape[1])
        for rows in _chunks(len(part)):
            total += scale[rows] @ to_float32(part[rows])
        means.append(np.round(total / len(part) * 16) / 16)
    return np.concatenate(means).astype(np.float32)


def equal_rows(rows: Rows) -> NDArray[np.int64]:
    """For each row, the lowest row that equals it exactly (or, under cosine, is zero like it)."""
    loops = compiled_loops()
    code = np.zeros(rows.n, np.uint64)
    for part in rows.parts:
        loops.hash_rows(_words(part), np.uint64(part.shape[1]), code)
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    leader = first[group]
    for row in np.flatnonzero(leader != np.arange(rows.n)):  # different rows may share a code, though hardly ever
        if not all(np.array_equal(part[row], part[leader[row]]) for part in rows.parts):
            leader[row] = row
    if rows.metric == "cosine" and rows.zero.any():
        leader[rows.zero] = np.flatnonzero(rows.zero)[0]
    return leader


def _words(part: AnyArray) -> AnyArray:
    """The bits of a matrix as unsigned numbers, without a copy."""
    return part.view({2: np.uint16, 4: np.uint32}[part.dtype.itemsize])
