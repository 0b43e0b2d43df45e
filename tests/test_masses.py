"""The sums of a step's masses against sums of each group alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from semtoken.scoring.endings import NO_END
from semtoken.scoring.masses import StepRequest, log_sums
from semtoken.scoring.prefixes import NO_IDS
from semtoken.scoring.scorer import TokenColumns

LOG_PROBS = st.floats(-2000, 0) | st.just(-np.inf) | st.floats(-20, 0)
GROUPS = st.lists(st.lists(LOG_PROBS, max_size=6), min_size=5, max_size=5)


def request(groups: list[list[float]]) -> StepRequest:
    bounds = np.cumsum([0, *map(len, groups)]).tolist()
    summed = np.arange(bounds[-1], dtype=np.int64)
    chosen = TokenColumns(0, False, False, False, summed, tuple(bounds), NO_IDS, True, True)
    return StepRequest(chosen, NO_END, needs_row=False)


@given(st.lists(GROUPS, min_size=1, max_size=4))
def test_groups_of_all_answers_are_summed_as_each_alone(answers: list[list[list[float]]]) -> None:
    log_probs: npt.NDArray[np.float64] = np.array([p for groups in answers for group in groups for p in group], float)
    expected = [[np.logaddexp.reduce(np.array(group)) if group else -np.inf for group in groups] for groups in answers]
    found = log_sums([request(groups) for groups in answers], log_probs)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
