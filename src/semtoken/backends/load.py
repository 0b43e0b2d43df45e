"""A backend by name, for everything that takes a `--backend`."""

from __future__ import annotations

from typing import Any, Literal, get_args

from semtoken.backends.base import Backend
from semtoken.errors import InvalidInput

BackendName = Literal["transformers", "vllm", "llama-cpp"]
BACKENDS: tuple[BackendName, ...] = get_args(BackendName)


def load_backend(
    name: str,
    model: str = "almanac",
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
        "almanac" (the embedded model), a directory, or a hub id; for llama.cpp a .gguf file.
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
    from semtoken.almanac import almanac_path

    if name not in BACKENDS:
        raise InvalidInput(f"backend must be one of {', '.join(BACKENDS)}, got {name!r}.")
    path = str(almanac_path()) if model == "almanac" else str(model)
    if name == "llama-cpp":
        from semtoken.backends.llama_cpp import load_llama_cpp

        return load_llama_cpp(path, **options)
    common = {"dtype": dtype, "revision": revision, "trust_remote_code": trust_remote_code}
    if name == "vllm":
        from semtoken.backends.vllm.model import load_vllm

        return load_vllm(path, device=device, **common, **options)
    from semtoken.backends.transformers.loading import load_transformers

    return load_transformers(path, device=device, **common, **options)
