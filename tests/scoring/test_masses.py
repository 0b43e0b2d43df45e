"""The sums of the masses of steps against sums of each step alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from semtoken.scoring.steps import _Columns, log_sums

LOG_PROBS = st.floats(-2000, 0) | st.just(-np.inf) | st.floats(-20, 0)
SOME_STEPS = st.lists(st.lists(st.tuples(LOG_PROBS, st.booleans()), max_size=6), min_size=1, max_size=4)


@given(SOME_STEPS)
def test_the_masses_of_all_steps_are_summed_as_those_of_each_alone(each: list[list[tuple[float, bool]]]) -> None:
    owners = np.array([k for k, step in enumerate(each) for _ in step], dtype=np.int64)
    log_probs = np.array([log_prob for step in each for log_prob, _ in step], dtype=np.float64)
    counted = np.array([flag for step in each for _, flag in step], dtype=bool)
    columns = _Columns(owners, np.zeros(len(owners), dtype=np.int64), log_probs)
    found = log_sums(len(each), {"others": (columns, ~counted), "all": (columns, counted)})["all"]
    expected = [np.logaddexp.reduce([log_prob for log_prob, flag in step if flag] or [-np.inf]) for step in each]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
