"""What tells a model from others, and from itself before somebody changed it.

Whatever is kept of a model (keys and values of a text, what was found out about it) is kept under one key, and is not
used once the model has another: new weights or buffers, another adapter, other settings or other code.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

SAMPLED = 64
"""The most numbers of each matrix that stand for it in a hash of the weights."""


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
    """A key of a model in this process: where its weights lie and how often they were written in place, its settings,
    its adapters and its code. A write through `.data` changes `weights_key` only.
    """
    digest = hashlib.sha256()
    for name, tensor in _tensors(model):
        where = 0 if tensor.is_meta else tensor.data_ptr()
        version = 0 if tensor.is_inference() else tensor._version
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {where} {version}".encode())
    for settings in ("config", "generation_config"):
        digest.update(repr(getattr(model, settings, None)).encode())
    digest.update(str(getattr(getattr(model, "config", None), "_attn_implementation", "")).encode())
    digest.update(repr(getattr(model, "peft_config", None)).encode())
    for module in model.modules():
        for name, value in vars(module).items():
            if name in ("_forward_hooks", "_forward_pre_hooks"):
                digest.update(repr([id(hook) for hook in value.values()]).encode())
            elif name == "forward":
                digest.update(f"{id(value)}".encode())
            elif name not in ("_parameters", "_buffers", "_modules") and _is_plain(value):
                digest.update(f"{name}={value!r}".encode())
    digest.update(repr([[id(part) for part in vars(owner).values()] for owner in _owners(model)]).encode())
    return digest.hexdigest()[:32]


def weights_key(model: Any) -> str:
    """A key of every number of the weights and buffers. It takes about as long as the model reads one token."""
    digest = hashlib.sha256()
    for name, tensor in _tensors(model):
        digest.update(f"{name} {0 if tensor.is_meta else _checksum(tensor)}".encode())
    return f"{weights_hash(model)} {digest.hexdigest()[:32]}"


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


def _checksum(tensor: torch.Tensor) -> int:
    """The sum of the bits of a tensor, in words of 64 bits."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if flat.device.type != "cpu":
        return int(flat.view(torch.int64).sum()) if len(flat) % 8 == 0 else int(flat.sum())
    numbers = flat.numpy()
    whole = len(numbers) // 8 * 8
    rest = int(numbers[whole:].sum(dtype=np.uint64))
    return int(numbers[:whole].view(np.uint64).sum(dtype=np.uint64)) + rest


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
    """Whether a value is made of numbers and texts alone."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN)
