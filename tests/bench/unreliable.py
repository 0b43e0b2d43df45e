"""An OpenAI-compatible server on loopback that fails one call in three and sometimes says odd things."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.decisions.servers import answering

KEY = "sk-very-secret-0123456789"


def verdict(message: str) -> str:
    """The server's verdict on a user's message, decided by nothing but the message."""
    head, _, answer = message.partition("\n\nProposed Answer:\n")
    references = head.partition("\n\nReference Answer(s):\n")[2].split("\n")
    answer = answer.removesuffix("\n\nTrue/False:")
    if "odd" in answer:
        return "I would say that it is True."
    return "`True'" if answer in references else " False."


class Unreliable:
    """The server's memory and moods; `url` is set while it runs."""

    url: str

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        """Every request that came, failed ones too."""
        self.answered: list[str] = []
        """User's messages that got a verdict."""
        self.keys: set[str | None] = set()
        self.under_way = self.most_under_way = 0
        self.fail_every = 3
        """0: never."""
        self.refuse: tuple[int, dict[str, Any]] | None = None
        """Status and body of every reply."""
        self.poisoned = ""
        """Messages with this text always fail."""
        self.delay = 0.0

    async def complete(self, request: Request) -> Response:
        """The reply to a request."""
        body = await request.json()
        self.bodies.append(body)
        self.keys.add(request.headers.get("authorization"))
        number = len(self.bodies)
        message = body["messages"][-1]["content"]
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(self.delay)
        finally:
            self.under_way -= 1
        if self.refuse is not None:
            return JSONResponse(self.refuse[1], self.refuse[0])
        if self.poisoned and self.poisoned in message:
            return JSONResponse({"error": {"message": "poisoned"}}, 500)
        if self.fail_every and number % self.fail_every == 0:
            return failure(number // self.fail_every)
        self.answered.append(message)
        return JSONResponse(completion(verdict(message), body["model"]))


def failure(number: int) -> Response:
    """One of three kinds in turn: an error, a request to wait, and a reply that is cut off."""

    async def cut_off() -> AsyncIterator[bytes]:
        yield b'{"choices": ['
        raise ConnectionResetError("on purpose")

    if number % 3 == 0:
        return JSONResponse({"error": {"message": "trouble"}}, 500)
    if number % 3 == 1:
        return JSONResponse({"error": {"message": "slower"}}, 429, headers={"retry-after-ms": "30"})
    return StreamingResponse(cut_off(), headers={"content-length": "1000"}, media_type="application/json")


def completion(text: str, model: str) -> dict[str, Any]:
    """A reply as OpenAI gives it."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 2,
            "total_tokens": 102,
            "prompt_tokens_details": {"cached_tokens": 60},
        },
    }


@contextmanager
def running(server: Unreliable) -> Iterator[Unreliable]:
    """The server on a free port of the loopback."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what it does on purpose is no news
    with answering(server.complete, "/v1/chat/completions") as url:
        server.url = f"{url}/v1"
        yield server
