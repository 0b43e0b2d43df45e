"""What goes wrong when an encoder is loaded, as an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from semtoken.clusters.tables import HUB_ID
from semtoken.errors import ModelError, SemtokenError


@contextmanager
def explained(kind: str, model_or_path: str) -> Iterator[None]:
    """Errors of transformers and torch about a model as `ModelError`, our own as they are.

    Parameters
    ----------
    kind
        For the message: "NLI model".
    model_or_path
        Directory or hub id.

    Raises
    ------
    ModelError
        There is no such model, or it cannot be read.
    """
    if not Path(model_or_path).exists() and not HUB_ID.fullmatch(model_or_path):
        raise ModelError(f"The {kind} cannot be loaded: there is no directory {model_or_path}.")
    try:
        yield
    except SemtokenError:
        raise
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"The {kind} {model_or_path} cannot be loaded: {' '.join(str(error).split())}") from error
