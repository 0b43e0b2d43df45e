"""Hooks into the forward passes of a transformers model, which go when the block ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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


@contextmanager
def timed_passes(model: Any, clock: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Have every forward pass of a model happen inside a `clock()` of its own, until the block ends."""
    running: list[AbstractContextManager[None]] = []

    def begin(module: Any, args: Any) -> None:
        running.append(clock())
        running[-1].__enter__()

    def end(module: Any, args: Any, output: Any) -> None:
        running.pop().__exit__(None, None, None)

    handle = inner_model(model).register_forward_pre_hook(begin)
    try:
        with forward_hook(inner_model(model), end):
            yield
    finally:
        handle.remove()
