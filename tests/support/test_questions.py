"""The question in every form in which people save what a model was asked, by hand."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from semtoken.models.prompts import PROMPTS
from semtoken.support.questions import question_of
from tests.rows import each

CHAT = [
    {"role": "user", "content": "Who was first?"},
    {"role": "assistant", "content": "Ada."},
    {"role": "user", "content": "And second?"},
    {"role": "assistant", "content": "The"},
]
FEW_SHOT = "Question:\nWho?\nAnswer:\nAda.\n\nQuestion:\nAnd second?\nAnswer:\n"
LAST = "Question:\nAnd second?\nAnswer:"


@each(
    ("value", "question"),
    [
        (CHAT, "And second?"),
        ({"question": "Why?", "messages": CHAT}, "Why?"),
        *(({field: CHAT}, "And second?") for field in ("messages", "input", "inputs", "prompt")),
        ({"contents": [{"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}]}, "a\nb"),
        ({"contents": [{"parts": [{"text": "a"}]}]}, "a"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}]}]}, "a"),
        (
            {"messages": [[{"id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": "a"}}]]},
            "a",
        ),
        ({"prompt": FEW_SHOT}, LAST),
        ({"inputs": "Examples.\r\n\r\nWho?\n\nAnswer:"}, "Who?"),
        ({"input": "One.\n\nTwo?"}, "One.\n\nTwo?"),
        ({"text": "Examples.\n\nWho?", "sampling_params": {}}, "Who?"),
        ({"text": "no request"}, None),
        ({"prompt": [5, 6, 7]}, None),
        ({"messages": [{"role": "system", "content": "Be brief."}]}, None),
        *(({field: {"messages": CHAT}}, "And second?") for field in ("request", "body", "modelInput", "kwargs")),
        ({"request_body": json.dumps({"messages": CHAT})}, "And second?"),
        ({"body": "{broken"}, None),
        ({"messages": json.dumps(CHAT), "response": "{}"}, "And second?"),
        ({"messages": "{}", "proxy_server_request": {"messages": CHAT}}, "And second?"),
        ({"request": json.dumps({"messages": json.dumps(CHAT)})}, "And second?"),
        *(({field: json.dumps(CHAT)}, "And second?") for field in ("input", "inputs", "prompt")),
        ({"input": json.dumps({"messages": CHAT})}, "And second?"),
        ({"prompt": '["One?", "Two?"]'}, '["One?", "Two?"]'),
        ({"request": {"request": {"request": {"messages": CHAT}}}}, "And second?"),
        ({"request": {"request": {"request": {"request": {"messages": CHAT}}}}}, None),
        ("And second?", None),
        (None, None),
    ],
)
def test_the_question_in_every_form(value: Any, question: str | None) -> None:
    assert question_of(value) == question


def test_each_of_several_prompts_has_its_own_question() -> None:
    request = {"prompt": ["One?", "Two?"], "n": 2}
    assert [question_of(request, choice) for choice in range(5)] == ["One?", "One?", "Two?", "Two?", None]


@given(st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp", "Zs")), min_size=1))
def test_the_question_of_a_prompt_with_examples_is_in_what_is_found(question: str) -> None:
    found = question_of({"prompt": PROMPTS["nq"].prompt(question)})
    assert found is not None and "governors and presidents" not in found
    assert found.startswith("Question:\n") and found.endswith("\nAnswer:")
