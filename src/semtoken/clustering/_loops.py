"""The compiled inner loops: arrays in, arrays out, nothing else.

All of them release the interpreter's lock, so that several tiles are worked on at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile at the first call and keep the machine code for the next process."""
    result: Function = numba.njit(nogil=True, cache=True)(function)
    return result


def compiled_fast(function: Function) -> Function:
    """The same, with sums in any order: they may be vectorised."""
    result: Function = numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})(function)
    return result


# --- rows -------------------------------------------------------------------------------------------------------


@compiled
def gather_float32(table, index, factor, out, column):  # type: ignore[no-untyped-def]
    """out[r, column:] = table[index[r]] * factor[r]."""
    for r in range(len(index)):
        row, f = table[index[r]], factor[r]
        target = out[r, column : column + table.shape[1]]
        for j in range(len(target)):
            target[j] = np.float32(row[j] * f)


@compiled
def gather_bfloat16(table, index, factor, out, column):  # type: ignore[no-untyped-def]
    """The same for bfloat16 given as its bits: the upper half of a float32."""
    bits = out.view(np.uint32)
    for r in range(len(index)):
        row, f = table[index[r]], factor[r]
        target = bits[r, column : column + table.shape[1]]
        for j in range(len(target)):
            target[j] = np.uint32(row[j]) << np.uint32(16)
        value = out[r, column : column + table.shape[1]]
        for j in range(len(value)):
            value[j] = np.float32(value[j] * f)


@compiled_fast
def centre_and_append_norm(out, centre, left):  # type: ignore[no-untyped-def]
    """Subtract the centre and fill the two last columns: (1, -|x|^2/2) on the left, the other way on the right."""
    d = len(centre)
    for r in range(len(out)):
        row = out[r]
        total = 0.0
        for j in range(d):
            row[j] -= centre[j]
            total += np.float64(row[j]) * np.float64(row[j])
        row[d + left] = np.float32(-0.5 * total)
        row[d + 1 - left] = np.float32(1.0)


@compiled_fast
def norms_float32(table, out):  # type: ignore[no-untyped-def]
    """Euclidean norms, summed in float64."""
    for r in range(len(table)):
        row = table[r]
        total = 0.0
        for j in range(len(row)):
            total += np.float64(row[j]) * np.float64(row[j])
        out[r] = np.sqrt(total)


@compiled_fast
def norms_bfloat16(table, out):  # type: ignore[no-untyped-def]
    """The same for bfloat16 bits."""
    bits = np.empty(table.shape[1], np.uint32)
    row = bits.view(np.float32)
    for r in range(len(table)):
        for j in range(len(bits)):
            bits[j] = np.uint32(table[r, j]) << np.uint32(16)
        total = 0.0
        for j in range(len(row)):
            total += np.float64(row[j]) * np.float64(row[j])
        out[r] = np.sqrt(total)
