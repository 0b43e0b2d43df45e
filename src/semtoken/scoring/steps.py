"""Decoding steps of several answers, reduced together by the compiled kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from semtoken._arrays import FloatArray, IdArray
from semtoken.scoring.masses import StepMass
from semtoken.scoring.rows import LISTED, NormalizedRows
from semtoken.scoring.scorer import Scorer
from semtoken.vocabulary import BoolArray


@dataclass(frozen=True, eq=False)
class ReducedSteps:
    """n steps, of one answer or of several: a few numbers of each."""

    tokens: IdArray
    """[n] the chosen tokens."""
    opening: BoolArray
    """[n] only blanks come before."""
    logs: FloatArray
    """[n, 8] the masses of a `StepMass`, from `own` to `meaning`."""
    asked: IdArray
    """[n] what the steps may end, as `Endings.asked` says."""
    ends: FloatArray
    """[n, 5] masses of the kinds of end tokens."""
    likely_ids: IdArray
    """[n, k] the most probable tokens, -1 where there are fewer; the chosen one may be among them."""
    likely: FloatArray
    """[n, k] their log-probabilities."""
    places: IdArray
    """[n + 1] where the candidates of each step begin."""
    candidates: FloatArray
    """Log-probabilities of the candidates of the prefix sets, step after step; those of a token that does not tell are
    not among them."""

    def __len__(self) -> int:
        return len(self.tokens)


def reduce_rows(
    scorer: Scorer, rows: NormalizedRows, taken: IdArray, tokens: IdArray, before: IdArray, opening: BoolArray
) -> ReducedSteps:
    """Reduce n steps.

    Parameters
    ----------
    scorer
        Clusters and rules.
    rows
        Rows that the kernel reads.
    taken
        [n] which of `rows`, by their place among them.
    tokens
        [n] the tokens that were chosen.
    before
        [n] the tokens before them, -1 for none.
    opening
        [n] only blanks come before.
    """
    from semtoken.scoring.kernel import count, gather, lay_out, sum_groups

    assert rows.readable is not None and rows.likely is not None
    tables, n = scorer.tables, len(tokens)
    asked = scorer.endings.asked(before, tokens)
    places, candidate_places = np.empty((n, 5), dtype=np.int64), np.empty(n + 1, dtype=np.int64)
    count(tables, tokens, asked, places, candidate_places)
    columns = np.empty(candidate_places[-1], dtype=np.int64)
    values = np.empty(len(columns), dtype=np.float32)
    lay_out(tables, tokens, asked, places, candidate_places, columns)
    gather(rows.readable, rows.row_ids[taken], places, candidate_places, columns, values)
    normalizers = rows.log_normalizers[taken]
    logs, ends = np.empty((n, 8)), np.empty((n, 5))
    sum_groups(tables, tokens, opening, places, columns, values, normalizers, logs, ends)
    return ReducedSteps(
        tokens=tokens,
        opening=opening,
        logs=logs,
        asked=asked,
        ends=ends,
        likely_ids=rows.likely.ids[taken],
        likely=rows.likely.logits[taken] - normalizers[:, None],
        places=candidate_places - candidate_places[0],
        candidates=values[candidate_places[0] :].astype(np.float64) - np.repeat(normalizers, np.diff(candidate_places)),
    )


def step_masses(scorer: Scorer, steps: ReducedSteps) -> Iterator[StepMass]:
    """The record of each step."""
    neutral = scorer.neutral_masks[np.where(steps.opening, 0, 1), steps.tokens].tolist()
    tokens, opening, asked = steps.tokens.tolist(), steps.opening.tolist(), steps.asked.tolist()
    logs, ends, likely = steps.logs.tolist(), steps.ends.tolist(), _likely(steps)
    for k, token in enumerate(tokens):
        found = scorer.endings.from_masses(asked[k], ends[k]) if asked[k] else {}
        yield StepMass._make((token, opening[k], neutral[k], *logs[k], found, likely[k]))


def _likely(steps: ReducedSteps) -> list[tuple[tuple[int, float], ...]]:
    """Of each step the most probable tokens but the chosen one."""
    found: list[tuple[tuple[int, float], ...]] = [()] * len(steps)
    others = (steps.likely_ids >= 0) & (steps.likely_ids != steps.tokens[:, None])
    for k in np.flatnonzero(others.any(axis=1)).tolist():
        pairs = zip(steps.likely_ids[k, others[k]].tolist(), steps.likely[k, others[k]].tolist(), strict=True)
        found[k] = tuple(pairs)[:LISTED]
    return found
