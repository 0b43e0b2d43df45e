"""Several prompts as one tree of tokens: what some of them begin with is in it once, and nothing is padded.

The tree is read as one row. Its mask lets every token see only those that come before it in its own prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semtoken.support.arrays import BoolArray, IdArray


@dataclass(frozen=True, eq=False)
class PromptTree:
    """N tokens of several prompts that the model is to read in one pass, behind K tokens that it has read."""

    ids: IdArray
    """Token ids of the tree's nodes, [N]."""
    positions: IdArray
    """[N] the place of each token in its prompt."""
    seen: BoolArray
    """[N, K + N] which of the known tokens, and of those of the tree, each of them sees: itself and those before it."""
    columns: Sequence[Sequence[int]]
    """The place of every token among all K + N, for each prompt."""

    @property
    def last(self) -> IdArray:
        """For each prompt, the place of its last token among the N tokens."""
        known = self.seen.shape[1] - self.seen.shape[0]
        return np.array([places[-1] - known for places in self.columns])

    def padded(self) -> tuple[IdArray, IdArray]:
        """`columns` as rows that end together, and their mask, 0 where padded at the left."""
        lengths = np.array([len(places) for places in self.columns])
        mask = np.arange(lengths.max())[::-1] < lengths[:, None]
        places = np.zeros(mask.shape, dtype=np.int64)
        places[mask] = np.concatenate(self.columns)
        return places, mask.astype(np.int64)


def prompt_tree(prompts: Sequence[Sequence[int]], known: Sequence[int] = ()) -> PromptTree:
    """The tree of some prompts. The last token of each is to be read although it may be known.

    >>> prompt_tree([[5, 6, 7], [5, 6, 8], [5]], known=[5, 9]).ids
    array([6, 7, 8, 5])
    """
    nodes: dict[tuple[int, int], int] = {}  # (place of the token before, token) -> its place
    columns = []
    for ids in prompts:
        before, places = -1, []
        for position, token in enumerate(ids):
            if before == position - 1 and position < min(len(known), len(ids) - 1) and known[position] == token:
                before = position  # still within what is known
            else:
                before = nodes.setdefault((before, token), len(known) + len(nodes))
            places.append(before)
        columns.append(places)
    positions = [*range(len(known))]
    seen = np.zeros((len(nodes), len(known) + len(nodes)), dtype=bool)
    for node, (before, _) in enumerate(nodes):
        if before < len(known):
            seen[node, : before + 1] = True
        else:
            seen[node] = seen[before - len(known)]
        seen[node, len(known) + node] = True
        positions.append(positions[before] + 1 if before >= 0 else 0)
    return PromptTree(
        ids=np.array([token for _, token in nodes], dtype=np.int64),
        positions=np.array(positions[len(known) :], dtype=np.int64),
        seen=seen,
        columns=columns,
    )
