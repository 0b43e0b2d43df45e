"""Rows that the compiled kernel reads give what numpy finds of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semtoken import score_logits
from semtoken.core import rows
from semtoken.core.results import ScoredToken
from semtoken.core.rules import ScoringRules
from tests import tiny
from tests.core.test_scoring import RULES, draw_answer, small_kind


def numbers(token: ScoredToken) -> list[float]:
    """All numbers of a token's record."""
    ends = [] if token.value_ends is None else dataclasses.astuple(token.value_ends)
    fields = [value for value in dataclasses.astuple(token) if isinstance(value, float)]
    return [*fields, *(number for end in ends if end is not None for number in end)]


@pytest.mark.parametrize("name", list(tiny.TOKENIZERS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([0.1, 3.0, 400.0]),
    holes=st.booleans(),
    rules=st.sampled_from(RULES),
)
def test_the_compiled_loops_find_what_numpy_does(
    name: str, seed: int, scale: float, holes: bool, rules: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    kind, random, settings_ = small_kind(name), np.random.default_rng(seed), ScoringRules(**rules)  # type: ignore[arg-type]
    logits, ids = draw_answer(kind, seed % 1000)
    logits *= np.float32(scale)
    if holes:
        logits[random.random(logits.shape) < 0.5] = -np.inf
        logits[np.arange(len(ids)), ids] = scale
    expected = score_logits(logits, ids, kind.clusters, settings_)
    with monkeypatch.context() as patch:
        patch.setattr(rows, "COMPILED_FROM", 0)
        found = score_logits(logits, ids, kind.clusters, settings_)
    assert (found.text, found.neutral_only) == (expected.text, expected.neutral_only)
    assert [flag.code for flag in found.flags] == [flag.code for flag in expected.flags]
    for one, other in zip(found.tokens, expected.tokens, strict=True):
        np.testing.assert_allclose(numbers(one), numbers(other), rtol=1e-5, atol=3e-6)
        told = [[(alike.id, alike.source, alike.counted) for alike in token.alternatives] for token in (one, other)]
        assert told[0] == told[1]
