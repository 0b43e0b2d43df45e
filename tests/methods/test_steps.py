"""The record that a step gives an observer, against numbers worked out in another way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from semtoken.methods.observers.steps import Step

LOGITS = np.array([[0.0, 1.0, 2.0, 9.0], [3.0, -1.0, 0.5, 9.0], [1.0, 1.0, 1.0, 9.0]])
"""Three rows of three tokens; the last column is padding."""


@pytest.mark.parametrize("logits", [LOGITS, torch.tensor(LOGITS), torch.tensor(LOGITS, dtype=torch.bfloat16)])
def test_whole_distributions_are_those_of_the_answers_without_padding(logits: Any) -> None:
    step = Step([4, 7], [2, 0], 3, logits, rows=[2, 0])
    expected = torch.log_softmax(torch.tensor(LOGITS[[2, 0], :3]), dim=-1).numpy()
    found = step.log_distributions()
    assert isinstance(found, np.ndarray) and found.dtype == np.float64
    np.testing.assert_allclose(found, expected, atol=1e-6)
