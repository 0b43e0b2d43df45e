"""An unfinished answer that is saved and goes on is the answer that never was: at every step, and from none on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from semtoken import score_logits
from semtoken.core import GrowingAnswer, ScoringRules, score_top_logprobs, scorer_for
from semtoken.engine_tokens import TopStep, TopToken
from semtoken.errors import InvalidInput, InvalidLogits, SemtokenError
from tests import tiny
from tests.core.test_scoring import small_kind

TEXT = " \n東京 🙂 the naïve café is not the TV 17"


@pytest.mark.parametrize("rules", [ScoringRules(), ScoringRules("paper"), ScoringRules(equality="meaning")])
@pytest.mark.parametrize("name", list(tiny.TOKENIZERS))
def test_an_answer_that_is_saved_at_every_step_goes_on_the_same(name: str, rules: ScoringRules) -> None:
    clusters = small_kind(name).clusters
    ids = list(tiny.TOKENIZERS[name]()(TEXT, add_special_tokens=False)["input_ids"])
    logits = np.random.default_rng(1).normal(0, 3, (len(ids), clusters.vocabulary.size)).astype(np.float32)
    scorer = scorer_for(clusters, rules)
    answer, other = GrowingAnswer(scorer), GrowingAnswer(scorer)
    for step, token in enumerate(ids):
        answer = GrowingAnswer.from_state_dict(scorer, answer.state_dict())
        for one in (answer, other):
            one.add_row(logits, step, token)
        running, expected = answer.running(), other.running()
        assert (running.n_settled, running.n_tokens) == (expected.n_settled, step + 1)
        assert running.uncertainty == pytest.approx(expected.uncertainty)
        assert running.log_score_bounds == pytest.approx(expected.log_score_bounds)
    for length in (len(ids) - 1, 2, 1):
        answer = GrowingAnswer.from_state_dict(scorer, answer.state_dict())
        answer.truncate(length)
        short = score_logits(logits[:length], ids[:length], clusters, rules)
        assert answer.finish().log_score == pytest.approx(short.log_score, rel=1e-6)
        assert answer.finish().neutral_only == short.neutral_only
    answer = GrowingAnswer.from_state_dict(scorer, other.state_dict())
    found, whole = answer.finish(), score_logits(logits, ids, clusters, rules)
    assert found.log_score == pytest.approx(whole.log_score, rel=1e-6)
    for one, other in zip(found.tokens, whole.tokens, strict=True):
        assert (one.id, one.neutral, one.start, one.end) == (other.id, other.neutral, other.start, other.end)
        for field in ("log_probability", "prefix_probability", "neutral_probability", "cluster_probability"):
            assert getattr(one, field) == pytest.approx(getattr(other, field), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("change", ["fewer", "more", "owners", "tokens"])
def test_a_state_whose_numbers_do_not_belong_to_its_tokens_is_refused(change: str) -> None:
    clusters = small_kind("byte-level").clusters
    ids = list(tiny.TOKENIZERS["byte-level"]()("the TV is", add_special_tokens=False)["input_ids"])
    logits = np.random.default_rng(1).normal(0, 3, (len(ids), clusters.vocabulary.size)).astype(np.float32)
    scorer = scorer_for(clusters, ScoringRules())
    answer = GrowingAnswer(scorer)
    for step, token in enumerate(ids):
        answer.add_row(logits, step, token)
    state: dict[str, Any] = answer.state_dict()
    steps = dict(state["steps"])
    if change == "fewer":
        steps["logs"] = steps["logs"][:-1]
    elif change == "more":
        steps["ids"] = np.append(steps["ids"], 1)
    elif change == "owners":
        steps["owners"] = steps["owners"] + 1
    else:
        steps["opening"] = steps["opening"][:-1]
    with pytest.raises(ValueError, match="cannot reshape" if change == "tokens" else "the entries do not fit"):
        GrowingAnswer.from_state_dict(scorer, state | {"steps": steps})


@pytest.mark.parametrize("token", [-1, 10**9])
def test_ids_outside_the_vocabulary_are_no_tokens(token: int) -> None:
    clusters = small_kind("byte-level").clusters
    one = TopToken(-1.0, token, clusters.vocabulary.texts[-1])
    with pytest.raises((SemtokenError, InvalidInput)):
        score_top_logprobs([TopStep(one, [one])], clusters)


@pytest.mark.parametrize("place", [0, 1, 17, 39])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_without_a_distribution_is_named_by_its_step(place: int, bad: float) -> None:
    clusters = small_kind("byte-level").clusters
    logits = np.zeros((40, clusters.vocabulary.size), dtype=np.float32)
    logits[place, 3] = bad
    with pytest.raises(InvalidLogits, match=rf"The logits of step {place} hold NaN or \+inf"):
        score_logits(logits, [5] * 40, clusters)
