"""Where tiles are computed: NumPy on the processor, or torch on a CUDA device."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semtoken.clustering.progress import Monitor
from semtoken.clustering.rows import Rows
from semtoken.clustering.tiles import CLOSENESS, Block, CpuTiles, Gaps, Pairs
from semtoken.errors import InvalidInput
from semtoken.support.extras import require


def resolve(device: str | None) -> str:
    """Name of the device to use: 'cpu', or a CUDA device as torch calls it.

    Parameters
    ----------
    device : str, optional
        "cpu"; "cuda" or "cuda:1"; "auto": CUDA if torch is installed and finds a device; None: the same, but
        only if torch has been imported already, since importing it takes seconds and hundreds of megabytes.

    Raises
    ------
    InvalidInput
        A device that is not there, or of another kind.
    """
    if device == "cpu":
        return device
    if device is None:
        return "cuda" if "torch" in sys.modules and _cuda() else "cpu"
    if device == "auto":
        return "cuda" if importlib.util.find_spec("torch") is not None and _cuda() else "cpu"
    if device.split(":")[0] == "cuda" and _cuda():
        return device
    raise InvalidInput(
        f"device={device!r} cannot be used here: give 'cpu', 'auto', or 'cuda' where torch finds a CUDA device."
    )


def tiles_on(device: str, rows: Rows, size: int, monitor: Monitor) -> CpuTiles:
    """Tiles of `size` rows on a device that `resolve` named."""
    return CpuTiles(rows, size, monitor) if device == "cpu" else TorchTiles(rows, size, monitor, device)


def _cuda() -> bool:
    return bool(require("torch", extra="transformers").cuda.is_available())


class TorchTiles(CpuTiles):
    """The same tiles by torch: products and comparisons happen on the device, near pairs come back.

    The few gaps that call for exact differences are computed on the processor.
    """

    def __init__(self, rows: Rows, size: int, monitor: Monitor, device: str) -> None:
        super().__init__(rows, size, monitor)
        self._torch = require("torch", extra="transformers")
        self._device = device
        self.name = device

    @contextmanager
    def running(self) -> Iterator[None]:
        """Full float32 products: TF32 keeps 10 bits and would change the partition."""
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
            self._torch.cuda.synchronize(gap.device)
        self._monitor.add_gemm(time.perf_counter() - begin, 2.0 * len(left) * len(right) * left.shape[1])
        return gap

    def host(self, gap: Any) -> Gaps:
        """What was computed on the device, as an array of this process."""
        result: Gaps = gap.cpu().numpy()
        return result

    def _factor(self, index: NDArray[np.int64], *, left: bool) -> Any:
        return self._torch.from_numpy(self.rows.block(index, left=left)).to(self._device)

    def _refine(self, gap: Any, left: Any, right: Any, p: Any, q: Any, *, diagonal: bool) -> None:
        close = gap < CLOSENESS * (left[:, -1:] + right[:, -2])
        i, j = (self._torch.triu(close, diagonal=1) if diagonal else close).nonzero(as_tuple=True)
        if len(i):
            exact = self.rows.exact_gaps(p[i.cpu().numpy()], q[j.cpu().numpy()])
            gap[i, j] = self._torch.from_numpy(exact).to(self._device)

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
