"""How sure the model was of the words that an answer adds to the question: by hand, and where `ask` shows it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from semtoken import ScoredResponse, TokenClusters, Vocabulary, score_logits
from semtoken.cli.ask import summary
from semtoken.parts.newness import new_words
from semtoken.parts.prose import LONG
from semtoken.support.text import number, percentage
from tests import tiny

QUESTION = "What is the capital of Peru?"


def answer(text: str, seed: int = 0) -> ScoredResponse:
    """A text with random logits, most of which prefer it."""
    tokenizer = tiny.byte_level_bpe()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    ids = tokenizer.encode(text)
    logits = np.random.default_rng(seed).normal(size=(len(ids), vocabulary.size))
    logits[np.arange(len(ids)), ids] += np.linspace(5, 9, len(ids))
    return score_logits(logits, ids, TokenClusters(np.arange(vocabulary.size), vocabulary))


def confidence_of(scored: ScoredResponse, word: str) -> float:
    """The product over the tokens that a word's characters come from."""
    start = scored.text.index(word)
    inside = [t for t in scored.tokens if t.end > start and t.start < start + len(word)]
    return math.prod(math.exp(t.log_agreeing_probability) for t in inside)


def test_it_is_the_geometric_mean_of_the_new_words() -> None:
    scored = answer("The capital of Peru is Lima, a port.")
    words = [scored.text[start:end] for start, end in new_words(scored.text, QUESTION)]
    assert words == ["Lima", "port"]
    both = confidence_of(scored, "Lima") * confidence_of(scored, "port")
    assert scored.new_word_confidence(QUESTION) == pytest.approx(math.sqrt(both), rel=1e-12)
    assert answer("Peru is the capital").new_word_confidence(QUESTION) is None


@pytest.mark.parametrize(
    ("question", "text", "new"),
    [
        ("挪威的首都是哪里？", "挪威的首都是奥斯陆。", ["奥斯陆"]),
        ("ノルウェーの首都はどこですか", "ノルウェーの首都はオスロです。", ["オスロ"]),
        ("เมืองหลวงของนอร์เวย์คืออะไร", "เมืองหลวงของนอร์เวย์คือออสโล", ["ออสโล"]),
        ("ນະຄອນຫຼວງຂອງລາວແມ່ນຫຍັງ", "ນະຄອນຫຼວງຂອງລາວແມ່ນວຽງຈັນ", ["ວຽງຈັນ"]),
        ("តើរាជធានីនៃកម្ពុជាគឺអ្វី", "រាជធានីនៃកម្ពុជាគឺភ្នំពេញ", ["ភ្នំពេញ"]),
        ("नॉर्वे की राजधानी क्या है?", "नॉर्वे की राजधानी ओस्लो है।", ["ओस्लो"]),
        ("노르웨이의 수도는?", "노르웨이의 수도는 오슬로.", ["오슬로"]),
        ("Какая столица Норвегии?", "Осло — столица Норвегии.", ["Осло"]),
    ],
)
def test_new_words_are_found_in_any_script(question: str, text: str, new: list[str]) -> None:
    scored = answer(text)
    assert [scored.text[start:end] for start, end in new_words(scored.text, question)] == new


def test_what_leads_depends_on_the_answer() -> None:
    short, sentence = answer("Lima"), answer("so it is Lima")
    long = answer("The capital of Peru is Lima, which lies at the coast of the Pacific.")
    assert len(short.tokens) < LONG <= len(long.tokens)
    shown = {name: summary(scored) for name, scored in (("short", short), ("long", long))}
    assert shown["short"].startswith(
        f"confidence {percentage(1 - short.uncertainty)}: probability of an answer that agrees"
    )
    assert f" · uncertainty {number(short.uncertainty)} · probability of these very words " in shown["short"]
    assert shown["long"].startswith(f"confidence {long.headline.shown}: its least sure part is “")
    assert shown["long"].endswith("%)") and " · " not in shown["long"]
    assert " · uncertainty " in summary(sentence)
