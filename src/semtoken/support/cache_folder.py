"""Where semtoken keeps what it has made or fetched for this user."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "SEMTOKEN_CACHE"


def cache_root() -> Path:
    """The user's cache folder, or the one that `SEMTOKEN_CACHE` names; it need not exist."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("semtoken", appauthor=False))
