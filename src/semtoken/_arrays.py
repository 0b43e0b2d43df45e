"""Numpy or torch, told apart without importing torch: rows of logits and the few numbers taken from them."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Rows: TypeAlias = Any
"""Logits of shape [n, columns]: a numpy array or a torch tensor on any device."""
FloatArray = npt.NDArray[np.float64]
IdArray = npt.NDArray[np.int64]


def is_tensor(value: object) -> bool:
    """Whether `value` is a torch tensor. If torch was never imported, it is not."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_rows(logits: Any) -> Rows:
    """A tensor as it is; anything else as a floating numpy array."""
    if is_tensor(logits):
        return logits.detach()
    rows = np.asarray(logits)
    return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float32)


def as_ids(token_ids: Any) -> list[int]:
    """Token ids of a list, array or tensor as plain integers."""
    values = token_ids.tolist() if hasattr(token_ids, "tolist") else list(token_ids)
    return [int(value) for value in values]


def log_normalizers(rows: Rows, size: int) -> FloatArray:
    """log-sum-exp of the first `size` columns of each row, in at least float32 (float64 [n]).

    NaN where a row holds NaN or +inf, -inf where it has no finite value.
    """
    if is_tensor(rows):
        rows = rows[:, :size]
        wide = rows if rows.element_size() >= 4 else rows.float()
        return np.asarray(wide.logsumexp(-1).double().cpu().numpy())
    return np.array([log_sum_exp(row) for row in rows[:, :size]], dtype=np.float64)


def log_sum_exp(values: npt.NDArray[np.floating[Any]]) -> float:
    """log(sum(exp(values))), -inf for no values or none above -inf, NaN for NaN or +inf."""
    if values.size == 0:
        return -np.inf
    highest = values.max()
    if not np.isfinite(highest):
        return float(highest) if highest == -np.inf else np.nan
    return float(highest) + float(np.log(np.exp(values - highest).sum()))


def gather(rows: Rows, row_ids: IdArray, column_ids: IdArray) -> FloatArray:
    """`rows[row_ids, column_ids]` with one indexing operation and one transfer (float64)."""
    if is_tensor(rows):
        import torch

        index = torch.from_numpy(np.stack([row_ids, column_ids])).to(rows.device)
        return np.asarray(rows[index[0], index[1]].double().cpu().numpy())
    return np.asarray(rows[row_ids, column_ids], dtype=np.float64)


def copy_row(rows: Rows, row: int, size: int) -> FloatArray:
    """The first `size` columns of one row as a numpy array of its own."""
    if is_tensor(rows):
        return np.array(rows[row, :size].float().cpu().numpy())
    return np.array(rows[row, :size])
