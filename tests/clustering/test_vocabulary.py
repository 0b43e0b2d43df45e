"""A vocabulary against the tokenizer that it was read from."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE

from semtoken.clustering.function_words import english_stopwords
from semtoken.clustering.vocabulary import Vocabulary, clean_up_spaces, normalize
from semtoken.errors import InvalidInputError, VocabularyError, VocabularyMismatch
from tests import tiny

SMALL = list(tiny.TOKENIZERS)
LARGE = ["mistral-sentencepiece", "mistral-tekken"]
KINDS = [*SMALL, *(pytest.param(kind, marks=pytest.mark.slow) for kind in LARGE)]


@cache
def pair(kind: str) -> tuple[Any, Vocabulary]:
    """A tokenizer and its vocabulary, made once."""
    tokenizer = tiny.tokenizer_of(kind)
    return tokenizer, Vocabulary.from_tokenizer(tokenizer)


def reference(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True))


@cache
def sequences(kind: str) -> st.SearchStrategy[list[int]]:
    """Id sequences rich in what is hard: parts of characters, byte tokens, blanks, special tokens."""
    _, vocabulary = pair(kind)
    hard = np.flatnonzero(vocabulary.broken | vocabulary.byte_tokens | vocabulary.blank)
    token = st.integers(0, vocabulary.size - 1)
    return st.lists(st.one_of(token, st.sampled_from(hard.tolist())), max_size=12)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_decodes_as_the_tokenizer(kind: str, data: st.DataObject) -> None:
    tokenizer, vocabulary = pair(kind)
    ids = data.draw(sequences(kind))
    if kind == "mistral-tekken":  # it decodes what is between special tokens apart, also where it skips them
        ids = vocabulary.parts(ids)
    text = vocabulary.decode(ids)
    if vocabulary.clean_up:
        text = clean_up_spaces(text)
    assert text.strip() == reference(tokenizer, ids).strip()


@pytest.mark.parametrize("kind", KINDS)
def test_ordinary_text_comes_back_and_is_cut_into_its_tokens(kind: str) -> None:
    tokenizer, vocabulary = pair(kind)
    text = "the capital of France is Paris\nQuestion:\nnaïve café 東京 🙂 17"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert vocabulary.decode(ids).strip() == reference(tokenizer, ids).strip()
    if kind != "wordpiece":
        assert vocabulary.decode(ids) == text
    ids = tokenizer.encode("the capital of France is Paris", add_special_tokens=False)
    text = vocabulary.decode(ids)
    cut = [text[start:end] for start, end in vocabulary.offsets(ids)]
    assert "".join(cut) == text
    for token, part in zip(ids, cut, strict=True):
        assert normalize(part) == vocabulary.normalized[token].removeprefix("##")


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_single_tokens_decoded_and_masks_follow_from_them(kind: str) -> None:
    tokenizer, vocabulary = pair(kind)
    assert vocabulary.size == len(vocabulary) == len(tokenizer)
    stopwords = english_stopwords()
    for i, text in enumerate(vocabulary.texts):
        if i % (1 + vocabulary.size // 3000) == 0:
            assert text == reference(tokenizer, [i])
        assert vocabulary.normalized[i] == text.strip().lower()
        assert vocabulary.neutral[i] == (text.strip() in stopwords or text.strip() == "")
        assert vocabulary.numeral[i] == any(c.isdigit() for c in text)
        assert vocabulary.blank[i] == (text.strip() == "")


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_are_those_that_decoding_skips(kind: str) -> None:
    tokenizer, vocabulary = pair(kind)
    if kind.startswith("mistral"):
        special = {i for i in tokenizer.all_special_ids if reference(tokenizer, [i]) == ""}
        assert special <= set(np.flatnonzero(vocabulary.special).tolist())
    else:
        special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        assert special == set(np.flatnonzero(vocabulary.special).tolist())


def test_added_tokens_have_a_text() -> None:
    for kind in ("byte-level", "sentencepiece"):
        tokenizer, vocabulary = pair(kind)
        token = tokenizer.convert_tokens_to_ids("<tool>")
        assert vocabulary.texts[token] == "<tool>"
        assert not vocabulary.special[token] and not vocabulary.neutral[token]


@pytest.mark.parametrize("kind", ["byte-level", pytest.param("mistral-tekken", marks=pytest.mark.slow)])
def test_parts_of_a_character_are_broken_and_join(kind: str) -> None:
    tokenizer, vocabulary = pair(kind)
    ids = tokenizer.encode("한ꙮ", add_special_tokens=False)
    assert any(vocabulary.broken[i] for i in ids)
    assert vocabulary.decode(ids) == "한ꙮ"


def test_byte_tokens_join_and_break_as_a_run() -> None:
    tokenizer, vocabulary = pair("sentencepiece")
    first, second, third = (tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in "東".encode())
    assert vocabulary.byte_errors == "run"
    assert vocabulary.decode([first, second, third]) == "東"
    assert vocabulary.decode([first, second]) == "\N{REPLACEMENT CHARACTER}" * 2
    newline = tokenizer.convert_tokens_to_ids("<0x0A>")
    assert vocabulary.decode([first, second, third, first, newline]) == "\N{REPLACEMENT CHARACTER}" * 5


def test_a_tokenizer_of_the_tokenizers_library_gives_the_same_vocabulary() -> None:
    for kind in ("byte-level", "sentencepiece"):
        tokenizer, vocabulary = pair(kind)
        raw = Vocabulary.from_tokenizer(tokenizer.backend_tokenizer)
        assert raw.fingerprint == vocabulary.fingerprint
        assert raw.texts == vocabulary.texts and raw.pieces == vocabulary.pieces


def test_word_pieces_without_cleaning() -> None:
    tokenizer = tiny.wordpiece(clean_up=False)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    ids = tokenizer.encode("the capital, it's Paris.", add_special_tokens=False)
    assert not vocabulary.clean_up
    assert vocabulary.decode(ids).strip() == reference(tokenizer, ids).strip()
    assert " , " in vocabulary.decode(ids)


def test_a_word_start_begins_with_a_blank_inside_a_text() -> None:
    for kind, start, inside in (
        ("byte-level", "Ġof", "al"),
        ("sentencepiece", "▁TV", "TV"),
        ("wordpiece", "TV", "##s"),
    ):
        tokenizer, vocabulary = pair(kind)
        assert vocabulary.word_start[tokenizer.convert_tokens_to_ids(start)]
        assert not vocabulary.word_start[tokenizer.convert_tokens_to_ids(inside)]


@pytest.mark.parametrize("kind", KINDS[:-1])
@given(data=st.data())
def test_offsets_cut_the_text_into_its_tokens(kind: str, data: st.DataObject) -> None:
    _, vocabulary = pair(kind)
    ids = data.draw(sequences(kind))
    text = vocabulary.decode(ids)
    offsets = vocabulary.offsets(ids)
    assert len(offsets) == len(ids)
    reached = 0
    for token, (start, end) in zip(ids, offsets, strict=True):
        assert 0 <= start <= reached <= end <= len(text)  # no character is left out between two tokens
        assert start == end or not vocabulary.special[token]
        reached = end
    assert reached == len(text)


def test_tokens_that_share_a_character_carry_its_range() -> None:
    tokenizer, vocabulary = pair("byte-level")
    ids = tokenizer.encode("TV 한", add_special_tokens=False)
    offsets = vocabulary.offsets(ids)
    whole = vocabulary.decode(ids).index("한")
    sharing = [span for token, span in zip(ids, offsets, strict=True) if vocabulary.broken[token]]
    assert len(sharing) >= 2
    assert all(end == whole + 1 for _, end in sharing)
    assert all(start == whole for start, _ in sharing[1:])


def test_stopwords_are_compared_with_their_case() -> None:
    tokenizer, vocabulary = pair("byte-level")
    assert vocabulary.neutral[tokenizer.convert_tokens_to_ids("Ġthe")]
    assert not vocabulary.neutral[tokenizer.convert_tokens_to_ids("ĠThe")]


def test_ids_out_of_range_are_refused() -> None:
    _, vocabulary = pair("byte-level")
    vocabulary.check_ids([0, vocabulary.size - 1])
    with pytest.raises(VocabularyError, match=rf"id {vocabulary.size} at step 1"):
        vocabulary.check_ids([0, vocabulary.size])
    with pytest.raises(VocabularyError, match="id -1 at step 0"):
        vocabulary.check_ids([-1])
    with pytest.raises(VocabularyError, match="Token id -1 at step 7 is out of range"):
        vocabulary.check_ids([0, -1], 6)
    for first in (-1, None, "6", [6]):
        with pytest.raises(InvalidInputError, match="'first' must be a whole number"):
            vocabulary.check_ids([-1], first)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokenizer", "said"), [({"a": 0}, "tokenizer"), (Tokenizer(BPE()), "The tokenizer has no tokens")]
)
def test_what_is_no_tokenizer_with_tokens_is_refused(tokenizer: Any, said: str) -> None:
    with pytest.raises(VocabularyError, match=said):
        Vocabulary.from_tokenizer(tokenizer)


def test_a_mismatch_names_the_first_difference() -> None:
    _, bpe = pair("byte-level")
    _, pieces = pair("sentencepiece")
    with pytest.raises(VocabularyMismatch, match=rf"made for {bpe.size} tokens.*has {pieces.size}.*token 2 is"):
        bpe.require_same(pieces, mine="made for", theirs="has")
    bpe.require_same(bpe, mine="made for", theirs="has")


@pytest.mark.parametrize("kind", SMALL)
def test_tokens_of_a_text_are_all_that_normalize_to_it(kind: str) -> None:
    vocabulary = pair(kind)[1]
    for norm in {*map(normalize, vocabulary.texts), "of no token"}:
        same = [token for token, text in enumerate(vocabulary.texts) if normalize(text) == norm]
        assert vocabulary.tokens_of(norm).tolist() == same
