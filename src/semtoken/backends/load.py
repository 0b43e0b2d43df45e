"""A backend by name, for everything that takes a `--backend`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from semtoken.backends.base import Backend
from semtoken.choices import BackendName
from semtoken.models.sources import resolve
from semtoken.support.inputs import one_of

BACKENDS: tuple[BackendName, ...] = get_args(BackendName)


def load_backend(
    name: str,
    model: str | Path = "almanac",
    *,
    device: str | None = None,
    dtype: Any = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    **options: Any,
) -> Backend:
    """Load a model with one of the engines that semtoken knows.

    Parameters
    ----------
    name : {"transformers", "vllm", "llama-cpp"}
        The engine.
    model
        As in `STC.from_pretrained`; for llama.cpp a GGUF file, or a fetched model that was made from one.
    device, dtype, revision, trust_remote_code
        As in `STC.from_pretrained`. llama.cpp reads none of them.
    **options
        Of the engine: transformers' `from_pretrained`, `vllm.LLM`, or `llama_cpp.Llama`.

    Raises
    ------
    InvalidInput
        There is no such engine, or it takes no such option.
    MissingExtra
        The engine is not installed.
    ModelError
        There is no such model, or it cannot be loaded.
    """
    one_of("backend", name, BACKENDS)
    source = resolve(model)
    if name == "llama-cpp":
        from semtoken.backends.llama_cpp import load_llama_cpp

        return load_llama_cpp(source.gguf, **options)
    common = {"dtype": dtype, "revision": revision, "trust_remote_code": trust_remote_code}
    if name == "vllm":
        from semtoken.backends.vllm.model import load_vllm

        return load_vllm(source.path, device=device, **common, **options)
    from semtoken.backends.transformers.loading import load_transformers

    name_or_path, file = source.pretrained
    return load_transformers(name_or_path, device=device, **common, **file, **options)
