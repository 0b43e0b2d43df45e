"""Scores from the k best log-probabilities: the interval holds the exact score, names are resolved, junk is told."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from functools import cache, partial
from operator import ne
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax

import semtoken
from semtoken import ScoredAnswer, TokenClusters, Vocabulary, score_logits, score_logprobs
from semtoken.core import GrowingAnswer, ScoringRules, scorer_for
from semtoken.core.engine_tokens import TopStep, TopToken, as_top_steps, check_shared_vocabulary
from semtoken.core.engine_tokens.precision import (
    FEW_DECIMALS,
    MANY_NUMBERS,
    ROUNDING,
    written,
)
from semtoken.core.flags import borrowed_flags
from semtoken.core.results import TokensLater
from semtoken.core.scored_token import TokenMark
from semtoken.errors import BackendError, InvalidInputError, InvalidLogits, VocabularyMismatch
from tests import tiny, worked
from tests.core.test_scoring import Kind, small_kind
from tests.examples import examples
from tests.known import known
from tests.rows import each

RULES: tuple[dict[str, Any], ...] = tuple(
    {"preset": ScoringRules(**switches)}
    for switches in (
        {},
        {"preset": "paper"},
        {"equality": "meaning"},
        {"equality": "meaning", "function_words": "whole-word"},
        {"equality": "meaning", "function_words": "off"},
        {"equality": "meaning", "clustering": False},
        {"equality": "meaning", "prefix_matching": False},
        {"equality": "surface"},
        {"equality": "surface", "clustering": True, "members": "spelling"},
        {"equality": "exact"},
    )
)
MEANING = ScoringRules(equality="meaning")


def codes(scored: ScoredAnswer) -> list[str]:
    """Flags about the lists; those about borrowed mass are tested with all logits."""
    about_mass = {"carried_by_cluster", "carried_by_function_words", "rivals_counted"}
    return [flag.code for flag in scored.flags if flag.code not in about_mass]


def log_probs(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.array(log_softmax(logits.astype(np.float64), axis=1))


def best(rows: np.ndarray[Any, Any], ids: list[int], k: int) -> list[tuple[int, dict[int, float]]]:
    """The k best of each row, and the chosen token behind them where it is not among them, as engines do."""
    steps = []
    for row, token in zip(rows, ids, strict=True):
        order = np.argsort(-row, kind="stable")[:k].tolist()
        steps.append((token, {i: float(row[i]) for i in dict.fromkeys([*order, token])}))
    return steps


def drawn(kind: Kind, data: st.DataObject) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Logits from flat to peaked, and ids of which some are likely and some are not."""
    size = kind.clusters.vocabulary.size
    seed = data.draw(st.integers(0, 10**6))
    random = np.random.default_rng(seed)
    n = data.draw(st.integers(1, 5))
    logits = random.normal(size=(n, size)) * data.draw(st.sampled_from([0.1, 1.0, 3.0, 10.0]))
    likely = logits.argmax(1)
    ids = [int(likely[i]) if random.random() < 0.6 else int(random.integers(size)) for i in range(n)]
    return logits.astype(np.float32), ids


def assert_inside(bounds: tuple[float, float] | None, exact: float) -> None:
    assert bounds is not None
    assert math.exp(bounds[0]) - 1e-6 <= math.exp(exact) <= math.exp(bounds[1]) + 1e-6


def assert_marks_are_those_of_the_records(scored: ScoredAnswer) -> None:
    marks = [tuple(getattr(mark, name) for name in TokenMark._fields) for mark in scored.marks]
    assert marks == [tuple(getattr(token, name) for name in TokenMark._fields) for token in scored.tokens]


