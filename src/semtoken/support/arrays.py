"""Numpy or torch, distinguished without importing torch: rows of logits and the few numbers taken from them."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError, InvalidLogits
from semtoken.support.inputs import shown

Rows: TypeAlias = Any
"""Logits of shape [n, columns]: a numpy array or a torch tensor on any device."""
FloatArray = npt.NDArray[np.float64]
"""An array of float64; docstrings give its shape."""
IdArray = npt.NDArray[np.int64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

HUGE = 2.0**20  # above it the logarithm of a sum loses digits to rounding
FEW = 32  # so many numbers are added up faster as Python's own


def is_tensor(value: object) -> bool:
    """Return True if `value` is a torch tensor. If torch was never imported, it is not."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view, as the arrays of some callers are read-only: what takes both is compiled once."""
    view = array.view()
    view.flags.writeable = False
    return view


def as_rows(logits: Any) -> Rows:
    """Numbers as an array, or as a tensor that numpy cannot hold; `InvalidLogits` if they are ragged or not real."""
    if is_tensor(logits):
        import torch

        # What costs least to ask: a call into torch takes tens of microseconds right after a model has run.
        kind = logits.dtype
        if logits.layout != torch.strided or logits.is_meta:
            raise InvalidLogits("logits must be a dense tensor with content; call to_dense() first.")
        if kind.is_complex or kind == torch.bool:
            raise InvalidLogits(f"logits must be real numbers. Got a tensor of {kind} instead.")
        if not kind.is_floating_point:
            return logits.cpu().numpy().astype(np.float64)
        plain = logits.detach() if logits.requires_grad else logits
        return plain.numpy() if logits.is_cpu and kind in (torch.float16, torch.float32, torch.float64) else plain
    try:
        rows = real_numbers(logits, "logits")
    except InvalidInputError as error:
        raise InvalidLogits(str(error)) from error
    # Integers beyond 2^24 are not exact in float32, and long doubles are more than the rest of the way can hold.
    return rows if rows.dtype in (np.float16, np.float32, np.float64) else rows.astype(np.float64)


def real_numbers(values: Any, name: str, *, booleans: bool = False) -> npt.NDArray[Any]:
    """Real numbers of any form (lists, arrays, tensors with gradients or in bfloat16, series) as a numpy array.
    The one place where arrays of users are converted or refused: nothing is dropped in silence. `InvalidInputError` for
    masked entries, complex numbers, texts, ragged rows, booleans unless asked for, and what numpy cannot read.
    """
    if is_tensor(values):
        values = _array_of_tensor(values, name)
    elif isinstance(values, list | tuple) and any(is_tensor(value) for value in values):
        values = [real_numbers(value, name, booleans=booleans) for value in values]
    if isinstance(values, np.ma.MaskedArray):
        if np.any(values.mask):
            raise InvalidInputError(f"'{name}' has masked entries. Leave them out, or fill them with a number first.")
        values = values.data
    try:
        array = np.asarray(values)
    except Exception as error:  # objects convert themselves, and raise what they like
        raise InvalidInputError(f"'{name}' must hold numbers only, in rows of equal length: {error}.") from error
    if array.dtype.kind == "O":
        array = _numbers_of_objects(array, name)
    if array.dtype.kind not in ("fiub" if booleans else "fiu"):
        raise InvalidInputError(
            f"'{name}' must hold numbers only, and real ones. Got an array of {array.dtype} instead."
        )
    return array


def _array_of_tensor(values: Any, name: str) -> npt.NDArray[Any]:
    """A tensor as an array; in bfloat16, which numpy does not have, as float32."""
    try:
        values = values.detach().cpu()
        return np.asarray(values.float().numpy() if str(values.dtype) == "torch.bfloat16" else values.numpy())
    except (TypeError, RuntimeError) as error:  # NotImplementedError, too: sparse, quantized, without content
        raise InvalidInputError(f"'{name}' is a tensor that cannot be read as an array: {error}.") from error


