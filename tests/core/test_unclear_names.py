"""Names in lists that several tokens may have, against brute force: the interval holds the score of every reading."""

from __future__ import annotations

import itertools
import math
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken import TokenClusters, Vocabulary, score_logprobs
from semtoken.clustering.vocabulary import neutral_mask
from semtoken.core import ScoringRules
from semtoken.errors import InvalidInputError
from tests.core.lists import CITIES, HALVES, agreeing, codes, step, token, words
from tests.core.reference import STOPWORDS, Twin
from tests.core.test_scoring import RULES

PIECES = (
    b"Oslo",
    b" OSLO",
    b"O",
    b" the",
    b"Rome",
    b"\n",
    "\u00e9".encode(),
    "\u00fc".encode(),
    b"",
    b"",
    b"\xc3",
    b"\xa9",
    b"\xbc",
    "\ufffd".encode(),
)
"""Words, two letters, two special tokens, three halves of the letters, and the character that stands for such halves.
"""
SIZE, BEGUN = len(PIECES), 10
"""The number of tokens, and the one that begins both letters."""


def decode(ids: list[int]) -> str:
    return b"".join(PIECES[i] for i in ids).decode("utf-8", "replace")


TEXTS = tuple(decode([i]) for i in range(SIZE))
VOCABULARY = Vocabulary(TEXTS, PIECES, neutral_mask(TEXTS, STOPWORDS), np.zeros(SIZE, dtype=bool))
READINGS = {"": range(8, 14), "\ufffd": range(10, 14), "<|end|>": (8, 9)}
"""The tokens that engines print by each of these names: special ones as nothing, by U+FFFD or by names of their own."""
INSIDE = {"\u00e9": (6, 11), "\u00fc": (7, 12)}
"""Behind the first half of a letter: the letter itself, or the half that completes it."""


@st.composite
def lists(draw: st.DrawFn) -> list[tuple[int, dict[str, float], bool]]:
    """Steps: the chosen token, the probabilities of the names in its list, which with its own add up to 1, and whether
    the list holds the chosen token, too.
    """
    steps: list[tuple[int, dict[str, float], bool]] = []
    for i in range(draw(st.integers(1, 2))):
        chosen = draw(st.integers(0, SIZE - 1))
        inside = INSIDE if i and steps[0][0] == BEGUN else {}
        clear = [TEXTS[token] for token in range(8) if token != chosen and TEXTS[token] not in inside]
        unclear = draw(st.lists(st.sampled_from([*READINGS, *inside]), min_size=1, max_size=2, unique=True))
        names = [*unclear, *draw(st.lists(st.sampled_from(clear), max_size=2, unique=True))]
        shares = np.random.default_rng((i, draw(st.integers(0, 1000)))).dirichlet(np.ones(len(names) + 1))
        steps.append((chosen, dict(zip(names, shares.tolist(), strict=False)), draw(st.booleans())))
    return steps


def readings(steps: list[tuple[int, dict[str, float], bool]], place: int) -> list[np.ndarray[Any, Any]]:
    """The distributions [V] of a step, one for each way to take its names for tokens."""
    chosen, listed, _ = steps[place]
    inside = INSIDE if place and steps[place - 1][0] == BEGUN else {}
    may_be = [(READINGS | inside).get(name) or [TEXTS.index(name)] for name in listed]
    rows = []
    for tokens in itertools.product(*may_be):
        if len({chosen, *tokens}) == len(tokens) + 1:  # each token is listed once
            row = np.zeros(SIZE)
            row[list(tokens)], row[chosen] = list(listed.values()), 1 - math.fsum(listed.values())
            rows.append(row)
    return rows


def items(steps: list[tuple[int, dict[str, float], bool]]) -> list[dict[str, Any]]:
    """The lists by texts alone, as an engine gives them that prints pieces of characters and special tokens oddly."""
    written = []
    for chosen, listed, is_listed in steps:
        own = {"token": TEXTS[chosen], "logprob": math.log(1 - math.fsum(listed.values()))}
        top = [{"token": name, "logprob": math.log(share)} for name, share in listed.items()]
        written.append({**own, "top_logprobs": [own, *top] if is_listed else top})
    return written


