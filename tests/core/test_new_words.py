"""Confidence in the words that an answer adds to the question: by hand, and where `ask` shows it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from semtoken import ScoredAnswer, TokenClusters, Vocabulary, score_logits
from semtoken.core.parts.newness import new_phrases, new_words
from semtoken.core.parts.prose import LONG
from semtoken.display import summary_line
from semtoken.support.text import number, with_bounds
from tests import tiny
from tests.rows import each

QUESTION = "What is the capital of Peru?"


def answer(text: str, seed: int = 0) -> ScoredAnswer:
    """A text with random logits, most of which prefer it."""
    tokenizer = tiny.byte_level_bpe()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    ids = tokenizer.encode(text)
    logits = np.random.default_rng(seed).normal(size=(len(ids), vocabulary.size))
    logits[np.arange(len(ids)), ids] += np.linspace(5, 9, len(ids))
    return score_logits(logits, ids, TokenClusters(np.arange(vocabulary.size), vocabulary))


def confidence_of(scored: ScoredAnswer, word: str) -> float:
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
    messages = [{"role": "system", "content": "Lima"}, {"role": "user", "content": QUESTION}]
    assert scored.new_word_confidence(messages) == scored.new_word_confidence(QUESTION)
    assert scored.with_fields(question=QUESTION).new_word_confidence() == scored.new_word_confidence(QUESTION)
    assert answer("Peru is the capital").new_word_confidence(QUESTION) is None


@each(
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
    shown = {name: summary_line(scored) for name, scored in (("short", short), ("long", long))}
    assert shown["short"].startswith(
        f"confidence {number(1 - short.sequence_uncertainty, 2)}: probability of an answer that agrees"
    )
    assert (
        f" · sequence uncertainty {number(short.sequence_uncertainty)} · probability of these very words "
        in shown["short"]
    )
    assert shown["long"].startswith(
        f"confidence {with_bounds(long.confidence, long.confidence_interval, digits=2)}: its least sure part is “"
    )
    assert shown["long"].endswith("%). What was asked is not known") and " · " not in shown["long"]
    assert " · sequence uncertainty " in summary_line(sentence)


VINSON = "The Vinson Massif is the highest mountain of which continent?"


@each(
    ("question", "text", "new"),
    [
        (VINSON, "The Vinson Massif is the highest mountain of a continent.", []),
        (VINSON, "Antarctica.", ["Antarctica"]),
        # forms of a word
        ("What is the capital of Poland?", "Poland's capital is Warsaw.", ["Warsaw"]),
        ("What is the capital of Poland?", "Poland’s Capitals.", []),
        ("Which countries won?", "The country that won.", []),
        ("Which boxes are red?", "The red box is a RED box.", []),
        ("Wo liegt Córdoba?", "Cordoba.", []),
        ("Wo liegt Genève?", "Geneve.", []),
        ("Who is Will Trent?", "Will Trent was made by Karin Slaughter.", ["made", "Karin Slaughter"]),
        # single letters, which phrases may leave out
        ("An arrow leads to which letter?", "An arrow leads to the letter 'M'.", ["M"]),
        ("What is the symbol for iodine?", "The symbol for iodine is I.", ["I"]),
        ("What is the symbol for iodine?", "I have a symbol for iodine.", []),
        # names as a whole
        ("Which town is it?", "The town is Hoi An in Vietnam.", ["Hoi An", "Vietnam"]),
        ("Which war was it?", "It was World War I.", ["World War I"]),
        ("Which film?", "And The Sting Of The Wasp.", ["Sting", "Wasp"]),
        # words that answer by themselves
        ("Is there no way?", "No.", ["No"]),
        ("True or false: it is round.", "True", ["True"]),
        ("What is 7 of 7, or 3?", "7", ["7"]),
        ("What is the 3rd of the 3rd?", "3rd", ["3rd"]),
        ("What's the cube root of 27,000?", "The cube root of 27,000 is 30.", ["30"]),
        ("What's the cube root of 27,000?", "The cube root of 27,000 is 27,000.", []),
        ("Lima is the capital of what?", "Lima is not the capital.", ["not"]),
        # function words alone: an answer if the question does not hold them
        ("Which novel is about a clown?", "It.", ["It."]),
        ("What is it?", "It is what it is.", []),
        # questions that may hold their answer, where all phrases count
        ("Which is larger, the sun or the moon?", "The sun.", ["sun"]),
        ("Is Paris a city?", "Paris is a city.", ["Paris", "city"]),
        ("Choose: red, green, blue", "green", ["green"]),
        ("Which? A: Rome B: Oslo", "B", ["B"]),
        # material and instructions beside the question
        ("Lima is the capital of Peru.\n\nWhich city is it?", "Lima", ["Lima"]),
        ("What is the capital of Peru?\n\nAnswer in one sentence.", "Peru is the capital.", []),
        ("Question:\nWhich planet is red?\nAnswer:\n", "A red planet.", []),
        ("Question:\nWhich planet is red?\nAnswer:\n", "Mars", ["Mars"]),
        ("Is it cold?\n\nWhich planet is red?", "A red planet.", []),
        ("Is it cold? Read this.\n\nQuestion: Which planet is red", "A red planet.", []),
    ],
)
def test_the_phrases_that_an_answer_adds(question: str, text: str, new: list[str]) -> None:
    assert [text[start:end] for start, end in new_phrases(text, question)] == new


@pytest.mark.parametrize("text", ["The capital of Peru is the capital of Peru.", "The Capitals of Peru's."])
def test_a_sentence_that_only_repeats_its_question_comes_last(text: str) -> None:
    scored = answer(text).with_fields(question=QUESTION)
    assert [scored.confidence, *scored.confidence_interval] == [0, 0, 0] and not scored.empty
    assert scored.explanation == "It only repeats the question."
    assert scored.without_quotes().explanation == scored.explanation
    assert answer(text).confidence > 0  # where the question is not known nothing repeats it


def test_a_short_answer_may_name_a_thing_of_its_question() -> None:
    scored = answer("Peru").with_fields(question=QUESTION)
    assert scored.confidence_method == "stc" and scored.confidence == answer("Peru").confidence > 0