@pytest.mark.parametrize("name", list(tiny.TOKENIZERS))
@examples(0.5)
@given(data=st.data())
def test_the_interval_holds_the_exact_score_and_shrinks(name: str, data: st.DataObject) -> None:
    kind = small_kind(name)
    logits, ids = drawn(kind, data)
    rules = data.draw(st.sampled_from(RULES))
    size = kind.clusters.vocabulary.size
    exact = score_logits(logits.astype(np.float64), ids, kind.clusters, **rules)  # logits of 40 round to 2e-6
    rows = log_probs(logits[:, :size])
    former = (0.0, 1.0)
    for k in (1, 5, 20, size - 1, size):
        scored = score_logprobs(best(rows, ids, k), kind.clusters, **rules)
        assert_marks_are_those_of_the_records(scored)
        low, high = scored.sequence_uncertainty_interval
        slack = 1e-6 if k == size else 0.0  # the whole list is exact, up to rounding
        assert low - slack <= exact.sequence_uncertainty <= high + slack, k
        assert low <= scored.sequence_uncertainty <= high
        for token, twin in zip(scored.tokens, exact.tokens, strict=True):
            assert_inside(token.log_surface_bounds, twin.log_surface_probability)
            assert_inside(token.log_meaning_bounds, known(twin.log_meaning_probability))
        assert low >= former[0] - 1e-9 and high <= former[1] + 1e-9, f"wider with k = {k}"
        former = (low, high)
    assert high - low == pytest.approx(0, abs=1e-12)
    assert scored.sequence_uncertainty == pytest.approx(exact.sequence_uncertainty, abs=2e-6)
    for token, twin in zip(scored.tokens, exact.tokens, strict=True):
        assert token.agreeing_probability == pytest.approx(twin.agreeing_probability, abs=2e-6)
        assert token.cluster_probability == pytest.approx(twin.cluster_probability, abs=2e-6)
        assert token.prefix_probability == pytest.approx(twin.prefix_probability, abs=2e-6)
        assert token.neutral_probability == pytest.approx(twin.neutral_probability, abs=2e-6)
        assert token.surface_probability == pytest.approx(twin.surface_probability, abs=2e-6)
        assert token.meaning_probability == pytest.approx(twin.meaning_probability, abs=2e-6)
        assert (token.neutral, token.start, token.end) == (twin.neutral, twin.start, twin.end)
        close = [(a.id, a.source, a.counted) for a in twin.alternatives if a.probability > 0.01 + 1e-6]
        assert [(a.id, a.source, a.counted) for a in token.alternatives][: len(close)] == close


def test_a_function_word_that_opens_an_answer_counts_as_with_all_logits() -> None:
    """It counts as certain, so that nothing spells further mass, in neither of the two."""
    kind = small_kind("byte-level")
    neutral = np.flatnonzero(kind.clusters.vocabulary.neutral)[::8].tolist()
    [paris] = kind.clusters.find(" Paris")
    logits = np.random.default_rng(0).normal(size=(2, kind.clusters.vocabulary.size)).astype(np.float32)
    for token in neutral:
        ids = [token, paris]
        exact = score_logits(logits, ids, kind.clusters, "paper")
        scored = score_logprobs(best(log_probs(logits), ids, len(logits[0])), kind.clusters, "paper")
        assert scored.tokens[0].prefix_probability == exact.tokens[0].prefix_probability == 0


@examples(2)
@given(data=st.data())
def test_the_bounds_are_reached_by_some_distributions(data: st.DataObject) -> None:
    """A token agrees if it makes a step certain that has nothing else; those that are not listed have as much at most
    as the least of the list. Many steps are summed in arrays, and fewer one by one.
    """
    size, rules = len(worked.TOKENS), data.draw(st.sampled_from(RULES))
    tokens = st.integers(0, size - 1)
    ids = data.draw(st.lists(tokens, min_size=1, max_size=3)) * data.draw(st.sampled_from([1, 1, 24]))
    listed = []
    for token in ids:
        others = data.draw(st.lists(tokens.filter(partial(ne, token)), min_size=1, max_size=8, unique=True))
        shares = np.random.default_rng(data.draw(st.integers(0, 1000))).dirichlet(np.ones(len(others) + 2))
        listed.append(dict(zip([token, *others], shares.tolist(), strict=False)))
    steps = [(token, {i: math.log(p) for i, p in one.items()}) for token, one in zip(ids, listed, strict=True)]
    found = score_logprobs(steps, worked.clusters(), **rules)
    with np.errstate(divide="ignore"):
        rows = np.log(np.eye(size))
    alone = [score_logits(np.tile(row, (len(ids), 1)), ids, worked.clusters(), **rules).tokens for row in rows]
    for place, (step, one) in enumerate(zip(listed, found.tokens, strict=True)):
        agree = [i for i in range(size) if alone[i][place].agreeing_probability == 1]
        least = math.fsum(step[i] for i in agree if i in step)
        smallest = min(p for i, p in step.items() if i != ids[place])
        most = least + min(1 - math.fsum(step.values()), smallest * sum(i not in step for i in agree))
        assert one.agreeing_bounds == pytest.approx((1, 1) if one.neutral else (least, most), abs=1e-4)


# --- forms and names -------------------------------------------------------------------------------------------------

WORDS = ["<eos>", " TV", " television", " the", " t", "17", " Paris", "\ufffd", "x", "y"]


@cache
def clusters() -> TokenClusters:
    """{" TV", " television"} mean the same; token 7 and 8 are the two halves of one character."""
    texts = tuple("" if word == "<eos>" else word for word in WORDS)
    pieces = [word.encode() for word in texts]
    pieces[7] = b"\xc3"
    pieces[8] = b"\xa9"
    texts = (*texts[:8], "\ufffd", *texts[9:])
    neutral = np.array([not t.strip() or t.strip() == "the" for t in texts])
    vocabulary = Vocabulary(texts, tuple(pieces), neutral, np.zeros(len(texts), dtype=bool))
    return TokenClusters(np.array([0, 1, 1, 2, 3, 4, 5, 6, 7, 8], dtype=np.int32), vocabulary)