def _numbers_of_objects(array: npt.NDArray[Any], name: str) -> npt.NDArray[np.float64]:
    """Numbers that numpy keeps as objects: None or pandas' NA for a missing one, integers beyond 2^64, fractions."""
    if array.ndim == 0 and isinstance(array.item(), Iterable):
        raise InvalidInputError(f"'{name}' must be a list or an array of numbers, got {shown(array.item())}.")
    missing = getattr(sys.modules.get("pandas"), "NA", None)
    array = array.copy()
    array[np.array([value is missing for value in array.flat], dtype=bool).reshape(array.shape)] = None
    if any(isinstance(value, str | bytes | complex | list | tuple) for value in array.ravel().tolist()):
        raise InvalidInputError(f"'{name}' must hold numbers only, in rows of equal length.")
    try:
        return array.astype(np.float64)
    except Exception as error:  # as above
        raise InvalidInputError(f"'{name}' must hold numbers only: {error}.") from error


def as_ids(token_ids: Any, first: int = 0) -> list[int]:
    """Token ids of a list, array or tensor as plain integers; `InvalidInputError` if an item is none, or masked.

    `first` is the step of the first one in its answer, which the message counts from.
    """
    ids: list[int] = []
    if isinstance(token_ids, np.ma.MaskedArray) and np.any(token_ids.mask):
        raise InvalidInputError("token_ids has masked entries. Leave them out first.")
    try:
        values = list(token_ids.tolist() if hasattr(token_ids, "tolist") else token_ids)
    except Exception as error:  # as above
        raise InvalidInputError(
            f"token_ids must be a list of whole numbers. Got {shown(token_ids)} instead."
        ) from error
    for value in values:
        try:
            if isinstance(value, bool):
                raise TypeError("true and false are no token ids")
            ids.append(operator.index(value))
        except Exception as error:
            raise InvalidInputError(
                f"token_ids must be whole numbers. Got {shown(value)} at step {first + len(ids)} instead."
            ) from error
    return ids


def widened(rows: Rows) -> Rows:
    """Convert rows to at least float32; a tensor on the CPU becomes an array."""
    if not is_tensor(rows):
        return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float32)
    wide = rows if rows.is_floating_point() and rows.element_size() >= 4 else rows.float()
    return wide.numpy() if wide.device.type == "cpu" else wide


def log_normalizers(rows: Rows, size: int) -> FloatArray:
    """log-sum-exp of the first `size` columns of each row in at least float32 (float64 [n]).
    Not finite where a row holds NaN or +inf, or has no finite value.
    """
    rows = rows[:, :size]
    if is_tensor(rows) and rows.device.type != "cpu":
        return np.asarray(widened(rows).logsumexp(-1).double().cpu().numpy())
    # Row by row, so that the work stays in the cache and needs the memory of one row.
    return np.array([log_sum_exp(widened(row)) for row in rows], dtype=np.float64)


def levelled(rows: Rows, size: int) -> FloatArray:
    """The first `size` columns in float64, each row shifted to a maximum of 0: rounding blurs huge numbers."""
    wide = rows.detach().double().cpu().numpy() if is_tensor(rows) else rows.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(wide[:, :size] - wide[:, :size].max(axis=1, keepdims=True))


def looks_like_probabilities(rows: Rows, normalizers: FloatArray, size: int) -> bool:
    """True if all rows are within [0, 1] and sum to 1 (within 0.001), as only softmax gives, and are not all a single
    1 and zeros. Normalizers of probabilities keep to a narrow range, so that they alone rule out most other rows.
    """
    if ((normalizers <= math.log(size)) | (normalizers > math.log(size - 1 + math.e) + 1e-6)).any():
        return False
    part = rows[:, :size].detach().double().cpu().numpy() if is_tensor(rows) else rows[:, :size].astype(np.float64)
    one_hot = (part.max(axis=1) == 1) & (np.count_nonzero(part, axis=1) == 1)  # could as well be logits of a test
    return bool(part.min() >= 0 and (np.abs(part.sum(axis=1) - 1) < 1e-3).all() and not one_hot.all())


