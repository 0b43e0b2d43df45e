"""One message for every missing optional dependency."""

from __future__ import annotations

import importlib
from types import ModuleType

from semtoken.errors import MissingExtra


def require(module: str, *, extra: str) -> ModuleType:
    """Import `module`, or say which extra of semtoken brings it.

    Raises
    ------
    MissingExtra
        The module is not installed. The message holds the install line.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise
        raise MissingExtra(
            f"This needs the package '{error.name}', which is not installed. "
            f"Install it with: pip install 'semtoken[{extra}]'"
        ) from error
