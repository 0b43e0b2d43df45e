"""The matrix of gaps between clusters, one tile at a time.

A block is a run of whole clusters. The tile of two blocks holds, for each pair of their clusters, the
largest gap between their rows (complete linkage). It comes from matrix products and a segmented maximum
and is forgotten at once: nothing n x n is kept. NumPy computes it on the processor, torch on a CUDA device.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering.progress import Monitor
from semtoken.clustering.rows import Rows, compiled_loops
from semtoken.errors import InvalidInputError
from semtoken.support.arrays import IntArray
from semtoken.support.extras import require
from semtoken.support.inputs import text

Gaps: TypeAlias = NDArray[np.float32]

CLOSENESS = 2.0**-10
"""Gaps below this part of h(x) + h(y) are computed again from differences, because digits cancel in the product."""


@dataclass(frozen=True)
class Block:
    """A run of clusters whose rows lie one after another."""

    first: int
    """Number of the first cluster."""
    index: NDArray[np.int64]
    """Rows, sorted by cluster."""
    starts: NDArray[np.int64]
    """The beginning of each cluster in `index`, and the end of the last one."""

    @classmethod
    def of(cls, chosen: Iterable[int], order: NDArray[np.int64], starts: NDArray[np.int64]) -> Block:
        """A block of chosen clusters, which need not lie side by side; each begins at its place in `starts`."""
        pieces = [order[starts[c] : starts[c + 1]] for c in chosen]
        return cls(0, np.concatenate(pieces), np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]))

    @property
    def clusters(self) -> int:
        """The number of clusters that the rows belong to."""
        return len(self.starts) - 1

    @property
    def single(self) -> bool:
        """True if every cluster of the block consists of one row."""
        return bool(np.all(np.diff(self.starts) == 1))


@dataclass(frozen=True)
class Pairs:
    """Pairs of clusters of two blocks whose gap is small enough, packed into 8 bytes each."""

    first_row: int
    first_column: int
    where: NDArray[np.uint32]
    """Row * 65,536 + column within the tile."""
    gap: Gaps


def blocks_of(order: NDArray[np.int64], starts: NDArray[np.int64], size: int) -> list[Block]:
    """Cut clusters (rows `order`, from `starts`) into blocks of at most `size` rows; larger ones are a block each."""
    blocks = []
    first = 0
    m = len(starts) - 1
    while first < m:
        last = int(np.searchsorted(starts, starts[first] + size, side="right")) - 1
        last = min(max(last, first + 1), m)
        begin, end = starts[first], starts[last]
        blocks.append(Block(first, order[begin:end], starts[first : last + 1] - begin))
        first = last
    return blocks


class CpuTiles:
    """Tiles by NumPy's matrix product, one thread each; several may be computed at once.
    `size` is how many rows a block has; larger clusters are worked through in pieces of this size.
    """

    name = "cpu"

    def __init__(self, rows: Rows, size: int, monitor: Monitor) -> None:
        self.rows = rows
        self.size = size
        self._monitor = monitor
        self._local = threading.local()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Limit each matrix product to one thread inside the block, since threads work on different tiles."""
        with require("threadpoolctl", extra="cluster").threadpool_limits(1):
            yield

    def left(self, block: Block) -> list[Any]:
        """The left factors of a block, for use with many tiles; empty if they would take too much memory."""
        parts = self._parts(block)
        # A cluster of many rows has a block of its own of any size, whose factors would be a copy of a part of the
        # table.
        return [self._factor(block.index[part], left=True) for part in parts] if len(parts) <= 2 else []

    def gaps(self, left: list[Any], p: Block, q: Block, *, close: bool) -> Any:
        """Largest gap between the rows of every cluster of p and every cluster of q.

        With `close`, small gaps are computed again with all their digits. The tile may be overwritten by the next
        one of the same thread.
        """
        plain = p.single and q.single
        result = None if plain else self._zeros(p.clusters, q.clusters)
        for gap, p_part, q_part, refine in self._products(left, p, q):
            if close:
                refine(diagonal=p is q and p_part == q_part)
            if plain:
                return gap
            self._maximum(gap, _cut(p.starts, p_part), _cut(q.starts, q_part), result)
        return result

    def pairs(self, left: list[Any], p: Block, q: Block, limit: np.float32, *, close: bool) -> Pairs:
        """Pairs of a cluster of p and one of q with a gap <= limit, every pair once."""
        gap = self.gaps(left, p, q, close=close)
        where = np.empty(gap.size, np.uint32)
        value = np.empty(gap.size, np.float32)
        count = compiled_loops().keep_near(gap, limit, p is q, where, value)
        # Copies, since a view would keep the memory of the whole tile.
        return Pairs(p.first, q.first, where[:count].copy(), value[:count].copy())

    def total_distance(self, left: list[Any], p: Block, q: Block) -> NDArray[np.float64]:
        """Sum of the euclidean distances between the rows of every cluster of p and every cluster of q."""
        total = np.zeros((p.clusters, q.clusters))
        for gap, p_part, q_part, refine in self._products(left, p, q):
            refine(diagonal=False)
            starts = _cut(p.starts, p_part), _cut(q.starts, q_part)
            compiled_loops().segment_total_distance(gap, *starts, total)
        return total

    def _products(self, left: list[Any], p: Block, q: Block) -> Iterator[tuple[Any, slice, slice, Callable[..., None]]]:
        """The gaps between parts of two blocks with these parts, and what computes small gaps again in place."""
        for q_part in self._parts(q):
            right = self._factor(q.index[q_part], left=False)
            for i, p_part in enumerate(self._parts(p)):
                factor = left[i] if left else self._factor(p.index[p_part], left=True)
                gap = self.product(factor, right)
                yield gap, p_part, q_part, partial(self._refine, gap, factor, right, p.index[p_part], q.index[q_part])

    def host(self, gap: Any) -> Gaps:
        """A tile as a NumPy array that later tiles do not overwrite."""
        result: Gaps = gap.copy()
        return result

    def _parts(self, block: Block) -> list[slice]:
        return [slice(b, min(b + self.size, len(block.index))) for b in range(0, len(block.index), self.size)]

    def _factor(self, index: NDArray[np.int64], *, left: bool) -> Any:
        return self.rows.block(index, left=left)

    def product(self, left: Gaps, right: Gaps) -> Gaps:
        """The matrix product left @ right.T, timed, in a buffer that the same thread will use again."""
        shape = len(left), len(right)
        if getattr(self._local, "size", 0) < shape[0] * shape[1]:
            self._local.size = shape[0] * shape[1]
            self._local.buffer = np.empty(self._local.size, np.float32)
        gap: Gaps = self._local.buffer[: shape[0] * shape[1]].reshape(shape)
        # Of this thread alone: others compute at the same time, and wait for a processor.
        begin = time.thread_time()
        np.matmul(left, right.T, out=gap)
        self._monitor.add_gemm(time.thread_time() - begin, 2.0 * shape[0] * shape[1] * left.shape[1])
        return gap

    def close_pairs(self, gap: Gaps, left_half: Gaps, right_half: Gaps, *, diagonal: bool) -> tuple[IntArray, IntArray]:
        """The places (rows, columns) of gaps so small that float32 has lost their digits."""
        where: NDArray[np.uint32] = np.empty(gap.size, np.uint32)
        # Columns of a table; that of a single row is contiguous, and would be another type to compile for.
        halves = np.ascontiguousarray(left_half), np.ascontiguousarray(right_half)
        count = compiled_loops().find_close(gap, *halves, np.float32(CLOSENESS), diagonal, where)
        return (where[:count] >> 16).astype(np.int64), (where[:count] & 65535).astype(np.int64)

    def _refine(self, gap: Any, left: Any, right: Any, p: IntArray, q: IntArray, *, diagonal: bool) -> None:
        i, j = self.close_pairs(gap, left[:, -1], right[:, -2], diagonal=diagonal)
        if len(i):
            gap[i, j] = self.rows.exact_gaps(p[i], q[j])

    def _zeros(self, rows: int, columns: int) -> Any:
        return np.zeros((rows, columns), np.float32)

    def _maximum(self, gap: Any, row_starts: IntArray, column_starts: IntArray, result: Any) -> None:
        compiled_loops().segment_max(gap, row_starts, column_starts, result)


