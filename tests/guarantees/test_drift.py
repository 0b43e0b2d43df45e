"""The distance of recent scores from the labeled ones against SciPy's, and its band against resampling by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, ks_2samp

from semtoken.errors import InvalidInputError
from semtoken.guarantees.drift import drift


@pytest.mark.parametrize("n", [1, 2, 5, 29, 30])
def test_few_recent_scores_show_no_distance(n: int) -> None:
    """The interval of a single score of the same distribution left out 0 in every world, and of five in one of four."""
    generator = np.random.default_rng(5)
    pairs = [(generator.normal(0, 1, 300), generator.normal(0, 1, n)) for _ in range(12)]
    shown = sum(drift(first, second).low > 0 for first, second in pairs)
    assert shown <= binom.ppf(0.999, 12, 0.05)
    assert (shown == 0 and drift(*pairs[0]).high == 1.0) or n == 30
    assert drift(pairs[0][0], pairs[0][1] + 9).distance == 1.0


def test_the_band_of_a_distance_is_95_percent_wide() -> None:
    generator = np.random.default_rng(3)
    first, second = generator.normal(0, 1, 150), generator.normal(0.8, 1, 100)
    found = drift(first, second)
    assert found.distance == pytest.approx(ks_2samp(first, second).statistic)
    assert (found.n_fitted, found.n_recent) == (150, 100)
    places = np.concatenate([first, second])

    def share(values: np.ndarray) -> np.ndarray:
        return np.array((values[:, None] <= places).mean(axis=0))

    gap, drawn = share(first) - share(second), np.random.default_rng(0)
    moved = [
        np.abs(share(drawn.choice(first, 150)) - share(drawn.choice(second, 100)) - gap).max() for _ in range(1000)
    ]
    margin = np.quantile(moved, 0.95)
    assert (found.low, found.high) == pytest.approx((found.distance - margin, found.distance + margin))
    same = drift(first, first)
    assert (same.distance, same.low) == (0.0, 0.0) and 0 < same.high < 1
    assert drift(first, first + 100).high == 1.0
    with pytest.raises(InvalidInputError, match="no recent scores"):
        drift(first, first[:0])