TOP = {1: 0.5, 2: 0.2, 3: 0.1, 6: 0.05}


def by_hand() -> tuple[float, float]:
    """Consistent with " TV": itself, " television", " t" (a prefix), the neutral " the" and the end; 0.8 is listed.

    Unlisted are " t" and the end, at most 0.05 each; 0.15 is missing, so at most 0.1 is added.
    """
    return 0.8, 0.9


FORMS: dict[str, Any] = {
    "pairs": [(1, {i: math.log(p) for i, p in TOP.items()})],
    "vllm": [{i: SimpleNamespace(logprob=math.log(p), rank=1, decoded_token=WORDS[i]) for i, p in TOP.items()}],
    "records": [
        TopStep(TopToken(math.log(0.5), 1), tuple(TopToken(math.log(p), i) for i, p in TOP.items())),
    ],
    "strings": [(" TV", {WORDS[i]: math.log(p) for i, p in TOP.items()})],
    "triples": [((math.log(0.5), 1, " TV"), [(math.log(p), i, WORDS[i]) for i, p in TOP.items()])],
    "bytes": [
        {
            "token": " TV",
            "logprob": math.log(0.5),
            "bytes": list(b" TV"),
            "top_logprobs": [
                {"token": WORDS[i], "logprob": math.log(p), "bytes": list(WORDS[i].encode())} for i, p in TOP.items()
            ],
        }
    ],
    "token_id": [
        {
            "token": "token_id:1",
            "logprob": math.log(0.5),
            "bytes": list(b" TV"),
            "top_logprobs": [
                {"token": f"token_id:{i}", "logprob": math.log(p), "bytes": list(f"token_id:{i}".encode())}
                for i, p in TOP.items()
            ],
        }
    ],
    "objects": [
        SimpleNamespace(
            token=" TV",
            logprob=math.log(0.5),
            bytes=None,
            top_logprobs=[SimpleNamespace(token=WORDS[i], logprob=math.log(p), bytes=None) for i, p in TOP.items()],
        )
    ],
}


@each("form", FORMS)
def test_every_form_gives_the_score_by_hand(form: str) -> None:
    scored = score_logprobs(FORMS[form], clusters(), MEANING)
    low, high = by_hand()
    assert scored.sequence_uncertainty_interval == pytest.approx((1 - high, 1 - low), abs=2 * ROUNDING)
    assert scored.sequence_uncertainty == pytest.approx(1 - low)  # the listed mass alone
    assert scored.distribution == "unknown"
    assert scored.widest_steps == (0,)
    assert codes(scored) == []
    others = [(a.text, a.source, a.counted) for a in scored.tokens[0].alternatives]
    assert others == [(" television", "cluster", True), (" the", "neutral", True), (" Paris", "other", False)]


def test_token_ids_say_which_token_was_chosen() -> None:
    steps = [{2: -0.7, 1: -0.9}]
    assert score_logprobs(steps, clusters(), MEANING).text.strip() == "television"
    assert score_logprobs(steps, clusters(), MEANING, token_ids=[1]).text.strip() == "TV"
    with pytest.raises(InvalidInputError, match="1 steps and 2 token ids"):
        score_logprobs(steps, clusters(), MEANING, token_ids=[1, 2])
    named = [TopStep(TopToken(-0.1, text="\ufffd"), ())]
    array: Any = np.array([8])
    assert score_logprobs(named, clusters(), MEANING, token_ids=array).token_ids == [8]
    with pytest.raises(InvalidInputError, match=r"Step 0.*chose token 1, and token_ids say 2"):
        score_logprobs([(1, {1: -0.7, 2: -0.9})], clusters(), MEANING, token_ids=[2])


def test_the_whole_logprobs_of_a_choice_will_do() -> None:
    expected = score_logprobs(FORMS["bytes"], clusters(), MEANING)
    assert score_logprobs({"content": FORMS["bytes"], "refusal": None}, clusters(), MEANING) == expected
    assert score_logprobs(SimpleNamespace(content=FORMS["objects"]), clusters(), MEANING) == expected


@pytest.mark.parametrize("steps", [None, "Paris", 3, {}, {"content": None}])
def test_log_probabilities_that_never_came(steps: Any) -> None:
    with pytest.raises(InvalidInputError, match="ask for them"):
        score_logprobs(steps, clusters(), MEANING)


@pytest.mark.parametrize(("text", "flagged"), [(" TV", False), ("TV ", False), ("TV Paris", True), ("", True)])
def test_steps_that_do_not_spell_the_answer_are_flagged(text: str, flagged: bool) -> None:
    scored = score_logprobs(FORMS["pairs"], clusters(), MEANING, text=text)
    assert codes(scored) == ["other_text"] * flagged


