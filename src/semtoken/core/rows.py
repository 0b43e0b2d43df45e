"""Rows of logits with what every reduction of them needs: log normalizers, entropies, and which tokens are probable.

A compiled kernel reads rows of large vocabularies on the CPU, in float32 and bfloat16, once and in place. For other
rows, on other devices, and where numba is not installed, numpy and torch do the same. `reduce_rows` takes from rows
what may count once their tokens are known: the columns of a few tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semtoken.core import columns
from semtoken.core.endings import KINDS
from semtoken.core.rules import Companions
from semtoken.core.scorer import Scorer
from semtoken.support.arrays import (
    HUGE,
    BoolArray,
    FloatArray,
    IdArray,
    Rows,
    columns_above,
    copy_row,
    gather,
    is_tensor,
    levelled,
    log_normalizers,
    read_only,
    row_entropies,
    widened,
)
from semtoken.support.compiled import in_threads

LISTED = 8  # other tokens of a step that are listed with an answer
LEAST_LISTED = 0.01  # the probability from which on they are
LOG_LEAST = math.log(LEAST_LISTED)
NO_COLUMNS = np.empty(0, dtype=np.int64)
NUMBERS_EACH = 2_500_000
"""The fewest numbers that a thread is given to read, 16 rows of a large vocabulary. To wake a thread takes as long as
to read 80,000, and right after a step of torch its own threads still hold the processors for a moment."""
COMPILED_FROM = 16_384
"""The number of tokens of a vocabulary from which on compiled code is worth the time to load numba."""


class KernelRows(NamedTuple):
    """The results of the kernel for n rows, in the order of its arguments."""

    normalizers: FloatArray
    """[n] log-sum-exp of the vocabulary's columns; NaN for a row that holds no distribution."""
    entropies: FloatArray
    """[n] in nats; NaN where the normalizer is."""
    likely_ids: IdArray
    """[n, LISTED + 1] the most probable tokens of at least `LEAST_LISTED`, of which the chosen one may be one; -1 where
    there are fewer."""
    likely: FloatArray
    """[n, LISTED + 1] their logits, falling."""
    masked: BoolArray
    """[n] whether some token has no probability, its logit being minus infinity."""

    @classmethod
    def room(cls, n: int) -> KernelRows:
        """Memory for n rows."""
        likely = np.empty((n, LISTED + 1), dtype=np.int64), np.empty((n, LISTED + 1))
        return cls(np.zeros(n), np.zeros(n), *likely, np.zeros(n, dtype=bool))

    def at(self, places: Any) -> KernelRows:
        """The same of some of the rows."""
        some: list[Any] = [column[places] for column in self]
        return KernelRows(*some)

    @property
    def beyond(self) -> bool:
        """True if some normalizer is too far from 0 for sums in float32."""
        return bool((np.abs(self.normalizers) > HUGE).any())


@dataclass(frozen=True, eq=False)
class NormalizedRows:
    """n rows of logits with their normalizers and most probable tokens."""

    logits: Rows
    """The rows themselves, [m, columns]."""
    row_ids: IdArray
    """[n] the row of `logits` that each of them is."""
    numbers: IdArray
    """[n] the row of the batch that each of them was, for messages."""
    log_normalizers: FloatArray
    """[n] log-sum-exp of the vocabulary's columns; not finite for a row that holds no distribution."""
    readable: Any = None
    """The rows as an array that the compiled kernel reads; else None."""
    found: KernelRows | None = None
    """The results of the kernel for them, if it has read them; else None."""

    def of(self, places: slice | IdArray) -> NormalizedRows:
        """The rows at these places, in this order."""
        kernel_rows = None if self.found is None else self.found.at(places)
        each = (self.row_ids[places], self.numbers[places], self.log_normalizers[places])
        return NormalizedRows(self.logits, *each, self.readable, kernel_rows)


@dataclass(frozen=True, eq=False)
class WholeRow:
    """A copy of one row of logits."""

    logits: FloatArray
    """The row itself, [V]."""
    log_normalizer: float

    @classmethod
    def of(cls, rows: NormalizedRows, place: int, size: int) -> WholeRow:
        """Copy the row at a place."""
        logits = copy_row(rows.logits, int(rows.row_ids[place]), size)
        return cls(logits, float(rows.log_normalizers[place]))

    def log_probs(self, ids: IdArray) -> FloatArray:
        """Log-probabilities of some tokens, in float64."""
        return self.logits[ids].astype(np.float64) - self.log_normalizer


