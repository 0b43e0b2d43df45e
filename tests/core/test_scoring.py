"""Scoring against the worked example, against the brute-force twin, and against its own algebra."""

from __future__ import annotations

import itertools
import math
import re
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken import ScoredAnswer, TokenClusters, Vocabulary, core, score_logits
from semtoken.core import scorer_for
from semtoken.core.rules import ScoringRules
from semtoken.errors import InvalidInputError
from tests import tiny, worked
from tests.core.reference import Answer, Twin, softmax
from tests.rows import each

MEANING: dict[str, Any] = {"equality": "meaning"}
RULES: tuple[dict[str, Any], ...] = (
    *(
        {
            "preset": preset,
            "equality": "meaning",
            "function_words": words,
            "clustering": clusters,
            "prefix_matching": on,
        }
        for preset, words, clusters, on in itertools.product(
            ("paper", "default"), ("paper", "whole-word", "off"), (True, False), (True, False)
        )
    ),
    *(
        {"preset": "default", "equality": equality, "function_words": words, "prefix_matching": prefixes, **clusters}
        for equality, words, prefixes, clusters in itertools.product(
            ("meaning", "surface"),
            ("paper", "off"),
            (True, False),
            (
                {"clustering": True, "members": "all"},
                {"clustering": True, "members": "spelling"},
                {"clustering": False, "members": "all"},
            ),
        )
    ),
    *(
        {"preset": preset, "equality": "exact", "function_words": "off", "clustering": False, "prefix_matching": False}
        for preset in ("paper", "default")
    ),
)
"""Every switch is named in each, so that the twin needs to know no presets."""


def score(logits: Any, ids: Any, clusters: TokenClusters, **switches: Any) -> ScoredAnswer:
    return score_logits(logits, ids, clusters, preset=ScoringRules(**switches))


# --- the worked example ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [{"preset": "paper"}, {"equality": "meaning"}])
def test_worked_example(rules: dict[str, Any]) -> None:
    """The sums are in the docstring of `worked`."""
    scored = score(worked.logits(*worked.STEPS), worked.ids(*worked.ANSWER), worked.clusters(), **rules)
    assert scored.text == " the television 17\n"
    assert [t.agreeing_probability for t in scored.tokens] == pytest.approx([1, 0.73, 0.93, 0.70, 1], abs=1e-12)
    assert scored.sequence_uncertainty == pytest.approx(1 - 0.73 * 0.93 * 0.70, abs=1e-12)
    assert scored.log_confidence == pytest.approx(math.log(0.475230), abs=1e-12)
    assert math.exp(scored.log_probability) == pytest.approx(0.009, abs=1e-12)
    assert [t.neutral for t in scored.tokens] == [True, False, False, False, True]
    assert not scored.neutral_only


@each(
    ("switches", "clustered"),
    [
        # Without clusters " television" still counts at step 2, as it spells the beginning of what follows.
        ({"clustering": False}, [1, 0.10 + 0.30 + 0.05 + 0.08, 0.93, 0.70, 1]),
        # Without prefixes "te" and " 1" go.
        ({"prefix_matching": False}, [1, 0.68, 0.93, 0.60, 1]),
        ({"clustering": False, "prefix_matching": False}, [0.50, 0.10, 0.90, 0.50, 0.40]),
        # " the" opens the answer: its cluster holds " The", and the line break is neutral still.
        ({"function_words": "whole-word"}, [0.50 + 0.20 + 0.05, 0.73, 0.93, 0.70, 1]),
        ({"function_words": "off"}, [0.70, 0.65, 0.90, 0.60, 0.40]),
        # " The" is " the" in another case; "te" spells the beginning of "television", and " television" all of it.
        ({"equality": "surface", "prefix_matching": True}, [0.50 + 0.20, 0.10 + 0.30 + 0.05, 0.90, 0.50, 0.40]),
        ({"equality": "surface"}, [0.50 + 0.20, 0.10, 0.90, 0.50, 0.40]),
        ({"equality": "exact"}, [0.50, 0.10, 0.90, 0.50, 0.40]),
        # "TV" shares a cluster with " tele", but no letters; "vision" is alone.
        ({"members": "spelling", "function_words": "off"}, [0.70, 0.10 + 0.30 + 0.05, 0.90, 0.50 + 0.10, 0.40]),
    ],
)
def test_worked_example_with_switches(switches: dict[str, Any], clustered: list[float]) -> None:
    rules = {"equality": "meaning", **switches}
    scored = score(worked.logits(*worked.STEPS), worked.ids(*worked.ANSWER), worked.clusters(), **rules)
    assert [t.agreeing_probability for t in scored.tokens] == pytest.approx(clustered, abs=1e-12)
    assert scored.sequence_uncertainty == pytest.approx(1 - math.prod(clustered), abs=1e-12)


