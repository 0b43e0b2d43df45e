"""A model in this process that answers requests: what it is asked."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("transformers", reason="transformers, which runs the embedded model, is missing")
pytest.importorskip("fastapi", reason="what semtoken serve needs is missing")


def test_a_model_with_a_chat_template_is_asked_through_it() -> None:
    from semtoken import ScoredModel
    from semtoken.integrations.local import LocalChat

    stc = ScoredModel.from_pretrained("almanac", dtype="float32")
    messages = [{"role": "user", "content": "What is the capital of Peru?"}]
    chat = LocalChat(stc, "some/model")  # not by the name that has a prompt format of its own
    try:
        reply = asyncio.run(chat.reply({"messages": messages, "max_tokens": 8}))
    finally:
        chat.close()
    [answer], [bare] = stc.generate([messages], 8), stc.generate([messages[0]["content"]], 8)
    [choice] = reply["choices"]
    assert choice["message"]["content"].strip() == answer.text.strip() != bare.text.strip()
    assert choice["semtoken"]["sequence_uncertainty"] == pytest.approx(answer.sequence_uncertainty, abs=1e-5)
