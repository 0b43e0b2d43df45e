"""The parts of a transformers model, and what its configuration says of it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.errors import ModelError


def check_model(model: Any) -> None:
    """Raise `ModelError` unless the model is a decoder with an output head."""
    name = type(model).__name__
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise ModelError(f"{name} is an encoder-decoder; semtoken scores decoder-only language models.")
    if not hasattr(model, "get_output_embeddings") or model.get_output_embeddings() is None:
        raise ModelError(
            f"{name} names no output head (get_output_embeddings), so its next-token distribution is not known. If it "
            "is a language model without its head, load it with AutoModelForCausalLM."
        )


def waits_for_tokens(model: Any) -> bool:
    """True if an adapter of the model acts only behind certain tokens (activated LoRA), which passes over other texts
    show nothing of.
    """
    configs = getattr(model, "peft_config", None)
    return any(getattr(one, "alora_invocation_tokens", None) for one in dict(configs or {}).values())


def inner_model(model: Any) -> Any:
    """The model itself where an adapter is wrapped around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def without_runner(model: Any) -> Any:
    """The model whose passes `torch.compile` or `DataParallel` runs, whose `generate` would leave them out."""
    for name in ("_orig_mod", "module"):
        inner = getattr(model, "_modules", {}).get(name)
        if inner is not None and hasattr(inner, "config") and not hasattr(model, "get_base_model"):
            return without_runner(inner)
    return model


def columns_of(model: Any) -> int:
    """The number of logits that a model gives for each token."""
    head = model.get_output_embeddings()
    return int(getattr(head, "out_features", None) or head.weight.shape[0])


def vocabulary_within(vocabulary: Vocabulary, columns: int) -> Vocabulary | None:
    """The tokens that a model with so many logits can write: all of them, or all but special ones beyond the last
    logit; None if others are beyond it.
    """
    if columns >= vocabulary.size:
        return vocabulary
    return None if any(vocabulary.texts[columns:]) else _first(vocabulary, columns)


@lru_cache(maxsize=4)
def _first(vocabulary: Vocabulary, columns: int) -> Vocabulary:
    """The vocabulary of the first tokens. It is kept, so that the indexes built on it are built only once."""
    return vocabulary.first(columns)


def max_length_of(model: Any) -> int | None:
    """The number of tokens that a model can read together; None if it does not say."""
    try:
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    except NotImplementedError:  # some say that they have no limit in this way
        return None
    return None if limit is None or int(limit) < 1 else int(limit)


def layers_of(model: Any) -> Any:
    """The decoder layers of a model, first to last; `ModelError` if it keeps them where they cannot be found."""
    count = model.config.get_text_config().num_hidden_layers
    for module in inner_model(model).modules():
        # Models call the list of their layers differently (`layers`, `h`, `blocks`), so that it is found by its length.
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return module
    raise ModelError(f"No list of {count} layers was found in {type(model).__name__}.")


def layer_at(model: Any, depth: float) -> Any:
    """The decoder layer whose output is entry int(depth (L + 1)) of the L + 1 hidden states (entry 0: the embeddings).
    The depth is in (0, 1]: 0.5 is the middle layer, 1 the last of L. `ModelError` if the layers cannot be found.
    """
    layers = layers_of(model)
    # Entry 0 of the hidden states is the embeddings, and no layer gives these out.
    entry = int(depth * (len(layers) + 1))
    return layers[min(max(entry, 1), len(layers)) - 1]


def attentions_of(model: Any) -> list[Any]:
    """The attention module of each layer; empty if a layer does not have exactly one."""
    attentions = []
    for layer in layers_of(model):
        inside = [module for name, module in layer.named_children() if name in ("self_attn", "attn", "attention")]
        # Layers of state-space models have none, and which one of several to read would not be clear.
        if len(inside) != 1:
            return []
        attentions += inside
    return attentions


def gives_attention(model: Any) -> bool:
    """Return True if every layer can compute its attention in the plain way, which shows the weights."""
    try:
        attentions = attentions_of(model)
    except ModelError:
        return False
    return bool(attentions) and bool(getattr(inner_model(model), "_supports_attention_backend", False))
