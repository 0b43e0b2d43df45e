"""The Triton kernel, through Triton's interpreter, against the compiled kernel for the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scoring.test_scoring import RULES, random_logits, small_kind

from semtoken.scoring import rows, scorer_for
from semtoken.scoring.reduction import reduce_rows
from semtoken.scoring.rules import ScoringRules

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("numba")
triton_kernel = pytest.importorskip("triton_kernel")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),  # the interpreter's own
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small vocabularies too are read by the kernels, in several blocks."""
    monkeypatch.setattr(rows, "COMPILED_FROM", 0)
    monkeypatch.setattr(triton_kernel, "BLOCK", 64)
    monkeypatch.setattr(triton_kernel, "FEW", 16)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_are_normalised_as_by_the_compiled_kernel(dtype: str) -> None:
    """Rows with infinities and NaN, and rows that are flat."""
    size = 300
    logits = torch.from_numpy(random_logits(1, 9, size + 5)).to(getattr(torch, dtype)) * 4
    logits[1, 3], logits[2, 200], logits[3, 17] = torch.inf, torch.nan, -torch.inf
    logits[4], logits[5, :size] = -torch.inf, 2.0
    expected = rows.normalized_rows(logits if dtype == "bfloat16" else logits.numpy(), size)
    found = triton_kernel.normalize(logits, np.arange(9), size, np.log(rows.LEAST_LISTED), rows.LISTED + 1)
    np.testing.assert_allclose(found.log_normalizers, expected.log_normalizers, rtol=1e-6, atol=1e-5)
    sound = np.isfinite(found.log_normalizers)
    assert sound.tolist() == [True, False, False, True, False, True, True, True, True]
    assert expected.likely is not None and expected.has_minus_infinity is not None
    np.testing.assert_array_equal(found.likely_ids[sound], expected.likely.ids[sound])
    np.testing.assert_array_equal(found.likely[sound], expected.likely.logits[sound])
    np.testing.assert_array_equal(found.has_minus_infinity[sound], expected.has_minus_infinity[sound])


@pytest.mark.parametrize("name", ["byte-level", "wordpiece"])
@pytest.mark.parametrize("switches", RULES[::12])
def test_steps_are_reduced_as_by_the_compiled_kernel(name: str, switches: dict[str, object]) -> None:
    """All masses of a step, the smallest among them."""
    kind = small_kind(name)
    scorer, size = scorer_for(kind.clusters, ScoringRules(**switches)), kind.clusters.vocabulary.size  # type: ignore[arg-type]
    random = np.random.default_rng(7)
    n = 12
    logits = random_logits(2, n, size) * 6
    logits[3] -= 300 * (random.random(size) < 0.5)  # masses that are too small to be added up as they are
    tokens, before = random.integers(0, size, n), random.integers(-1, size, n)
    opening = random.random(n) < 0.3
    read = rows.normalized_rows(logits, size)
    expected = reduce_rows(scorer, read, np.arange(n), tokens, before, opening)
    logs, ends, counts, candidates = triton_kernel.sum_steps(
        scorer, torch.from_numpy(logits), np.arange(n), read.log_normalizers, tokens, expected.asked, opening
    )
    np.testing.assert_allclose(logs, expected.logs, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(ends, expected.ends, rtol=1e-5, atol=1e-9)
    np.testing.assert_array_equal(counts, expected.counts)
    np.testing.assert_allclose(candidates, expected.candidates, rtol=1e-6, atol=1e-6)
