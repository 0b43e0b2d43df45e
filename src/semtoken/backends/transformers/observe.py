"""Seeing what a transformers model computes, without changing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Hook = Callable[[Any, Any, Any], None]
"""Called with (module, its arguments, its output) after every forward pass."""


def inner_model(model: Any) -> Any:
    """The model itself where an adapter is wrapped around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@contextmanager
def forward_hook(module: Any, hook: Hook) -> Iterator[None]:
    """Have `hook` called after every forward pass of a module, until the block ends."""
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
