# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""The compiled loop over rows of logits: arrays in, arrays out, nothing else.

`normalize` reads each row once, in float32 or bfloat16 as it stands in memory, and finds its log normalizer, its
entropy, its most probable tokens, and whether some token has no probability. It releases the interpreter's lock.
`semtoken.core.rows` says what is found, and does the same in numpy and torch.

Rows are float32, or bfloat16 as their bits in uint16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.extending import overload

from semtoken.support.compiled import compile_and_keep

BLOCK = 1024  # numbers of a row that are looked at together: they stay in the innermost cache
LOWEST = np.float32(-87.0)  # exp of less is no normal float32, and nothing beside a sum that is at least 1
# From 88.7 on, exp is beyond float32.
HIGHEST = np.float32(86.0)
FAR = np.int32(4)  # powers of two that numbers may be beyond what came before them, and still be summed with it
SIGN, MAGNITUDE = np.int32(31), np.int32(0x7FFFFFFF)
INFINITE = np.int32(0x7F800000)  # the bits of +inf
MINUS_INFINITE = np.int32(~0x7F800000)  # where `_extremes` puts -inf
LOG2_E = np.float32(1.44269504)
LN2 = np.float32(0.69314718)
EXP_0, EXP_1, EXP_2, EXP_3, EXP_4, EXP_5 = (
    np.polynomial.Chebyshev.interpolate(np.exp, 5, domain=[-np.log(2) / 2, np.log(2) / 2])
    .convert(kind=np.polynomial.Polynomial)
    .coef.astype(np.float32)
)
"""A polynomial of exp around 0, right to 1e-7."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call and keep the machine code for the next process."""
    result: Callable[..., Any] = compile_and_keep(function, error_model="numpy")
    return result


def compiled_fast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function whose sums may be taken in any order, so that they can be vectorized."""
    # Not those flags that assume finite numbers: NaN and infinities have to be found.
    result: Callable[..., Any] = compile_and_keep(function, fastmath={"reassoc", "contract"})
    return result


def compiled_inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that is inlined into the loops that call it."""
    result: Callable[..., Any] = numba.njit(inline="always", fastmath={"reassoc", "contract"})(function)
    return result


# --- rows --------------------------------------------------------------------------------


def _number(values, j):
    """The float32 at a place of an array: of bfloat16 bits, which are the upper half of one, or of float32."""
    raise NotImplementedError


@overload(_number, inline="always")
def _number_of_type(values, j):
    if values.dtype == numba.uint16:
        return lambda values, j: np.uint32(np.uint32(values[j]) << np.uint32(16)).view(np.float32)
    return lambda values, j: values[j]


@compiled_fast
def _extremes(values):
    """The least and the greatest number, in an order of integers in which NaN stands at both ends."""
    low, high = MAGNITUDE, np.int32(~MAGNITUDE)
    for j in range(len(values)):
        wide = np.float32(_number(values, j)).view(np.int32)
        ordered = np.int32(wide ^ np.int32(np.int32(wide >> SIGN) & MAGNITUDE))
        low, high = min(low, ordered), max(high, ordered)
    return low, high


@compiled_inline
def _exp_bits(x):
    """The bits of exp of a float32 from `LOWEST` to `HIGHEST`, to 2e-7 of itself."""
    n = np.floor(x * LOG2_E + np.float32(0.5))  # x = n ln 2 + r with |r| <= ln(2) / 2
    r = x - n * LN2
    p = EXP_5 * r + EXP_4
    p = p * r + EXP_3
    p = p * r + EXP_2
    p = p * r + EXP_1
    p = p * r + EXP_0
    return np.int32(np.float32(p).view(np.int32) + np.int32(np.int32(n) << np.int32(23)))  # p times 2^n


@compiled_fast
def _sum_exp(values, reference):
    """Sums of exp(value - reference), and of the same times value - reference, of values that are no greater."""
    total, weighted = np.float32(0), np.float32(0)
    for j in range(len(values)):
        beyond = max(np.float32(_number(values, j)) - reference, LOWEST)
        share = np.int32(_exp_bits(beyond)).view(np.float32)
        total += share
        weighted += share * beyond
    return total, weighted


@compiled_fast
def _glance(values, reference):
    """The same sums, the greatest of the exponentials, and 0 if all values are finite, NaN if not.

    The first three hold only if all are finite and none is as much as `HIGHEST` beyond the reference. The greatest is
    given as its bits.
    """
    total, weighted, greatest, unsound = np.float32(0), np.float32(0), np.int32(0), np.float32(0)
    for j in range(len(values)):
        value = np.float32(_number(values, j))
        # Zero, but NaN if the value is infinite or NaN, without a branch in the loop.
        unsound += value * np.float32(0)
        beyond = min(max(value - reference, LOWEST), HIGHEST)
        bits = np.int32(_exp_bits(beyond))
        greatest = max(greatest, bits)
        total += bits.view(np.float32)
        weighted += bits.view(np.float32) * beyond
    return total, weighted, greatest, unsound