def log_sum_exp(values: npt.NDArray[np.floating[Any]]) -> float:
    """log(sum(exp(values))), -inf for no values or none above -inf, NaN for NaN or +inf."""
    if values.size <= FEW:
        return _log_sum_exp_of_few(values.tolist())
    highest = values.max()
    if not np.isfinite(highest):
        return float(highest) if highest == -np.inf else np.nan
    # The greatest number becomes 0, so that no exponential overflows and their sum is at least 1.
    shifted = values - highest
    np.exp(shifted, out=shifted)
    return float(highest) + float(np.log(shifted.sum()))


def _log_sum_exp_of_few(values: list[float]) -> float:
    """Log-sum-exp of few numbers, without the overhead of array operations."""
    highest = max(values, default=-math.inf)
    if not math.isfinite(highest):
        return -math.inf if highest == -math.inf else math.nan
    total = sum(math.exp(value - highest) for value in values)
    return highest + math.log(total)


def gather(rows: Rows, row_ids: IdArray, column_ids: IdArray) -> FloatArray:
    """`rows[row_ids, column_ids]` with one indexing operation and one transfer (float64)."""
    if is_tensor(rows):
        import torch

        index = torch.from_numpy(np.stack([row_ids, column_ids])).to(rows.device)
        return np.asarray(rows[index[0], index[1]].double().cpu().numpy())
    return np.asarray(rows[row_ids, column_ids], dtype=np.float64)


def best_columns(rows: Rows, normalizers: FloatArray, size: int, k: int) -> list[tuple[IdArray, FloatArray]]:
    """Ids and log-probabilities of the k best tokens of each row [n, columns], best first."""
    import torch

    logits: Any = rows if is_tensor(rows) else torch.from_numpy(np.asarray(rows))
    wide = logits if logits.is_floating_point() and logits.element_size() >= 4 else logits.float()
    best = wide[:, :size].topk(min(k, size))
    values = best.values.double().cpu().numpy() - normalizers[:, None]
    return list(zip(best.indices.cpu().numpy(), values, strict=True))


def copy_row(rows: Rows, row: int, size: int) -> FloatArray:
    """The first `size` columns of one row, in at least float32, as a numpy array of its own."""
    wide = widened(rows[row, :size])
    return np.array(wide.cpu().numpy() if is_tensor(wide) else wide)


def columns_above(
    rows: Rows, row_ids: Sequence[int], size: int, least: Sequence[float], most: int
) -> list[tuple[IdArray, FloatArray]]:
    """The columns among the first `size` of some rows of [n, columns] with at least the row's `least` value, and their
    values. Further columns are padding. Of a row on an accelerator only the `most` highest are given.
    """
    if row_ids and is_tensor(rows) and rows.device.type != "cpu":
        highest = rows[list(row_ids), :size].topk(min(most, size), dim=-1)
        values, columns = highest.values.double().cpu().numpy(), highest.indices.cpu().numpy()
        both = [(c[v >= low], v[v >= low]) for c, v, low in zip(columns, values, least, strict=True)]
        return [(np.asarray(c, dtype=np.int64), np.asarray(v)) for c, v in both]
    return [_columns_above(rows[row, :size], low) for row, low in zip(row_ids, least, strict=True)]


def _columns_above(row: Any, least: float) -> tuple[IdArray, FloatArray]:
    if not is_tensor(row):
        columns = (row >= least).nonzero()[0]
        return columns, row[columns].astype(np.float64)
    rounded = least - 0.01 * abs(least)  # compared in the row's own type, which may have no more than 8 bits
    columns = (row >= rounded).numpy().nonzero()[0]  # numpy finds few among many much faster
    values = row[columns].double().numpy() if len(columns) else np.empty(0)
    return columns[values >= least], values[values >= least]


