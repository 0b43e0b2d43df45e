"""The index tables by which a compiled kernel finds, for a chosen token, the columns of a row that matter.

Lists of different lengths stand one after the other in one array; a second array says where each begins (CSR form).
They are made once for each scorer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from semtoken.support.arrays import IdArray
from semtoken.tokens.vocabulary import BoolArray


class StepTables(NamedTuple):
    """What `semtoken.scoring.kernel` must know of V tokens, their clusters and the rules."""

    members: IdArray
    """[V] ids sorted by their label."""
    cluster_of: IdArray
    """[V, 2] where the cluster of each token begins and ends in `members`; a numeral has none."""
    labels: npt.NDArray[np.int32]
    """[V] the cluster of each token."""
    numeral: BoolArray
    """[V] tokens that spell a number."""
    spelled: IdArray
    """[V] ids sorted by their spelling."""
    spelling_of: IdArray
    """[V, 2] where the tokens of the same spelling begin and end in `spelled`."""
    letters: IdArray
    """[V] a number for the first letters of each token."""
    neutral: BoolArray
    """[2, V] neutral under the rules where they open an answer, and elsewhere."""
    paper_neutral: BoolArray
    """[V] neutral under the paper's rules."""
    neutral_ids: IdArray
    """Those tokens, if the rules or clusters ask for them; else none."""
    neutral_weights: npt.NDArray[np.float32]
    """1 for those of them that are neutral under the rules where they open an answer, and elsewhere; else 0 [2, n]."""
    candidates: IdArray
    """The tokens that may be in the prefix set of a step, ascending, list by list."""
    candidates_of: IdArray
    """[V, 2] where the list of each token begins and ends; empty for a token that does not tell by itself."""
    tells: BoolArray
    """[V] tokens whose own text is what the text from there on surely begins with."""
    decided: BoolArray
    """[V] those of them whose prefix set no later token can change."""
    end_ids: IdArray
    """Tokens that end a value or go on with it, list by list."""
    end_places: IdArray
    """Where each of the eight lists begins, by what a step may end (`Endings.asked`)."""
    leaves: IdArray
    """What each token, or none, leaves behind, as in `Endings`."""
    asks: IdArray
    """What each token asks for after that, as in `Endings`."""
    end_kinds: IdArray
    """[V] the classes of `Endings` that a token is in, as bits."""
    clustering: bool
    same_spelling: bool
    same_letters: bool
    """Only members of the same first letters count."""


def lists_of_equals(numbers: npt.NDArray[np.integer]) -> tuple[IdArray, IdArray]:
    """Ids sorted by a number of each, and where the list of the ids with the same number begins and ends [V, 2]."""
    order = np.argsort(numbers, kind="stable").astype(np.int64)
    ordered = numbers[order]
    sides = [np.searchsorted(ordered, numbers, side=side) for side in ("left", "right")]
    return order, np.stack(sides, axis=1).astype(np.int64)
