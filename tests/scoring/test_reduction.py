"""Reduced steps: the compiled loops against the sums in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semtoken.scoring import Scorer, normalized_rows, rows, scorer_for
from semtoken.scoring.steps import ReducedSteps, reduce_rows
from semtoken.tokens.rules import ScoringRules
from tests import tiny
from tests.scoring.test_scoring import RULES, draw_answer, small_kind


def reduced(scorer: Scorer, logits: np.ndarray, tokens: list[int]) -> ReducedSteps:
    """The steps of one answer, reduced together."""
    chosen, n = np.array(tokens), len(tokens)
    read = normalized_rows(logits, scorer.vocabulary.size)
    opening = np.arange(n) == 0
    steps, _ = reduce_rows(scorer, read, np.arange(n), chosen, np.array([-1, *tokens[:-1]]), opening)
    return steps


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
    kind, random = small_kind(name), np.random.default_rng(seed)
    scorer = scorer_for(kind.clusters, ScoringRules(**rules))  # type: ignore[arg-type]
    logits, ids = draw_answer(kind, seed % 1000)
    logits *= np.float32(scale)
    if holes:
        logits[random.random(logits.shape) < 0.5] = -np.inf
        logits[np.arange(len(ids)), ids] = scale
    expected = reduced(scorer, logits, ids)
    with monkeypatch.context() as patch:
        patch.setattr(rows, "COMPILED_FROM", 0)
        found = reduced(scorer, logits, ids)
    for field in ("tokens", "opening", "neutral", "asked", "counts"):
        np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))
    for field in ("logs", "ends", "candidates"):
        np.testing.assert_allclose(getattr(found, field), getattr(expected, field), rtol=1e-5, atol=3e-6)


def test_what_is_missing_is_no_mass_of_any_type() -> None:
    """A step that ends no value, then one that does, are kept in one array."""
    kind = small_kind("byte-level")
    scorer = scorer_for(kind.clusters.vocabulary, ScoringRules())
    logits, ids = draw_answer(kind, 12)
    alone = [reduced(scorer, logits[k : k + 1], ids[k : k + 1]).ends.dtype for k in range(len(ids))]
    assert set(alone) == {np.dtype(np.float64)}
