"""A look whether there is a model of a name, here or on the Hugging Face hub, before anything is loaded.

The hub is asked once, where transformers would try for a minute.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from semtoken.errors import ModelError, first_line_of
from semtoken.support.almanac import ALMANAC
from semtoken.support.checkpoints.sources import CATALOG, resolve
from semtoken.support.text import did_you_mean

HUB_TIMEOUT = 10.0
"""Seconds that the hub has to answer."""
READ_FIRST = ("config.json", "tokenizer_config.json")
"""The files that transformers reads first, of a model and of a tokenizer: one of them in the cache is enough."""


DESCRIPTIONS = ("config.json", "adapter_config.json")
"""The files that describe a model, and an adapter of one: a checkpoint holds at least one of them."""


def require_model(model: str, revision: str | None = None) -> None:
    """Raise `ModelError` unless there is a model of this name: built in, fetched, a GGUF file, a directory, or on the
    hub, where `revision` is a branch, a tag or a commit.
    """
    source = resolve(model)
    if source.clusters is not None or source.is_gguf:
        return
    folder = Path(source.path).expanduser()
    if folder.is_dir():
        if not any((folder / name).exists() for name in DESCRIPTIONS):
            ggufs = sorted(path.name for path in folder.glob("*.gguf"))
            hint = f" Give its GGUF file itself: {folder / ggufs[0]}" if ggufs else ""
            raise ModelError(f"The directory '{model}' holds no model: config.json is missing.{hint}")
    elif folder.exists():
        raise ModelError(f"'{model}' is a file; give a GGUF file, the directory of a checkpoint or a hub id.")
    else:
        require_on_hub(model, revision)


@lru_cache(maxsize=16)  # a command asks before it loads anything, and the loader again
def require_on_hub(name: str, revision: str | None = None) -> None:
    """Raise `ModelError` unless a model or tokenizer is in the hub's cache on this machine, or on the hub.

    `name` is nothing that is here; `revision` a branch, tag or commit. `huggingface_hub` has to be installed.
    """
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        raise ModelError(f"There is no directory '{name}'.")
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        if any(isinstance(try_to_load_from_cache(name, file, revision=revision), str) for file in READ_FIRST):
            return
        HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT)
    except HFValidationError as error:
        raise ModelError(f"'{name}' is neither a directory here nor a possible hub id.") from error
    except Exception as error:  # whatever the network and the HTTP client of the installed hub version raise
        reason = first_line_of(error)
        raise ModelError(
            f"'{name}' is neither a directory here nor found on the Hugging Face hub ({reason})"
            f"{did_you_mean(name, (ALMANAC, *CATALOG))}. `semtoken fetch` lists the models that have a short name."
        ) from error