def test_the_method_page_tells_the_same_example() -> None:
    page = (Path(__file__).parents[2] / "docs" / "method.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "docs/method.md", "exec"), names)  # our own page
    assert names["scored"].sequence_uncertainty == pytest.approx(1 - 0.475230, abs=1e-6)
    assert names["TOKENS"] == list(worked.TOKENS)
    assert "0.52477" in page


# --- the twin ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A tokenizer with random labels, and its tokens in groups to draw answers from."""

    twin: Twin
    clusters: TokenClusters
    pools: tuple[tuple[int, ...], ...]


def make_kind(tokenizer: Any, seed: int = 0) -> Kind:
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    size = len(tokenizer)
    labels = np.random.default_rng(seed).integers(0, size // 3, size)

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=True))

    def decode_plain(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    letter = next(t for t in range(size) if decode([t]) in set("abcdefghijklmnopqrstuvwxyz"))
    cleans = getattr(tokenizer, "clean_up_tokenization_spaces", False)
    twin = Twin(decode, size, labels.tolist(), letter, decode_plain if cleans else None)
    texts = [twin.texts[t] for t in range(size)]
    pools = (
        range(size),
        (t for t in range(size) if twin.blanks[t]),
        (t for t in range(size) if twin.stopword_tokens[t]),
        (t for t in range(size) if twin.is_numeral(t)),
        (t for t in range(size) if "\N{REPLACEMENT CHARACTER}" in texts[t]),  # pieces of a character
        (t for t in range(size) if set(texts[t]) & set("Σσςİ'")),  # where lower case or cleaning look around
    )
    filled = tuple(pool for pool in map(tuple, pools) if pool)
    return Kind(twin, TokenClusters(labels.astype(np.int32), vocabulary), filled)


@cache
def small_kind(name: str) -> Kind:
    return make_kind(tiny.TOKENIZERS[name]())


@cache
def real_kind(name: str) -> Kind:
    return make_kind(tiny.mistral(name))


def assert_equals_twin(scored: ScoredAnswer, expected: Answer) -> None:
    assert [t.probability for t in scored.tokens] == pytest.approx(expected.probabilities, rel=1e-5, abs=1e-9)
    assert [t.agreeing_probability for t in scored.tokens] == pytest.approx(expected.clustered, rel=1e-5, abs=1e-9)
    assert [t.surface_probability for t in scored.tokens] == pytest.approx(expected.surface, rel=1e-5, abs=1e-9)
    assert [t.meaning_probability for t in scored.tokens] == pytest.approx(expected.meaning, rel=1e-5, abs=1e-9)
    assert scored.log_confidence == pytest.approx(expected.log_confidence, rel=1e-4, abs=1e-5)
    assert [t.neutral for t in scored.tokens] == expected.neutral
    assert scored.neutral_only == (expected.neutral_only and not scored.empty)
    assert scored.empty == (expected.log_confidence == -math.inf)


def random_logits(seed: int, steps: int, columns: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 3, (steps, columns)).astype(np.float32)


SOME_RULES = st.lists(st.sampled_from(RULES), min_size=4, max_size=4)


def check_against_twin(kind: Kind, ids: list[int], seed: int, padding: int, rules: Sequence[dict[str, Any]]) -> None:
    logits = random_logits(seed, len(ids), kind.twin.size + padding)
    probabilities = softmax(logits, kind.twin.size)
    for switches in rules:
        scored = score(logits, ids, kind.clusters, **switches)
        assert_equals_twin(scored, kind.twin.score(probabilities, ids, **switches))


@pytest.mark.parametrize("name", list(tiny.TOKENIZERS))
@given(data=st.data())
def test_equals_the_twin(name: str, data: st.DataObject) -> None:
    kind = small_kind(name)
    alone = [(pool,) for pool in kind.pools]  # answers of blanks, stopwords, numerals or pieces of characters only
    token = st.one_of([st.sampled_from(pool) for pool in data.draw(st.sampled_from([*[kind.pools] * 8, *alone]))])
    blanks = data.draw(st.lists(st.sampled_from(kind.pools[1]), max_size=3), label="leading blanks")
    ids = blanks + data.draw(st.lists(token, min_size=not blanks, max_size=7), label="ids")
    seed = data.draw(st.integers(0, 2**32 - 1), label="seed")
    check_against_twin(kind, ids, seed, data.draw(st.integers(0, 3), label="padding"), data.draw(SOME_RULES))


TEXTS = (
    "the television 17",
    "No",
    "the same",
    "Σ ΣΑΣ σας ΣΟΦΟΣ",
    "🙂 naïve 東京",
    "it 's , isn ' t n't .",
    "İstanbul\n\n",
    " \n ",
)


@each("name", list(tiny.TOKENIZERS))
@each(("number", "text"), enumerate(TEXTS))
def test_equals_the_twin_on_text(name: str, number: int, text: str) -> None:
    """Every rule is tried on one of the texts in one of the tokenizers."""
    kind = small_kind(name)
    ids = tiny.TOKENIZERS[name]().encode(text, add_special_tokens=False) or [kind.pools[1][0]]
    first = number + len(TEXTS) * list(tiny.TOKENIZERS).index(name)
    check_against_twin(kind, ids, 1, 0, RULES[first :: len(TEXTS) * len(tiny.TOKENIZERS)])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
@pytest.mark.parametrize("name", ["sentencepiece", "tekken"])
def test_equals_the_twin_on_a_real_vocabulary(name: str, seed: int) -> None:
    kind = real_kind(name)
    random = np.random.default_rng(seed)
    ids = [int(random.choice(pool)) for pool in kind.pools]  # one of each sort, in any order
    random.shuffle(ids)
    rules = [RULES[0], *(RULES[k] for k in random.choice(len(RULES), 3, replace=False))]
    check_against_twin(kind, ids, seed, 0, rules)


def test_final_sigma_is_decided_by_the_letters_that_follow() -> None:
    """Alone "ΣΑΣ" lowers to "σας"; followed by "Α" it begins "σασα"."""
    clusters = TokenClusters(np.arange(4), worked.vocabulary(("ΣΑΣ", "Α", "σας", "σασ")))
    steps = np.log([[0.5, 0.1, 0.25, 0.15], [0.1, 0.7, 0.1, 0.1]])
    assert score(steps[:1], [0], clusters, preset="paper").tokens[0].agreeing_probability == pytest.approx(0.5 + 0.25)
    assert score(steps, [0, 1], clusters, preset="paper").tokens[0].agreeing_probability == pytest.approx(0.5 + 0.15)


# --- algebra -----------------------------------------------------------------------------------------------------


def draw_answer(kind: Kind, seed: int, steps: int = 6) -> tuple[npt.NDArray[np.float32], list[int]]:
    """Random logits, and an answer with some content."""
    random = np.random.default_rng(seed)
    content = [t for t in kind.pools[0] if kind.twin.texts[t].isalpha() and not kind.twin.stopword_tokens[t]]
    ids = [int(random.choice(content)), *(int(i) for i in random.choice(kind.pools[0], steps - 1))]
    return random_logits(seed, steps, kind.twin.size), ids


@pytest.fixture(params=list(tiny.TOKENIZERS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return small_kind(request.param)


def relabeled(kind: Kind, labels: npt.ArrayLike) -> TokenClusters:
    return TokenClusters(np.asarray(labels, dtype=np.int32), kind.clusters.vocabulary)


def test_one_cluster_for_all_is_certain(kind: Kind) -> None:
    """But for numerals, which always stand alone."""
    logits, ids = draw_answer(kind, 0)
    ids = [t if not kind.twin.is_numeral(t) else ids[0] for t in ids]
    scored = score(logits, ids, relabeled(kind, np.zeros(kind.twin.size)), **MEANING, function_words="off")
    assert scored.sequence_uncertainty == pytest.approx(0, abs=1e-6)
    assert not scored.neutral_only


@pytest.mark.parametrize(
    "rules", [MEANING, {**MEANING, "function_words": "whole-word"}, {"preset": "paper", "prefix_matching": False}]
)
def test_a_larger_cluster_never_lowers_a_probability(kind: Kind, rules: dict[str, Any]) -> None:
    logits, ids = draw_answer(kind, 0)
    random = np.random.default_rng(0)
    before = score(logits, ids, kind.clusters, **rules)
    labels = kind.clusters.labels.copy()
    labels[labels == labels[random.integers(len(labels))]] = labels[ids[0]]
    after = score(logits, ids, relabeled(kind, labels), **rules)
    for small, large in zip(before.tokens, after.tokens, strict=True):
        assert large.log_agreeing_probability >= small.log_agreeing_probability - 1e-9
        assert small.log_agreeing_probability >= small.log_probability - 1e-9


def test_padded_columns_change_nothing(kind: Kind) -> None:
    logits, ids = draw_answer(kind, 8)
    padding = np.full((len(ids), 17), 99.0, dtype=np.float32)
    padding[2] = np.nan
    padded = score_logits(np.hstack([logits, padding]), ids, kind.clusters)
    assert padded == score_logits(logits, ids, kind.clusters)


def test_input_is_not_changed(kind: Kind) -> None:
    logits, ids = draw_answer(kind, 10)
    kept = logits.copy()
    logits.setflags(write=False)
    score_logits(logits, ids, kind.clusters)
    np.testing.assert_array_equal(logits, kept)


def test_impossible_tokens_make_the_score_minus_infinity() -> None:
    """-inf logits are legal: the token that was forced had no probability, nor had its cluster."""
    step = {" radio": 1.0}
    scored = score_logits(worked.logits(step), worked.ids("vision"), worked.clusters())
    assert scored.log_confidence == -math.inf
    assert scored.sequence_uncertainty == 1


# --- in one pass and bounded memory ------------------------------------------------------------------------------

LARGE = 20_000


@cache
def large_clusters() -> TokenClusters:
    """Clusters over many made-up words; stopwords, blanks and pieces of characters too."""
    random = np.random.default_rng(0)
    letters = random.integers(ord("a"), ord("z") + 1, (3 * LARGE, 8)).astype("u1")
    lengths = random.integers(1, 9, 3 * LARGE)
    words = (bytes(row[:n]) for row, n in zip(letters, lengths, strict=True))
    plain = [b"", b"\n", b" ", b" the", b"the", b" of", b"1", b" 17", *(bytes([b]) for b in range(128, 256))]
    made = (b" " * (k % 2) + word for k, word in enumerate(words))
    pieces = list(dict.fromkeys(itertools.chain(plain, made)))[:LARGE]
    assert len(pieces) == LARGE
    texts = tuple(piece.decode("utf-8", "replace") for piece in pieces)
    small = worked.vocabulary(texts)
    vocabulary = Vocabulary(texts, tuple(pieces), small.neutral, small.byte_tokens)
    return TokenClusters(random.integers(0, 2_000, LARGE).astype(np.int32), vocabulary)


def rows_held(answer: core.GrowingAnswer, ids: list[int]) -> list[float]:
    """Rows that would fill the memory that is held after each step, of rows that are read again and again."""
    rows = np.random.default_rng(2).standard_normal((8, LARGE), dtype=np.float32)
    held = []
    for step, token in enumerate(ids):
        answer.add_row(rows, step % 8, token)
        held.append((tracemalloc.get_traced_memory()[0] - rows.nbytes) / rows[0].nbytes)
    return held


@pytest.mark.parametrize(("opening", "words", "most"), [("x", "off", 4), ("\n", "off", 35), ("\ufffd", "paper", 4)])
def test_whole_rows_are_held_for_blanks_at_most_until_the_text_begins(opening: str, words: Any, most: int) -> None:
    """A step may count one thing or another by how the text goes on, and yet an answer takes little memory a step."""
    scorer, texts = scorer_for(large_clusters(), ScoringRules(function_words=words)), large_clusters().vocabulary.texts
    letter, word = (next(i for i, text in enumerate(texts) if len(text) == n and text.isalpha()) for n in (1, 8))
    ids = [*[texts.index(opening)] * 40, letter, *[word] * 9]
    rows_held(core.GrowingAnswer(scorer), ids)  # tables of the vocabulary are made once
    tracemalloc.start()
    held = rows_held(core.GrowingAnswer(scorer), ids)
    tracemalloc.stop()
    assert max(held) < most and held[-1] < 8


def test_row_by_row_equals_all_at_once() -> None:
    clusters = large_clusters()
    random = np.random.default_rng(4)
    ids = [int(i) for i in random.integers(0, 400, 20)]
    logits = random.normal(0, 4, (20, LARGE)).astype(np.float32)
    answer = core.GrowingAnswer(scorer_for(clusters, ScoringRules()))
    for row, token in zip(logits, ids, strict=True):
        one = row[None].copy()
        answer.add_row(one, 0, token)
        one[:] = np.nan  # a model may reuse its buffer
    assert answer.finish() == score_logits(logits, ids, clusters)


# --- without clusters --------------------------------------------------------------------------------------------


@each(
    "switches",
    [
        {},
        {"equality": "surface"},
        {"equality": "surface", "prefix_matching": True},
        {"equality": "exact"},
        {"preset": "paper", "clustering": False},
        {"preset": "default", "function_words": "whole-word"},
    ],
)
@each("name", tiny.TOKENIZERS)
def test_rules_that_read_no_clusters_need_none(name: str, switches: dict[str, Any]) -> None:
    """Clusters add the mass of `meaning` to a result, and the score is the same."""
    kind, rules = small_kind(name), ScoringRules(**switches)
    logits, ids = draw_answer(kind, 0)
    scored = score_logits(logits, ids, kind.clusters.vocabulary, preset=rules)
    beside = score_logits(logits, ids, kind.clusters, preset=rules)
    assert (scored.log_confidence, scored.signature) == (beside.log_confidence, beside.signature)
    assert "vocab" not in scored.signature and "k:" not in scored.signature
    for token, other in zip(scored.tokens, beside.tokens, strict=True):
        assert (token.id, token.log_agreeing_probability) == (other.id, other.log_agreeing_probability)
        assert token.log_surface_probability == other.log_surface_probability
        assert token.log_meaning_probability is None and other.log_meaning_probability is not None
        assert [(one.id, one.counted) for one in token.alternatives] == [(o.id, o.counted) for o in other.alternatives]
    assert scored.equalities == ("surface", "exact")
    with pytest.raises(InvalidInputError, match="scored without clusters"):
        scored.uncertainty_under("meaning")


def test_rules_that_read_clusters_say_so() -> None:
    kind = small_kind("wordpiece")
    logits, ids = draw_answer(kind, 3)
    with pytest.raises(InvalidInputError, match="count clusters: give TokenClusters"):
        score_logits(logits, ids, kind.clusters.vocabulary, preset="paper")
