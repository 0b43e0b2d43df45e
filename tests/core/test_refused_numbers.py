"""Ids that are no tokens, and rows that are no distribution, are refused by their place."""

from __future__ import annotations

import numpy as np
import pytest

from semtoken import score_logits
from semtoken.core import score_logprobs
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.errors import InvalidInputError, InvalidLogits, SemtokenError
from tests.core.test_scoring import small_kind
from tests.rows import each


@pytest.mark.parametrize("token", [-1, 10**9])
def test_ids_outside_the_vocabulary_are_no_tokens(token: int) -> None:
    clusters = small_kind("byte-level").clusters
    one = TopToken(-1.0, token, clusters.vocabulary.texts[-1])
    with pytest.raises((SemtokenError, InvalidInputError)):
        score_logprobs([TopStep(one, [one])], clusters)


@each("place", [0, 1, 17, 39])
@each("bad", [np.nan, np.inf])
def test_a_row_without_a_distribution_is_named_by_its_step(place: int, bad: float) -> None:
    clusters = small_kind("byte-level").clusters
    logits = np.zeros((40, clusters.vocabulary.size), dtype=np.float32)
    logits[place, 3] = bad
    with pytest.raises(InvalidLogits, match=rf"The logits of step {place} hold NaN or \+inf"):
        score_logits(logits, [5] * 40, clusters)
