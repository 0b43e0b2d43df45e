"""Whether the Hugging Face hub has a model of a name: asked once, where transformers would try for a minute."""

from __future__ import annotations

from functools import lru_cache

from semtoken.errors import ModelError, first_line_of
from semtoken.support.almanac import ALMANAC
from semtoken.support.checkpoints.sources import CATALOGUE
from semtoken.support.text import did_you_mean

HUB_TIMEOUT = 10.0
"""Seconds that the hub has to answer."""
READ_FIRST = ("config.json", "tokenizer_config.json")
"""The files that transformers reads first, of a model and of a tokenizer: one of them in the cache is enough."""


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
            f"{did_you_mean(name, (ALMANAC, *CATALOGUE))}. `semtoken fetch` lists the models that have a short name."
        ) from error
