"""A model in this process that answers requests: what it is asked."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from semtoken import ScoredModel
from semtoken.errors import BackendError, InvalidInputError
from semtoken.integrations.local import LocalChat
from tests.rows import each


def test_a_model_with_a_chat_template_is_asked_through_it(almanac: ScoredModel) -> None:
    messages = [{"role": "user", "content": "What is the capital of Peru?"}]
    # not by the name that has a prompt format of its own
    with closing(LocalChat(almanac, "some/model")) as chat:
        reply = asyncio.run(chat.reply({"messages": messages, "max_tokens": 8}))
    [answer], [bare] = almanac.generate([messages], 8), almanac.generate([messages[0]["content"]], 8)
    [choice] = reply["choices"]
    assert choice["message"]["content"].strip() == answer.text.strip() != bare.text.strip()
    assert choice["semtoken"]["sequence_uncertainty"] == pytest.approx(answer.sequence_uncertainty, abs=1e-5)


def test_a_closed_model_refuses_requests_and_finishes_those_before(almanac: ScoredModel) -> None:
    """A request after `close` was waited for without an end."""
    chat = LocalChat(almanac, "almanac")
    request = {"messages": [{"role": "user", "content": "What is the capital of Peru?"}], "max_tokens": 8}

    async def around_the_close() -> list[Any]:
        before = asyncio.create_task(chat.reply(request))
        await asyncio.sleep(0.01)
        end = asyncio.create_task(asyncio.to_thread(chat.close))
        late = [chat.reply(request) for _ in range(3)]
        return list(await asyncio.gather(before, end, *late, return_exceptions=True))

    reply, _, *late = asyncio.run(asyncio.wait_for(around_the_close(), 60))
    assert reply["choices"][0]["finish_reason"] in ("stop", "length")
    assert all(isinstance(one, BackendError | dict) for one in late)  # some may have come before the close
    with pytest.raises(BackendError, match="it was closed"):
        asyncio.run(asyncio.wait_for(chat.reply(request), 10))
    chat.close()


@each(
    ("given", "why"),
    [
        *[(odd, "JSON can hold") for odd in (None, "x", {"temperature": np.float32(0.5)}, {"messages": b"x"})],
        ({"messages": [{"role": "user", "content": "Who?"}], "n": 0}, "Invalid 'n'"),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused(almanac: ScoredModel, given: Any, why: str) -> None:
    with closing(LocalChat(almanac, "almanac")) as chat, pytest.raises(InvalidInputError, match=why):
        asyncio.run(chat.reply(given))