def normalized_rows(rows: Rows, size: int, row_ids: Sequence[int] | IdArray | None = None) -> NormalizedRows:
    """Read rows of logits: their normalizers, and where the kernel can read them also entropies and probable tokens.

    `rows` [m, columns] are as `as_rows` gives them, and columns beyond V = `size` are padding. `row_ids` are those to
    read; by default all.
    """
    chosen = np.arange(len(rows)) if row_ids is None else np.asarray(row_ids, dtype=np.int64)
    readable = readable_rows(rows, size)
    if readable is not None:
        kernel_rows = KernelRows.room(len(chosen))
        _read(readable, chosen, size, kernel_rows)
        # Far from 0, float32 has no digits left for a sum: such rows are read again below, moved to 0 in float64.
        if not kernel_rows.beyond:
            return NormalizedRows(rows, chosen, chosen, kernel_rows.normalizers, readable, kernel_rows)
    # Selecting all rows would copy them.
    part = rows if np.array_equal(chosen, np.arange(len(rows))) else rows[chosen.tolist()]
    if is_tensor(part) and part.device.type == "cpu":
        part = widened(part)
    normalizers = log_normalizers(part, size)
    if (np.isfinite(normalizers) & (np.abs(normalizers) > HUGE)).any():
        part = levelled(part, size)
        normalizers = log_normalizers(part, size)
    return NormalizedRows(part, np.arange(len(chosen)), chosen, normalizers)


def entropies_of(rows: NormalizedRows, size: int) -> FloatArray:
    """Entropy of the next-token distribution that each of some rows of logits holds [n], in nats, from 0 to ln(size).

    The kernel finds it while it reads the rows; of those that it cannot read it is computed here.
    """
    if rows.found is not None and np.isfinite(rows.found.entropies).all():
        return rows.found.entropies
    return row_entropies(rows.logits[rows.row_ids.tolist()], rows.log_normalizers, size)


def any_masked(rows: NormalizedRows, size: int) -> bool:
    """Return True if some token of some row has no probability, as samplers and masks leave it.

    The kernel sees it while it reads the rows; of those that it cannot read it is found here.
    """
    if rows.found is not None:
        return bool(rows.found.masked.any())
    return bool(rows.logits[rows.row_ids.tolist()][:, :size].min() == -math.inf)


