"""Decoding steps reduced from V probabilities to the few numbers that are kept of each, and what agrees with their
tokens once the text that follows is known.

`reduce_rows` is the one way in. Rows that the compiled kernel can read go to it; the sums in this file take any type
of number on any device, and say what the kernel has to find.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semtoken.scoring.endings import KINDS
from semtoken.scoring.prefixes import NO_IDS
from semtoken.scoring.rows import LEAST_LISTED, LISTED, NormalizedRows, WholeRow
from semtoken.scoring.scorer import Scorer
from semtoken.support.arrays import BoolArray, FloatArray, IdArray, columns_above, gather

MASSES = ("own", "cluster", "cluster_neutral", "neutrals", "alike", "alike_apart", "alike_neutral", "meaning")
"""The masses of a step, in the order of `ReducedSteps.logs`:

own
    p(y_i).
cluster, cluster_neutral
    Other tokens of the cluster that count, and are not neutral or are.
neutrals
    All neutral tokens.
alike
    Other tokens that are spelled as y_i is.
alike_apart, alike_neutral
    Those of them that count and are not in a cluster that counts, and are not neutral or are.
meaning
    What agrees under the paper's rules, prefixes left out: 1 if y_i is neutral there.
"""


LEAST_ROOM = 8  # steps of an answer for which there is room from the beginning


@dataclass(frozen=True, eq=False)
class ReducedSteps:
    """The numbers that are kept of n decoding steps, of one answer or of several."""

    tokens: IdArray
    """[n] the chosen tokens."""
    opening: BoolArray
    """[n] whether only blanks come before the step."""
    neutral: BoolArray
    """[n] whether the chosen token is neutral under the rules."""
    logs: FloatArray
    """[n, 8] natural logs of the `MASSES`, all <= 0 up to rounding."""
    asked: IdArray
    """[n] which values may end at the step, as `Endings.what_may_end` says."""
    ends: FloatArray
    """[n, 5] probabilities of the five classes of tokens in `semtoken.scoring.endings.KINDS`, in [0, 1] up to
    rounding."""
    likely_ids: IdArray
    """[n, LISTED + 1] the most probable tokens of at least `LEAST_LISTED`, -1 where there are fewer; the chosen one may
    be among them."""
    likely: FloatArray
    """[n, LISTED + 1] their log-probabilities, falling."""
    counts: IdArray
    """[n] how many of `candidates` belong to each step."""
    candidates: FloatArray
    """Log-probabilities of the tokens that may be in the prefix sets, step after step. A step has none if its token
    does not decide by itself what the text begins with (`PrefixIndex.tells`)."""

    def __len__(self) -> int:
        return len(self.tokens)

    def part(self, first: int, last: int) -> ReducedSteps:
        """The steps from `first` to before `last`, without a copy."""
        low = int(self.counts[:first].sum()) if first else 0
        high = low + int(self.counts[first:last].sum())
        columns = {name: getattr(self, name)[first:last] for name in COLUMNS}
        return ReducedSteps(**columns, candidates=self.candidates[low:high])

    def take(self, order: IdArray) -> ReducedSteps:
        """The steps in another order."""
        firsts, counts = (np.cumsum(self.counts) - self.counts)[order], self.counts[order]
        places = np.repeat(firsts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        columns = {name: getattr(self, name)[order] for name in COLUMNS}
        return ReducedSteps(**columns, candidates=self.candidates[places])

    def without_candidates(self, left_out: BoolArray) -> ReducedSteps:
        """A copy in which some steps have no candidates for prefix sets."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        columns["counts"] = np.where(left_out, 0, self.counts)
        return ReducedSteps(**columns, candidates=self.candidates[~np.repeat(left_out, self.counts)])


COLUMNS = tuple(field.name for field in fields(ReducedSteps) if field.name != "candidates")


