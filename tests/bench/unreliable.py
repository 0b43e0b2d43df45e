"""An OpenAI-compatible server on loopback that fails one call in three and sometimes says odd things."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

KEY = "sk-very-secret-0123456789"


def verdict(message: str) -> str:
    """What the server says of a user's message, decided by nothing but the message."""
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

    def app(self) -> FastAPI:
        """The application."""
        app = FastAPI()

        async def cut_off() -> AsyncIterator[bytes]:
            yield b'{"choices": ['
            raise ConnectionResetError("on purpose")

        def failure(number: int) -> Any:
            kind = number // max(self.fail_every, 1) % 3
            if kind == 0:
                return JSONResponse({"error": {"message": "trouble"}}, 500)
            if kind == 1:
                return JSONResponse({"error": {"message": "slower"}}, 429, headers={"retry-after-ms": "30"})
            return StreamingResponse(cut_off(), headers={"content-length": "1000"}, media_type="application/json")

        @app.post("/v1/chat/completions")
        async def complete(request: Request) -> Any:
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
                return failure(number)
            self.answered.append(message)
            return completion(verdict(message), body["model"])

        return app


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
    """The server in a thread, on a free port of the loopback."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what it does on purpose is no news
    config = uvicorn.Config(server.app(), host="127.0.0.1", port=0, log_config=None, access_log=False)
    engine = uvicorn.Server(config)
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    while not engine.started:
        thread.join(0.01)
        assert thread.is_alive(), "the server did not start"
    port = engine.servers[0].sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}/v1"
    try:
        yield server
    finally:
        engine.should_exit = True
        thread.join(10)