def test_halves_of_a_character_need_ids_or_bytes() -> None:
    by_text = TopStep(TopToken(-0.1, text="\ufffd"), ())
    with pytest.raises(InvalidInputError, match=r"step 0.*may be any of 2 tokens.*return_tokens_as_token_ids"):
        score_logprobs([by_text], clusters(), MEANING)
    halves = [TopStep(TopToken(-0.1, bytes=half), ()) for half in (b"\xc3", b"\xa9")]
    assert score_logprobs(halves, clusters(), MEANING).text == "é"


def test_mass_of_unclear_names_is_in_the_upper_bound_only() -> None:
    top = (TopToken(math.log(0.4), 1), TopToken(math.log(0.3), text="\ufffd"), TopToken(math.log(0.2), text=" zzz"))
    scored = score_logprobs([TopStep(TopToken(math.log(0.4), 1), top)], clusters(), MEANING)
    token = scored.tokens[0]
    assert token.unmapped_probability == pytest.approx(0.2)
    assert token.ambiguous_probability == 0  # neither half of the character is consistent with " TV"
    low, high = scored.sequence_uncertainty_interval
    assert 1 - high == pytest.approx(0.4, abs=1e-4)
    assert 1 - low == pytest.approx(0.4 + 0.2 + 0.1, abs=1e-4)  # 0.1 is missing, the list is keyed by strings
    assert codes(scored) == ["unmapped_names"]


def test_a_name_of_two_tokens_that_both_begin_the_text_counts_wherever_it_stands() -> None:
    """Two tokens read "a"; beside "ab" both count, and beside "b" neither does."""
    texts, nothing = ("ab", "a", "a", "b"), np.zeros(4, dtype=bool)
    vocabulary = Vocabulary(texts, tuple(text.encode() for text in texts), nothing, nothing)
    words = TokenClusters(np.arange(4, dtype=np.int32), vocabulary)
    either = TopToken(math.log(0.25), text="a")
    steps = [TopStep(TopToken(math.log(0.5), i), (TopToken(math.log(0.5), i), either)) for i in (3, 0, 3, 0)]
    scored = score_logprobs(steps, words, MEANING)
    assert [token.agreeing_probability for token in scored.tokens] == pytest.approx([0.5, 0.75] * 2)
    assert not any(token.ambiguous_probability for token in scored.tokens)


@pytest.mark.parametrize(
    ("chosen", "known"),
    [
        (TopToken(-1.0, text="nowhere"), "not in the vocabulary"),
        (TopToken(-1.0, id=10), "beyond its 10 tokens"),
        (TopToken(-1.0, id=6, text=" London"), "' Paris'"),
        (TopToken(-1.0, id=6, bytes=b" London"), "' Paris'"),
    ],
)
def test_names_of_another_vocabulary_are_refused(chosen: TopToken, known: str) -> None:
    with pytest.raises((InvalidInputError, VocabularyMismatch), match=known):
        score_logprobs([TopStep(chosen, ())], clusters(), MEANING)


def test_spellings_of_tokenizer_files_are_understood() -> None:
    kinds = {name: small_kind(name).clusters for name in ("byte-level", "sentencepiece")}
    for name, spelled in (("byte-level", "\u0120Paris"), ("sentencepiece", "\u2581Paris")):
        scored = score_logprobs([TopStep(TopToken(-0.1, text=spelled), ())], kinds[name])
        assert scored.text.strip() == "Paris"
        assert scored.token_ids == score_logprobs([TopStep(TopToken(-0.1, text=" Paris"), ())], kinds[name]).token_ids


# --- numbers that are none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, 0.7, math.inf])
def test_no_log_probability(value: float) -> None:
    steps = [TopStep(TopToken(-0.1, 1), (TopToken(-0.1, 1),)), TopStep(TopToken(value, 6), ())]
    with pytest.raises(InvalidLogits, match="step 1"):
        score_logprobs(steps, clusters(), MEANING)


def test_logits_are_no_log_probabilities() -> None:
    top = tuple(TopToken(-0.2 * i, i) for i in range(1, 6))
    with pytest.raises(InvalidLogits, match=r"step 0 add up to 2\.\d"):
        score_logprobs([TopStep(top[0], top)], clusters(), MEANING)


@each(
    "steps",
    [
        [(1, 2, 3, 4)],
        [[(-0.1, 1, "x"), (-0.2, 2, "y"), (-0.3, 3, "z")]],
        [{" TV": -0.1}],
        [],
        [None],
        ["x"],
        [{}],
        [(99, {1: -0.1})],
        [7],
        [{"logprob": -1.0}],
    ],
)
def test_what_is_no_step_is_refused(steps: list[Any]) -> None:
    with pytest.raises(InvalidInputError):
        score_logprobs(steps, clusters(), MEANING)