def _cut(starts: NDArray[np.int64], part: slice) -> NDArray[np.int64]:
    """Cluster boundaries inside a part of a block; clusters outside of it become empty."""
    cut: IntArray = np.clip(starts, part.start, part.stop) - part.start
    return cut


def resolve(device: str | None) -> str:
    """Name of the device to use, "cpu" or as torch calls it; `InvalidInputError` if it is not there or of another kind.
    "auto" is CUDA if torch is installed and finds a device; None is the same, but only if torch has been imported
    already, since importing it takes seconds and hundreds of megabytes.
    """
    if device is not None and text(device, "device") == "cpu":
        return device
    if device is None:
        return "cuda" if "torch" in sys.modules and _cuda() else "cpu"
    if device == "auto":
        return "cuda" if importlib.util.find_spec("torch") is not None and _cuda() else "cpu"
    if device.split(":")[0] == "cuda" and _cuda():
        return device
    raise InvalidInputError(
        f"device={device!r} cannot be used here: give 'cpu', 'auto', or 'cuda' where torch finds a CUDA device."
    )


def tiles_on(device: str, rows: Rows, size: int, monitor: Monitor) -> CpuTiles:
    """Tiles of `size` rows on a device that `resolve` named."""
    return CpuTiles(rows, size, monitor) if device == "cpu" else TorchTiles(rows, size, monitor, device)


