"""The recipe for Gradio, as it stands on the page, in an application that its client asks."""

from __future__ import annotations

import gradio as gr
import pytest
from gradio_client import Client

import semtoken as st
from tests.integrations.recipes import recipe
from tests.integrations.recordings import gateway


def test_the_client_gets_the_tokens_with_their_doubt() -> None:
    [answer] = st.score_reply(gateway("serve")["whole"], "almanac")

    def show() -> object:
        found = {"gr": gr, "answer": answer}
        lines = recipe("HighlightedText").splitlines()
        exec("\n".join([*lines[:-1], f"component = {lines[-1]}"]), found)
        return found["component"]

    with gr.Blocks() as blocks:
        shown = gr.HighlightedText()
        gr.Button().click(show, None, shown, api_name="show")
    try:
        _, url, _ = blocks.launch(prevent_thread_lock=True, server_name="127.0.0.1", quiet=True, share=False)
        told = Client(url, verbose=False).predict(api_name="/show")
    finally:
        blocks.close()
    value = told.get("value", told) if isinstance(told, dict) else told
    assert "".join(piece["token"] for piece in value).strip() == answer.text.strip()
    doubts = [piece["class_or_confidence"] for piece in value]
    assert doubts == pytest.approx([1 - token.agreeing_probability for token in answer.tokens])