@pytest.mark.parametrize("known", ["the vocabulary", "no vocabulary"])
@given(data=st.data())
def test_the_interval_holds_the_score_of_every_reading(known: str, data: st.DataObject) -> None:
    """Where one entry is unclear and cannot be the chosen token, the ends are those of the readings."""
    steps, labels = data.draw(lists()), data.draw(st.lists(st.integers(0, 4), min_size=SIZE, max_size=SIZE))
    asked = [one for one in RULES if known == "the vocabulary" or one["equality"] in ("exact", "surface")]
    if known == "no vocabulary":
        asked = [one for one in asked if not (one["clustering"] or one["prefix_matching"])]
        asked = [one | {"function_words": "off"} for one in asked]
    rules = data.draw(st.sampled_from(asked))
    rows = [readings(steps, i) for i in range(len(steps))]
    if not all(rows):
        return  # one name for two tokens of which the list has one already
    twin, ids = Twin(decode, SIZE, labels, letter=2), [chosen for chosen, _, _ in steps]
    whole = [list(itertools.islice(itertools.cycle(ways), max(map(len, rows)))) for ways in rows]
    masses = [twin.score(np.array(ways), ids, **rules).clustered for ways in zip(*whole, strict=True)]
    least, most = (list(map(end, zip(*masses, strict=True))) for end in (min, max))
    clusters = TokenClusters(np.array(labels, dtype=np.int32), VOCABULARY) if known == "the vocabulary" else None
    scored = score_logprobs(items(steps), clusters, ScoringRules(**rules), token_ids=ids if clusters else None)
    for i, one in enumerate(scored.tokens):
        low, high = one.agreeing_bounds
        assert low <= least[i] + 1e-6 and most[i] <= high + 1e-6
        assert one.agreeing_probability == pytest.approx(low, abs=1e-4)
        assert math.fsum(astuple(one.borrowed)) == pytest.approx(one.agreeing_probability, abs=1e-9)
        unclear = [name for name in steps[i][1] if name in READINGS or name in INSIDE]
        if clusters and len(unclear) == 1 and ids[i] not in (READINGS | INSIDE)[unclear[0]]:
            assert (low, high) == pytest.approx((least[i], most[i]), abs=1e-4)
    if not scored.empty:
        low, high = agreeing(scored)
        assert low <= math.prod(least) + 1e-6 and math.prod(most) <= high + 1e-6


MEANING = ScoringRules(equality="meaning")
WORDS = TokenClusters(np.arange(SIZE, dtype=np.int32), VOCABULARY)
"""Each word has a meaning of its own."""


@pytest.mark.parametrize("inside", [True, False])
def test_an_empty_name_may_be_that_of_a_special_token(inside: bool) -> None:
    """Such a token agrees with every other one where function words do; a piece of a character does not."""
    listed = step(token(0.5, "Oslo"), token(0.3, "Rome"), token(0.2, ""))
    scored = score_logprobs([step(token(0.9, "Rome")), listed][not inside :], WORDS, MEANING)
    assert scored.tokens[-1].agreeing_bounds == pytest.approx((0.5, 0.7), abs=1e-4)
    assert scored.tokens[-1].ambiguous_probability == pytest.approx(0.2)
    assert "ambiguous_names" in codes(scored)


@pytest.mark.parametrize("vocabulary", [VOCABULARY, None])
@pytest.mark.parametrize("name", ["", "\ufffd"])
@pytest.mark.parametrize("equality", ["surface", "exact"])
def test_no_name_is_unclear_where_all_that_it_may_mean_is_spelled_like_no_other(
    vocabulary: Vocabulary | None, name: str, equality: Any
) -> None:
    """With a vocabulary and without one there is no doubt, and no flag."""
    listed = step(token(0.5, "Oslo"), token(0.3, "Rome"), token(0.2, name))
    scored = score_logprobs([listed], vocabulary, ScoringRules(equality=equality))
    assert agreeing(scored) == pytest.approx((0.5, 0.5), abs=1e-4) and not codes(scored)


