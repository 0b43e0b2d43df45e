"""The tokens that are neutral under each rule, and the worth of an answer without content."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, get_args

import numpy as np
import pytest

from semtoken import score_logits
from semtoken.choices import FunctionWords
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
    for words in get_args(FunctionWords):
        ScoringRules(function_words=words).neutral_masks(vocabulary)
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
    values: tuple[tuple[Any, ...], ...] = (
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


@each(
    ("switches", "signature"),
    [
        ({}, "preset:default|words:off|clustering:off|prefix:off|spelling:same"),
        ({"preset": "paper"}, "preset:paper|words:paper"),
        ({"preset": "paper", "members": "spelling"}, "preset:paper|words:paper|members:spelling"),
        ({"equality": "exact", "function_words": "paper"}, "preset:default|words:off|clustering:off|prefix:off"),
        ({"prefix_matching": True}, "preset:default|words:off|clustering:off|spelling:same|prefix:2+"),
        ({"function_words": "whole-word"}, "preset:default|words:whole-word|clustering:off|prefix:off|spelling:same"),
    ],
)
def test_signatures_are_those_that_saved_calibrators_hold(switches: dict[str, Any], signature: str) -> None:
    assert ScoringRules(**switches).signature == signature


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
