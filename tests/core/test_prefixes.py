"""Prefix sets against their definition: every suffix decoded whole, every token compared."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.clustering.vocabulary import Vocabulary, normalize
from semtoken.core.prefixes import PrefixIndex
from tests import tiny

SMALL = list(tiny.TOKENIZERS)
LARGE = ["mistral-sentencepiece", "mistral-tekken"]
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in LARGE]


@cache
def index_of(kind: str) -> tuple[Any, PrefixIndex]:
    tokenizer = tiny.tokenizer_of(kind)
    return tokenizer, PrefixIndex(Vocabulary.from_tokenizer(tokenizer))


def suffix_text(tokenizer: Any, ids: list[int]) -> str:
    return normalize(str(tokenizer.decode(ids, skip_special_tokens=True)))


def brute_force(tokenizer: Any, index: PrefixIndex, ids: list[int]) -> list[set[int]]:
    """The definition, word for word; quadratic in the length of the answer."""
    texts = index.vocabulary.normalized
    whole = [suffix_text(tokenizer, ids[step:]) for step in range(len(ids))]
    return [{t for t, text in enumerate(texts) if text != "" and suffix.startswith(text)} for suffix in whole]


@cache
def tokens_spelled(kind: str) -> dict[str, list[int]]:
    """Normalized text -> the tokens spelled so."""
    _, index = index_of(kind)
    spelled: dict[str, list[int]] = {}
    for token, text in enumerate(index.vocabulary.normalized):
        spelled.setdefault(text, []).append(token)
    return spelled


def hard_ids(vocabulary: Vocabulary) -> list[int]:
    """Parts of characters, blanks, special tokens, punctuation, and letters whose lower case depends on context."""
    odd = [i for i, text in enumerate(vocabulary.texts) if set(text) & set("Σςσİ'.,!?") or text.strip() in ("s", "n")]
    classes = np.flatnonzero(vocabulary.broken | vocabulary.byte_tokens | vocabulary.blank)
    return sorted({*odd, *classes.tolist()})


@cache
def answers(kind: str, max_size: int = 14) -> st.SearchStrategy[list[int]]:
    _, index = index_of(kind)
    vocabulary = index.vocabulary
    hard = hard_ids(vocabulary)
    if kind.startswith("mistral-"):  # these decode the two sides of a special token apart: see test_vocabulary
        hard = vocabulary.parts(hard)
    ordinary = np.flatnonzero(~vocabulary.special).tolist()
    return st.lists(st.one_of(st.sampled_from(ordinary), st.sampled_from(hard)), max_size=max_size)


@pytest.mark.parametrize("kind", SMALL)
@given(data=st.data())
def test_equal_the_definition(kind: str, data: st.DataObject) -> None:
    tokenizer, index = index_of(kind)
    ids = data.draw(answers(kind))
    assert [set(found.tolist()) for found in index.prefix_sets(ids)] == brute_force(tokenizer, index, ids)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGE)
@given(data=st.data())
def test_equal_the_definition_on_whole_vocabularies(kind: str, data: st.DataObject) -> None:
    tokenizer, index = index_of(kind)
    ids = data.draw(answers(kind))
    for step, found in enumerate(index.prefix_sets(ids)):
        suffix = suffix_text(tokenizer, ids[step:])
        expected = {t for k in range(1, len(suffix) + 1) for t in tokens_spelled(kind).get(suffix[:k], [])}
        assert set(found.tolist()) == expected


@pytest.mark.parametrize("kind", [*SMALL, *SLOW])
def test_equal_the_definition_on_ordinary_text(kind: str) -> None:
    tokenizer, index = index_of(kind)
    ids = tokenizer.encode("the Television set, ΣΑΣ naïve 東京 🙂 1990\n", add_special_tokens=False)
    sets = [set(found.tolist()) for found in index.prefix_sets(ids)]
    assert sets == brute_force(tokenizer, index, ids)
    assert any(sets)


@pytest.mark.parametrize("kind", [*SMALL, *SLOW, "few"])
def test_beginnings_and_continuations_follow_their_definitions(kind: str) -> None:
    index = index_of_few() if kind == "few" else index_of(kind)[1]
    texts = index.vocabulary.normalized
    some = ("the", "tel", "p", "ς", "1", "東京", "zzzz", "\N{REPLACEMENT CHARACTER}")
    for head in ("a", "ad", "abc", "abcd", "b", "bb", "c", "cc", "`") if kind == "few" else some:
        beginnings = [i for i, text in enumerate(texts) if text and head.startswith(text)]
        longer = [i for i, text in enumerate(texts) if text.startswith(head) and text != head]
        assert sorted(index.beginnings(head).tolist()) == beginnings
        assert sorted(index.continuations(head).tolist()) == longer
        assert index.can_continue(head) == bool(longer)


def index_of_few(*last: str) -> PrefixIndex:
    """A vocabulary whose first string begins others, and whose last one does not, unless more follow."""
    texts = ("abc", "a", "", " A", "ab", "b", "ba", "c", *last)
    nothing = np.zeros(len(texts), dtype=bool)
    return PrefixIndex(Vocabulary(texts, tuple(text.encode() for text in texts), nothing, nothing))


def test_what_stands_between_two_strings_begins_with_neither() -> None:
    nothing = np.zeros(2, dtype=bool)
    index = PrefixIndex(Vocabulary(("b", "d"), (b"b", b"d"), nothing, nothing))
    for head, beginnings in {"a": [], "b": [0], "bb": [0], "c": [], "d": [1], "dc": [1], "e": []}.items():
        assert index.beginnings(head).tolist() == beginnings
        assert index.continuations(head).tolist() == []


@pytest.mark.parametrize("kind", [*SMALL, "few", "few and one more"])
def test_candidates_begin_a_text_or_go_on_with_it(kind: str) -> None:
    index = index_of_few(*["cd"] * (kind != "few")) if kind.startswith("few") else index_of(kind)[1]
    texts = index.vocabulary.normalized
    for text in filter(None, texts):
        assert index.candidates([text]).tolist() == [
            i for i, one in enumerate(texts) if one and (one.startswith(text) or text.startswith(one))
        ]
        assert index.can_continue(text) == any(one != text and one.startswith(text) for one in texts)


def test_a_token_is_in_its_own_prefix_set_and_blanks_are_in_none() -> None:
    tokenizer, index = index_of("byte-level")
    ids = tokenizer.encode(" Paris\n", add_special_tokens=False)
    sets = index.prefix_sets(ids)
    assert ids[0] in sets[0]
    assert len(sets[-1]) == 0
    assert index.prefix_sets([]) == []


def test_a_long_answer_is_decoded_only_near_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work grows with the length of the answer, not with its square: counted, not timed."""
    tokenizer, index = index_of("byte-level")
    unit = tokenizer.encode("the capital of France is Paris. ", add_special_tokens=False)
    seen = 0
    whole = Vocabulary._join

    def counting(self: Vocabulary, parts: list[int]) -> str:
        nonlocal seen
        seen += len(parts)
        return whole(self, parts)

    monkeypatch.setattr(Vocabulary, "_join", counting)
    work = []
    for repeats in (20, 40, 80):
        seen = 0
        index.prefix_sets(unit * repeats)
        work.append(seen)
    assert work[2] - work[1] == 2 * (work[1] - work[0])