@pytest.mark.parametrize("vocabulary", [VOCABULARY, None])
def test_an_entry_without_any_name_may_be_every_token(vocabulary: Vocabulary | None) -> None:
    item = {"token": "Oslo", "logprob": math.log(0.5), "top_logprobs": [{"logprob": math.log(0.3)}]}
    scored = score_logprobs([item], vocabulary)
    assert agreeing(scored)[1] >= 0.8 and agreeing(scored)[0] == pytest.approx(0.5, abs=1e-4)
    assert codes(scored) == ["unmapped_names"]


@pytest.mark.parametrize("name", ["<|end|>", "", "\ufffd"])
def test_a_chosen_special_token_is_refused_by_a_vocabulary_without_one(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"step 0.*is not in the vocabulary"):
        score_logprobs([step(token(0.6, name), token(0.2, "Rome"))], CITIES)


def test_a_chosen_token_without_any_name_may_be_every_token_of_the_vocabulary() -> None:
    with pytest.raises(InvalidInputError, match=f"step 0, without a name, may be any of {SIZE} tokens"):
        score_logprobs([{"logprob": -0.1, "top_logprobs": []}], VOCABULARY)


def test_the_only_token_that_is_printed_as_nothing_is_meant_by_an_empty_name() -> None:
    ended = score_logprobs(
        [step(token(0.6, "Oslo")), step(token(0.6, ""), token(0.2, "Rome"))], words("Oslo", "", "Rome")
    )
    assert (ended.token_ids, ended.text) == ([0, 1], "Oslo")
    with pytest.raises(InvalidInputError, match="may be any of 2 tokens"):
        score_logprobs([step(token(0.6, "")), step(token(0.6, "Oslo"))], HALVES)


def test_a_name_behind_a_piece_of_a_character_may_be_the_last_piece_or_the_letter() -> None:
    """The chosen half completes the letter; of the listed one nobody knows, and each half begins what follows."""
    first = {"token": "", "logprob": math.log(0.5), "top_logprobs": []}
    other = {"token": "\u00fc", "logprob": math.log(0.3)}
    last = {"token": "\u00e9", "logprob": math.log(0.6)}
    for top in ([last, other], [other]):
        scored = score_logprobs([first, {**last, "top_logprobs": top}], WORDS, MEANING, token_ids=[BEGUN, 11])
        assert (scored.text, scored.tokens[1].agreeing_bounds) == ("\u00e9", pytest.approx((0.6, 1.0), abs=1e-4))


def test_an_empty_name_that_hides_another_piece_leaves_what_is_missing_open() -> None:
    """A list keyed by names has one entry for all pieces; that of the chosen one is no copy without a name."""
    own = {"token": "", "logprob": math.log(0.1)}
    other = {"token": "Rome", "logprob": math.log(0.2)}
    pieces = TokenClusters(np.where(VOCABULARY.broken, 0, 1 + np.arange(SIZE)).astype(np.int32), VOCABULARY)
    rules = ScoringRules(equality="meaning", function_words="off", prefix_matching=False)
    scored = score_logprobs([{**own, "top_logprobs": [own, other]}], pieces, rules, token_ids=[BEGUN])
    assert scored.tokens[0].agreeing_bounds == pytest.approx((0.1, 0.8), abs=1e-4)


def test_a_name_that_is_there_again_with_the_probability_zero_may_be_another_token_of_no_vocabulary() -> None:
    scored = score_logprobs([step(token(0.6, "Oslo"), token(0.2, "OSLO"), token(0.0, "OSLO"))])
    assert agreeing(scored) == pytest.approx((0.8, 1.0), abs=1e-4)
    assert codes(scored) == ["ambiguous_names"]
