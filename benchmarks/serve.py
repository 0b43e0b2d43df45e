"""`semtoken serve` with many clients at once against one client: tokens a second, in one run.

    python benchmarks/serve.py                            # the embedded model
    python benchmarks/serve.py --model smollm2 --clients 50 --requests 1

Every client sends its requests one after the other; a stream's first token is timed where it comes.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from dataclasses import dataclass
from typing import Annotated

import httpx
import typer
import uvicorn

from semtoken import STC
from semtoken.almanac import load_questions
from semtoken.web.serve.app import serve_app
from semtoken.web.serve.engine import Engine
from semtoken.web.serve.service import Offer


@dataclass(frozen=True)
class Load:
    """What some clients got."""

    clients: int
    tokens: int
    seconds: float
    first_token: float
    """Median seconds until the first token of an answer."""

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


async def _client(http: httpx.AsyncClient, prompts: list[str], max_tokens: int) -> list[tuple[int, float]]:
    """(Tokens, seconds to the first) of each answer."""
    found = []
    for prompt in prompts:
        began, first, tokens = time.perf_counter(), None, 0
        asked = {"prompt": prompt, "max_tokens": max_tokens, "stream": True}
        async with http.stream("POST", "/v1/completions", json=asked) as reply:
            reply.raise_for_status()
            async for line in reply.aiter_lines():
                if line.startswith("data: {") and '"finish_reason":null' in line.replace(" ", ""):
                    first = first or time.perf_counter() - began
                    tokens += 1
        found.append((tokens, first or 0.0))
    return found


async def measure(url: str, clients: int, requests: int, max_tokens: int) -> Load:
    """Have clients ask at the same time."""
    prompts = [question.prompt() for question in load_questions("test")][: clients * requests]
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as http:
        began = time.perf_counter()
        found = await asyncio.gather(
            *(_client(http, prompts[i * requests : (i + 1) * requests], max_tokens) for i in range(clients))
        )
        seconds = time.perf_counter() - began
    answers = [answer for one in found for answer in one]
    waits = sorted(first for _, first in answers)
    return Load(clients, sum(tokens for tokens, _ in answers), seconds, waits[len(waits) // 2])


def main(
    model: Annotated[str, typer.Option(help="As in `semtoken serve`.")] = "almanac",
    clusters: Annotated[str | None, typer.Option(help="As in `semtoken serve`.")] = None,
    clients: Annotated[int, typer.Option(help="Clients at once.")] = 50,
    requests: Annotated[int, typer.Option(help="Requests of each of them.")] = 2,
    alone: Annotated[int, typer.Option(help="Requests of the one client.")] = 10,
    max_tokens: Annotated[int, typer.Option(help="Longest answer.")] = 32,
) -> None:
    """Print both and their ratio."""
    engine = Engine(STC.from_pretrained(model, clusters=clusters))
    engine.warm_up()
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(serve_app(engine, Offer(model)), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    one = asyncio.run(measure(url, 1, alone, max_tokens))
    many = asyncio.run(measure(url, clients, requests, max_tokens))
    server.should_exit = True
    thread.join()
    print(f"{'clients':>8} {'tokens':>8} {'seconds':>8} {'tokens/s':>9} {'first token':>12}")
    for load in (one, many):
        print(f"{load.clients:8} {load.tokens:8} {load.seconds:8.2f} {load.rate:9.1f} {load.first_token:10.3f} s")
    print(f"{clients} clients get {many.rate / one.rate:.1f} times the tokens a second of one.")


if __name__ == "__main__":
    typer.run(main)
