"""The published rule in one file says what the worked example, the twin of plain loops, and the fast code say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from semtoken import score_logits
from semtoken.core.published_rule import uncertainty
from tests import tiny, worked
from tests.core.reference import softmax
from tests.core.test_scoring import small_kind


@pytest.mark.parametrize("shift", [0.0, 900.0, -900.0])
def test_the_worked_example(shift: float) -> None:
    """A constant that is added to all logits of a row changes nothing."""
    found = uncertainty(
        worked.logits(*worked.STEPS) + shift,
        worked.ids(*worked.ANSWER),
        worked.LABELS.tolist(),
        lambda ids: "".join(worked.TOKENS[i] for i in ids),
    )
    assert found == pytest.approx(1 - 0.73 * 0.93 * 0.70)


@pytest.mark.parametrize("answer", [("\n",), (worked.END, "\n", worked.END)])
def test_an_answer_without_a_character_is_as_uncertain_as_can_be(answer: tuple[str, ...]) -> None:
    logits, ids = worked.logits(*[{one: 1.0} for one in answer]), worked.ids(*answer)
    said = uncertainty(logits, ids, worked.LABELS.tolist(), lambda ids: "".join(worked.TOKENS[i] for i in ids))
    assert said == score_logits(logits, ids, worked.clusters(), "paper").sequence_uncertainty == 1.0


@pytest.mark.parametrize("name", list(tiny.TOKENIZERS))
def test_the_twin_and_the_fast_code_agree(name: str) -> None:
    kind = small_kind(name)
    generator = np.random.default_rng(7)
    for _ in range(6):
        pool = kind.pools[int(generator.integers(len(kind.pools)))]
        ids = [int(token) for token in generator.choice(pool, size=int(generator.integers(1, 6)))]
        logits = generator.normal(0.0, 3.0, (len(ids), kind.twin.size))
        found = uncertainty(logits, ids, kind.twin.labels, lambda each: kind.twin.decode(list(each)))
        twin = kind.twin.score(softmax(logits, kind.twin.size), ids)
        assert found == pytest.approx(-math.expm1(twin.log_confidence), abs=1e-9)
        assert found == pytest.approx(score_logits(logits, ids, kind.clusters, "paper").sequence_uncertainty, abs=1e-5)
