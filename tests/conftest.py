"""Settings of all tests."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test reaches out
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core already

# The same examples in every run, on machines of any speed: a check of a change must not fail by chance.
# New examples are looked for with `pytest --hypothesis-profile random`.
settings.register_profile("semtoken", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("random", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("semtoken")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take the modules that are loaded out of the garbage collector's sight: it would go through all of them often."""
    gc.collect()
    gc.freeze()
