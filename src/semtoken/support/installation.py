"""The installation: its cache folder, the memory of the machine, and what a report of a problem needs to say of it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

from semtoken.version import __version__

CACHE_VARIABLE = "SEMTOKEN_CACHE"


def cache_root() -> Path:
    """The user's cache folder, or the one that `SEMTOKEN_CACHE` names; it need not exist."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("semtoken", appauthor=False))


PACKAGES = (
    *("numpy", "numba", "torch", "transformers", "tokenizers", "safetensors", "huggingface-hub", "gguf"),
    *("scikit-learn", "scipy", "pandas", "pyarrow", "fastapi", "uvicorn", "httpx", "msgspec", "openai", "ray"),
    *("vllm", "llama-cpp-python", "sentence-transformers"),
)
"""Packages whose versions decide what semtoken does."""
INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")
"""Names, as Linux lists them, of the instructions that decide how fast a row of logits is read."""


def installation_report() -> str:
    """Versions, system, processor and extras, a "name: value" a line: nothing of a user's models, texts or folders."""
    facts = {
        "semtoken": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": f"{os.cpu_count()} cores, {_instructions() or 'instructions unknown'}",
        "accelerator": _accelerator(),
        "extras": ", ".join(_installed_extras()) or "none",
    }
    versions = {name: installed for name in PACKAGES if (installed := installed_version(name)) is not None}
    return "\n".join(f"{name}: {value}" for name, value in (facts | versions).items())


def installed_version(name: str) -> str | None:
    """The version of a package that is installed; None for one that is not."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def physical_memory() -> int | None:
    """The memory of this machine in bytes; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _instructions() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = {word for line in file if line.startswith(("flags", "Features")) for word in line.split()}
    except OSError:
        return ""
    return " ".join(name for name in INSTRUCTIONS if name in flags)


def _accelerator() -> str:
    if installed_version("torch") is None:
        return "unknown without torch"
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"


def _installed_extras() -> list[str]:
    """Extras all of whose packages are installed."""
    from packaging.requirements import Requirement

    about = metadata("semtoken")
    wanted = [Requirement(line) for line in about.get_all("Requires-Dist") or ()]
    always = {requirement.name for requirement in wanted if requirement.marker is None}
    extras = []
    for extra in about.get_all("Provides-Extra") or ():
        brought = {
            requirement.name
            for requirement in wanted
            if requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
        }
        if brought - always and all(installed_version(name) is not None for name in brought):
            extras.append(extra)
    return extras
