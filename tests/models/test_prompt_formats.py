"""Prompts, against the paper's texts written out in full."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.errors import InvalidInputError
from semtoken.models.prompts import PROMPTS, PromptFormat, how_to_ask, prompt_format
from semtoken.support.almanac import load_questions

NQ = """Answer these questions:

Question:
who makes up the state council in russia
Answer:
governors and presidents

Question:
when does real time with bill maher come back
Answer:
November 9, 2018

Question:
where did the phrase american dream come from
Answer:
the mystique regarding frontier life

Question:
what do you call a group of eels
Answer:
bed

Question:
who wrote the score for mission impossible fallout
Answer:
Lorne Balfe

Question:
who is it
Answer:
"""
TQA = """Answer these questions:

Question:
In Scotland a bothy/bothie is a?
Answer:
House

Question:
who is it
Answer:
"""
WQ = """Answer these questions:

Question:
where was the ancient region of mesopotamia?
Answer:
Middle East

Question:
who is it
Answer:
"""


@pytest.mark.parametrize(("name", "text", "length"), [("nq", NQ, 460), ("tqa", TQA, 111), ("wq", WQ, 129)])
def test_the_papers_prompts_character_for_character(name: str, text: str, length: int) -> None:
    format = PROMPTS[name]
    assert format.prompt("who is it") == text
    assert len(text) == length  # as counted in the published text
    assert format.stop_at_newline and not format.chat


@given(st.sampled_from(["nq", "tqa", "wq", "almanac"]), st.text())
def test_prompts_are_nfkd_and_end_with_the_question_to_answer(name: str, question: str) -> None:
    prompt = PROMPTS[name].prompt(question)
    assert isinstance(prompt, str)
    assert unicodedata.is_normalized("NFKD", prompt)
    assert prompt.endswith(f"Question:\n{unicodedata.normalize('NFKD', question)}\nAnswer:\n")


def test_the_almanac_is_asked_in_the_form_it_was_trained_on() -> None:
    for question in load_questions("dev")[:20]:
        assert PROMPTS["almanac"].prompt(question.question) == question.prompt()
        assert how_to_ask("almanac", None, raw=False).prompt(question.question) == question.prompt()


def test_normalization_decomposes_and_can_be_left_out() -> None:
    assert PromptFormat("{question}").prompt("½ é") == "1\N{FRACTION SLASH}2 e\N{COMBINING ACUTE ACCENT}"
    assert PromptFormat("{question}", normalization=None).prompt("½ é") == "½ é"


def test_chat_formats_give_messages() -> None:
    own = prompt_format("Be brief: {question}", chat=True, stop_at_newline=False)
    assert own.prompt("Who?") == [{"role": "user", "content": "Be brief: Who?"}]
    messages = PROMPTS["chat"].prompt("Who?")
    assert isinstance(messages, list)
    [message] = messages
    assert message["role"] == "user" and message["content"].endswith("Who?")


def test_braces_in_questions_and_templates_are_left_alone() -> None:
    own = prompt_format("{a} {question}|{question} {}")
    assert own.prompt("what is {question} in {0}?") == "{a} what is {question} in {0}?|what is {question} in {0}? {}"


def test_a_template_from_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes("Q: {question}\r\nA:\n".encode("utf-8-sig"))
    assert prompt_format(path).prompt("Who?") == "Q: Who?\nA:\n"
    assert prompt_format(str(path)) == prompt_format(path)
    assert prompt_format("nq") is PROMPTS["nq"]


def test_what_is_no_prompt_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("Answer:\n")
    with pytest.raises(InvalidInputError, match=r"holds no {question}"):
        prompt_format(path)
    with pytest.raises(
        InvalidInputError, match=r"'nqq' is none of nq, tqa, wq, almanac, chat, holds no {question}, and is"
    ):
        prompt_format("nqq")
    path.write_bytes(b"\xff{question}")
    with pytest.raises(InvalidInputError, match="is no file of text"):
        prompt_format(path)
