"""Limits of a request for decisions and of errors in a server's numbers: both sides of each."""

from __future__ import annotations

from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from semtoken.decisions import Choice, Option, Predicate, Question, ReadingOptions, Score, deciding
from semtoken.decisions.answers import Answer, OptionMasses, answer_from_masses
from semtoken.decisions.prompts import OrderedQuestion, prompt_text
from semtoken.decisions.wire import openai, sglang, systemone
from semtoken.decisions.wire.extension import WireError, block_beside, extension_of
from semtoken.decisions.wire.shapes import (
    QUESTION_SHAPES,
    QuestionShape,
    parsed_request,
    says_no_route,
    wants_another_shape,
)
from semtoken.errors import InvalidInputError
from tests.rows import each

TEXTS = [f"option {k}" for k in range(256)]


def taken(most: int, count: int, error: type[Exception] = WireError) -> Any:
    return nullcontext() if count <= most else pytest.raises(error)


def one_question(wire: ModuleType, kind: str, texts: list[str]) -> Any:
    """A request with one question of so many options, in the form of OpenAI, of SGLang, or of System One."""
    if wire is systemone:
        criteria = dict.fromkeys(texts) if kind == "choice" else texts
        return {"state": "s", "questions": {"q": {"type": kind, "instructions": "?", "criteria": criteria}}}
    asked: dict[str, Any] = {"type": kind, "instructions": "?"} if wire is openai else {"id": "q", "question": "?"}
    if kind == "choice":
        asked |= (
            {"choices": [{"value": t} for t in texts]} if wire is openai else {"options": [{"name": t} for t in texts]}
        )
    else:
        asked |= {"levels": [{"label": t} for t in texts] if wire is openai else texts}
    return {"input": "s", "questions": [asked | {"type": kind}]}


@each("kind, least, most", [("choice", 2, 255), ("score", 2, 10)])
def test_as_many_options_as_each_format_allows(kind: str, least: int, most: int) -> None:
    """One option is a question here and in System One, and none of the others."""
    make = Choice if kind == "choice" else Score
    for count in (1, least, most, most + 1):
        with taken(most, count, InvalidInputError):
            assert len(make("?", TEXTS[:count]).options) == count
        for wire in (openai, sglang, systemone):
            with pytest.raises(WireError) if wire is not systemone and count < least else taken(most, count):
                [question] = wire.parse(one_question(wire, kind, TEXTS[:count])).questions
                assert [one.name for one in question.options] == TEXTS[:count]
    assert prompt_text("s", OrderedQuestion(make("?", ["one"]), (0,), "labels")).count("A. one") == 1


def test_as_many_questions_as_each_format_allows() -> None:
    named = {"type": "predicate", "instructions": "So?"}, {"type": "yes_no", "question": "So?"}, {"type": "noul"}
    for wire, asked, most in zip((openai, sglang, systemone), named, (400, 400, 64), strict=True):
        for count in (0, 1, most, most + 1):
            given: Any = {str(k): asked for k in range(count)} if wire is systemone else [asked] * count
            if wire is sglang:
                given = [asked | {"id": str(k)} for k in range(count)]
            with pytest.raises(WireError) if not count else taken(most, count):
                body = {"state" if wire is systemone else "input": "s", "questions": given}
                assert len(wire.parse(body).questions) == count


@each("shape", QUESTION_SHAPES)
def test_what_is_asked_of_a_server_is_what_it_reads(shape: QuestionShape) -> None:
    described = [Option("calm", "calm", "a polite one"), Option("angry", "angry")]
    asked: dict[str, Question] = {
        "so": Predicate("So?"),
        "which": Choice("Which?", described),
        "how": Score("How?", ["Low", "High"]),
    }
    body = shape.body("My parcel is late.", asked)
    _, read = parsed_request(shape, body)
    assert sglang.is_meant(body) is (shape.name == "sglang")
    assert read.state == "My parcel is late." and list(read.names) == list(asked)
    for one, given in zip(read.questions, asked.values(), strict=True):
        assert (one.kind, one.options, one.instructions) == (given.kind, given.options, given.instructions)


def test_as_many_items_as_openai_allows() -> None:
    question = {"type": "predicate", "instructions": "So?"}
    part = {"type": "input_text", "text": "x"}
    for count in (0, 1, 4096, 4097):
        with pytest.raises(WireError) if not count else taken(4096, count):
            openai.parse({"input": [{"role": "user", "content": "x"}] * count, "questions": [question]})
        with taken(4096, count):
            openai.parse({"input": [{"role": "user", "content": [part] * count}], "questions": [question]})


def test_five_assets_are_no_request_and_four_are_images() -> None:
    body = {"state": "s", "questions": {"q": {"type": "noul", "instructions": "So?"}}}
    for count in (4, 5):
        with pytest.raises(InvalidInputError) as error:
            systemone.parse(body | {"assets": {str(k): {} for k in range(count)}})
        assert isinstance(error.value, WireError) == (count == 5)


def test_orders_are_from_1_to_255_or_all() -> None:
    assert extension_of({"orders": 255}) == ReadingOptions(orders=255)
    assert extension_of({"orders": 1}) == ReadingOptions(orders=1)
    assert extension_of({"reading": "words", "orders": 2}) == ReadingOptions("words", 2)
    assert extension_of({"orders": "all"}) == ReadingOptions(orders=None)
    for orders in (0, 256):
        with pytest.raises(WireError):
            extension_of({"orders": orders})


