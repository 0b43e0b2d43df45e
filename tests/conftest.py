"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test reaches out
settings.register_profile("semtoken", deadline=None, print_blob=True)  # machines of any speed
settings.load_profile("semtoken")