def _read(readable: npt.NDArray[Any], row_ids: IdArray, size: int, kernel_rows: KernelRows) -> None:
    """Have the kernel read some rows, in several threads where there are many numbers."""
    from semtoken.core.kernel import normalize

    if len(row_ids) * size < 2 * NUMBERS_EACH:  # one call: beside a model each slice more would cost microseconds
        normalize(readable, row_ids, size, LOG_LEAST, *kernel_rows)
        return

    def read(part: slice) -> None:
        normalize(readable, row_ids[part], size, LOG_LEAST, *kernel_rows.at(part))

    in_threads(read, len(row_ids), least=-(-NUMBERS_EACH // size))


def readable_rows(rows: Rows, size: int) -> npt.NDArray[Any] | None:
    """Rows on the CPU as an array that the kernel can read, without a copy if they are contiguous; or None."""
    if not COMPILED_FROM <= size <= rows.shape[1] or not _has_numba():
        return None
    if is_tensor(rows):
        # Of tensors on the CPU only bfloat16 comes here: numpy has no such type, and `as_rows` makes arrays of all
        # others.
        if not rows.is_cpu or str(rows.dtype) != "torch.bfloat16":
            return None
        import torch

        # The kernel reads the bits, as the upper halves of float32.
        readable: npt.NDArray[Any] = rows.contiguous().view(torch.int16).numpy().view(np.uint16)
    elif rows.dtype == np.float32:
        readable = np.ascontiguousarray(rows)
    else:
        return None
    return read_only(readable)


@cache
def _has_numba() -> bool:
    return find_spec("numba") is not None


# --- what may count of a row, once its token is known


def reduce_rows(
    scorer: Scorer, rows: NormalizedRows, taken: IdArray, tokens: IdArray, before: IdArray, opening: BoolArray
) -> tuple[columns.Columns, dict[int, WholeRow]]:
    """Reduce n rows to the entries that may agree with their tokens.

    `rows` have finite normalizers; `taken` [n] are places among them. `tokens` [n] were chosen, those `before` them are
    -1 for none, and `opening` [n] says that only blanks come before. Also returns, by place, a copy of the row of each
    step whose token alone does not decide what the text from there on begins with (`PrefixIndex.decides`).
    """
    n, size, normalizers = len(tokens), scorer.vocabulary.size, rows.log_normalizers[taken]
    row_ids = rows.row_ids[taken]
    asked = scorer.endings.what_may_end(before, tokens)
    own = gather(rows.logits, row_ids, tokens) - normalizers
    lists = [(np.arange(n), tokens), *(_companions(table, tokens) for table in scorer.companions)]
    waiting: list[int] = []
    undecided = np.zeros(n, dtype=bool)
    lists.append(_likely(rows, taken, tokens, own, size))
    if scorer.looks_ahead:
        decides = scorer.index.decides[tokens]
        waiting = np.flatnonzero(~decides).tolist()
        clear = zip(tokens.tolist(), decides.tolist(), strict=True)
        begins = [scorer.may_begin(token) if alone else (NO_COLUMNS, True) for token, alone in clear]
        sets = np.repeat(np.arange(n), [len(ids) for ids, _ in begins]), np.concatenate([ids for ids, _ in begins])
        undecided = np.array([not decided for _, decided in begins], dtype=bool)
        lists.append(sets)
    # One number for each pair of step and token: sorted, they are in the order of the steps, and each is there once.
    every = [owners * size + ids for owners, ids in lists]
    keys = np.unique(np.concatenate(every))
    owners, ids = keys // size, keys % size
    logs = gather(rows.logits, row_ids[owners], ids) - normalizers[owners]
    # The last list is that of the prefix sets; what stands in another one counts whatever follows.
    certain = np.concatenate(every[:-1]) if scorer.looks_ahead else keys
    steps = columns.of_rows(
        tokens,
        opening,
        # The normalizer of a row with one likely token may be a digit below its logit.
        log_probs=np.minimum(own, 0.0),
        neutrals=_neutral_masses(scorer, rows, taken, opening),
        ends=_end_masses(scorer, rows, taken, asked),
        owners=owners,
        ids=ids,
        logs=logs,
        open=undecided[owners] & ~np.isin(keys, certain),
    )
    return steps, {k: WholeRow.of(rows, int(taken[k]), size) for k in waiting}


def _companions(companions: Companions, tokens: IdArray) -> tuple[IdArray, IdArray]:
    """Step and id of the tokens that agree with the chosen one of each step."""
    places = companions.table.places[tokens]
    return _listed(companions.table.ids, places[:, 0], places[:, 1])


def _listed(ids: IdArray, firsts: IdArray, ends: IdArray) -> tuple[IdArray, IdArray]:
    """Step and id of the entries of n lists that stand in `ids` from `firsts` to before `ends`."""
    counts = ends - firsts
    behind = np.cumsum(counts)
    owners = np.repeat(np.arange(len(counts)), counts)
    return owners, ids[np.arange(len(owners)) + np.repeat(firsts - (behind - counts), counts)]


def _likely(
    rows: NormalizedRows, taken: IdArray, tokens: IdArray, own: FloatArray, size: int
) -> tuple[IdArray, IdArray]:
    """Step and id of the most probable other tokens of each row."""
    if rows.found is not None:
        ids = rows.found.likely_ids[taken]
        return np.nonzero(ids >= 0)[0], ids[ids >= 0]
    # the steps at which another token may have 1%, for the chosen one has not all the rest; and the logits of 1%
    unsure = np.flatnonzero(~(own > math.log1p(-LEAST_LISTED)))
    least = (rows.log_normalizers[taken[unsure]] + LOG_LEAST).tolist()
    lists = []
    for found, values in columns_above(rows.logits, rows.row_ids[taken[unsure]].tolist(), size, least, LISTED + 1):
        lists.append(found[np.lexsort((found, -values))][: LISTED + 1])
    return np.repeat(unsure, list(map(len, lists))), np.concatenate([NO_COLUMNS, *lists])


def _neutral_masses(scorer: Scorer, rows: NormalizedRows, taken: IdArray, opening: BoolArray) -> FloatArray:
    """Log of the mass of all tokens that are neutral under the rules, and under the paper's, for each row [n, 2]."""
    n, ids = len(taken), scorer.neutral_ids
    masses = np.full((n, 2), -np.inf)
    if not len(ids):
        return masses
    logits = gather(rows.logits, np.repeat(rows.row_ids[taken], len(ids)), np.tile(ids, n)).reshape(n, -1)
    logs = logits - rows.log_normalizers[taken][:, None]
    counted = scorer.neutral_masks[:, ids][np.where(opening, 0, 1)]
    masses[:, 0] = _log_sums(np.where(counted, logs, -np.inf)) if scorer.knows_neutral else -np.inf
    # Where every neutral token counts, as under the paper's rules, one sum is both.
    masses[:, 1] = masses[:, 0] if scorer.knows_neutral and counted.all() else _log_sums(logs)
    return masses


def _log_sums(logs: FloatArray) -> FloatArray:
    """Log of the sum of the exponentials of each row."""
    highest = logs.max(axis=1)
    # The difference of two minus infinities would be NaN.
    highest[np.isneginf(highest)] = 0.0
    with np.errstate(divide="ignore"):
        return np.asarray(highest + np.log(np.exp(logs - highest[:, None]).sum(axis=1)))


def _end_masses(scorer: Scorer, rows: NormalizedRows, taken: IdArray, asked: IdArray) -> FloatArray:
    """The mass of each kind of token that ends a value or goes on with it [n, 5], 0 where no value may end."""
    masses, endings = np.zeros((len(taken), len(KINDS))), scorer.endings
    for k in np.flatnonzero(asked).tolist():
        ids = endings.ids_asked(int(asked[k]))
        at = np.full(len(ids), rows.row_ids[taken[k]])
        probabilities = np.exp(gather(rows.logits, at, ids) - rows.log_normalizers[taken[k]])
        masses[k] = [float(probabilities[getattr(endings, kind)[ids]].sum()) for kind in KINDS]
    return masses
