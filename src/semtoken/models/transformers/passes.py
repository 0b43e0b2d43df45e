"""Single forward passes of a transformers model: a text alone, rows of a batch behind a cache, nodes of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers.generation.utils import ALL_CACHE_NAMES

from semtoken.support.arrays import BoolArray, IdArray

CACHE: str = ALL_CACHE_NAMES[0]
"""The name of the cache in the installed transformers, as an argument and in the output of a pass."""
ARGUMENTS = frozenset({"position_ids", "logits_to_keep"})
"""Arguments that some models need or follow, and others refuse."""


def cache_of(output: Any) -> Any:
    """The cache that a pass of a model returns, or None."""
    return getattr(output, CACHE, None)


@dataclass(frozen=True)
class Passes:
    """The calls of a model, with the arguments that it takes."""

    model: Any
    takes: frozenset[str] = frozenset()
    """The names in `ARGUMENTS` that it is given."""

    @property
    def device(self) -> torch.device:
        """The device of its inputs: that of its embeddings, or of its first weights that are in memory."""
        weights = chain([self.model.get_input_embeddings().weight], self.model.parameters())
        return next((weight.device for weight in weights if not weight.is_meta), torch.device("cpu"))

    def whole(self, ids: Sequence[int], keep: int) -> torch.Tensor:
        """Read a text alone in one pass; gives the logits [keep, columns] of its last tokens.
        All other ways of reading are compared with this one.
        """
        tensor = torch.tensor([list(ids)], device=self.device)
        kept = {"logits_to_keep": keep} if "logits_to_keep" in self.takes else {}
        logits: torch.Tensor = self.model(input_ids=tensor, **kept).logits[0, -keep:]
        return logits

    def rows(self, ids: IdArray, *, mask: npt.NDArray[np.int64], cache: Any = None, keep: int = 1) -> Any:
        """Run the model once over columns `ids` [B, n] of a batch; `mask` [B, T] has all tokens so far, these included.
        Logits of the last `keep` positions are wanted; a model that cannot leave out the others gives all.
        """
        positions = np.maximum(mask.cumsum(axis=1) - 1, 0)[:, -ids.shape[1] :]
        return self._call(ids, torch.from_numpy(mask), positions, cache, keep)

    def piece(self, ids: Sequence[int], start: int, stop: int, cache: Any) -> Any:
        """Run the model over the tokens of a text from `start` to before `stop`, behind a cache of those before. A GPU
        is waited for, so that whoever sets the pace knows what reading takes.
        """
        piece = np.array([ids[start:stop]], dtype=np.int64)
        output = self.rows(piece, mask=np.ones((1, stop), dtype=np.int64), cache=cache)
        float(output.logits[0, -1, 0])
        return output

    def nodes(self, ids: IdArray, seen: BoolArray, positions: IdArray, cache: Any, keep: IdArray) -> Any:
        """Run the model once over N tokens, each of which sees only some of the tokens before it, as in a tree.
        `seen` [N, K + N] says which of the K in the cache, and of these; `positions` [N] are places in their texts.
        """
        hidden = torch.from_numpy(~seen)[None, None]
        mask = torch.zeros(hidden.shape, dtype=self.model.dtype).masked_fill_(hidden, torch.finfo(self.model.dtype).min)
        return self._call(ids[None], mask, positions[None], cache, torch.from_numpy(keep))

    def _call(self, ids: IdArray, mask: torch.Tensor, positions: IdArray, cache: Any, keep: int | torch.Tensor) -> Any:
        device = self.device
        optional = {
            "position_ids": torch.from_numpy(positions).to(device),
            "logits_to_keep": keep if isinstance(keep, int) else keep.to(device),
        }
        options = {name: value for name, value in optional.items() if name in self.takes}
        if cache is not None:
            options[CACHE] = cache
        tensors = {"input_ids": torch.from_numpy(ids).to(device), "attention_mask": mask.to(device)}
        return self.model(**tensors, **options, use_cache=True)
