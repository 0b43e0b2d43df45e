"""One row of probabilities and what an answer says of it, by hand: where the mass comes from, and its edges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from semtoken import ScoredAnswer, ScoredToken, score_logits, score_logprobs
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.core import LogitsStream, LogprobsStream, ScoringRules
from semtoken.errors import InvalidInputError
from tests import worked
from tests.rows import each

MEANING = ScoringRules(equality="meaning")


def scored(by: str, step: dict[str, float], *tokens: str, rules: Any = MEANING) -> ScoredAnswer:
    """An answer whose first row is `step`, scored from rows or from lists of the whole vocabulary."""
    rows, ids = worked.logits(step, *({token: 1.0} for token in tokens[1:])), worked.ids(*tokens)
    if by == "rows":
        return score_logits(rows, ids, worked.clusters(), rules)
    steps = [(token, dict(enumerate(row.tolist()))) for token, row in zip(ids, rows, strict=True)]
    return score_logprobs(steps, worked.clusters(), rules)


@pytest.mark.parametrize("by", ["rows", "lists"])
@pytest.mark.parametrize("places", [[], [1], [2, 0, 2]])
def test_alternatives_at_some_places_are_those_of_the_tokens_there(by: str, places: list[int]) -> None:
    answer = scored(by, {" tele": 0.6, " radio": 0.4}, " tele", "TV", " radio", rules="default")
    assert list(answer.alternatives_at(places)) == [answer.tokens[place].alternatives for place in places]
    assert [other.text for other in answer.tokens[0].alternatives] == [" radio"]


@pytest.mark.parametrize("by", ["rows", "lists"])
@pytest.mark.parametrize("places", [0, None, [3], [-1], [True], ["0"], [0.0]])
def test_places_that_an_answer_does_not_have_are_refused(by: str, places: Any) -> None:
    """-1 was the last token of lists and none of rows; one place ended in a TypeError."""
    answer = scored(by, {" tele": 0.6, " radio": 0.4}, " tele", "TV", " radio", rules="default")
    with pytest.raises(InvalidInputError, match="'places' must be"):
        answer.alternatives_at(places)


def masses(token: ScoredToken) -> list[float]:
    sources = (token.cluster_probability, token.prefix_probability, token.neutral_probability)
    return [token.probability, *sources, token.agreeing_probability]


@each("by", ["rows", "lists"])
@each(
    ("step", "expected"),
    [
        ({" tele": 0.95, " radio": 0.05}, [0.95, 0.95, 0.0, 0.0, 0.95]),
        ({" tele": 0.01, "TV": 0.92, " radio": 0.07}, [0.01, 0.93, 0.0, 0.0, 0.93]),
        ({" tele": 0.01, "te": 0.92, " radio": 0.07}, [0.01, 0.01, 0.92, 0.0, 0.93]),
        ({" tele": 0.01, " the": 0.5, "\n": 0.42, " radio": 0.07}, [0.01, 0.01, 0.0, 0.92, 0.93]),
    ],
)
def test_nearly_all_of_the_mass_may_come_from_one_source(
    by: str, step: dict[str, float], expected: list[float]
) -> None:
    found = scored(by, step, " tele", "vision")
    assert masses(found.tokens[0]) == pytest.approx(expected, abs=1e-9)
    assert (found.sequence_uncertainty, *found.sequence_uncertainty_interval) == pytest.approx(
        [1 - expected[-1]] * 3, abs=1e-9
    )
    assert found.tokens[0].agreeing_bounds == pytest.approx([expected[-1]] * 2, abs=1e-9)


@each("seed", range(20))
def test_what_adds_up_to_everything_is_not_lifted_above_it_by_rounding(seed: int) -> None:
    """All tokens agree, by their cluster or their spelling; the sum is rounded up for some of the seeds."""
    row = np.random.default_rng(seed).normal(0, 2, (1, 40))
    row[0, 0] = -1000.0
    vocabulary = worked.vocabulary([" " * k + "x" for k in range(40)])
    for rules in (ScoringRules(), ScoringRules(equality="meaning", prefix_matching=False)):
        found = score_logits(row, [0], TokenClusters(np.zeros(40, dtype=np.int32), vocabulary), rules)
        [token] = found.tokens
        assert token.log_agreeing_probability <= 0.0 and found.log_confidence <= 0.0
        assert token.log_surface_probability <= 0.0 and (token.log_meaning_probability or 0.0) <= 0.0
        assert max(token.cluster_probability, token.prefix_probability) <= 1.0
        assert found.sequence_uncertainty == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("shift", [-(2.0**22), 2.0**22, 2.0**30])
def test_rows_far_from_zero_lose_no_digits(shift: float) -> None:
    """The steps between numbers there are as small as the logits are exact."""
    logits = np.array([[1.0, 0.0, -1.0, 2.0], [0.0, 3.0, 1.0, 1.0]])
    vocabulary = worked.vocabulary(("a", "b", "c", "d"))
    expected = score_logits(logits, [0, 1], vocabulary)
    for dtype in (np.float64, np.float32) if abs(shift) < 2.0**24 else (np.float64,):
        assert score_logits((logits + shift).astype(dtype), [0, 1], vocabulary).log_confidence == pytest.approx(
            expected.log_confidence, rel=1e-6
        )


@pytest.mark.parametrize("by", ["rows", "lists"])
def test_a_chosen_token_of_a_percent_beside_its_own_cluster_leaves_others_to_be_told(by: str) -> None:
    [other] = scored(by, {" tele": 0.005, " television": 0.995}, " tele").tokens[0].alternatives
    assert (other.text, other.source, other.counted) == (" television", "cluster", True)
    assert other.probability == pytest.approx(0.995)


@pytest.mark.parametrize("by", ["rows", "lists"])
def test_a_function_word_is_told_as_one_where_there_are_no_clusters(by: str) -> None:
    [row], [chosen] = worked.logits({" tele": 0.5, " the": 0.3, " radio": 0.2}), worked.ids(" tele")
    if by == "rows":
        [token] = score_logits(row[None], [chosen], worked.vocabulary()).tokens
    else:
        [token] = score_logprobs([(chosen, dict(enumerate(row.tolist())))], worked.vocabulary()).tokens
    told = [(other.text, other.source, other.counted) for other in token.alternatives]
    assert told == [(" the", "neutral", False), (" radio", "other", False)]


def test_the_first_token_of_a_vocabulary_is_as_any_other() -> None:
    """It may be an alternative, and what stands behind it does not open the answer."""
    [token] = score_logits(np.log([[0.6, 0.4]]), [1], worked.vocabulary(("TV", " radio"))).tokens
    assert [(other.id, other.text) for other in token.alternatives] == [(0, "TV")]
    clusters = TokenClusters(np.arange(2), worked.vocabulary(("TV", " the")))
    rules = ScoringRules(equality="meaning", function_words="whole-word")
    behind = score_logits(np.log([[0.6, 0.4]] * 2), [0, 1], clusters, rules)
    assert [token.neutral for token in behind.tokens] == [False, True]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_tensors_are_read_as_the_numbers_that_they_hold(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    rows = torch.tensor(np.random.default_rng(0).normal(0, 3, (3, len(worked.TOKENS)))).to(getattr(torch, dtype))
    expected = score_logits(rows.double().numpy(), [4, 3, 2], worked.clusters(), MEANING)
    assert score_logits(rows, [4, 3, 2], worked.clusters(), MEANING).log_confidence == pytest.approx(
        expected.log_confidence, rel=1e-6
    )


@pytest.mark.parametrize("by", ["rows", "lists"])
@pytest.mark.parametrize("words", ["whole-word", "off"])
def test_a_function_word_of_the_cluster_counts_for_that_where_it_is_not_neutral(by: str, words: Any) -> None:
    rules = ScoringRules(equality="meaning", function_words=words)
    [token] = scored(by, {" The": 0.5, " the": 0.3, " radio": 0.2}, " The", rules=rules).tokens
    told = [(other.text, other.source, other.counted) for other in token.alternatives]
    assert told == [(" the", "cluster", True), (" radio", "other", False)]


@pytest.mark.parametrize("rules", [ScoringRules(), MEANING, ScoringRules("paper")])
def test_an_answer_of_blanks_may_still_end_as_one_that_says_nothing(rules: ScoringRules) -> None:
    logits, lists = LogitsStream(worked.clusters(), rules), LogprobsStream(worked.clusters(), rules)
    [row], [blank] = worked.logits({"\n": 0.6, " radio": 0.4}), worked.ids("\n")
    for _ in range(2):
        for running in (logits.add(row, blank), lists.add((blank, dict(enumerate(row.tolist()))))):
            assert running.sequence_uncertainty_interval[1] == 1.0 and running.log_confidence_interval[0] == -math.inf


def test_of_many_blanks_before_the_text_the_first_thirty_two_count_what_begins_it() -> None:
    """Whole rows are kept for them until the text is known."""
    stream = LogitsStream(worked.clusters(), ScoringRules(equality="meaning", function_words="off"))
    rows = worked.logits({"\n": 0.5, "te": 0.3, " radio": 0.2}, {" tele": 1.0})
    blank, word = worked.ids("\n", " tele")
    for _ in range(34):
        stream.add(rows[0], blank)
    stream.add(rows[1], word)
    *blanks, last = stream.finish().tokens
    assert [token.prefix_probability for token in blanks] == pytest.approx([0.3] * 32 + [0.0] * 2)
    assert last.agreeing_probability == 1.0


@pytest.mark.parametrize("by", ["rows", "lists"])
def test_a_token_of_the_same_spelling_begins_the_text_and_is_no_member_of_a_cluster(by: str) -> None:
    [token] = scored(by, {" the": 0.6, " The": 0.3, " radio": 0.1}, " the", rules=ScoringRules()).tokens
    told = [(other.text, other.source, other.counted) for other in token.alternatives]
    assert told == [(" The", "prefix", True), (" radio", "other", False)]
    assert masses(token) == pytest.approx([0.6, 0.6, 0.3, 0.0, 0.9])


def test_what_a_later_step_surely_begins_with_counts_while_an_earlier_one_is_open() -> None:
    """Behind "ab" may follow "c", so that the first step is open; " b" spells what the second one begins with."""
    clusters = TokenClusters(np.arange(4), worked.vocabulary(("a", "b", "abc", " b")))
    rows = np.log([[0.5, 0.2, 0.2, 0.1], [0.1, 0.3, 0.4, 0.2]])
    rules = ScoringRules(equality="meaning", function_words="off", clustering=False)
    stream = LogitsStream(clusters, rules)
    stream.add(rows[0], 0)
    running = stream.add(rows[1], 1)
    assert running.n_settled == 0
    assert running.sequence_uncertainty_interval == pytest.approx((1 - (0.3 + 0.2), 1 - 0.5 * (0.3 + 0.2)))


def test_the_clusters_are_signed_where_they_are_counted() -> None:
    signatures = [scored("rows", {" tele": 1.0}, " tele", rules=rules).signature for rules in (MEANING, ScoringRules())]
    expected = [f"{worked.clusters().signature}|{MEANING.signature}", ScoringRules().signature]
    assert signatures == [f"{one}|question:unknown" for one in expected]
