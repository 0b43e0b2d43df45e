"""Decoding steps reduced from V probabilities to a few numbers: where the masses of a step are summed.

`reduce_rows` is the one way in. Rows that the compiled kernel can read go to it; the sums in this file take any type
of number on any device, and say what the kernel has to find.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from semtoken.scoring.endings import KINDS
from semtoken.scoring.prefixes import NO_IDS
from semtoken.scoring.rows import LEAST_LISTED, LISTED, NormalizedRows, WholeRow
from semtoken.scoring.scorer import Scorer
from semtoken.scoring.steps import MASSES, ReducedSteps
from semtoken.support.arrays import BoolArray, FloatArray, IdArray, columns_above, gather


def reduce_rows(
    scorer: Scorer, rows: NormalizedRows, taken: IdArray, tokens: IdArray, before: IdArray, opening: BoolArray
) -> tuple[ReducedSteps, dict[int, WholeRow]]:
    """Reduce n decoding steps to the few numbers of each that scoring needs.

    Parameters
    ----------
    scorer
        The rules, and clusters where they are asked for.
    rows
        Rows of logits whose normalisers are finite.
    taken
        [n] which of `rows`, by their place among them.
    tokens
        [n] the tokens that were chosen.
    before
        [n] the tokens before them, -1 for none.
    opening
        [n] only blanks come before.

    Returns
    -------
    ReducedSteps
        The numbers of the n steps.
    dict
        Place of a step -> a copy of its row, for each step whose token alone does not decide what the text from there
        on begins with (`PrefixIndex.tells`).
    """
    size, normalizers = scorer.vocabulary.size, rows.log_normalizers[taken]
    if rows.found is None:
        asked = scorer.endings.what_may_end(before, tokens)
        owners, ids, lists = _needed(scorer, tokens, asked)
        log_probs = gather(rows.logits, rows.row_ids[taken[owners]], ids) - normalizers[owners]
        columns = [_Columns(owners[part], ids[part], log_probs[part]) for part in lists]
        sums = _sums(scorer, tokens, opening, asked, columns)
        unsure, least = _unsure(sums.logs[:, 0], normalizers)
        above = columns_above(rows.logits, rows.row_ids[taken[unsure]].tolist(), size, least, LISTED + 1)
        likely = _likely_tokens(tokens, normalizers, unsure, above)
    else:
        from semtoken.scoring import kernel

        of_rows = (rows.readable, rows.row_ids, rows.found.common, rows.log_normalizers)
        sums = kernel.sum_steps(scorer.tables, *of_rows, taken, tokens, before, opening)
        likely = rows.found.likely_ids[taken], rows.found.likely[taken] - normalizers[:, None]
    asked, neutral, logs, ends, counts, candidates = sums
    steps = ReducedSteps(tokens, opening, neutral, logs, asked, ends, *likely, counts, candidates)
    waiting = np.flatnonzero(~scorer.tables.tells[tokens]).tolist()
    return steps, {k: WholeRow.of(rows, int(taken[k]), size) for k in waiting}


class _Sums(NamedTuple):
    """The fields of `ReducedSteps` that are summed from rows."""

    asked: IdArray
    neutral: BoolArray
    logs: FloatArray
    ends: FloatArray
    counts: IdArray
    candidates: FloatArray


def _needed(scorer: Scorer, tokens: IdArray, asked: IdArray) -> tuple[IdArray, IdArray, list[slice]]:
    """The columns whose probabilities the sums need: whose each is, its id, and the lists that `_sums` takes."""
    tables, n = scorer.tables, len(tokens)
    lists = [
        (np.arange(n), tokens),
        *(_list_entries(companions.ids, companions.places[tokens]) for companions in tables[:4]),
        (np.repeat(np.arange(n), len(tables.neutral_ids)), np.tile(tables.neutral_ids, n)),
        _list_entries(tables.end_ids, np.stack([tables.end_places[asked], tables.end_places[asked + 1]], axis=1)),
        _list_entries(tables.candidates, tables.candidates_of[tokens]),
    ]
    owners, ids = (np.concatenate(parts) for parts in zip(*lists, strict=True))
    bounds = itertools.accumulate((len(one) for one, _ in lists), initial=0)
    return owners, ids, [slice(*pair) for pair in itertools.pairwise(bounds)]


class _Columns(NamedTuple):
    """Some columns of the rows of n steps, step after step."""

    steps: IdArray
    """Which step each column belongs to, ascending."""
    ids: IdArray
    log_probs: FloatArray


def _sums(scorer: Scorer, tokens: IdArray, opening: BoolArray, asked: IdArray, columns: Sequence[_Columns]) -> _Sums:
    own, cluster, alike, paper, surface, neutrals, ends, candidates = columns
    tables, n, place = scorer.tables, len(tokens), np.where(opening, 0, 1)

    def others(some: _Columns) -> BoolArray:
        return np.asarray(some.ids != tokens[some.steps])

    def by_neutrality(some: _Columns, counted: BoolArray) -> list[tuple[_Columns, BoolArray]]:
        neutral = tables.neutral[place[some.steps], some.ids]
        return [(some, counted & ~neutral), (some, counted & neutral)]

    beyond_cluster = others(alike) & ~scorer.cluster.agree(tokens[alike.steps], alike.ids)
    every = np.ones(len(neutrals.ids), dtype=bool)
    counted = {
        **dict(zip(("cluster", "cluster_neutral"), by_neutrality(cluster, others(cluster)), strict=True)),
        **dict(zip(("alike_apart", "alike_neutral"), by_neutrality(alike, beyond_cluster), strict=True)),
        "alike": (surface, others(surface)),
        "neutrals": by_neutrality(neutrals, every)[1],
        "paper_members": (paper, others(paper) & ~tables.paper_neutral[paper.ids]),
        "paper_neutrals": (neutrals, every),
    }
    sums = log_sums(n, counted)
    meaning = np.logaddexp(np.logaddexp(own.log_probs, sums["paper_members"]), sums["paper_neutrals"])
    logs = sums | {"own": own.log_probs, "meaning": np.where(tables.paper_neutral[tokens], 0.0, meaning)}
    return _Sums(
        asked=asked,
        neutral=tables.neutral[place, tokens],
        logs=np.stack([logs[name] for name in MASSES], axis=1),
        ends=_end_masses(tables.end_kinds[ends.ids], ends, n),
        counts=np.bincount(candidates.steps, minlength=n),
        candidates=candidates.log_probs,
    )


def log_sums(n: int, counted: Mapping[str, tuple[_Columns, BoolArray]]) -> dict[str, FloatArray]:
    """Log of the sum of the probabilities that count, by name, for each of n steps; -inf for none.

    Each sum is made in the order of its columns, so that it does not depend on which steps are reduced together.
    All sums are made in one go: for a single step the calls of numpy cost more than the sums.
    """
    places = np.concatenate([one.steps[mask] + k * n for k, (one, mask) in enumerate(counted.values())])
    log_probs = np.concatenate([one.log_probs[mask] for one, mask in counted.values()])
    highest = np.full(n * len(counted), -np.inf)
    if len(places):
        np.maximum.at(highest, places, log_probs)
        level = np.where(np.isneginf(highest), 0.0, highest)
        shares = np.bincount(places, np.exp(log_probs - level[places]), minlength=len(highest))
        with np.errstate(divide="ignore"):
            highest = level + np.log(shares)
    return dict(zip(counted, highest.reshape(-1, n), strict=True))


def _end_masses(kinds: IdArray, ends: _Columns, n: int) -> FloatArray:
    """What each kind of token that ends a value has [n, 5]."""
    found, probabilities = np.zeros((n, len(KINDS))), np.exp(ends.log_probs)
    for bit in range(len(KINDS)) if len(ends.ids) else ():
        found[:, bit] = np.bincount(ends.steps, (kinds >> bit & 1) * probabilities, minlength=n)
    return found


def _list_entries(ids: IdArray, places: IdArray) -> tuple[IdArray, IdArray]:
    """The lists of n steps, one after the other, from [n, 2] places in `ids`: whose each entry is, and what it is."""
    if len(places) == 1:  # an answer alone, step by step: one slice says it
        (first, behind_last) = places[0]
        listed = ids[first:behind_last]
        return np.zeros(len(listed), dtype=np.int64), listed
    counts = places[:, 1] - places[:, 0]
    behind = np.cumsum(counts)
    if not behind[-1]:
        return NO_IDS, NO_IDS
    at = np.arange(behind[-1]) + np.repeat(places[:, 0] - (behind - counts), counts)
    return np.repeat(np.arange(len(places)), counts), ids[at]


def _unsure(own: FloatArray, normalizers: FloatArray) -> tuple[IdArray, list[float]]:
    """The steps at which another token may have 1 %, for the chosen one has not all the rest; and the logits of 1 %."""
    unsure = np.flatnonzero(~(own > math.log1p(-LEAST_LISTED)))
    least: list[float] = (normalizers[unsure] + math.log(LEAST_LISTED)).tolist()
    return unsure, least


def _likely_tokens(
    tokens: IdArray, normalizers: FloatArray, unsure: IdArray, above: Sequence[tuple[IdArray, FloatArray]]
) -> tuple[IdArray, FloatArray]:
    """The most probable tokens of each row and their log-probabilities, as in `ReducedSteps`."""
    ids, log_probs = np.full((len(tokens), LISTED + 1), -1), np.full((len(tokens), LISTED + 1), -np.inf)
    for k, (columns, values) in zip(unsure.tolist(), above, strict=True):
        order = [j for j in np.lexsort((columns, -values)) if columns[j] != tokens[k]][:LISTED]
        ids[k, : len(order)], log_probs[k, : len(order)] = columns[order], values[order] - normalizers[k]
    return ids, log_probs
