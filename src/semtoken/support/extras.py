"""Other packages: optional ones, with one message where one is missing, those that plug in, and how to quiet them."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from semtoken.errors import MissingExtra

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "transformers": ("torch", "transformers"),
    "images": ("PIL", "pypdfium2"),
    "adapters": ("peft",),
    "cluster": ("numba", "threadpoolctl"),
    "calibrate": ("jinja2", "matplotlib", "scipy"),
    "frames": ("pandas", "pyarrow"),
    "parts": ("pygments", "sentencex"),
    "similarity": ("sentence_transformers",),
    "gguf": ("gguf", "accelerate"),
    "serve": (
        *("aiohttp", "anyio", "cachetools", "fastapi", "httptools", "httpx", "prometheus_client", "pydantic"),
        *("pydantic_core", "starlette", "tenacity", "uvicorn", "yarl"),
    ),
    "bench": ("datasets", "diskcache", "pyrate_limiter", "rouge_score", "tabulate", "yaml"),
    "journal": ("sqlalchemy",),
    "postgresql": ("psycopg",),
    "ray": ("ray",),
    "vllm": ("vllm",),
    "llama-cpp": ("llama_cpp",),
}
"""The modules that each extra brings; each module is named with the first extra that has it."""


OF_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "bench": ("bench",),
    "cluster": ("transformers", "cluster"),
    "fetch": ("transformers", "gguf"),
    "serve": ("serve", "transformers"),
}
"""The extras that each command needs, where the first module that is missing does not name them all."""


def install_line(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'semtoken[{extra}]'"


def missing_extra(error: ModuleNotFoundError) -> MissingExtra | None:
    """The message for a module that is not installed; None if no extra brings it."""
    top = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if top in modules:
            return _missing(top, extra)
    return None


def _missing(package: str, extra: str) -> MissingExtra:
    return MissingExtra(
        f"This needs the package '{package}', which is not installed. Install it with: {install_line(extra)}"
    )


def require_installed(module: str, *, extra: str) -> None:
    """Raise `MissingExtra` if a module is not installed, without importing it: for what is needed only after hours."""
    if not _is_there(module):
        raise _missing(module, extra)


def all_that_is_missing(command: str | None, message: str) -> str:
    """A sentence on how to install what a command lacks, for the end of a message; empty if that already says so."""
    lacking = [extra for extra in OF_COMMANDS.get(command or "", ()) if not all(map(_is_there, EXTRAS[extra]))]
    line = install_line(",".join(lacking))
    return f"\nAll that `semtoken {command}` needs here: {line}" if lacking and line not in message else ""


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # an importer may refuse a module by raising
        return False


def require(module: str, *, extra: str) -> ModuleType:
    """Import `module`, or raise `MissingExtra` with the line that installs the extra of semtoken that brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise
        raise _missing(error.name, extra) from error


METHODS = "semtoken.methods"
"""The entry-point group of functions with `@method`, or of modules that hold some."""
STATISTICS = "semtoken.statistics"
"""The entry-point group of observers with `@statistic`, or of modules that hold some."""
REPLY_SHAPES = "semtoken.reply_shapes"
"""The entry-point group of shapes of replies: subclasses of `semtoken.replies.formats.base.Shape`."""
DATASETS = "semtoken.datasets"
"""The entry-point group of question sets: a `semtoken.bench.datasets.KnownSet` under each name."""


@cache
def installed(group: str) -> dict[str, Any]:
    """Load all objects of an entry-point group, by name; one that fails gives a warning, and keeps no other out."""
    from importlib.metadata import entry_points  # slow, and no help screen needs it

    loaded: dict[str, Any] = {}
    for point in sorted(entry_points(group=group), key=lambda entry_point: entry_point.name):
        try:
            loaded[point.name] = point.load()
        except Exception as error:  # whatever a package of others raises
            owner = "a package" if point.dist is None else point.dist.name
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(f"{point.name!r} of {owner} ({group}) cannot be loaded: {reason}", stacklevel=2)
    return loaded


def quiet_libraries() -> None:
    """Limit torch, transformers and the hub to errors, without progress bars, whether they are loaded yet or not."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", module=r"(transformers|torch|huggingface_hub)\b")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    if "huggingface_hub" in sys.modules:  # it has read the variables
        importlib.import_module("huggingface_hub.utils").disable_progress_bars()
    if "transformers" in sys.modules:
        transformers_logging = importlib.import_module("transformers.utils.logging")
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()


@contextmanager
def only_errors(logger: str) -> Iterator[None]:
    """Hide what a logger has to say below errors, until the block ends."""
    named_logger = logging.getLogger(logger)
    before = named_logger.level
    named_logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        named_logger.setLevel(before)


@contextmanager
def quiet_gguf() -> Iterator[None]:
    """Hide the progress bar of reading a GGUF file if the other bars of transformers are off."""
    reading: Any = require("transformers.modeling_gguf_pytorch_utils", extra="gguf")
    logging_of_transformers = require("transformers.utils", extra="transformers").logging
    bar = reading.tqdm
    reading.tqdm = partial(bar, disable=not logging_of_transformers.is_progress_bar_enabled())
    try:
        yield
    finally:
        reading.tqdm = bar
