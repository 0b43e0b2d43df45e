"""The default rule on one page against brute force over all continuations, and the package against that page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken import score_logits, score_logprobs
from semtoken.core import default_rule
from semtoken.core.engine_tokens.precision import Precision
from tests import worked

TEXTS = ("Paris", " paris", "PARIS ", "Rome", " ", "", "\ufffd", " rome")
VOCABULARY = worked.vocabulary(TEXTS)


def decode(ids: Sequence[int]) -> str:
    return "".join(TEXTS[token] for token in ids)


def meant(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two continuations say the same: token by token the same letters, and else the very same tokens."""
    pairs = [(TEXTS[a].strip().casefold(), TEXTS[b].strip().casefold(), a, b) for a, b in zip(one, other, strict=True)]
    return all(a == b or (text == like and text.isalpha()) for text, like, a, b in pairs)


ANSWERS = st.lists(st.integers(0, len(TEXTS) - 1), min_size=1, max_size=3)


@given(ids=ANSWERS, seed=st.integers(0, 1000))
def test_the_confidence_is_the_sum_over_all_continuations_that_say_the_same(ids: list[int], seed: int) -> None:
    logits = np.random.default_rng(seed).normal(0, 2, (len(ids), len(TEXTS)))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    every = itertools.product(range(len(TEXTS)), repeat=len(ids))
    confidence = math.fsum(math.prod(chances[range(len(ids)), way]) for way in every if meant(ids, way))
    expected = 1.0 if not decode(ids).strip() else 1.0 - confidence
    assert default_rule.uncertainty(logits, ids, decode) == pytest.approx(expected, abs=1e-12)
    assert score_logits(logits, ids, VOCABULARY).sequence_uncertainty == pytest.approx(expected, abs=1e-6)


NAMED = ("Paris", " paris", "Rome", " rome", "Oslo", " ")


@given(
    ids=st.lists(st.integers(0, len(NAMED) - 1), min_size=1, max_size=3), seed=st.integers(0, 1000), k=st.integers(0, 6)
)
def test_the_interval_holds_every_way_in_which_lists_go_on(ids: list[int], seed: int, k: int) -> None:
    """The tokens that a list leaves out are spelled as the chosen one, or not, in every combination."""
    random = np.random.default_rng(seed)
    chances = random.dirichlet(np.ones(len(NAMED)), len(ids))
    steps, least, most = [], 1.0, 1.0
    for row, chosen in zip(chances, ids, strict=True):
        best = [int(token) for token in np.argsort(-row)[:k]]
        steps.append((NAMED[chosen], math.log(row[chosen]), {NAMED[token]: math.log(row[token]) for token in best}))
        shown = {chosen, *best}
        alike = [
            t
            for t in shown
            if t == chosen or (NAMED[t].strip() and NAMED[t].strip().lower() == NAMED[chosen].strip().lower())
        ]
        agreed, unlisted = row[alike].sum(), row[[t for t in range(len(NAMED)) if t not in shown]].sum()
        least, most = least * agreed, most * (agreed + (unlisted if NAMED[chosen].strip() else 0.0))
    if not "".join(NAMED[token] for token in ids).strip():
        least = most = 0.0
    assert default_rule.sequence_uncertainty_interval(steps) == pytest.approx((1 - most, 1 - least), abs=1e-9)
    items = [
        {
            "token": text,
            "logprob": own,
            "top_logprobs": [{"token": name, "logprob": value} for name, value in best.items()],
        }
        for text, own, best in steps
    ]
    low, high = score_logprobs(items).sequence_uncertainty_interval
    assert low <= 1 - most + 1e-9 and high >= 1 - least - 1e-9
    precision = Precision()
    precision.add([value for _, own, best in steps for value in (own, *best.values())])
    if precision.in_full:  # one number in a thousand could have been rounded, which makes the interval wider
        assert (low, high) == pytest.approx((1 - most, 1 - least), abs=1e-4)


def test_the_rule_is_a_page() -> None:
    """It has to be read whole."""
    from pathlib import Path

    assert len(Path(default_rule.__file__).read_text(encoding="utf-8").splitlines()) <= 120