def test_which_statuses_say_that_there_is_no_such_route_or_form() -> None:
    assert [status for status in range(300, 600) if says_no_route(status, "")] == [404, 405]
    told = [status for status in range(300, 600) if wants_another_shape(status, "questions: field required")]
    assert told == [400, 422, 501]


CONFIDENCES = {  # of 0.7, 0.2 and 0.1, half of all mass: (0.7 - 1/3) / (2/3) = 0.55 is this package's own
    0.55: None,
    0.559: None,
    0.35: "share of the model's whole vocabulary",
    0.3402: "share of the model's whole vocabulary",
    0.338: "not said by the server",
    0.7: "the chosen option's probability",
    0.709: "the chosen option's probability",
    0.712: "not said by the server",
    0.2702: "one minus the entropy",  # 1 - 0.8018 / ln 3 = 0.2702, by hand
    0.279: "one minus the entropy",
    0.29: "not said by the server",
}


@each(("told", "meaning"), CONFIDENCES.items())
def test_what_another_confidence_means_is_told_to_a_hundredth(told: float, meaning: str | None) -> None:
    answer = Answer(Choice("Which?", TEXTS[:3]), (0.7, 0.2, 0.1), 0.5)
    found = block_beside({"confidence": told}, answer, {})
    assert (meaning is None) == ("confidence_note" not in found)
    if meaning is not None:
        assert meaning in found["confidence_note"] and found["confidence"] == pytest.approx(0.55)


@pytest.mark.parametrize("mass", [0.501, 0.5, 0.499, 0.00101, 0.00099])
def test_less_than_half_of_all_mass_on_the_options_is_flagged(mass: float) -> None:
    masses = np.array([[0.75 * mass, 0.25 * mass]])
    answer = answer_from_masses(Choice("Which?", ["a", "b"]), OptionMasses(masses, masses))
    said = {0.499: "Only 49.9% of", 0.00101: "Only 0.1% of", 0.00099: "Only 9.9e-04 of"}.get(mass)
    assert bool(answer.flags) == (said is not None) and all(said in flag.message for flag in answer.flags if said)
    assert answer.probabilities == pytest.approx((0.75, 0.25)) and answer.order_spread is None


def test_a_prompt_needs_room_for_one_token_behind_it() -> None:
    for length, limit in ((9, 10), (10, 10), (10, None)):
        reader: Any = SimpleNamespace(max_length=limit)
        with pytest.raises(InvalidInputError, match="have 10 tokens") if limit == length else nullcontext():
            deciding._check_length(reader, range(length))


def test_only_texts_that_are_too_long_in_any_case_are_refused_before_they_are_tokenized() -> None:
    """At most 8,192 tokens of 8 bytes each are 65,536 bytes; so many characters are tokenized whatever they are."""
    source: Any = SimpleNamespace(max_length=8192, vocabulary=SimpleNamespace(longest_piece=8))
    for text, refused in (("é" * 65_536, False), ("x" * 65_537, True)):
        with pytest.raises(InvalidInputError, match="characters") if refused else nullcontext():
            deciding._check_text(source, text)
    source.vocabulary.longest_piece = 16
    deciding._check_text(source, "x" * 65_537)
    for letters, refused in ((131_072, False), (131_073, True)):
        with pytest.raises(InvalidInputError, match="characters") if refused else nullcontext():
            deciding._check_text(source, "x" * letters)
    with pytest.raises(InvalidInputError, match="65,537 characters"):
        deciding._check_text(source, "é" * 65_537)


def test_as_many_tokens_as_one_inquiry_may_have() -> None:
    def tokenizer(text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [*range(65_535), int(text.split()[0])]}

    source: Any = SimpleNamespace(tokenizer=tokenizer, vocabulary=SimpleNamespace(longest_piece=8), max_length=None)
    assert len(deciding._prompt_ids(source, ["7"] * 16)) == 16  # all the same: tokenized, and not read again
    for texts in (["7"] * 17, ["7", "8"]):  # the first are tokenized too often, of the others one token more is read
        with pytest.raises(InvalidInputError, match=r"65,536 tokens together, or 1,048,576 with"):
            deciding._prompt_ids(source, texts)


@pytest.mark.parametrize(
    ("shares", "told", "meaning"),
    [
        ((1.0, 0.0, 0.0), 0.5, "share of the model's whole vocabulary"),  # an option without any probability
        ((0.7, 0.3), 0.1187, "one minus the entropy"),  # 1 - 0.6109 / ln 2
        ((0.7, 0.3), 0.2, "not said by the server"),
        ((1.0,), 0.8, "not said by the server"),  # no entropy and no share of one option is that
        ((1.0,), 0.5, "share of the model's whole vocabulary"),
    ],
)
def test_what_the_confidence_of_few_options_means(shares: tuple[float, ...], told: float, meaning: str) -> None:
    answer = Answer(Choice("Which?", TEXTS[: len(shares)]), shares, 0.5)
    assert meaning in block_beside({"confidence": told}, answer, {})["confidence_note"]
