"""States of layers and attention to the token before, which observers read from inside a model, by hooks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import torch

from semtoken.methods.observers.steps import Observer, readings
from semtoken.models.transformers.anatomy import attentions_of, inner_model, layer_at

Hook = Callable[[Any, Any, Any], None]
"""Called with (module, its arguments, its output) after every forward pass."""


@contextmanager
def forward_hook(module: Any, hook: Hook) -> Iterator[None]:
    """Call `hook` after every forward pass of a module, until the block ends."""
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def timed_passes(model: Any, clock: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Enter `clock()` around every forward pass of a model, until the block ends."""
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


@dataclass
class Inside:
    """The hidden states and attention weights of a model's newest forward pass, as far as observers' readings ask."""

    observers: Sequence[Observer]
    depths: Collection[float] = field(init=False)
    attention: bool = field(init=False)
    _states: dict[float, torch.Tensor] = field(default_factory=dict)
    """States [B, T, H] by depth."""
    _attended: dict[int, torch.Tensor] = field(default_factory=dict)
    """Attention [B, heads, T] by layer."""

    def __post_init__(self) -> None:
        wanted = readings(self.observers)
        self.depths = sorted({reading.depth for reading in wanted if reading.what == "states"})
        self.attention = any(reading.what == "attention" for reading in wanted)

    @property
    def wanted(self) -> bool:
        """True if any of them are asked for."""
        return bool(self.depths) or self.attention

    @contextmanager
    def watching(self, model: Any) -> Iterator[None]:
        """Keep the states and attention of forward passes in this thread, until the block ends."""
        thread = get_ident()

        def into(kept: dict[Any, torch.Tensor], key: Any, found: Callable[[Any], torch.Tensor]) -> Hook:
            def keep(module: Any, args: Any, output: Any) -> None:
                if get_ident() == thread:  # other threads may use the same model
                    kept[key] = found(output).detach()

            return keep

        with ExitStack() as hooks:
            for depth in self.depths:
                hooks.enter_context(forward_hook(layer_at(model, depth), into(self._states, depth, _hidden)))
            if self.attention:
                hooks.enter_context(plain_attention(model))
                for number, module in enumerate(attentions_of(model)):
                    hooks.enter_context(forward_hook(module, into(self._attended, number, _to_newest)))
            yield

    def at(self, position: int = -1) -> dict[str, Any]:
        """Fields of a `Step` at one position of the newest pass, for all its rows."""
        attended = [self._attended[number][:, :, position] for number in sorted(self._attended)]
        return {
            "states": {depth: states[:, position] for depth, states in self._states.items()},
            "attention": torch.stack(attended, dim=1) if attended else None,
        }


def _hidden(output: Any) -> torch.Tensor:
    """[B, T, H] what a layer gives out."""
    hidden: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


def _to_newest(output: Any) -> torch.Tensor:
    """[B, heads, T] how much each position attends to itself, the newest token where the next one is predicted.

    lm-polygraph reads this number for RAUQ, too: the step that chooses a token attends to the token before it.
    """
    weights = output[1]
    # With a cache there are more columns than rows; the newest positions are the last columns.
    return torch.diagonal(weights, offset=weights.shape[-1] - weights.shape[-2], dim1=-2, dim2=-1)


PLAIN_ATTENTION = "eager"
"""transformers' name of the computation that keeps attention weights."""


@contextmanager
def plain_attention(model: Any) -> Iterator[None]:
    """Make a model compute its attention in the plain way, which keeps the weights, until the block ends."""
    inner = inner_model(model)
    before = inner.config._attn_implementation
    inner.set_attn_implementation(PLAIN_ATTENTION)
    try:
        yield
    finally:
        inner.set_attn_implementation(before)
