"""States of layers and attention to the token before, which observers read from inside a model, by hooks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import torch

from semtoken.errors import ModelError
from semtoken.methods.observers.steps import Observer, readings

Hook = Callable[[Any, Any, Any], None]
"""Called with (module, its arguments, its output) after every forward pass."""


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


PLAIN_ATTENTION = "eager"
"""transformers' name of the computation that keeps attention weights."""


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
    """Whether every layer can compute its attention in the plain way, which shows the weights."""
    try:
        attentions = attentions_of(model)
    except ModelError:
        return False
    return bool(attentions) and bool(getattr(inner_model(model), "_supports_attention_backend", False))


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
