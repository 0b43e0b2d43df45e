"""Silence the warnings and progress bars of the libraries underneath, for commands and tools that people look at."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from semtoken.support.extras import require


def quiet_libraries() -> None:
    """Show errors of torch, transformers and the hub only, and none of their progress bars."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", module=r"(transformers|torch|huggingface_hub)\b")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    transformers_logging = require("transformers.utils", extra="transformers").logging
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


@contextmanager
def quiet_gguf() -> Iterator[None]:
    """While a GGUF file is read, no bar for its tensors where the other bars of transformers are off."""
    reading: Any = require("transformers.modeling_gguf_pytorch_utils", extra="gguf")
    logging_of_transformers = require("transformers.utils", extra="transformers").logging
    bar = reading.tqdm
    reading.tqdm = partial(bar, disable=not logging_of_transformers.is_progress_bar_enabled())
    try:
        yield
    finally:
        reading.tqdm = bar