def test_an_item_without_a_number_lacks_its_log_probability() -> None:
    with pytest.raises(BackendError, match="1 of 1 steps have no log-probability"):
        score_logprobs([{"token": "x"}], clusters(), MEANING)


def test_an_empty_answer_and_one_of_neutral_tokens() -> None:
    ended = score_logprobs([(0, {0: -0.1, 6: -2.5})], clusters(), MEANING)
    assert ended.sequence_uncertainty == 1 and ended.sequence_uncertainty_interval == (1.0, 1.0)
    the = [(3, {3: math.log(0.6), 6: math.log(0.3)})]
    assert score_logprobs(the, clusters(), "paper").sequence_uncertainty_interval == (0, 0)
    default = score_logprobs(the, clusters(), MEANING)
    assert default.neutral_only
    assert 1 - default.sequence_uncertainty_interval[1] == pytest.approx(0.6, abs=1e-4)


def test_results_carry_the_interval_to_files() -> None:
    pytest.importorskip("pandas")
    scored = score_logprobs(FORMS["pairs"], clusters(), MEANING, proxy_for="gpt-x")
    found = scored.to_dict()
    assert found["sequence_uncertainty_interval"] == list(scored.sequence_uncertainty_interval)
    assert found["proxy_for"] == "gpt-x"
    assert found["flags"][0]["code"] == "shared_vocabulary"
    frame = semtoken.to_frame([scored])
    assert frame.loc[0, "sequence_uncertainty_lower"] == scored.sequence_uncertainty_interval[0]
    assert frame.loc[0, "flags"] == ",".join(flag.code for flag in scored.flags)


# --- rounding --------------------------------------------------------------------------------------------------------


def significant(values: np.ndarray[Any, Any], digits: int) -> np.ndarray[Any, Any]:
    return np.array([[float(f"{value:.{digits}g}") for value in row] for row in values])


