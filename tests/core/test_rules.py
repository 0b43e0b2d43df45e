"""Which tokens are neutral under which rule, and what an answer without content is worth."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest

from semtoken import TokenClusters, Vocabulary, score_logits, score_logprobs
from semtoken.core.rules import ScoringRules
from semtoken.errors import InvalidInputError
from tests import worked
from tests.rows import each
from tests.worked import END, STEPS, ids, logits

TEXTS = (END, "\n", " the", "the", " The", " a", "ing", "a", " television")
OPENING, LATER = 0, 1


def neutral_texts(words: Any, place: int) -> set[str]:
    mask = ScoringRules(function_words=words).neutral_masks(worked.vocabulary(TEXTS))[place]
    return {text for text, neutral in zip(TEXTS, mask, strict=True) if neutral}


def test_paper_rule_knows_stopwords_wherever_they_stand() -> None:
    expected = {END, "\n", " the", "the", " a", "a"}  # the list is compared case-sensitively
    assert neutral_texts("paper", OPENING) == expected
    assert neutral_texts("paper", LATER) == expected


def test_whole_word_rule_wants_a_word_that_starts_and_does_not_open_the_answer() -> None:
    assert neutral_texts("whole-word", OPENING) == {END, "\n"}
    assert neutral_texts("whole-word", LATER) == {END, "\n", " the", " a"}


def test_off_knows_no_neutral_token() -> None:
    assert neutral_texts("off", OPENING) == neutral_texts("off", LATER) == set()


def test_masks_do_not_change_the_vocabulary() -> None:
    vocabulary = worked.vocabulary(TEXTS)
    before = vocabulary.neutral.copy()
    for words in ("paper", "whole-word", "off"):
        ScoringRules(function_words=words).neutral_masks(vocabulary)  # type: ignore[arg-type]
    np.testing.assert_array_equal(vocabulary.neutral, before)


@pytest.mark.parametrize(
    ("switch", "message"),
    [
        ({"preset": "published"}, "'preset' must be one of 'paper', 'default', got 'published'"),
        ({"preset": None}, "'preset' must be one of 'paper', 'default', got None"),
    ],
)
def test_unknown_rules_are_refused(switch: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        score_logits(logits(*STEPS), ids(*worked.ANSWER), worked.clusters(), **switch)
    with pytest.raises(
        InvalidInputError, match="'function_words' must be one of 'paper', 'whole-word', 'off', got 'no'"
    ):
        ScoringRules(function_words="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("switch", "message"),
    [
        ({"equality": "same"}, "'equality' must be one of 'meaning', 'surface', 'exact', got 'same'"),
        ({"members": "some"}, "'members' must be one of 'all', 'spelling', got 'some'"),
    ],
)
def test_unknown_switches_are_refused(switch: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ScoringRules(**switch)


def test_equal_signatures_mean_equal_rules() -> None:
    """Signatures tell rules apart by what they count, however they were asked for."""
    seen: dict[str, set[tuple[Any, ...]]] = {}
    names = ("preset", "equality", "function_words", "clustering", "prefix_matching", "members")
    values = (
        ("paper", "default"),
        ("meaning", "surface", "exact"),
        ("paper", "whole-word", "off"),
        (True, False),
        (True, False),
        ("all", "spelling"),
    )
    for switches in itertools.product(*values):
        rules = ScoringRules(**dict(zip(names, switches, strict=True)))
        preset, equality, words, clustering, prefixes, members = switches
        counted = (
            preset,
            words if clustering or prefixes or equality == "surface" else "off",
            equality == "surface",
            members if clustering else "none",
            ("short" if equality == "meaning" else "long") if prefixes else "none",
        )
        seen.setdefault(rules.signature, set()).add(counted)
    assert all(len(same) == 1 for same in seen.values())
    assert len(seen) == len(set().union(*seen.values()))


def test_presets_and_equalities_are_sets_of_switches() -> None:
    paper = ScoringRules("paper")
    assert (paper.equality, paper.function_words, paper.members) == ("meaning", "paper", "all")
    assert paper.clustering and paper.prefix_matching
    surface = ScoringRules(equality="surface")
    assert (surface.preset, surface.function_words, surface.clustering) == ("default", "off", False)
    default = ScoringRules()
    assert default == ScoringRules(equality="surface", prefix_matching=False)
    assert (default.preset, default.function_words, default.clustering) == ("default", "off", False)
    assert ScoringRules(equality="exact", clustering=True, members="spelling").clustering, "what is given wins"
    neither = ScoringRules(clustering=False, prefix_matching=False)
    assert neither == ScoringRules(equality="exact"), "the ablation of everything"
    assert dataclasses.replace(surface, preset="paper").function_words == "off"
    assert ScoringRules(**dataclasses.asdict(surface)) == surface


# --- one token at a time -----------------------------------------------------------------------------------------


def clustered(*answer: str, steps: Any, **switches: Any) -> list[float]:
    """The mass that agrees at each step, by all logits and by lists of all tokens that are possible."""
    rules = ScoringRules(**{"equality": "meaning", **switches})
    scored = score_logits(logits(*steps), ids(*answer), worked.clusters(), preset=rules)
    found = [token.agreeing_probability for token in scored.tokens]
    lists = [{ids(text)[0]: math.log(p) for text, p in step.items()} for step in steps]
    listed = score_logprobs([*zip(ids(*answer), lists, strict=True)], worked.clusters(), rules)
    assert [token.agreeing_probability for token in listed.tokens] == pytest.approx(found)
    for one, other in zip(scored.tokens, listed.tokens, strict=True):
        sources = ("cluster_probability", "prefix_probability", "neutral_probability", "surface_probability")
        for name in (*sources, "neutral", "meaning_probability"):
            assert getattr(one, name) == pytest.approx(getattr(other, name)), name
    return found


def test_another_token_is_listed_with_its_probability_whatever_its_id_and_however_likely() -> None:
    step = {END: 0.95, "TV": 0.05}
    lists = {ids(text)[0]: math.log(p) for text, p in step.items()}
    assert ids(END) == [0]
    for scored in (
        score_logits(logits(step), ids("TV"), worked.vocabulary()),
        score_logprobs([(*ids("TV"), lists)], worked.vocabulary()),
    ):
        [token] = scored.tokens
        assert [(other.id, other.probability) for other in token.alternatives] == [(0, pytest.approx(0.95))]


def test_a_neutral_token_is_certain() -> None:
    assert clustered("TV", " the", steps=[{"TV": 1.0}, {" the": 0.01, " radio": 0.99}]) == [1, 1]


def test_mass_on_neutral_tokens_counts_at_every_step() -> None:
    step = {"TV": 0.25, " the": 0.125, "\n": 0.0625, END: 0.03125, " radio": 0.53125}
    assert clustered("TV", steps=[step]) == pytest.approx([0.25 + 0.125 + 0.0625 + 0.03125])


def test_a_numeral_stands_alone_but_counts_for_others() -> None:
    """The labels put "7", " 17" and " 1" together; relabeled, "vision" joins them."""
    labels = worked.LABELS.copy()
    labels[ids("vision")] = labels[ids("7")]
    clusters = TokenClusters(labels, worked.vocabulary())
    step = {"7": 0.5, " 17": 0.25, "vision": 0.125, " radio": 0.125}
    seven = score_logits(logits(step), ids("7"), clusters, "paper")
    vision = score_logits(logits(step), ids("vision"), clusters, "paper")
    assert seven.tokens[0].agreeing_probability == pytest.approx(0.5)
    assert vision.tokens[0].agreeing_probability == pytest.approx(0.875)


def test_a_beginning_of_a_numeral_counts_as_one_though_it_is_in_its_cluster() -> None:
    """What the cluster does not give to a numeral, its beginnings still do."""
    nothing = np.zeros(3, dtype=bool)
    vocabulary = Vocabulary(("a1", "a", "b"), (b"a1", b"a", b"b"), nothing, nothing)
    clusters = TokenClusters(np.array([0, 0, 1], dtype=np.int32), vocabulary)
    row, rules = np.log([[0.5, 0.25, 0.25]]), ScoringRules(equality="meaning")
    for scored in (
        score_logits(row, [0], clusters, rules),
        score_logprobs([(0, dict(enumerate(row[0].tolist())))], clusters, rules),
    ):
        [token] = scored.tokens
        assert (token.agreeing_probability, token.prefix_probability) == pytest.approx((0.75, 0.25))
        assert token.meaning_probability == pytest.approx(0.75)


def test_prefixes_are_of_all_that_follows() -> None:
    """ "te" and " television" begin "television" in either case; "vision" does not."""
    step = {" tele": 0.5, " television": 0.25, "te": 0.125, "vision": 0.125}
    sure = {"vision": 1.0}
    assert clustered(" tele", "vision", steps=[step, sure], clustering=False) == pytest.approx([0.875, 1])
    assert clustered(" tele", " radio", steps=[step, {" radio": 1.0}], clustering=False) == pytest.approx([0.625, 1])


def test_whole_word_leaves_an_opening_article_its_uncertainty() -> None:
    """Neither as the chosen token nor as mass at the step of the first word, whatever blanks come before."""
    first = {" the": 0.25, " The": 0.25, "\n": 0.125, "TV": 0.25, " radio": 0.125}
    later = {"TV": 0.5, " the": 0.25, " radio": 0.25}
    switches: dict[str, Any] = {"steps": [first, later], "function_words": "whole-word"}
    assert clustered(" the", "TV", **switches) == pytest.approx([0.25 + 0.25 + 0.125, 0.5 + 0.25])
    assert clustered("TV", "TV", **switches) == pytest.approx([0.25 + 0.125, 0.5 + 0.25])
    switches["steps"] = [{"\n": 0.5, " radio": 0.5}, first, later]
    assert clustered("\n", " the", "TV", **switches) == pytest.approx([1, 0.25 + 0.25 + 0.125, 0.5 + 0.25])


# --- answers without content -------------------------------------------------------------------------------------

MEANING = ScoringRules(equality="meaning")
ARTICLE = {"steps": [STEPS[0], STEPS[4]]}  # p(the) = .5 and The .2 in its cluster; p(end) = .5, alone


def test_neutral_only_answer_is_certain_for_the_paper() -> None:
    scored = score_logits(logits(*ARTICLE["steps"]), ids(" the", END), worked.clusters(), "paper")
    assert scored.sequence_uncertainty == 0
    assert scored.neutral_only
    assert all(token.neutral for token in scored.tokens)


def test_neutral_only_answer_is_scored_without_neutrality_by_default() -> None:
    scored = score_logits(logits(*ARTICLE["steps"]), ids(" the", END), worked.clusters(), preset=MEANING)
    assert scored.sequence_uncertainty == pytest.approx(1 - 0.70 * 0.50)
    assert scored.neutral_only
    assert not any(token.neutral for token in scored.tokens)


def test_neutral_only_answer_still_has_prefixes() -> None:
    """ " the" begins with no other token here, but " The" is a token that begins "the"."""
    assert clustered(" the", END, clustering=False, **ARTICLE) == pytest.approx([0.70, 0.50])
    assert clustered(" the", END, clustering=False, prefix_matching=False, **ARTICLE) == pytest.approx([0.50, 0.50])


def test_one_content_token_brings_neutrality_back() -> None:
    steps = logits(STEPS[0], STEPS[1], STEPS[4])
    scored = score_logits(steps, ids(" the", "TV", END), worked.clusters(), preset=MEANING)
    assert [token.neutral for token in scored.tokens] == [True, False, True]
    assert not scored.neutral_only


@each("preset", ["paper", "default"])
@each("words", ["paper", "whole-word", "off"])
@each("answer", [(END,), ("\n",), ("\n", END)])
def test_an_empty_answer_is_as_uncertain_as_can_be(preset: Any, words: Any, answer: tuple[str, ...]) -> None:
    steps = [{token: 1.0} for token in answer]
    scored = score_logits(logits(*steps), ids(*answer), worked.clusters(), ScoringRules(preset, words))
    assert scored.log_confidence == -math.inf
    assert scored.sequence_uncertainty == 1
    assert scored.confidence == 0
    assert scored.empty
    assert not scored.neutral_only
