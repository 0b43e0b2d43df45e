"""Is there a model of this name?"""

from __future__ import annotations

from pathlib import Path

from semtoken.errors import ModelError
from semtoken.models.sources import resolve

HUB_TIMEOUT = 10.0


def check_there(model: str, revision: str | None = None) -> None:
    """Raise `ModelError` unless the model is built in, fetched, a GGUF file, a directory, or found on the hub."""
    source = resolve(model)
    if source.clusters is not None or source.is_gguf:
        return
    folder = Path(source.path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").exists():
            raise ModelError(f"The directory '{model}' holds no model: config.json is missing.{_gguf_in(folder)}")
        return
    if folder.exists():
        raise ModelError(f"'{model}' is a file; give a GGUF file, the directory of a checkpoint or a hub id.")
    if model.startswith((".", "/", "~")) or model.count("/") > 1 or "\\" in model:
        raise ModelError(f"There is no directory '{model}'.")
    _check_on_hub(model, revision)


def _gguf_in(folder: Path) -> str:
    files = sorted(path.name for path in folder.glob("*.gguf"))
    return f" Give its GGUF file itself: {folder / files[0]}" if files else ""


def _check_on_hub(model: str, revision: str | None) -> None:
    """Ask the hub once: transformers alone would try for a minute where there is no network."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        if isinstance(try_to_load_from_cache(model, "config.json", revision=revision), str):
            return
        HfApi().model_info(model, revision=revision, timeout=HUB_TIMEOUT)
    except HFValidationError as error:
        raise ModelError(f"'{model}' is neither a directory here nor a possible hub id.") from error
    except Exception as error:  # whatever the network and the HTTP client of the installed hub version raise
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"'{model}' is neither a directory here nor found on the Hugging Face hub ({reason})."
        ) from error
