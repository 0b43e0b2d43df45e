"""Parts of the recorded replies of engines: tool calls among the raw steps, pieces of characters, grammars."""

from __future__ import annotations

import math

import pytest

import semtoken as st
from semtoken.errors import BackendError
from tests.replies.made import chat_reply, entry
from tests.replies.recorded import clusters, recording


def test_the_tool_call_of_a_vllm_server() -> None:
    """vLLM lists the raw steps, markup included; its arguments are `{}`."""
    reply = recording("vllm-chat-tool").reply
    [answer] = st.score_reply(reply, clusters(), segment="tool_call")
    [name] = answer.parts(by="tool_call")
    assert (name.path, name.text, name.kind) == ("/name", "weather", "tool_name")
    items = reply["choices"][0]["logprobs"]["content"]
    spelled = "".join(item["token"] for item in items)
    own = []  # log-probabilities of the items that spell the name, found by their place in all the text
    place = 0
    for item in items:
        if spelled.index("weather") <= place < spelled.index("weather") + len("weather"):
            own.append(item["logprob"])
        place += len(item["token"])
    assert name.product == pytest.approx(math.exp(sum(own)))
    given = [(c["function"]["name"], c["function"]["arguments"]) for c in reply["choices"][0]["message"]["tool_calls"]]
    [again] = answer.parts(by="tool_call", calls=given)
    assert (again.start, again.end, again.confidence) == (name.start, name.end, name.confidence)


def test_a_tool_call_without_log_probabilities_is_refused() -> None:
    """OpenAI gives none for tool calls."""
    with pytest.raises(BackendError, match="no log-probabilities"):
        st.score_reply(recording("openai-chat-tool").reply, clusters(), segment="tool_call")


def test_a_part_after_pieces_of_characters_has_its_own_tokens() -> None:
    """OpenAI names pieces "\\xc3"; packages that count characters of names are off by three for each."""
    reply = recording("openai-chat-awkward").reply
    [answer] = st.score_reply(reply, clusters())
    text = answer.text
    places = [(i, i + 1) for i, character in enumerate(text) if not character.isspace()]
    items = reply["choices"][0]["logprobs"]["content"]
    for part in answer.parts(by=lambda _: places, equality="exact"):
        spelled = b"".join(bytes(items[i]["bytes"] or b"") for i in part.tokens)
        assert part.text.encode() in spelled or not spelled
        assert part.product == pytest.approx(math.exp(sum(items[i]["logprob"] for i in part.tokens)), rel=1e-6)
    whole = answer.parts(by=lambda said: [(0, len(said))], equality="exact")[0]
    assert set(whole.tokens) == {i for part in answer.parts(by=lambda _: places) for i in part.tokens} | {
        i for i in whole.tokens if answer.tokens[i].text.isspace()
    }


def test_tokens_without_a_choice_are_counted_where_a_grammar_was_at_work() -> None:
    items = [
        entry(token, value, top_logprobs=tops)
        for token, value, tops in (
            ("t", 0.0, [{"token": "a", "logprob": -9999.0, "bytes": [97]}]),
            ("o", -0.5, [{"token": "a", "logprob": -0.93, "bytes": [97]}]),
        )
    ]
    [answer] = st.score_reply(chat_reply("to", items), clusters())
    assert "constrained" in {flag.code for flag in answer.flags}
    [part] = answer.parts(by="word", equality="exact")
    assert (part.forced, part.tokens) == (1, (0, 1))
    assert part.mean == pytest.approx(math.exp(-0.5))