def _cuda() -> bool:
    return bool(require("torch", extra="transformers").cuda.is_available())


class TorchTiles(CpuTiles):
    """Tiles computed by torch: products and comparisons happen on the device, near pairs come back.
    The few gaps that call for exact differences are computed on the processor.
    """

    def __init__(self, rows: Rows, size: int, monitor: Monitor, device: str) -> None:
        super().__init__(rows, size, monitor)
        self._torch = require("torch", extra="transformers")
        self._device = device
        self.name = device

    @contextmanager
    def running(self) -> Iterator[None]:
        """Use full float32 products inside the block: TF32 keeps 10 bits and would change the partition."""
        before = self._torch.get_float32_matmul_precision()
        self._torch.set_float32_matmul_precision("highest")
        try:
            with super().running():
                yield
        finally:
            self._torch.set_float32_matmul_precision(before)

    def pairs(self, left: list[Any], p: Block, q: Block, limit: np.float32, *, close: bool) -> Pairs:
        """The close pairs of a tile, as `CpuTiles.pairs` gives them."""
        gap = self.gaps(left, p, q, close=close)
        near = gap <= float(limit)
        place = (self._torch.triu(near, diagonal=1) if p is q else near).nonzero()
        value = gap[place[:, 0], place[:, 1]].clamp_(min=0).cpu().numpy()
        where = (place[:, 0] * 65536 + place[:, 1]).cpu().numpy().astype(np.uint32)
        return Pairs(p.first, q.first, where, value)

    def product(self, left: Any, right: Any) -> Any:
        """See `CpuTiles.product`; always a new tensor."""
        begin = time.perf_counter()
        gap = left @ right.T
        if gap.is_cuda:
            # The product is only queued by now, and would seem to take no time.
            self._torch.cuda.synchronize(gap.device)
        self._monitor.add_gemm(time.perf_counter() - begin, 2.0 * len(left) * len(right) * left.shape[1])
        return gap

    def host(self, gap: Any) -> Gaps:
        """A tile that was computed on the device, as a NumPy array."""
        result: Gaps = gap.cpu().numpy()
        return result

    def _factor(self, index: NDArray[np.int64], *, left: bool) -> Any:
        return self._torch.from_numpy(self.rows.block(index, left=left)).to(self._device)

    def _refine(self, gap: Any, left: Any, right: Any, p: Any, q: Any, *, diagonal: bool) -> None:
        close = gap < CLOSENESS * (left[:, -1:] + right[:, -2])
        i, j = (self._torch.triu(close, diagonal=1) if diagonal else close).nonzero(as_tuple=True)
        if len(i):
            exact = self.rows.exact_gaps(p[i.cpu().numpy()], q[j.cpu().numpy()])
            gap[i, j] = self._torch.from_numpy(exact).to(gap)

    def _zeros(self, rows: int, columns: int) -> Any:
        return self._torch.zeros((rows, columns), device=self._device)

    def _maximum(self, gap: Any, row_starts: Any, column_starts: Any, result: Any) -> None:
        torch = self._torch
        row, column = (
            torch.from_numpy(np.repeat(np.arange(len(s) - 1), np.diff(s))).to(self._device)
            for s in (row_starts, column_starts)
        )
        tall = torch.zeros((len(result), gap.shape[1]), device=self._device)
        tall.scatter_reduce_(0, row[:, None].expand_as(gap), gap, "amax")
        result.scatter_reduce_(1, column.expand_as(tall), tall, "amax")
