"""Numpy or torch, told apart without importing torch: rows of logits and the few numbers taken from them."""

from __future__ import annotations

import operator
import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInput, InvalidLogits

Rows: TypeAlias = Any
"""Logits of shape [n, columns]: a numpy array or a torch tensor on any device."""
FloatArray = npt.NDArray[np.float64]
IdArray = npt.NDArray[np.int64]


def is_tensor(value: object) -> bool:
    """Whether `value` is a torch tensor. If torch was never imported, it is not."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_rows(logits: Any) -> Rows:
    """Numbers of any form as an array; a tensor that numpy cannot hold (another device, bfloat16) as it is.

    Raises
    ------
    InvalidLogits
        Ragged rows, or what is no real number.
    """
    if is_tensor(logits):
        import torch

        held = logits.device.type == "cpu" and logits.dtype in (torch.float16, torch.float32, torch.float64)
        return logits.detach().numpy() if held else logits.detach()
    try:
        rows = np.asarray(logits)
    except ValueError as error:
        raise InvalidLogits(f"logits must be rows of equal length: {error}.") from error
    if rows.dtype.kind not in "fiu":
        raise InvalidLogits(f"logits must be real numbers. Got an array of {rows.dtype} instead.")
    return rows


def as_ids(token_ids: Any) -> list[int]:
    """Token ids of a list, array or tensor as plain integers.

    Raises
    ------
    InvalidInput
        Something that is no integer, a list in a list among them.
    """
    ids: list[int] = []
    for value in token_ids.tolist() if hasattr(token_ids, "tolist") else token_ids:
        try:
            ids.append(operator.index(value))
        except TypeError as error:
            raise InvalidInput(f"token_ids must be whole numbers. Got {value!r} at step {len(ids)} instead.") from error
    return ids


def widened(rows: Rows) -> Rows:
    """Rows in at least float32; a tensor on the CPU becomes an array."""
    if not is_tensor(rows):
        return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float32)
    wide = rows if rows.is_floating_point() and rows.element_size() >= 4 else rows.float()
    return wide.numpy() if wide.device.type == "cpu" else wide


def log_normalizers(rows: Rows, size: int) -> FloatArray:
    """log-sum-exp of the first `size` columns of each row, in at least float32 (float64 [n]).

    Not finite where a row holds NaN or +inf, or has no finite value.
    """
    rows = rows[:, :size]
    if is_tensor(rows) and rows.device.type != "cpu":
        return np.asarray(widened(rows).logsumexp(-1).double().cpu().numpy())
    return np.array([log_sum_exp(widened(row)) for row in rows], dtype=np.float64)


def log_sum_exp(values: npt.NDArray[np.floating[Any]]) -> float:
    """log(sum(exp(values))), -inf for no values or none above -inf, NaN for NaN or +inf."""
    if values.size == 0:
        return -np.inf
    highest = values.max()
    if not np.isfinite(highest):
        return float(highest) if highest == -np.inf else np.nan
    shifted = values - highest
    np.exp(shifted, out=shifted)
    return float(highest) + float(np.log(shifted.sum()))


def gather(rows: Rows, row_ids: IdArray, column_ids: IdArray) -> FloatArray:
    """`rows[row_ids, column_ids]` with one indexing operation and one transfer (float64)."""
    if is_tensor(rows):
        import torch

        index = torch.from_numpy(np.stack([row_ids, column_ids])).to(rows.device)
        return np.asarray(rows[index[0], index[1]].double().cpu().numpy())
    return np.asarray(rows[row_ids, column_ids], dtype=np.float64)


def copy_row(rows: Rows, row: int, size: int) -> FloatArray:
    """The first `size` columns of one row, in at least float32, as a numpy array of its own."""
    wide = widened(rows[row, :size])
    return np.array(wide.cpu().numpy() if is_tensor(wide) else wide)