def to_format(values: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    import torch

    return np.asarray(torch.tensor(values).to(getattr(torch, dtype)).double().numpy())


WRITTEN: dict[str, Any] = {
    **{f"%.{digits}g": partial(significant, digits=digits) for digits in (2, 3, 4, 5, 6, 7)},
    "four decimals": lambda values: np.round(values, 4),
    "two decimals in float32": lambda values: np.round(values.astype(np.float32), 2).astype(np.float64),
    "three decimals in float32": lambda values: np.round(values.astype(np.float32), 3).astype(np.float64),
    "two decimals, cut off": lambda values: np.trunc(values * 100) / 100,
    "bfloat16": partial(to_format, dtype="bfloat16"),
    "float16": partial(to_format, dtype="float16"),
    "float32": partial(to_format, dtype="float32"),
}


@examples(3)  # shared by all ways of writing
@given(how=st.sampled_from(list(WRITTEN)), data=st.data())
def test_the_interval_holds_the_exact_score_however_the_numbers_are_written(how: str, data: st.DataObject) -> None:
    """However few of them there are: a single number in half precision is off by as much as a hundred."""
    kind = small_kind("byte-level")
    logits, ids = drawn(kind, data)
    k = data.draw(st.sampled_from([1, 2, 3, 20]))
    n = data.draw(st.integers(1, len(ids)))
    rules = data.draw(st.sampled_from(RULES))
    exact = score_logits(logits[:n].astype(np.float64), ids[:n], kind.clusters, **rules)
    steps = best(WRITTEN[how](log_probs(logits[:n])), ids[:n], k)
    try:
        low, high = score_logprobs(steps, kind.clusters, **rules).sequence_uncertainty_interval
    except InvalidLogits:  # two digits of flat distributions add up to too much
        return
    numbers = [number for _, listed in steps for number in listed.values() if number]
    decimals, digits = written(numbers)
    if len(numbers) < MANY_NUMBERS and digits <= 1 and decimals <= FEW_DECIMALS:
        return  # they count as written by hand: -30 alone would have to stand for all from -25 to -35
    assert low <= exact.sequence_uncertainty <= high


# --- names that several tokens share ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["17 TV sets.", "Paris is the capital", "naïve 東京 🙂"])
def test_bytes_are_enough_beside_byte_tokens(text: str) -> None:
    """SentencePiece has a byte token for every byte; a character with a token of its own is not spelled by it."""
    kind = small_kind("sentencepiece")
    vocabulary = kind.clusters.vocabulary
    ids = list(tiny.TOKENIZERS["sentencepiece"]()(text, add_special_tokens=False)["input_ids"])
    logits = np.random.default_rng(0).normal(size=(len(ids), vocabulary.size)) * 2
    whole = {p for p, byte in zip(vocabulary.pieces, vocabulary.byte_tokens, strict=True) if not byte}
    for byte in np.flatnonzero(vocabulary.byte_tokens):
        if vocabulary.pieces[byte] in whole:  # as in a trained model
            logits[:, byte] = -40
    rows = log_probs(logits.astype(np.float32))

    def named(row: np.ndarray[Any, Any], token: int) -> TopToken:
        return TopToken(float(row[token]), text="", bytes=vocabulary.pieces[token])

    steps = [
        TopStep(named(row, t), tuple(named(row, i) for i in np.argsort(-row)[:9] if vocabulary.pieces[i]))
        for row, t in zip(rows, ids, strict=True)
    ]
    scored = score_logprobs(steps, kind.clusters, **RULES[1])
    assert scored.token_ids == ids
    low, high = scored.sequence_uncertainty_interval
    assert low <= score_logits(logits, ids, kind.clusters, **RULES[1]).sequence_uncertainty <= high


def test_a_second_entry_of_a_name_is_the_other_token() -> None:
    """Both a character's token and its byte token are listed, as in a list of the whole vocabulary."""
    kind = small_kind("sentencepiece")
    vocabulary = kind.clusters.vocabulary
    byte = next(i for i in np.flatnonzero(vocabulary.byte_tokens) if vocabulary.pieces[i] == b"s")
    own = next(i for i, piece in enumerate(vocabulary.pieces) if piece == b"s" and i != byte)
    top = (TopToken(math.log(0.6), bytes=b"s"), TopToken(math.log(0.4), bytes=b"s"))
    scored = score_logprobs([TopStep(top[0], top)], kind.clusters, **RULES[1])
    assert scored.token_ids == [own]
    inside = byte in kind.clusters.cluster_ids(own) or vocabulary.normalized[byte] == "s"
    low, high = scored.sequence_uncertainty_interval
    assert low == pytest.approx(0 if inside else 0.4, abs=1e-4)
    assert high == pytest.approx(0 if inside else 0.4, abs=1e-4)


@pytest.mark.parametrize("name", list(tiny.TOKENIZERS))
@given(seed=st.integers(0, 2**32 - 1))
def test_flags_about_borrowed_mass_are_those_of_the_records(name: str, seed: int) -> None:
    """The records are made only where a flag is likely; every answer gets the flags that its records call for."""
    kind = small_kind(name)
    random = np.random.default_rng(seed)
    size = kind.clusters.vocabulary.size
    ids = random.integers(0, size, random.integers(1, 6))
    logits = random.normal(size=(len(ids), size)) * 2
    for row, token in zip(logits, ids, strict=True):
        row[random.choice(kind.clusters.cluster_ids(int(token)))] += 8  # itself or a possible rival
    rows = log_probs(logits.astype(np.float32))
    steps = by_name(kind, rows, ids.tolist(), 5)
    try:
        scored = score_logprobs(steps, kind.clusters, **RULES[seed % 3])
    except semtoken.errors.SemtokenError:
        return
    about_lists = [flag for flag in scored.flags if flag.code in codes(scored)]
    assert scored.flags == (*about_lists, *borrowed_flags(scored))


def test_records_of_tokens_are_made_when_they_are_asked_for() -> None:
    steps = [TopStep(TopToken(math.log(0.01), 1), (TopToken(math.log(0.09), 6), TopToken(math.log(0.01), 1)))] * 3
    answer = GrowingAnswer(scorer_for(clusters(), MEANING))
    for step in steps:
        answer.add(step)
    scored = answer.finish()
    answer.add(steps[0])  # whatever becomes of the answer
    assert scored.n_tokens == 3
    assert all(isinstance(mark, TokenMark) for mark in scored.marks)
    assert isinstance(vars(scored)["tokens"], TokensLater)
    copied = pickle.loads(pickle.dumps(scored))  # as the processes of users exchange results
    assert copied == scored == score_logprobs(steps, clusters(), MEANING)
    assert len(copied.tokens) == copied.n_tokens == 3
    assert replace(scored, truncated=True).tokens == scored.tokens


# --- special tokens that have a name only ----------------------------------------------------------------------------


def by_name(kind: Kind, rows: np.ndarray[Any, Any], ids: list[int], k: int) -> list[TopStep]:
    """The k best of each row, special tokens by a name that no vocabulary has, the others by id."""
    special = kind.clusters.vocabulary.special

    def named(row: np.ndarray[Any, Any], token: int) -> TopToken:
        if special[token]:
            return TopToken(float(row[token]), text=f"<|{token}|>", bytes=f"<|{token}|>".encode())
        return TopToken(float(row[token]), token)

    return [
        TopStep(named(row, token), tuple(named(row, i) for i in np.argsort(-row, kind="stable")[:k].tolist()))
        for row, token in zip(rows, ids, strict=True)
    ]


@pytest.mark.parametrize("name", list(tiny.TOKENIZERS))
@examples(0.5)
@given(data=st.data())
def test_the_interval_holds_the_exact_score_of_answers_with_named_special_tokens(
    name: str, data: st.DataObject
) -> None:
    """Also where no token is neutral, and for answers of function words alone."""
    kind = small_kind(name)
    vocabulary = kind.clusters.vocabulary
    specials = np.flatnonzero(vocabulary.special).tolist()
    logits, ids = drawn(kind, data)
    size = vocabulary.size
    logits[:, specials] += data.draw(st.sampled_from([0.0, 4.0, 8.0]))
    plain = np.flatnonzero(vocabulary.neutral if data.draw(st.booleans()) else ~vocabulary.special)
    plain = plain[~vocabulary.special[plain]]
    ids = [int(plain[i % len(plain)]) for i in ids[:-1]] + [data.draw(st.sampled_from(specials))]
    rules = data.draw(st.sampled_from(RULES))
    exact = score_logits(logits, ids, kind.clusters, **rules)
    rows = log_probs(logits[:, :size])
    for k in (3, size):
        scored = score_logprobs(by_name(kind, rows, ids, k), kind.clusters, **rules)
        low, high = scored.sequence_uncertainty_interval
        assert low - 1e-6 <= exact.sequence_uncertainty <= high + 1e-6, k
        assert low <= scored.sequence_uncertainty <= high
        assert scored.text == exact.text
        assert scored.log_probability == pytest.approx(exact.log_probability, abs=1e-4)


NAMED = [{"token": word, "logprob": math.log(p)} for word, p in {" TV": 0.5, "<|end|>": 0.3, "[PAD]": 0.1}.items()]


def test_the_only_special_token_is_meant_by_its_name() -> None:
    """Consistent with " TV" are the end and itself; "[PAD]" is another entry for the end, and may be anything."""
    steps = [NAMED[0] | {"top_logprobs": NAMED[:2]}, NAMED[1] | {"top_logprobs": NAMED[:2]}]
    scored = score_logprobs(steps, clusters(), MEANING)
    assert scored.token_ids == [1, 0]
    assert 1 - scored.sequence_uncertainty == pytest.approx(0.8)
    assert scored.tokens[0].alternatives[0].source == "neutral"
    assert codes(scored) == []
    other = score_logprobs(
        [steps[0], NAMED[1] | {"top_logprobs": NAMED}], clusters(), ScoringRules(function_words="off")
    )
    assert other.tokens[1].unmapped_probability == pytest.approx(0.1)
    assert other.tokens[1].agreeing_probability == pytest.approx(0.3)


@pytest.mark.parametrize("name", ["<|end|>", "</s>", "[/INST]", "[gMASK]"])
def test_names_of_special_tokens(name: str) -> None:
    steps = [TopStep(TopToken(-0.5, text=text), ()) for text in (" TV", name)]
    assert score_logprobs(steps, clusters(), MEANING).token_ids == [1, 0]
    with pytest.raises(InvalidInputError, match=r"step 1.*is not in the vocabulary"):  # more text: it was no end
        score_logprobs([*steps, steps[0]], clusters(), MEANING)


@pytest.mark.parametrize("name", ["[i]", "< >", "<a b>", "x<s>", "[0]"])
def test_names_that_are_none_of_special_tokens(name: str) -> None:
    with pytest.raises(InvalidInputError, match="is not in the vocabulary"):
        score_logprobs([TopStep(TopToken(-0.5, text=name), ())], clusters(), MEANING)


def test_a_named_end_beside_special_tokens_with_ids_is_not_guessed() -> None:
    kind = small_kind("byte-level")
    first, second = np.flatnonzero(kind.clusters.vocabulary.special)[:2].tolist()
    step = TopStep(TopToken(-0.5, text="<|end|>"), (TopToken(-0.5, first), TopToken(-1.5, second)))
    with pytest.raises(InvalidInputError, match="may be any of"):
        score_logprobs([step], kind.clusters, MEANING)


def test_names_without_the_blanks_of_their_tokens() -> None:
    """SentencePiece tokens decoded alone lose their blank: "Paris" may be either of two tokens then."""
    kind = small_kind("sentencepiece")
    vocabulary = kind.clusters.vocabulary
    ids = list(
        tiny.TOKENIZERS["sentencepiece"]()("Paris is the capital of France", add_special_tokens=False)["input_ids"]
    )
    words = [i for i, piece in enumerate(vocabulary.pieces) if piece[:1] == b" " and piece[1:] in vocabulary.pieces]

    def alone(token: int, *, known: bool = False) -> TopToken:
        return TopToken(-3.0, token if known else None, vocabulary.texts[token])

    steps = [TopStep(alone(t), tuple(map(alone, words[5:10]))) for t in ids]
    with pytest.raises(BackendError, match=r"begins with a space.*step 0"):
        score_logprobs(steps, kind.clusters, MEANING)
    assert codes(score_logprobs(steps[:1], kind.clusters, MEANING)) == ["names_without_blanks"]
    with_ids = [TopStep(alone(t, known=True), tuple(map(alone, words[5:10]))) for t in ids]
    scored = score_logprobs(with_ids, kind.clusters, MEANING)
    assert scored.token_ids == ids
    assert "ambiguous_names" in codes(scored) and "names_without_blanks" not in codes(scored)
    with_all = [TopStep(alone(t, known=True), tuple(alone(one, known=True) for one in words[5:10])) for t in ids]
    assert codes(score_logprobs(with_all, kind.clusters, MEANING)) == []


def test_rows_that_pad_a_model_are_no_tokens() -> None:
    """The exact score is of the distribution over the vocabulary alone."""
    logits = np.random.default_rng(3).normal(size=(2, 13))
    logits[:, 10:] = -8
    exact = score_logits(logits, [1, 6], clusters(), preset=MEANING)
    rows = log_probs(logits)
    for k in (3, 12, 13):
        low, high = score_logprobs(best(rows, [1, 6], k), clusters(), MEANING).sequence_uncertainty_interval
        assert low - 1e-9 <= exact.sequence_uncertainty <= high + 1e-9
    with pytest.raises(VocabularyMismatch, match="belongs to another model"):
        score_logprobs([(1, {1: math.log(0.5), 11: math.log(0.3)})], clusters(), MEANING)


def test_nothing_but_zeros_and_sentinels_is_refused() -> None:
    step = TopStep(TopToken(0.0, 6), (TopToken(0.0, 6), TopToken(-9999.0, 1), TopToken(-9999.0, 2)))
    with pytest.raises(BackendError, match="does not report log-probabilities"):
        score_logprobs([step] * 5, clusters(), MEANING)
    assert codes(score_logprobs([step] * 4, clusters(), MEANING)) == ["zero_log_probabilities"]  # by chance, perhaps
    scored = score_logprobs([*[step] * 6, FORMS["records"][0]], clusters(), MEANING)
    assert codes(scored) == ["zero_log_probabilities"]


def test_a_zero_without_a_list_says_nothing_where_other_steps_have_lists() -> None:
    """The step may be certain and may be impossible; what is known are the 0.8 of the other one."""
    listed = TopStep(TopToken(math.log(0.8), 6), (TopToken(math.log(0.8), 6), TopToken(math.log(0.1), 1)))
    scored = score_logprobs([listed, TopStep(TopToken(0.0, 9), ())], clusters(), ScoringRules(equality="exact"))
    assert codes(scored) == ["no_alternatives", "zero_log_probabilities"]
    assert scored.sequence_uncertainty_interval == pytest.approx((0.2, 1.0), abs=2 * ROUNDING)
    assert [token.log_probability for token in scored.tokens] == [pytest.approx(math.log(0.8)), -math.inf]


@pytest.mark.parametrize("n", [1, 2, 4])
def test_an_interval_that_is_a_point_is_not_called_wide(n: int) -> None:
    """Numbers after top_p: the list holds the chosen token alone, with the log-probability 0."""
    zero = TopStep(TopToken(0.0, 6), (TopToken(0.0, 6),))
    assert codes(score_logprobs([zero] * n, clusters(), MEANING)) == ["zero_log_probabilities"]
    mixed = score_logprobs([*[zero] * n, FORMS["records"][0]], clusters(), MEANING)
    assert "no_alternatives" not in codes(mixed)


def test_a_proxy_with_another_tokenizer_is_refused() -> None:
    top = (TopToken(math.log(0.5), bytes=b" TV"), TopToken(math.log(0.2), bytes=b" London"))
    assert score_logprobs([TopStep(top[0], top)], clusters(), MEANING).flags[0].code == "unmapped_names"
    with pytest.raises(VocabularyMismatch, match=r"1 of 2 tokens of gpt-x.*London"):
        score_logprobs([TopStep(top[0], top)], clusters(), MEANING, proxy_for="gpt-x")


# --- shared tokenizers -----------------------------------------------------------------------------------------------


def test_strings_count_where_they_are_clear() -> None:
    steps = as_top_steps([{"token": "\ufffd", "logprob": -1.0, "bytes": None, "top_logprobs": []}])
    assert check_shared_vocabulary(steps, clusters().vocabulary).n_tokens == 0
    for special in (TopToken(-1.0, text="<|end|>"), TopToken(-1.0, text="[PAD]", bytes=b"[PAD]")):
        assert check_shared_vocabulary([TopStep(special, ())], clusters().vocabulary).n_tokens == 0