def joined(parts: Sequence[ReducedSteps]) -> ReducedSteps:
    """Concatenate steps."""
    if len(parts) == 1:
        return parts[0]
    names = [field.name for field in fields(ReducedSteps)]
    return ReducedSteps(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


@dataclass(eq=False)
class KeptSteps:
    """The steps of one answer in arrays with spare room, so that adding a step takes constant time."""

    _columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    """With room for more steps."""
    _count: int = 0
    _candidates: int = 0

    def __len__(self) -> int:
        return self._count

    def add(self, steps: ReducedSteps) -> None:
        """Append steps."""
        count, candidates = self._count + len(steps), self._candidates + len(steps.candidates)
        columns = self._columns or {name: _wider(getattr(steps, name), 0, 0) for name in (*COLUMNS, "candidates")}
        if len(columns["tokens"]) < count:
            columns |= {name: _wider(columns[name], self._count, count) for name in COLUMNS}
        if len(columns["candidates"]) < candidates:
            columns["candidates"] = _wider(columns["candidates"], self._candidates, candidates)
        for name in COLUMNS:
            columns[name][self._count : count] = getattr(steps, name)
        columns["candidates"][self._candidates : candidates] = steps.candidates
        self._columns, self._count, self._candidates = columns, count, candidates

    def truncate(self, count: int) -> None:
        """Forget all steps from `count` on."""
        if count < self._count:
            self._candidates = int(self._columns["counts"][:count].sum())
            self._count = count

    def part(self, first: int, last: int) -> ReducedSteps:
        """The steps from `first` to before `last`, without a copy."""
        return ReducedSteps(**self._columns).part(first, last) if self._columns else no_steps()

    def state_dict(self) -> dict[str, Any]:
        """Copies of all arrays except the tokens, flat and numeric."""
        steps = self.part(0, self._count)
        columns = {name: getattr(steps, name) for name in (*COLUMNS, "candidates") if name != "tokens"}
        return {
            name: np.array(column, dtype=np.int64 if column.dtype == bool else column.dtype).ravel()
            for name, column in columns.items()
        }

    @classmethod
    def from_state_dict(cls, scorer: Scorer, tokens: Sequence[int], state: Mapping[str, Any]) -> KeptSteps:
        """The steps with these tokens that `state_dict` saved.

        `KeyError`, `TypeError` or `ValueError` if `state` is not what it returns.
        """
        like, n = no_steps(), len(tokens)
        columns: dict[str, Any] = {"tokens": np.array(tokens, dtype=np.int64)}
        for name in COLUMNS[1:]:
            empty = getattr(like, name)
            columns[name] = np.asarray(state[name]).astype(empty.dtype).reshape(n, *empty.shape[1:])
        counts, candidates = columns["counts"], np.asarray(state["candidates"], dtype=np.float64)
        known = scorer.tables.candidates_of[columns["tokens"]] if counts.any() else np.zeros((n, 2), dtype=np.int64)
        if (counts * (counts - np.diff(known)[:, 0])).any() or counts.sum() != len(candidates):
            raise ValueError("the numbers of candidates do not fit the tokens")
        kept = cls()
        kept.add(ReducedSteps(**columns, candidates=candidates))
        return kept


def _wider(column: npt.NDArray[Any], used: int, needed: int) -> npt.NDArray[Any]:
    """An array with the same beginning that has room for more."""
    wider = np.empty((max(needed, 2 * used, LEAST_ROOM), *column.shape[1:]), dtype=column.dtype)
    wider[:used] = column[:used]
    return wider


def no_steps() -> ReducedSteps:
    """The reduced steps of an answer without tokens: all columns, empty."""
    return ReducedSteps(
        tokens=np.zeros(0, dtype=np.int64),
        opening=np.zeros(0, dtype=bool),
        neutral=np.zeros(0, dtype=bool),
        logs=np.full((0, len(MASSES)), -np.inf),
        asked=np.zeros(0, dtype=np.int64),
        ends=np.zeros((0, 5)),
        likely_ids=np.full((0, LISTED + 1), -1, dtype=np.int64),
        likely=np.full((0, LISTED + 1), -np.inf),
        counts=np.zeros(0, dtype=np.int64),
        candidates=np.empty(0),
    )


class PrefixSet(NamedTuple):
    """The tokens that spell the beginning of the text from a step on, ascending, with their log-probabilities."""

    ids: IdArray
    log_probs: FloatArray


class PrefixSets(NamedTuple):
    """The prefix sets of several steps, concatenated."""

    steps: IdArray
    """Which step each of the tokens belongs to, ascending."""
    ids: IdArray
    log_probs: FloatArray


class Masses(NamedTuple):
    """Natural logs of the agreeing probabilities of n steps, in total and by source, float64 [n] each."""

    own: FloatArray
    """The chosen tokens alone, <= 0."""
    cluster: FloatArray
    """The token's own and its cluster's mass, as far as the rules count it."""
    prefix: FloatArray
    """Further tokens of the same spelling, and those that spell the beginning of the text from the token on, as far as
    the rules count them."""
    neutral: FloatArray
    """Further neutral tokens; -inf where they do not count."""
    agreeing: FloatArray
    """Everything that agrees, in total, <= 0; 0 for a neutral chosen token if neutrality counts."""
    surface: FloatArray
    """What agrees under the equality `surface`."""
    meaning: FloatArray
    """What agrees under the paper's rules; not to be used where there are no clusters."""


def masses(scorer: Scorer, steps: ReducedSteps, prefixes: PrefixSets, neutrality: BoolArray) -> Masses:
    """The agreeing probabilities of some steps, once their prefix sets are known.

    Where `neutrality` [n] is false, the neutral tokens count only if they are in the cluster or the prefix set.
    """
    own, cluster, cluster_neutral, neutrals, alike, alike_apart, alike_neutral, meaning = steps.logs.T
    beginnings = _beginning_masses(scorer, steps, prefixes, neutrality)
    cluster = np.logaddexp(own, cluster)
    certain = steps.neutral & neutrality
    if not neutrality.all():
        cluster = np.where(neutrality, cluster, np.logaddexp(cluster, cluster_neutral))
        alike_apart = np.where(neutrality, alike_apart, np.logaddexp(alike_apart, alike_neutral))
        neutrals = np.where(neutrality, neutrals, -np.inf)
    prefix = np.logaddexp(alike_apart, beginnings.counted)
    agreeing = np.minimum(np.logaddexp(np.logaddexp(cluster, prefix), neutrals), 0.0)
    return Masses(
        own=np.minimum(own, 0.0),
        cluster=cluster,
        prefix=np.where(certain, -np.inf, prefix),
        neutral=neutrals,
        agreeing=np.where(certain, 0.0, agreeing),
        surface=np.minimum(np.logaddexp(own, alike), 0.0),
        meaning=np.minimum(np.logaddexp(meaning, beginnings.meaning), 0.0),
    )


class _PrefixMasses(NamedTuple):
    """Logs of what prefix sets add to the masses of n steps, float64 [n] each."""

    meaning: FloatArray
    """What means the same under the paper's rules."""
    counted: FloatArray
    """What counts under the rules."""


def _beginning_masses(
    scorer: Scorer, steps: ReducedSteps, prefixes: PrefixSets, neutrality: BoolArray
) -> _PrefixMasses:
    """What the prefix sets add to the masses of steps."""
    beginnings = _PrefixMasses(*(np.full(len(steps), -np.inf) for _ in _PrefixMasses._fields))
    owners, ids, log_probs = prefixes
    if not len(ids):
        return beginnings
    tokens, opening = steps.tokens[owners], steps.opening[owners]
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    some = owners[starts]
    if scorer.paper is not None:
        beyond = ~(scorer.paper.cluster.agree(tokens, ids) | scorer.paper.are_neutral(ids, opening))
        beginnings.meaning[some] = _log_sums(log_probs, beyond, starts)
    if scorer.rules.prefix_matching:
        counted = scorer.in_prefix_set(ids) & ~scorer.cluster.agree(tokens, ids) & ~scorer.alike.agree(tokens, ids)
        counted &= ~(scorer.are_neutral(ids, opening) & neutrality[owners])
        beginnings.counted[some] = _log_sums(log_probs, counted, starts)
    return beginnings


def _log_sums(log_probs: FloatArray, counted: BoolArray, starts: IdArray) -> FloatArray:
    """Log of the sum of the probabilities that count in each of the groups that begin at `starts`; none is empty."""
    some = np.where(counted, log_probs, -np.inf)
    highest = np.maximum.reduceat(some, starts)
    highest[np.isneginf(highest)] = 0.0
    shifted = some - np.repeat(highest, np.diff(starts, append=len(some)))
    with np.errstate(divide="ignore"):
        return np.asarray(highest + np.log(np.add.reduceat(np.exp(shifted), starts)))


def reduce_rows(
    scorer: Scorer, rows: NormalizedRows, taken: IdArray, tokens: IdArray, before: IdArray, opening: BoolArray
) -> tuple[ReducedSteps, dict[int, WholeRow]]:
    """Reduce n decoding steps to the few numbers of each that scoring needs.

    `rows` have finite normalisers; `taken` [n] are places among them. `tokens` [n] were chosen, those `before` them are
    -1 for none, and `opening` [n] says that only blanks come before. Also returns, by place, a copy of the row of each
    step whose token alone does not decide what the text from there on begins with (`PrefixIndex.tells`).
    """
    size, normalizers = scorer.vocabulary.size, rows.log_normalizers[taken]
    if rows.found is None:
        asked = scorer.endings.what_may_end(before, tokens)
        owners, ids, lists = _needed(scorer, tokens, asked)
        log_probs = gather(rows.logits, rows.row_ids[taken[owners]], ids) - normalizers[owners]
        columns = [_Columns(owners[part], ids[part], log_probs[part]) for part in lists]
        sums = _sums(scorer, tokens, opening, asked, columns)
        # the steps at which another token may have 1 %, for the chosen one has not all the rest; and the logits of 1 %
        unsure = np.flatnonzero(~(sums.logs[:, 0] > math.log1p(-LEAST_LISTED)))
        least = (normalizers[unsure] + math.log(LEAST_LISTED)).tolist()
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
    bounds = itertools.accumulate((len(steps) for steps, _ in lists), initial=0)
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
    places = np.concatenate([columns.steps[mask] + k * n for k, (columns, mask) in enumerate(counted.values())])
    log_probs = np.concatenate([columns.log_probs[mask] for columns, mask in counted.values()])
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
    end_masses, probabilities = np.zeros((n, len(KINDS))), np.exp(ends.log_probs)
    for bit in range(len(KINDS)) if len(ends.ids) else ():
        end_masses[:, bit] = np.bincount(ends.steps, (kinds >> bit & 1) * probabilities, minlength=n)
    return end_masses


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


def _likely_tokens(
    tokens: IdArray, normalizers: FloatArray, unsure: IdArray, above: Sequence[tuple[IdArray, FloatArray]]
) -> tuple[IdArray, FloatArray]:
    """The most probable tokens of each row and their log-probabilities, as in `ReducedSteps`."""
    ids, log_probs = np.full((len(tokens), LISTED + 1), -1), np.full((len(tokens), LISTED + 1), -np.inf)
    for k, (columns, values) in zip(unsure.tolist(), above, strict=True):
        order = [j for j in np.lexsort((columns, -values)) if columns[j] != tokens[k]][:LISTED]
        ids[k, : len(order)], log_probs[k, : len(order)] = columns[order], values[order] - normalizers[k]
    return ids, log_probs