LARGEST_VOCABULARY = 2**20
"""The number of tokens that a vocabulary of unknown size is assumed to have. No model in use has as many."""
_LEAST = -1e4
"""Stands for the logarithm of 0 in sums: its probability is 0 in every precision, and it is finite."""


def row_entropies(rows: Rows, normalizers: FloatArray, size: int) -> FloatArray:
    """Entropy of every row of logits [n, columns], H = -sum_v p(v) ln p(v), in nats, from 0 to ln(size).
    `normalizers` [n] are the log-sum-exp of the first `size` columns; those beyond are padding.
    """
    part = widened(rows[:, :size])
    if is_tensor(part):
        import torch

        offsets = torch.from_numpy(normalizers).to(part.device, part.dtype)
        logs = (part - offsets[:, None]).clamp_(min=_LEAST)
        sums = (logs.exp() * logs).sum(dim=1, dtype=torch.float64).cpu().numpy()
    else:
        with np.errstate(invalid="ignore"):  # a row without a distribution: its entropy is NaN
            logs = np.maximum(part - normalizers[:, None].astype(part.dtype), _LEAST)
        sums = (np.exp(logs) * logs).sum(axis=1, dtype=np.float64)
    entropies: FloatArray = np.maximum(-sums, 0.0)
    return entropies


def row_divergences(rows: Rows, normalizers: FloatArray, size: int) -> FloatArray:
    """KL(U || p) = -mean_v ln p(v) - ln V of every row, U being the uniform distribution, in nats, at least 0.
    Tokens of probability 0 (masked ones) are left out of the mean and of V, as lm-polygraph does.
    """
    part = widened(rows[:, :size])
    if is_tensor(part):
        known = part.isfinite()
        counts = known.sum(dim=1).double().cpu().numpy()
        means = part.double().masked_fill(~known, 0.0).sum(dim=1).cpu().numpy() / counts
    else:
        known = np.isfinite(part)
        counts = known.sum(axis=1).astype(np.float64)
        means = part.sum(axis=1, dtype=np.float64, where=known) / counts
    divergences: FloatArray = np.maximum(normalizers - means - np.log(counts), 0.0)
    return divergences


def entropy_bounds(
    log_probs: npt.ArrayLike, size: int | None = None, *, best: int | None = None
) -> tuple[float, float]:
    """Least and greatest entropy in nats of a distribution of which some `log_probs` [k] are known.
    The `best` (default all) come first, best first, then perhaps the chosen one; without `size` the upper bound is
    wider. The rest of the mass lies on tokens none likelier than the least likely of the best: on as few as that
    allows, or spread evenly over all unlisted ones.
    """
    logs = np.asarray(log_probs, dtype=np.float64)
    listed = logs[np.isfinite(logs)]
    known = -float(np.sum(np.exp(listed) * listed))
    rest = max(1.0 - math.fsum(np.exp(listed).tolist()), 0.0)
    unlisted = max((size or LARGEST_VOCABULARY) - len(logs), 0)
    # Nothing is open, so that both ends are the entropy of what is listed.
    if rest == 0.0 or unlisted == 0:
        return max(known, 0.0), max(known, 0.0)
    most = min(float(np.exp(logs[: len(logs) if best is None else best].min())), 1.0)
    spread = rest * (math.log(unlisted) - math.log(rest))
    return max(known + min(_packed_entropy(rest, most), spread), 0.0), max(known + spread, 0.0)


def _packed_entropy(rest: float, most: float) -> float:
    """Part of the entropy of a mass that lies on as few tokens as can be, none of which has more than `most`."""
    if most <= 0.0:
        return math.inf
    whole = math.floor(rest / most)
    last = rest - whole * most
    return -whole * most * math.log(most) - (last * math.log(last) if last > 0 else 0.0)
