"""Prompts as inputs of `generate`, each read once although several answers are drawn from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from semtoken._extras import require
from semtoken.backends.prompts import PaddedBatch, pad

require("torch", extra="transformers")
require("transformers", extra="transformers")

import torch  # noqa: E402
from transformers import DynamicCache  # noqa: E402
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer  # noqa: E402

if TYPE_CHECKING:
    from semtoken.backends.transformers.model import STC

REPEATABLE = (DynamicLayer, DynamicSlidingWindowLayer)
"""Kinds of cache layers, exactly, that hold nothing but keys and values and so can be repeated."""


def generation_inputs(stc: STC, prompts: Sequence[Sequence[int]], padding: int, repeats: int) -> dict[str, Any]:
    """What `generate` takes to answer each prompt `repeats` times in a row.

    All of the prompt but its last token is read here, once, and its keys and values are repeated. Models whose cache
    is of another kind read every repetition.

    Parameters
    ----------
    stc
        Model and tokenizer.
    prompts
        Token ids.
    padding
        Id to fill up with, on the left.
    repeats
        Answers to each prompt.
    """
    batch = pad(prompts, padding, left=True)
    device = stc.model.get_input_embeddings().weight.device
    inputs: dict[str, Any] = {
        "input_ids": torch.from_numpy(batch.ids).to(device).repeat_interleave(repeats, dim=0),
        "attention_mask": torch.from_numpy(batch.mask).to(device).repeat_interleave(repeats, dim=0),
    }
    if repeats > 1 and batch.ids.shape[1] > 1:
        cache = _read(stc, PaddedBatch(batch.ids[:, :-1], batch.mask[:, :-1]))
        if isinstance(cache, DynamicCache) and all(type(layer) in REPEATABLE for layer in cache.layers):
            cache.batch_repeat_interleave(repeats)
            inputs["past_key_values"] = cache
    return inputs


@torch.no_grad()
def _read(stc: STC, batch: PaddedBatch) -> Any:
    """The model's cache after these tokens."""
    return stc.forward(batch, mask=batch.mask, cache=None, keep=1).past_key_values
