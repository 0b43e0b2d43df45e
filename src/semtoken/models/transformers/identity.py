"""Keys that differ between models, and between a model before and after somebody changed it.

Whatever is kept of a model (keys and values of a text, what was found out about it) is kept under one key, and is not
used once the model has another: new weights or buffers, another adapter, other settings or other code.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch

SAMPLED = 64
"""The most numbers of each matrix that stand for it in a hash of the weights."""
WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers by their bytes."""
ENDS = ("get_input_embeddings", "get_output_embeddings")
"""The methods that give the first and the last matrix of a model."""
OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
"""Attributes that torch itself gives to a module."""


def weights_hash(model: Any) -> str | None:
    """A hash of samples of all parameters, sixteen hex digits; it differs between models, tunings and precisions.
    None where parameters are not in memory.
    """
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            return None
        flat = parameter.detach().reshape(-1)
        sample = flat[:: max(1, flat.numel() // SAMPLED)][:SAMPLED].cpu().float().numpy()
        digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}".encode())
        digest.update(sample.astype("<f4").tobytes())
    return digest.hexdigest()[:16]


def state_key(model: Any) -> str:
    """A key of a model in this process: its weights (see `weights_key`), settings, adapters, hooks and code."""
    digest = hashlib.sha256(weights_key(model).encode())
    for settings in ("config", "generation_config"):
        digest.update(repr(getattr(model, settings, None)).encode())
    digest.update(str(getattr(getattr(model, "config", None), "_attn_implementation", "")).encode())
    digest.update(repr(getattr(model, "peft_config", None)).encode())
    for module in model.modules():
        for name, value in vars(module).items():
            if name in ("_forward_hooks", "_forward_pre_hooks"):
                digest.update(repr([id(hook) for hook in value.values()]).encode())
            elif name == "forward":
                # Somebody put another function in place of the class's own, as accelerate does.
                digest.update(f"{id(value)}".encode())
            elif name not in OF_EVERY_MODULE and _is_plain(value):
                digest.update(f"{name}={value!r}".encode())
    digest.update(repr([[id(part) for part in vars(owner).values()] for owner in _owners(model)]).encode())
    return digest.hexdigest()[:32]


def weights_key(model: Any) -> str:
    """A key of the weights and buffers in this process: where they lie, how often they were written in place, and some
    of their numbers (`sampled_numbers`), since a write through `.data` changes nothing else.
    """
    digest = hashlib.sha256(sampled_numbers(model).encode())
    for name, tensor in _tensors(model):
        where = 0 if tensor.is_meta else tensor.data_ptr()
        # Tensors made in inference mode do not count how often they were written.
        version = 0 if tensor.is_inference() else tensor._version
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {where} {version}".encode())
    return digest.hexdigest()[:32]


def sampled_numbers(model: Any) -> str:
    """A hash of the bits of some numbers of each weight and buffer: up to `SAMPLED` along the diagonal of a matrix, and
    one of each row of the embeddings and the output head. It takes a small part of the time of reading one token.
    """
    ends = [get() for name in ENDS if (get := getattr(model, name, None)) is not None]
    by_rows = {id(end.weight) for end in ends if getattr(end, "weight", None) is not None}
    bits: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for _, tensor in _tensors(model):
        if tensor.is_meta or not tensor.numel():
            continue
        flat, rows = tensor.detach().reshape(-1), len(tensor) if tensor.ndim else 1
        try:
            some = flat[_diagonal(rows, len(flat), rows if id(tensor) in by_rows else SAMPLED, flat.device)]
            words = some.view(WORDS.get(some.element_size(), torch.uint8))
        except (RuntimeError, NotImplementedError, TypeError):  # a quantized kind of tensor that gives no numbers
            continue
        bits.setdefault((words.device, words.dtype), []).append(words)
    digest = hashlib.sha256()
    for alike in bits.values():
        digest.update(torch.cat(alike).cpu().numpy().tobytes())  # one transfer, as each takes a while
    return digest.hexdigest()


@lru_cache(maxsize=256)
def _diagonal(rows: int, size: int, most: int, device: torch.device) -> torch.Tensor:
    """Places along the diagonal of a matrix of so many rows, which is kept row by row; it begins again at an edge."""
    columns = max(1, size // rows)
    length = max(rows, columns)
    steps = torch.arange(min(most, length), device=device) * max(1, length // most)
    return (steps % rows) * columns + steps % columns


def code_key(model: Any) -> str:
    """A key of the files that the classes of the model come from, where these are no part of torch or transformers."""
    digest = hashlib.sha256()
    for owner in _owners(model):
        if inspect.ismodule(owner) and not owner.__name__.startswith("transformers."):
            try:
                digest.update(inspect.getsource(owner).encode())
            except (OSError, TypeError):  # made on the spot: what is kept in a file is not for it
                digest.update(f"{id(owner)}".encode())
    return digest.hexdigest()[:32]


def _tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _owners(model: Any) -> list[Any]:
    """The classes of all modules but those of torch, and the Python modules that hold these classes, each once."""
    kinds = {type(module): None for module in model.modules()}
    classes = {
        kind: None for one in kinds for kind in one.__mro__ if not kind.__module__.startswith(("torch", "builtins"))
    }
    homes = {sys.modules.get(kind.__module__): None for kind in classes}
    return [*classes, *(home for home in homes if home is not None)]


PLAIN = (bool, int, float, str, type(None), torch.dtype)


def _is_plain(value: Any) -> bool:
    """Return True if a value is made of numbers and texts alone."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN)
