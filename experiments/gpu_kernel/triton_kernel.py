# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, attr-defined"
"""The loops of `kernel.py` for rows on a GPU, in Triton: one program a row, and two small transfers a step.

Nothing here has run on a GPU yet, so the package does not use it; `test_triton_kernel.py` runs it through Triton's
interpreter. It reads scorers that have clusters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from semtoken.scoring.scorer import Scorer
from semtoken.support.arrays import FloatArray, IdArray
from semtoken.tokens.vocabulary import BoolArray

BLOCK = 4096
FEW = 64
MOST_LIKELY = 128
"""No more tokens than 100 have 1 % each."""


@triton.jit
def _add(highest, total, values, wanted):
    """Take some values into a running maximum and sum of exp(value - maximum)."""
    some = tl.where(wanted, values, float("-inf"))
    found = tl.maximum(highest, tl.max(some, 0))
    reference = tl.where(found == float("-inf"), 0.0, found)
    return found, total * tl.exp(highest - reference) + tl.sum(tl.exp(some - reference), 0)


@triton.jit
def _log(highest, total, normalizer):
    """The log of the probability of a running sum."""
    none = total == 0
    return tl.where(none, float("-inf"), highest.to(tl.float64) - normalizer + tl.log(tl.where(none, 1.0, total)))


@triton.jit
def _normalize(
    rows, stride, row_ids, size, log_least, found, likely_ids, likely, most: tl.constexpr, block: tl.constexpr
):
    """As `kernel.normalize`; `found` [n, 2] takes the normaliser and whether -inf was seen."""
    k = tl.program_id(0).to(tl.int64)
    row = rows + tl.load(row_ids + k) * stride
    total = tl.sum(tl.zeros((block,), tl.float32), 0)
    highest = total - float("inf")
    infinite, unsound = 0, 0
    for first in range(0, size, block):
        at = first + tl.arange(0, block)
        value = tl.load(row + at, mask=at < size, other=float("-inf")).to(tl.float32)
        infinite += tl.sum(((value == float("-inf")) & (at < size)).to(tl.int32), 0)
        unsound += tl.sum(((value != value) | (value == float("inf"))).to(tl.int32), 0)
        highest, total = _add(highest, total, value, at < size)
    sound = (unsound == 0) & (total > 0)
    normalizer = highest.to(tl.float64) + tl.log(tl.where(sound, total, 1.0).to(tl.float64))
    tl.store(found + 2 * k, tl.where(sound, normalizer, float("nan")))
    tl.store(found + 2 * k + 1, infinite.to(tl.float64))
    count = 0
    for first in range(0, size, block):
        at = first + tl.arange(0, block)
        value = tl.load(row + at, mask=at < size, other=float("-inf")).to(tl.float32)
        listed = sound & (value.to(tl.float64) >= normalizer + log_least)
        place = count + tl.cumsum(listed.to(tl.int32), 0) - 1
        tl.store(likely_ids + k * most + place, at.to(tl.int64), mask=listed & (place < most))
        tl.store(likely + k * most + place, value.to(tl.float64), mask=listed & (place < most))
        count += tl.sum(listed.to(tl.int32), 0)


@triton.jit
def _others(row, listed, first, last, token, few: tl.constexpr):
    """Some tokens of a list that are not the chosen one, with their logits; and which of them there are."""
    at = first + tl.arange(0, few)
    other = tl.load(listed + at, mask=at < last, other=0)
    wanted = (at < last) & (other != token)
    return other, wanted, tl.load(row + other, mask=wanted, other=float("-inf")).to(tl.float32)


@triton.jit
def _sum_step(
    rows, stride, row_ids, normalizers, tokens, asked, places, candidate_places, logs, ends, candidate_log_probs,
    members, cluster_of, labels, numeral, spelled, spelling_of, letters, neutral, paper_neutral,
    neutral_ids, candidates, candidates_of, end_ids, end_places, end_kinds,
    vocabulary, n_neutral, clustering: tl.constexpr, same_spelling: tl.constexpr, same_letters: tl.constexpr,
    few: tl.constexpr,
):  # fmt: skip
    """As `kernel.sum_steps`, one step a program."""
    k = tl.program_id(0).to(tl.int64)
    row, normalizer, token = rows + tl.load(row_ids + k) * stride, tl.load(normalizers + k), tl.load(tokens + k)
    here = neutral + tl.load(places + k) * vocabulary
    letter, label, counts = tl.load(letters + token), tl.load(labels + token), tl.load(numeral + token) == 0
    own = tl.load(row + token).to(tl.float32)
    silent = tl.load(paper_neutral + token) != 0
    zero = tl.sum(tl.zeros((few,), tl.float32), 0)
    low = zero - float("inf")
    top_1, sum_1, top_2, sum_2, top_3, sum_3 = low, zero, low, zero, low, zero  # cluster, cluster_neutral, neutrals
    top_4, sum_4, top_5, sum_5, top_6, sum_6 = low, zero, low, zero, low, zero  # alike, alike_apart, alike_neutral
    top_7, sum_7 = tl.where(silent, low, own), tl.where(silent | (own == low), 0.0, 1.0)  # meaning
    last = tl.load(cluster_of + 2 * token + 1)
    for first in range(tl.load(cluster_of + 2 * token), last, few):
        other, wanted, value = _others(row, members, first, last, token, few)
        top_7, sum_7 = _add(top_7, sum_7, value, wanted & (tl.load(paper_neutral + other) == 0))
        if clustering:
            wanted = wanted & counts & ((not same_letters) | (tl.load(letters + other) == letter))
            is_neutral = tl.load(here + other) != 0
            top_1, sum_1 = _add(top_1, sum_1, value, wanted & (is_neutral == 0))
            top_2, sum_2 = _add(top_2, sum_2, value, wanted & is_neutral)
    last = tl.load(spelling_of + 2 * token + 1)
    for first in range(tl.load(spelling_of + 2 * token), last, few):
        other, wanted, value = _others(row, spelled, first, last, token, few)
        top_4, sum_4 = _add(top_4, sum_4, value, wanted)
        if same_spelling:
            if clustering:
                inside = counts & ((not same_letters) | (tl.load(letters + other) == letter))
                wanted = wanted & ((inside & (tl.load(labels + other) == label)) == 0)
            is_neutral = tl.load(here + other) != 0
            top_5, sum_5 = _add(top_5, sum_5, value, wanted & (is_neutral == 0))
            top_6, sum_6 = _add(top_6, sum_6, value, wanted & is_neutral)
    for first in range(0, n_neutral, few):
        at = first + tl.arange(0, few)
        other = tl.load(neutral_ids + at, mask=at < n_neutral, other=0)
        value = tl.load(row + other, mask=at < n_neutral, other=float("-inf")).to(tl.float32)
        top_7, sum_7 = _add(top_7, sum_7, value, at < n_neutral)
        top_3, sum_3 = _add(top_3, sum_3, value, (at < n_neutral) & (tl.load(here + other) != 0))
    out = logs + 8 * k
    tl.store(out, own.to(tl.float64) - normalizer)
    tl.store(out + 1, _log(top_1, sum_1, normalizer))
    tl.store(out + 2, _log(top_2, sum_2, normalizer))
    tl.store(out + 3, _log(top_3, sum_3, normalizer))
    tl.store(out + 4, _log(top_4, sum_4, normalizer))
    tl.store(out + 5, _log(top_5, sum_5, normalizer))
    tl.store(out + 6, _log(top_6, sum_6, normalizer))
    tl.store(out + 7, tl.where(silent, 0.0, _log(top_7, sum_7, normalizer)))
    what = tl.load(asked + k)
    last = tl.load(end_places + what + 1)
    for first in range(tl.load(end_places + what), last, few):
        at = first + tl.arange(0, few)
        other = tl.load(end_ids + at, mask=at < last, other=0)
        value = tl.load(row + other, mask=at < last, other=float("-inf")).to(tl.float64)
        probability = tl.where(at < last, tl.exp(value - normalizer), 0.0)
        kinds = tl.load(end_kinds + other)
        for kind in tl.static_range(5):
            mass = tl.sum(tl.where((kinds & (1 << kind)) != 0, probability, 0.0), 0)
            tl.store(ends + 5 * k + kind, tl.load(ends + 5 * k + kind) + mass)
    start, into = tl.load(candidates_of + 2 * token), tl.load(candidate_places + k)
    count = tl.load(candidate_places + k + 1) - into
    for first in range(0, count, few):
        at = first + tl.arange(0, few)
        other = tl.load(candidates + start + at, mask=at < count, other=0)
        value = tl.load(row + other, mask=at < count, other=0.0).to(tl.float64)
        tl.store(candidate_log_probs + into + at, value - normalizer, mask=at < count)


NAMES = (
    "members", "cluster_of", "labels", "numeral", "spelled", "spelling_of", "letters", "neutral", "paper_neutral",
    "neutral_ids", "candidates", "candidates_of", "end_ids", "end_places", "end_kinds",
)  # fmt: skip
"""The tables of `StepTables` that `_sum_step` reads, in its order."""


class Normalized(NamedTuple):
    """What `normalize` finds of n rows."""

    log_normalizers: FloatArray
    """[n], NaN for a row that holds no distribution."""
    has_minus_infinity: BoolArray
    """Whether a row holds minus infinity, [n]."""
    likely_ids: IdArray
    """[n, k] the most probable tokens, -1 where there are fewer."""
    likely: FloatArray
    """[n, k] their logits, falling."""


@lru_cache(maxsize=4)
def device_tables(scorer: Scorer, device: Any) -> list[Any]:
    """The tables of a scorer on a device; truth values as bytes."""
    arrays = [getattr(scorer.tables, name) for name in NAMES]
    plain = [array.view(np.int8) if array.dtype == bool else array for array in arrays]
    return [torch.from_numpy(np.array(array)).to(device) for array in plain]


def normalize(rows: Any, row_ids: IdArray, size: int, log_least: float, listed: int) -> Normalized:
    """Normalisers and the `listed` most probable tokens of some rows of a tensor, with one transfer."""
    rows, n = _with_near_columns(rows), len(row_ids)
    found = torch.empty((n, 2), dtype=torch.float64, device=rows.device)
    ids = torch.full((n, MOST_LIKELY), -1, dtype=torch.int64, device=rows.device)
    likely = torch.full((n, MOST_LIKELY), -torch.inf, dtype=torch.float64, device=rows.device)
    if n:
        which = torch.from_numpy(row_ids).to(rows.device)
        _normalize[(n,)](
            rows, rows.stride(0), which, size, log_least, found, ids, likely, most=MOST_LIKELY, block=BLOCK
        )
    values, order = likely.sort(dim=1, descending=True, stable=True)
    best = ids.gather(1, order[:, :listed]).double()
    host = torch.cat([found, best, values[:, :listed]], dim=1).cpu().numpy()
    return Normalized(
        np.ascontiguousarray(host[:, 0]),
        host[:, 1] > 0,
        host[:, 2 : 2 + listed].astype(np.int64),
        np.ascontiguousarray(host[:, 2 + listed :]),
    )


def sum_steps(
    scorer: Scorer,
    rows: Any,
    row_ids: IdArray,
    normalizers: FloatArray,
    tokens: IdArray,
    asked: IdArray,
    opening: BoolArray,
) -> tuple[FloatArray, FloatArray, IdArray, FloatArray]:
    """`logs`, `ends`, `counts` and `candidates` of `ReducedSteps` of n steps, with one transfer."""
    rows, n, tables = _with_near_columns(rows), len(tokens), scorer.tables
    counts = np.diff(tables.candidates_of[tokens], axis=1)[:, 0]
    places = np.concatenate([[0], np.cumsum(counts)])
    out = torch.zeros(13 * n + int(places[-1]), dtype=torch.float64, device=rows.device)
    sent = [row_ids, normalizers, tokens, asked, np.where(opening, 0, 1).astype(np.int64), places]
    if n:
        _sum_step[(n,)](
            rows,
            rows.stride(0),
            *(torch.from_numpy(np.ascontiguousarray(array)).to(rows.device) for array in sent),
            out,
            out[8 * n :],
            out[13 * n :],
            *device_tables(scorer, rows.device),
            scorer.vocabulary.size,
            len(tables.neutral_ids),
            clustering=bool(tables.clustering),
            same_spelling=bool(tables.same_spelling),
            same_letters=bool(tables.same_letters),
            few=FEW,
        )
    host = out.cpu().numpy()
    return host[: 8 * n].reshape(n, 8), host[8 * n : 13 * n].reshape(n, 5), counts, host[13 * n :]


def _with_near_columns(rows: Any) -> Any:
    """Rows whose columns lie side by side."""
    return rows if rows.stride(1) == 1 else rows.contiguous()
