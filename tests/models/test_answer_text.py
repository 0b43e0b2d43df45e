from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken import Vocabulary
from semtoken.models.answer_text import AnswerText
from tests.tiny import TOKENIZERS


@pytest.fixture(scope="module", params=sorted(TOKENIZERS))
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return TOKENIZERS[request.param]()


@pytest.fixture(scope="module")
def vocabulary(tokenizer: Any) -> Vocabulary:
    return Vocabulary.from_tokenizer(tokenizer)


def draw_ids(data: st.DataObject, tokenizer: Any, vocabulary: Vocabulary) -> list[int]:
    """Any tokens, or those of a text."""
    if data.draw(st.booleans()):
        text = data.draw(st.text(max_size=8) | st.text("thean. é🜚\n"))
        return list(tokenizer(text, add_special_tokens=False).input_ids)
    return data.draw(st.lists(st.integers(0, vocabulary.size - 1), max_size=12))


def pieces(text: AnswerText, ids: list[int]) -> list[str]:
    return [*(text.add(token) for token in ids), text.finish()]


@given(data=st.data())
def test_pieces_are_the_decoded_text(tokenizer: Any, vocabulary: Vocabulary, data: st.DataObject) -> None:
    ids = draw_ids(data, tokenizer, vocabulary)
    assert "".join(pieces(AnswerText(vocabulary), ids)) == vocabulary.decode(ids)


@given(data=st.data())
def test_nothing_from_a_stop_text_on_is_ever_shown(tokenizer: Any, vocabulary: Vocabulary, data: st.DataObject) -> None:
    ids = draw_ids(data, tokenizer, vocabulary)
    whole = vocabulary.decode(ids)
    stops = data.draw(st.lists(st.text("the an.", min_size=1, max_size=3), max_size=3))
    if whole and data.draw(st.booleans()):
        start = data.draw(st.integers(0, len(whole) - 1))
        stops.append(whole[start : start + data.draw(st.integers(1, 6))])
    text = AnswerText(vocabulary, stops)
    shown = "".join(pieces(text, ids))
    assert whole.startswith(shown)
    assert not any(stop in shown for stop in stops)
    assert text.stopped == any(stop in whole for stop in stops)
    rest = whole[len(shown) :]
    assert rest.startswith(text.stop) if text.stop is not None else not rest


@given(data=st.data())
def test_every_token_that_is_counted_has_some_of_the_text(
    tokenizer: Any, vocabulary: Vocabulary, data: st.DataObject
) -> None:
    ids = list(tokenizer(data.draw(st.text("thean. é", min_size=1)), add_special_tokens=False).input_ids)
    text = AnswerText(vocabulary, [data.draw(st.text("the an.", min_size=1, max_size=3))])
    shown = "".join(pieces(text, ids))
    kept, before = (vocabulary.decode(ids[: text.n_tokens - cut]) for cut in (0, 1))
    assert kept.startswith(shown.rstrip())
    assert not text.n_tokens or not before.startswith(shown)


def test_a_character_of_several_tokens_comes_whole() -> None:
    tokenizer = TOKENIZERS["byte-level"]()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    ids = tokenizer("a🜚b")["input_ids"]
    got = pieces(AnswerText(vocabulary), ids)
    assert "".join(got) == "a🜚b"
    assert all("�" not in piece for piece in got)