@compiled
def _add_block(part, state):
    """Take a part of a row into its running sums; returns an upper bound of the numbers in this part.

    `state` is a reference, the sum of exp(value - reference), that of the same times value - reference, whether NaN or
    +inf was seen, and whether -inf was.
    """
    if state[0] > -np.inf:
        reference = np.float32(state[0])
        total, weighted, greatest, unsound = _glance(part, reference)
        doubled = np.int32(greatest >> np.int32(23)) - np.int32(126)  # 2 to this is more than the greatest
        if unsound == 0 and doubled < FAR:
            state[1] += total
            state[2] += weighted
            # The 0.001 is more than the error of `_exp_bits`, so that no part with a likely token is passed over.
            return state[0] + (doubled + 0.001) * np.log(2.0)
    # The first part, and one with infinities or far greater numbers than those before.
    low, high = _extremes(part)
    if low < MINUS_INFINITE or high >= INFINITE:
        state[3] = 1.0
        return np.inf
    if low == MINUS_INFINITE:
        state[4] = 1.0
    peak = np.int32(high ^ ((high >> SIGN) & MAGNITUDE)).view(np.float32)
    if peak > state[0]:
        # The sums so far were relative to the old reference.
        if state[1] > 0:
            fallen = state[0] - peak
            state[2] = (state[2] + fallen * state[1]) * np.exp(fallen)
            state[1] *= np.exp(fallen)
        state[0] = peak
    if peak > -np.inf:
        total, weighted = _sum_exp(part, np.float32(state[0]))
        state[1] += total
        state[2] += weighted
    return np.float64(peak)


@compiled
def _insert(ids, values, token, value):
    """Put a token among the most probable ones, which stand in order, if it belongs there; the last one goes."""
    place = len(values)
    while place > 0 and values[place - 1] < value:
        place -= 1
        if place + 1 < len(values):
            ids[place + 1], values[place + 1] = ids[place], values[place]
    if place < len(values):
        ids[place], values[place] = token, value


@compiled
def _find_likely(row, size, least, peaks, ids, values):
    """Find the most probable columns of a row, of at least the value `least`.

    Only parts that may hold such a column, by their `peaks`, are looked at.
    """
    ids[:] = -1
    values[:] = -np.inf
    for b in range(len(peaks)):
        if peaks[b] >= least:
            for j in range(b * BLOCK, min((b + 1) * BLOCK, size)):
                value = np.float64(_number(row, j))
                if value >= least:
                    _insert(ids, values, j, value)


@compiled
def normalize(
    rows,
    row_ids,
    size,
    log_least,
    normalizers,
    entropies,
    likely_ids,
    likely,
    masked,
):
    """Compute normalizers, entropies and the most probable tokens of some rows.

    Parameters
    ----------
    rows
        [m, columns]
    row_ids
        [n] which rows.
    size
        Columns beyond are no tokens.
    log_least
        Log-probability from which on a token is listed.
    normalizers
        float64 [n]; NaN for a row with NaN or +inf, or without a finite value.
    entropies
        float64 [n], in nats; NaN where the normalizer is.
    likely_ids, likely
        int64 and float64 [n, k]: the most probable tokens and their logits in falling order, -1 where there are fewer.
    masked
        bool [n]: whether some column of a row that has a normalizer is -inf.
    """
    peaks = np.empty((size + BLOCK - 1) // BLOCK)
    state = np.empty(5)
    for k in range(len(row_ids)):
        row = rows[row_ids[k]]
        state[:] = (-np.inf, 0.0, 0.0, 0.0, 0.0)
        for b in range(len(peaks)):
            part = row[b * BLOCK : min((b + 1) * BLOCK, size)]
            peaks[b] = _add_block(part, state)
        sound = state[3] == 0 and state[1] > 0
        normalizers[k] = state[0] + np.log(state[1]) if sound else np.nan
        # H = ln Z - sum p (x - r), with Z = sum exp(x - r): the reference r falls out of the entropy.
        entropies[k] = max(np.log(state[1]) - state[2] / state[1], 0.0) if sound else np.nan
        masked[k] = state[4] > 0
        _find_likely(row, size, normalizers[k] + log_least, peaks, likely_ids[k], likely[k])
