"""What the proxy costs: streamed chats direct and through it, at several numbers of clients at one time.

    python benchmarks/proxy.py                                  # 1, 50 and 200 clients, 40 tokens a stream
    python benchmarks/proxy.py --clients 400 --tokens 100 --gap 0.02

Upstream, proxy and clients are processes of their own on this machine. The upstream writes prepared chunks with the
20 best tokens of the embedded model's vocabulary, as fast as it can or with a gap between tokens. Streams are measured
direct, passed on by the proxy untouched, and scored; the first two without log-probabilities and with them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import typer
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from rich.console import Console
from rich.table import Table

from semtoken import TokenClusters
from semtoken.almanac import almanac_clusters_path

console = Console()
app = typer.Typer()


def prepared_chunks(tokens: int) -> list[tuple[bytes, bytes]]:
    """The chunks of one stream, without and with log-probabilities."""
    vocabulary = TokenClusters.from_pretrained(almanac_clusters_path()).vocabulary
    ordinary = np.flatnonzero(~vocabulary.special & ~vocabulary.broken)
    random = np.random.default_rng(0)
    chunks = []
    for _ in range(tokens):
        ids = random.choice(ordinary, 20, replace=False)
        logs = np.sort(np.log(random.dirichlet(np.full(20, 0.3)) * 0.99 + 1e-6))[::-1]
        top = [
            {"token": vocabulary.texts[i], "logprob": float(p), "bytes": list(vocabulary.pieces[i])}
            for i, p in zip(ids, logs, strict=True)
        ]
        text = vocabulary.pieces[ids[0]].decode()
        logprobs = {"content": [top[0] | {"top_logprobs": top}]}
        chunks.append((_chunk({"content": text}, None, None), _chunk({"content": text}, logprobs, None)))
    last = _chunk({}, None, "stop")
    return [*chunks, (last, last)]


def _chunk(delta: Any, logprobs: Any, finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


@app.command()
def upstream(port: int, tokens: int, gap: float) -> None:
    """The server behind the proxy."""
    chunks = prepared_chunks(tokens)
    server = FastAPI()

    @server.post("/v1/chat/completions")
    @server.post("/v1/passed")
    async def chat(request: Request) -> StreamingResponse:
        asked = bool((await request.json()).get("logprobs"))

        async def stream() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk[asked]
                await asyncio.sleep(gap)
            yield b"data: [DONE]\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    uvicorn.run(server, port=port, log_level="error")


@dataclass(frozen=True)
class Measured:
    """What the clients of one round saw."""

    seconds: float
    first: list[float]
    """Seconds to the first token of each stream."""
    whole: list[float]
    """Seconds of each stream."""


async def stream_once(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> tuple[float, float]:
    """Time of the first event and of the whole stream."""
    start, first, end = time.perf_counter(), 0.0, b""
    async with client.stream("POST", url, json=body) as answer:
        answer.raise_for_status()
        async for piece in answer.aiter_raw():
            first = first or time.perf_counter() - start
            end = (end + piece)[-16:]
    assert end.endswith(b"data: [DONE]\n\n"), "a stream is not complete"
    return first, time.perf_counter() - start


async def measure(url: str, clients: int, rounds: int, logprobs: bool) -> Measured:
    """So many clients, each asking `rounds` times."""
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    body |= {"logprobs": True, "top_logprobs": 20} if logprobs else {}

    async def one_client(client: httpx.AsyncClient) -> list[tuple[float, float]]:
        return [await stream_once(client, url, body) for _ in range(rounds)]

    async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=None)) as client:
        await stream_once(client, url, body)
        start = time.perf_counter()
        times = [t for some in await asyncio.gather(*(one_client(client) for _ in range(clients))) for t in some]
        seconds = time.perf_counter() - start
    return Measured(seconds, [first for first, _ in times], [whole for _, whole in times])


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block."""
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(20)


def start_upstream(stack: ExitStack, port: int, tokens: int, gap: float) -> str:
    """The upstream's address, once it answers."""
    stack.enter_context(process(sys.executable, __file__, "upstream", str(port), str(tokens), str(gap)))
    url = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            httpx.get(url)
            return url
        except httpx.ConnectError:
            time.sleep(0.1)
    raise RuntimeError("the upstream does not start")


def start_proxy(stack: ExitStack, url: str) -> tuple[str, int]:
    """The proxy's address and process."""
    command = (
        "-c",
        "from semtoken.cli import main; main()",
        "proxy",
        "--upstream",
        url,
        "--clusters",
        str(almanac_clusters_path()),
    )
    proxy = stack.enter_context(process(sys.executable, *command, "--port", "0"))
    assert proxy.stderr is not None
    found = re.search(r"http://[\d.]+:\d+", proxy.stderr.readline())
    assert found is not None
    return found.group(), proxy.pid


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@app.command()
def compare(
    clients: Annotated[list[int] | None, typer.Option(help="Clients at one time.")] = None,
    tokens: Annotated[int, typer.Option(help="Tokens a stream.")] = 40,
    rounds: Annotated[int, typer.Option(help="Streams a client.")] = 3,
    gap: Annotated[float, typer.Option(help="Seconds between the tokens of a stream.")] = 0.0,
    port: Annotated[int, typer.Option(help="Port of the upstream.")] = 8765,
) -> None:
    """Measure and print ratios."""
    table = Table("clients", "streams", "tokens/s", "ratio", "first, s", "whole, s", "added, s", "proxy CPU, ms/token")
    with ExitStack() as stack:
        direct = start_upstream(stack, port, tokens, gap)
        proxied, pid = start_proxy(stack, direct)
        chat, passed = "/v1/chat/completions", "/v1/passed"
        for count in clients or [1, 50, 200]:
            base: Measured | None = None
            for name, url, logprobs in (
                ("direct", direct + chat, False),
                ("direct, top 20", direct + chat, True),
                ("passed on", proxied + passed, False),
                ("passed on, top 20", proxied + passed, True),
                ("scored", proxied + chat, False),
            ):
                before = processor_seconds(pid)
                found = asyncio.run(measure(url, count, rounds, logprobs))
                used = (processor_seconds(pid) - before) / ((count * rounds + 1) * tokens)
                base = base or found
                table.add_row(
                    str(count),
                    name,
                    f"{count * rounds * tokens / found.seconds:,.0f}",
                    f"{base.seconds / found.seconds:.2f}",
                    f"{statistics.median(found.first):.3f}",
                    f"{statistics.median(found.whole):.3f}",
                    f"{statistics.median(found.whole) - statistics.median(base.whole):+.3f}",
                    f"{1000 * used:.2f}" if url.startswith(proxied) else "",
                )
        console.print(f"{tokens} tokens a stream, gap {gap} s; medians")
        console.print(table)
        figures = httpx.get(proxied + "/metrics").text.splitlines()
        wanted = (
            "semtoken_proxy_added_seconds_sum",
            "semtoken_proxy_added_seconds_count",
            "semtoken_proxy_failures_total",
        )
        console.print(*(line for line in figures if line.startswith(wanted)), sep="\n")


if __name__ == "__main__":
    app() if len(sys.argv) > 1 and sys.argv[1] in ("upstream", "compare") else typer.run(compare)
