# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""The compiled loops of a decoding step: arrays in, arrays out, nothing else.

`normalize` reads each row of logits once, in float32 or bfloat16 as it stands in memory, and finds its log normaliser
and its most probable tokens. Given the tokens that were chosen, `count` and `lay_out` say which columns are needed,
`gather` takes them, and `sum_groups` adds them up to the masses of a `StepMass`. All release the interpreter's lock.

Rows are float32, or bfloat16 as their bits in uint16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.extending import overload

BLOCK = 1024  # numbers of a row that are looked at together: they stay in the innermost cache
LOWEST = np.float32(-87.0)  # exp of less is no normal float32, and nothing beside a sum that is at least 1
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

OWN, CLUSTER, CLUSTER_NEUTRAL, NEUTRALS, ALIKE, ALIKE_APART, ALIKE_NEUTRAL, MEANING = range(8)
"""The masses of a step in the order of `StepMass`."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call and keep the machine code for the next process."""
    result: Callable[..., Any] = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    return result


def compiled_fast(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with sums in any order: they may be vectorised."""
    result: Callable[..., Any] = numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})(function)
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


@compiled_fast
def _sum_exp(values, highest):
    """Sum of exp(value - highest) of values that are no greater, each to 2e-7 of itself."""
    total = np.float32(0)
    for j in range(len(values)):
        x = max(_number(values, j) - highest, LOWEST)
        n = np.int32(x * LOG2_E - np.float32(0.5))  # x = n ln 2 + r with |r| <= ln(2) / 2
        r = x - np.float32(n) * LN2
        p = EXP_5 * r + EXP_4
        p = p * r + EXP_3
        p = p * r + EXP_2
        p = p * r + EXP_1
        p = p * r + EXP_0
        power = np.int32((n + np.int32(127)) << np.int32(23))  # 2^n, put together from its bits
        total += p * power.view(np.float32)
    return total


@compiled
def _add_block(part, state):
    """Take a part of a row into its running maximum and sum; returns the maximum of this part alone.

    `state` is the maximum, the sum of exp(value - maximum), and whether -inf and whether NaN or +inf was seen.
    """
    low, high = _extremes(part)
    if low <= MINUS_INFINITE:
        state[2] = 1.0
    if low < MINUS_INFINITE or high >= INFINITE:
        state[3] = 1.0
        return np.float32(np.inf)
    peak = np.int32(high ^ ((high >> SIGN) & MAGNITUDE)).view(np.float32)
    if peak > state[0]:
        state[1] *= np.exp(state[0] - peak)
        state[0] = peak
    if peak > -np.inf:
        state[1] += _sum_exp(part, np.float32(state[0]))
    return peak


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
    """The most probable columns of a row that hold at least so much; only parts that may hold one are looked at."""
    ids[:] = -1
    values[:] = -np.inf
    for b in range(len(peaks)):
        if peaks[b] >= least:
            for j in range(b * BLOCK, min((b + 1) * BLOCK, size)):
                value = np.float64(_number(row, j))
                if value >= least:
                    _insert(ids, values, j, value)


@compiled
def normalize(rows, row_ids, size, log_least, kept, normalizers, has_minus_infinity, likely_ids, likely):
    """Normalisers and most probable tokens of some rows.

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
    kept
        [n, size], of the type of the rows: takes a copy of them. If it has no rows, nothing is copied.
    normalizers
        float64 [n]; NaN for a row with NaN or +inf, or without a finite value.
    has_minus_infinity
        bool [n].
    likely_ids, likely
        int64 and float64 [n, k]: the most probable tokens and their logits in falling order, -1 where there are fewer.
    """
    peaks = np.empty((size + BLOCK - 1) // BLOCK, dtype=np.float32)
    state = np.empty(4)
    for k in range(len(row_ids)):
        row = rows[row_ids[k]]
        state[:] = (-np.inf, 0.0, 0.0, 0.0)
        for b in range(len(peaks)):
            part = row[b * BLOCK : min((b + 1) * BLOCK, size)]
            if len(kept):
                kept[k, b * BLOCK : b * BLOCK + len(part)] = part
            peaks[b] = _add_block(part, state)
        sound = state[3] == 0 and state[1] > 0
        normalizers[k] = state[0] + np.log(state[1]) if sound else np.nan
        has_minus_infinity[k] = state[2] > 0
        _find_likely(row, size, normalizers[k] + log_least, peaks, likely_ids[k], likely[k])


# --- masses ------------------------------------------------------------------------------


@compiled
def count(tables, tokens, asked, places, candidate_places):
    """How many columns each step needs.

    Parameters
    ----------
    tables
        `semtoken.scoring.step_tables.StepTables`.
    tokens, asked
        [n] the chosen token, and which list of end tokens is needed.
    places
        [n, 5] takes where each group of each step begins: the token itself with its cluster, other tokens of its
        spelling, neutral tokens, end tokens; and where the last ends.
    candidate_places
        [n + 1] takes where the candidates of the prefix set of each step begin, which come after all groups.
    """
    at = 0
    for k in range(len(tokens)):
        members, alike = tables.cluster_of[tokens[k]], tables.spelling_of[tokens[k]]
        places[k, 0] = at
        places[k, 1] = places[k, 0] + max(members[1] - members[0], 1)
        places[k, 2] = places[k, 1] + alike[1] - alike[0] - 1
        places[k, 3] = places[k, 2] + len(tables.neutral_ids)
        places[k, 4] = places[k, 3] + tables.end_places[asked[k] + 1] - tables.end_places[asked[k]]
        at = places[k, 4]
    for k in range(len(tokens)):
        candidate_places[k] = at
        at += tables.candidates_of[tokens[k], 1] - tables.candidates_of[tokens[k], 0]
    candidate_places[len(tokens)] = at


@compiled
def _put_others(ids, first, last, token, columns, at):
    """Put the ids from one place to another, but not the token itself."""
    for j in range(first, last):
        if ids[j] != token:
            columns[at] = ids[j]
            at += 1


@compiled
def lay_out(tables, tokens, asked, places, candidate_places, columns):
    """The ids of the columns that `count` has counted."""
    for k in range(len(tokens)):
        token = tokens[k]
        columns[places[k, 0]] = token
        first, last = tables.cluster_of[token]
        _put_others(tables.members, first, last, token, columns, places[k, 0] + 1)
        first, last = tables.spelling_of[token]
        _put_others(tables.spelled, first, last, token, columns, places[k, 1])
        columns[places[k, 2] : places[k, 3]] = tables.neutral_ids
        first, last = tables.end_places[asked[k]], tables.end_places[asked[k] + 1]
        columns[places[k, 3] : places[k, 4]] = tables.end_ids[first:last]
        first, last = tables.candidates_of[token]
        columns[candidate_places[k] : candidate_places[k + 1]] = tables.candidates[first:last]


@compiled
def gather(rows, row_ids, places, candidate_places, columns, values):
    """The float32 values of the columns that `lay_out` has found."""
    for k in range(len(row_ids)):
        row = rows[row_ids[k]]
        for at in range(places[k, 0], places[k, -1]):
            values[at] = _number(row, columns[at])
        for at in range(candidate_places[k], candidate_places[k + 1]):
            values[at] = _number(row, columns[at])


@compiled
def _add(sums, group, log_prob):
    """Add a probability to a group, which is kept as its greatest log and the sum of its shares of that."""
    highest = sums[group, 0]
    if log_prob > highest:
        sums[group, 0] = log_prob
        sums[group, 1] = sums[group, 1] * np.exp(highest - log_prob) + 1.0
    elif log_prob > -np.inf:
        sums[group, 1] += np.exp(log_prob - highest)


@compiled
def _counts_in_cluster(tables, token, other):
    """Whether another token of the same label counts under the rules."""
    return (
        tables.clustering
        and not tables.numeral[token]
        and (not tables.same_letters or tables.letters[token] == tables.letters[other])
    )


@compiled
def _sum_step(tables, token, opening, places, columns, values, normalizer, sums, ends):
    """Add up the groups of one step."""
    neutral = tables.neutral[0 if opening else 1]
    for at in range(places[0], places[1]):  # the token itself and its cluster
        other, log_prob = columns[at], values[at] - normalizer
        if other == token:
            _add(sums, OWN, log_prob)
        if other == token or not tables.paper_neutral[other]:
            _add(sums, MEANING, log_prob)
        if other != token and _counts_in_cluster(tables, token, other):
            _add(sums, CLUSTER_NEUTRAL if neutral[other] else CLUSTER, log_prob)
    for at in range(places[1], places[2]):  # others of its spelling
        other, log_prob = columns[at], values[at] - normalizer
        _add(sums, ALIKE, log_prob)
        same_label = tables.labels[token] == tables.labels[other]
        if tables.same_spelling and not (same_label and _counts_in_cluster(tables, token, other)):
            _add(sums, ALIKE_NEUTRAL if neutral[other] else ALIKE_APART, log_prob)
    for at in range(places[2], places[3]):  # neutral tokens
        other, log_prob = columns[at], values[at] - normalizer
        _add(sums, MEANING, log_prob)
        if neutral[other]:
            _add(sums, NEUTRALS, log_prob)
    for at in range(places[3], places[4]):  # tokens that go on with a value or end it
        kinds, probability = tables.end_kinds[columns[at]], np.exp(values[at] - normalizer)
        for kind in range(len(ends)):
            if kinds & (1 << kind):
                ends[kind] += probability


@compiled
def sum_groups(tables, tokens, opening, places, columns, values, normalizers, logs, ends):
    """The masses of each step.

    Parameters
    ----------
    tables, tokens, places, columns
        As in `lay_out`.
    opening
        bool [n]: nothing but blanks comes before.
    values
        Logits of the columns.
    normalizers
        [n] log normalisers.
    logs
        float64 [n, 8]: takes the logs of the masses, in the order of `OWN` to `MEANING`.
    ends
        float64 [n, 5]: takes the probabilities of the kinds of end tokens, each up to 1.
    """
    sums = np.empty((logs.shape[1], 2))
    for k in range(len(tokens)):
        sums[:, 0], sums[:, 1] = -np.inf, 0.0
        ends[k] = 0.0
        _sum_step(tables, tokens[k], opening[k], places[k], columns, values, normalizers[k], sums, ends[k])
        for group in range(len(sums)):
            logs[k, group] = sums[group, 0] + np.log(sums[group, 1]) if sums[group, 1] > 0 else -np.inf
        if tables.paper_neutral[tokens[k]]:
            logs[k, MEANING] = 0.0
