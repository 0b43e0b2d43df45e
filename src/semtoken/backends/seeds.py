"""Random numbers that belong to one answer, so that its batch and the order of the prompts cannot matter."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np


def draw_key(seed: int, prompt_ids: Sequence[int], sample: int) -> list[int]:
    """Key of one sample of its random numbers, made from the prompt: the order of the questions cannot matter."""
    digest = hashlib.sha256(np.asarray(prompt_ids, dtype="<i8").tobytes()).digest()
    return [seed, sample, *np.frombuffer(digest, dtype="<u4").tolist()]
