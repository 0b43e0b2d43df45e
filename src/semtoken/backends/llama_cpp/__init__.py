"""llama.cpp in this process, through llama-cpp-python.

model.py    `load_llama_cpp` and `LlamaCppBackend`, the `Backend`
scorer.py   `LlamaCppScorer`, an `STC` over a `llama_cpp.Llama` that you have

Importing this package does not import llama-cpp-python. Tested with llama-cpp-python 0.3.36.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semtoken.backends.llama_cpp.model import LlamaCppBackend, check_spelling, load_llama_cpp
    from semtoken.backends.llama_cpp.scorer import LlamaCppScorer

_HOMES = {
    "LlamaCppBackend": "model",
    "LlamaCppScorer": "scorer",
    "check_spelling": "model",
    "load_llama_cpp": "model",
}
"""Loaded when first used: `STC` loads the backend, and the scorer is an `STC`."""

__all__ = ["LlamaCppBackend", "LlamaCppScorer", "check_spelling", "load_llama_cpp"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
