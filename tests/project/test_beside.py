"""The page beside other libraries: its tables are those of the kept scores, and equal numbers agree."""

from __future__ import annotations

import numpy as np
import pytest
from research.experiments.beside import tables

from tests.rows import each


def test_the_page_shows_the_kept_scores() -> None:
    page = (tables.HERE / "README.md").read_text("utf-8")
    found = tables.MARKS.search(page)
    assert found is not None and tables.text() in found[0]


@each("name", sorted({path.name.split("-")[0] for path in (tables.HERE / "scores").glob("*.csv")}))
def test_libraries_agree_where_they_compute_the_same(name: str) -> None:
    scores = tables.scores_of(name)

    def column(end: str) -> np.ndarray:
        [found] = [one for one in scores if one.endswith(end)]
        return np.asarray(scores[found], dtype=float)

    probability = column("semtoken: probability")
    assert column(": MaximumSequenceProbability") == pytest.approx(probability, rel=1e-4, abs=1e-4)
    assert column(": Confidence, LogProbScoring") == pytest.approx(probability, rel=1e-4, abs=1e-4)
    assert -column(": sequence_probability, whole") == pytest.approx(np.exp(-probability), rel=1e-4, abs=1e-6)
    assert np.log(-column(": sequence_probability")) == pytest.approx(-column(": Perplexity"), rel=1e-4, abs=1e-4)
