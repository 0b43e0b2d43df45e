"""An uncertainty method of your own, in a function: semtoken bench compare --methods examples/own_method.py:spread

The arguments are named after what is recorded of a generation, and a higher number means a riskier answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def spread(log_probs: Sequence[float], token_entropies: Sequence[float]) -> float:
    """How uneven the tokens' log-probabilities are, and the largest entropy of a step."""
    return float(np.std(log_probs) + np.max(token_entropies))
