"""`Columns`: decoding steps with the tokens that may agree, the one form to which rows of logits and lists both come.

Of n steps there is one number each in some columns, and an *entry* for each token that is listed or may count. A row of
logits gives all entries that matter; a list gives those that its engine shows, and leaves a mass open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from semtoken.core.engine_tokens.checked_list import ListedStep
from semtoken.core.prefixes import NO_IDS
from semtoken.support.arrays import BoolArray, FloatArray, IdArray

N_ENDS = 5


@dataclass(frozen=True, eq=False)
class Columns:
    """n decoding steps, with m entries in the order of the steps."""

    tokens: IdArray
    """[n] the chosen tokens."""
    opening: BoolArray
    """[n] whether only blanks come before the step."""
    log_probs: FloatArray
    """[n] log-probabilities of the chosen tokens, <= 0; -inf where it is not known."""
    complete: BoolArray
    """[n] whether every token is listed that can agree."""
    unmapped: FloatArray
    """[n] mass of names that fit no token."""
    neutrals: FloatArray
    """[n, 2] log of the mass of all neutral tokens by the rules, and by the paper's; NaN if the entries show it."""
    ends: FloatArray
    """[n, 5] mass of the tokens of each of `endings.KINDS`; NaN if the entries show it."""
    owners: IdArray
    """[m] the step of each entry, ascending."""
    ids: IdArray
    """[m] its token; a step has each of them once."""
    logs: FloatArray
    """[m] its log-probability."""
    open: BoolArray
    """[m] whether it can count in a prefix set alone that is not decided yet."""

    def __len__(self) -> int:
        return len(self.tokens)

    def part(self, first: int, last: int) -> Columns:
        """The steps from `first` to before `last`."""
        low, high = np.searchsorted(self.owners, (first, last)).tolist()
        return self._of(slice(first, last), slice(low, high), self.owners[low:high] - first)

    def take(self, order: IdArray) -> Columns:
        """The steps in another order."""
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order))
        owners = places[self.owners]
        by_step = np.argsort(owners, kind="stable")
        return self._of(order, by_step, owners[by_step])

    def without_open(self) -> Columns:
        """A copy without the entries of open prefix sets."""
        return self._of(slice(None), ~self.open, self.owners[~self.open])

    def _of(self, steps: slice | IdArray, entries: slice | IdArray | BoolArray, owners: IdArray) -> Columns:
        """Some of the steps and some of the entries, which then have these `owners`."""
        columns = {name: getattr(self, name)[steps] for name in OF_STEPS}
        return Columns(**columns, **{name: getattr(self, name)[entries] for name in OF_ENTRIES}, owners=owners)

    def with_entries(self, owners: IdArray, ids: IdArray, logs: FloatArray) -> Columns:
        """A copy with further entries, but for those that are there already."""
        if not len(owners):
            return self
        every = {
            "owners": np.concatenate([self.owners, owners]),
            "ids": np.concatenate([self.ids, ids]),
            "logs": np.concatenate([self.logs, logs]),
            "open": np.concatenate([self.open, np.zeros(len(ids), dtype=bool)]),
        }
        size = int(every["ids"].max()) + 1
        # One key for each pair of step and token. The first of equal keys is the entry that was there before.
        first = np.unique(every["owners"] * size + every["ids"], return_index=True)[1]
        columns = {name: getattr(self, name) for name in OF_STEPS}
        return Columns(**columns, **{name: column[first] for name, column in every.items()})


OF_ENTRIES = ("ids", "logs", "open")
OF_STEPS = tuple(field.name for field in fields(Columns) if field.name not in (*OF_ENTRIES, "owners"))


def joined(parts: Sequence[Columns]) -> Columns:
    """The steps of several parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *map(len, parts)]).tolist()
    # There is one start more than parts, the number of all steps.
    owners = [part.owners + start for part, start in zip(parts, starts, strict=False)]
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in (*OF_STEPS, *OF_ENTRIES)}
    return Columns(**columns, owners=np.concatenate(owners))


def of_rows(tokens: IdArray, opening: BoolArray, **more: Any) -> Columns:
    """Steps of which all is known that counts."""
    n, m = len(tokens), len(more["ids"])
    return Columns(
        tokens=tokens,
        opening=opening,
        complete=np.ones(n, dtype=bool),
        unmapped=np.zeros(n),
        **{"open": np.zeros(m, dtype=bool), **more},
    )


def of_lists(steps: Sequence[ListedStep], opening: Sequence[bool]) -> Columns:
    """Steps of which an engine lists the best tokens."""
    unknown = np.full((len(steps), 2 + N_ENDS), math.nan)
    ids = np.array([token for step in steps for token in step.ids], dtype=np.int64)
    with np.errstate(divide="ignore"):
        logs = np.log([probability for step in steps for probability in step.probabilities])
    return Columns(
        tokens=np.array([step.token for step in steps], dtype=np.int64),
        opening=np.array(opening, dtype=bool),
        log_probs=np.array([step.log_prob for step in steps], dtype=np.float64),
        complete=np.array([step.complete for step in steps], dtype=bool),
        unmapped=np.array([step.doubts.unmapped if step.doubts else 0.0 for step in steps]),
        neutrals=unknown[:, :2],
        ends=unknown[:, 2:],
        owners=np.array([i for i, step in enumerate(steps) for _ in step.ids], dtype=np.int64),
        ids=ids,
        logs=logs,
        open=np.zeros(len(ids), dtype=bool),
    )


def no_steps() -> Columns:
    """The columns of an answer without tokens."""
    none = np.empty(0)
    ends = {"neutrals": np.empty((0, 2)), "ends": np.empty((0, N_ENDS))}
    return of_rows(NO_IDS, none > 0, log_probs=none, owners=NO_IDS, ids=NO_IDS, logs=none, **ends)
