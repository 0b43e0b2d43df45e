"""The costs of the proxy: streamed chats direct, through a bare proxy and through this one; and those of replies.

    python benchmarks/proxy.py                                  # 1, 50 and 200 clients, 40 tokens a stream
    python benchmarks/proxy.py --clients 400 --tokens 100 --gap 0.02
    python benchmarks/proxy.py delays                           # what it adds to the delay of 200 slow streams
    python benchmarks/proxy.py workers                          # tokens a second with 1, 2 and 4 processes
    python benchmarks/proxy.py replies                         # scoring of replies and streams in this process
    python benchmarks/proxy.py relay                            # the proxy's part of a stream in this process, profiled

Upstream, proxies and clients are processes of their own on this machine. The upstream writes prepared chunks with the
20 best tokens of the embedded model's vocabulary, as fast as it can or with a gap between tokens. The bare proxy passes
on what comes, with the same server and client libraries and nothing else; all streams of a round follow one another.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import json
import os
import pstats
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import httpx
import numpy as np
import typer
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from rich.console import Console
from rich.table import Table

from semtoken import TokenClusters, score_reply
from semtoken.support.almanac import almanac_clusters_path

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
            yield (
                b": %.6f\n\ndata: [DONE]\n\n" % time.monotonic()
            )  # a comment, by which clients know when the end was sent

        return StreamingResponse(stream(), media_type="text/event-stream")

    gc.collect()
    gc.freeze()  # else it stands still for 80 ms at times, and the streams go on in step, with all tokens at once
    uvicorn.run(server, port=port, log_level="error", timeout_keep_alive=120)


@app.command()
def bare(port: int, url: str) -> None:
    """A proxy that passes everything on and does nothing else."""
    sessions: list[aiohttp.ClientSession] = []

    async def passed_on(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if not sessions:
            sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        headers = {"content-type": "application/json"}
        async with sessions[0].request(scope["method"], url + scope["path"], data=body, headers=headers) as answer:
            kind = answer.headers["content-type"].encode()
            await send({"type": "http.response.start", "status": answer.status, "headers": [(b"content-type", kind)]})
            while piece := await answer.content.readany():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    uvicorn.run(passed_on, port=port, log_level="error", lifespan="off")


@dataclass(frozen=True)
class Streamed:
    """The times that the clients of one round saw."""

    seconds: float
    first: list[float]
    """Seconds to the first token of each stream."""
    whole: list[float]
    """Seconds of each stream."""


async def stream_once(client: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> tuple[float, float, float]:
    """Seconds to the first event, of the whole stream, and from its end at the upstream to its end here."""
    start, first, end = time.perf_counter(), 0.0, b""
    async with client.post(url, json=body) as answer:
        answer.raise_for_status()
        async for piece in answer.content.iter_any():
            first = first or time.perf_counter() - start
            end = (end + piece)[-60:]
    sent = re.search(rb": (\d+\.\d+)\n\ndata: \[DONE\]\n\n$", end)
    assert sent is not None, "a stream is not complete"
    return first, time.perf_counter() - start, time.monotonic() - float(sent.group(1))


async def measure(url: str, clients: int, rounds: int, more: dict[str, Any]) -> Streamed:
    """So many clients, each asking `rounds` times; `more` goes into each request."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True, **more}

    async def one_client(client: aiohttp.ClientSession) -> list[tuple[float, float, float]]:
        return [await stream_once(client, url, body) for _ in range(rounds)]

    async with many_connections() as client:
        await stream_once(client, url, body)
        start = time.perf_counter()
        times = [t for some in await asyncio.gather(*(one_client(client) for _ in range(clients))) for t in some]
        seconds = time.perf_counter() - start
    return Streamed(seconds, [first for first, _, _ in times], [whole for _, whole, _ in times])


def many_connections() -> aiohttp.ClientSession:
    """A client for any number of requests at one time."""
    connector = aiohttp.TCPConnector(limit=0)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120))


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block."""
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(20)


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start(stack: ExitStack, command: str, *arguments: object) -> tuple[str, int]:
    """The address, once it answers, and the process of a command of this script; its first argument is a port."""
    port = free_port()
    running = stack.enter_context(process(sys.executable, __file__, command, str(port), *map(str, arguments)))
    url = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            httpx.get(url)
            return url, running.pid
        except httpx.ConnectError:
            time.sleep(0.1)
    raise RuntimeError(f"the process {command!r} does not start")


def start_proxy(stack: ExitStack, url: str, workers: int = 1) -> tuple[str, int]:
    """The proxy's address and process."""
    command = (
        "-c",
        "from semtoken.cli import main; main()",
        "proxy",
        "--base-url",
        url,
        "--tokenizer",
        "almanac",
    )
    proxy = stack.enter_context(process(sys.executable, *command, "--port", "0", "--workers", str(workers)))
    assert proxy.stderr is not None
    found = re.search(r"http://[\d.]+:\d+", proxy.stderr.readline())
    assert found is not None
    return found.group(), proxy.pid


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processor_seconds_of_all(pid: int) -> float:
    """That of a process and of those that it has started."""
    children = [
        each for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()
    ]
    return processor_seconds(pid) + sum(processor_seconds_of_all(int(child)) for child in children)


Kinds = dict[str, tuple[str, dict[str, Any], int | None]]
"""The kinds of streams: where to ask, what for, and the process whose processor time counts."""


@contextmanager
def kinds_of_streams(tokens: int, gap: float) -> Iterator[Kinds]:
    """An upstream, a bare proxy and this one, as long as the block lasts."""
    top, chat = {"logprobs": True, "top_logprobs": 20}, "/v1/chat/completions"
    with ExitStack() as stack:
        direct, _ = start(stack, "upstream", tokens, gap)
        passing, passing_pid = start(stack, "bare", direct)
        proxied, pid = start_proxy(stack, direct)
        yield {
            "direct": (direct + chat, top, None),
            "bare proxy": (passing + chat, top, passing_pid),
            "passed on": (proxied + "/v1/passed", top, pid),
            "scored": (proxied + chat, {}, pid),
            "scored, client sees top 20": (proxied + chat, top, pid),
            "scored, values so far": (proxied + chat, {"semtoken": {}}, pid),
        }
        failures = "semtoken_proxy_failures_total"
        console.print(
            *(line for line in httpx.get(proxied + "/metrics").text.splitlines() if line.startswith(failures))
        )


@dataclass(frozen=True)
class Least:
    """The best of some rounds of one kind of stream."""

    streamed: Streamed
    cost: float | None
    """Processor time of its server, ms a token."""


def least_of(kinds: Kinds, clients: int, tokens: int, rounds: int, repeats: int) -> dict[str, Least]:
    """So many rounds of all kinds, in turn."""
    found: dict[str, Least] = {}
    for _ in range(repeats):
        for name, (url, more, server) in kinds.items():
            before = 0.0 if server is None else processor_seconds(server)
            streamed = asyncio.run(measure(url, clients, rounds, more))
            spent = None
            if server is not None:
                spent = 1000 * (processor_seconds(server) - before) / ((clients * rounds + 1) * tokens)
            least = found.get(name, Least(streamed, spent))
            cost = None if spent is None or least.cost is None else min(spent, least.cost)
            found[name] = Least(min(streamed, least.streamed, key=lambda one: one.seconds), cost)
    return found


def costs_beyond_bare() -> dict[str, float]:
    """Processor time that the proxy takes for a token beyond what a bare one takes, in ms, with 50 clients."""
    with kinds_of_streams(40, 0.0) as kinds:
        found = least_of(kinds, 50, 40, 3, 3)
    bare = found["bare proxy"].cost
    assert bare is not None
    return {name: one.cost - bare for name, one in found.items() if one.cost is not None}


@app.command()
def compare(
    clients: Annotated[list[int] | None, typer.Option(help="Clients at one time.")] = None,
    tokens: Annotated[int, typer.Option(help="Tokens a stream.")] = 40,
    rounds: Annotated[int, typer.Option(help="Streams a client.")] = 3,
    gap: Annotated[float, typer.Option(help="Seconds between the tokens of a stream.")] = 0.0,
    repeats: Annotated[int, typer.Option(help="Rounds of all kinds of streams; the least time of each counts.")] = 3,
) -> None:
    """Measure and print ratios."""
    heads = ("clients", "streams", "tokens/s", "ratio", "first, s", "whole, s", "CPU, ms/token", "beyond the bare one")
    table = Table(*heads)
    with kinds_of_streams(tokens, gap) as kinds:
        for count in clients or [1, 50, 200]:
            found = least_of(kinds, count, tokens, rounds, repeats)
            bare = found["bare proxy"]
            for name, one in found.items():
                costs = ("", "")
                if one.cost is not None and bare.cost is not None:
                    costs = (f"{one.cost:.3f}", f"{one.cost - bare.cost:+.3f}")
                table.add_row(
                    str(count),
                    name,
                    f"{count * rounds * tokens / one.streamed.seconds:,.0f}",
                    f"{bare.streamed.seconds / one.streamed.seconds:.2f}",
                    f"{statistics.median(one.streamed.first):.3f}",
                    f"{statistics.median(one.streamed.whole):.3f}",
                    *costs,
                )
        console.print(f"{tokens} tokens a stream, gap {gap} s, 20 log-probabilities a token")
        console.print(table)


async def lateness(url: str, clients: int, tokens: int, gap: float, more: dict[str, Any], seed: int) -> list[float]:
    """Seconds from the end of each stream at its upstream to its end here; the streams begin at random times."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True, **more}
    begins = np.random.default_rng(seed).uniform(0, tokens * gap, clients)

    async def one_client(client: aiohttp.ClientSession, begin: float) -> float:
        await asyncio.sleep(begin)
        return (await stream_once(client, url, body))[2]

    async with many_connections() as client:
        return await asyncio.gather(*(one_client(client, begin) for begin in begins.tolist()))


@app.command()
def delays(
    clients: Annotated[int, typer.Option(help="Streams at one time.")] = 200,
    tokens: Annotated[int, typer.Option(help="Tokens a stream.")] = 20,
    gap: Annotated[float, typer.Option(help="Seconds between the tokens of a stream.")] = 0.2,
    repeats: Annotated[int, typer.Option(help="Rounds of all kinds of streams, of half a minute each.")] = 6,
) -> None:
    """Measure how long after the upstream has sent it the end of a slow stream comes to its client.

    The proxy hands a token on when the next one comes, or after a quarter of a second, so that the last one can carry
    the score; the end of a stream waits for nothing. The bare proxy is measured twice: by how much it differs from
    itself tells what the machine can tell. The order is drawn again for each round, since a proxy that has just been
    asked finds the processor's caches full of its own.
    """
    asked = ("bare proxy", "bare proxy, again", "scored", "scored, values so far")
    found: dict[str, list[list[float]]] = {name: [] for name in asked}
    with kinds_of_streams(tokens, gap) as kinds:
        for seed in range(repeats + 1):
            for name in np.random.default_rng(seed).permutation(asked).tolist():
                url, more, _ = kinds[name.removesuffix(", again")]
                found[name].append(asyncio.run(lateness(url, clients, tokens, gap, more, seed)))
    late = {name: 1000 * np.array(rounds[1:]) for name, rounds in found.items()}  # [rounds, streams]
    draws = np.random.default_rng(0).integers(0, repeats, (1000, repeats))
    table = Table(
        "ends of streams, ms after they were sent", "p50", "p90", "p99", "p99 beyond the bare proxy", "95 % interval"
    )
    for name, several in late.items():
        beyond = [np.quantile(several[d], 0.99) - np.quantile(late["bare proxy"][d], 0.99) for d in draws]
        low, high = np.quantile(beyond, (0.025, 0.975))
        p50, p90, p99 = np.quantile(several, (0.5, 0.9, 0.99))
        difference = p99 - np.quantile(late["bare proxy"], 0.99)
        table.add_row(
            name, f"{p50:.1f}", f"{p90:.1f}", f"{p99:.1f}", f"{difference:+.1f}", f"{low:+.1f} to {high:+.1f}"
        )
    console.print(f"Quantiles of {repeats} rounds, after one that warms up.")
    console.print(f"{clients} streams at one time, {clients / gap:,.0f} tokens a second, load {os.getloadavg()[0]:.1f}")
    console.print(table)


@app.command()
def workers(
    clients: Annotated[int, typer.Option(help="Clients at one time.")] = 200,
    tokens: Annotated[int, typer.Option(help="Tokens a stream.")] = 40,
    repeats: Annotated[int, typer.Option(help="Rounds; the least time of each kind counts.")] = 3,
) -> None:
    """Tokens a second, as fast as they come, of a bare proxy and of this one with 1, 2 and 4 processes."""
    chat = "/v1/chat/completions"
    with ExitStack() as stack:
        direct, _ = start(stack, "upstream", tokens, 0.0)
        kinds = {"bare proxy": start(stack, "bare", direct)}
        kinds |= {f"scored, {n} worker{'s' * (n > 1)}": start_proxy(stack, direct, n) for n in (1, 2, 4)}
        rates: dict[str, float] = {}
        costs: dict[str, float] = {}
        for _ in range(repeats):
            for name, (url, pid) in kinds.items():
                top = {"logprobs": True, "top_logprobs": 20} if name == "bare proxy" else {}
                before = processor_seconds_of_all(pid)
                streamed = asyncio.run(measure(url + chat, clients, 1, top))
                cost = (processor_seconds_of_all(pid) - before) / ((clients + 1) * tokens)
                rates[name] = max(rates.get(name, 0.0), clients * tokens / streamed.seconds)
                costs[name] = min(costs.get(name, cost), cost)
    table = Table(f"{clients} clients", "tokens/s", "beside the bare proxy", "CPU, ms/token")
    for name, rate in rates.items():
        table.add_row(name, f"{rate:,.0f}", f"{rate / rates['bare proxy']:.2f}", f"{1000 * costs[name]:.3f}")
    console.print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, which clients and upstream share")
    console.print(table)


BUDGET = 0.1  # ms of processor time for a scored token with 20 log-probabilities


def payload_costs(repeats: int, tokens: int = 200) -> dict[str, float]:
    """Processor time of a token of replies of several kinds, in ms: the least of some runs, the kinds in turn."""
    from scoring import least_times  # with torch, which the servers of this script need not load

    clusters = TokenClusters.from_pretrained(almanac_clusters_path())
    stream = b"".join(chunk for _, chunk in prepared_chunks(tokens)) + b"data: [DONE]\n\n"
    chunks = [json.loads(chunk.removeprefix(b"data: ")) for _, chunk in prepared_chunks(tokens)]
    choices = [chunk["choices"][0] for chunk in chunks]
    message = {"role": "assistant", "content": "".join(choice["delta"].get("content", "") for choice in choices)}
    items = [item for choice in choices for item in (choice["logprobs"] or {"content": []})["content"]]
    choice = {"index": 0, "message": message, "logprobs": {"content": items}, "finish_reason": "stop"}
    text = json.dumps({"object": "chat.completion", "model": "m", "choices": [choice]})
    kinds: dict[str, Callable[[], Any]] = {
        "reply as text": lambda: score_reply(text, clusters),
        "reply as a dict": lambda: score_reply(json.loads(text), clusters),
        "stream": lambda: score_reply(stream, clusters),
        "json.loads of the reply": lambda: json.loads(text),
    }
    return {name: 1000 * taken / tokens for name, taken in least_times(kinds, repeats).items()}


@app.command()
def replies(repeats: Annotated[int, typer.Option(help="Runs of each kind; the least time counts.")] = 20) -> None:
    """Processor time of a token of a reply, beside reading its JSON."""
    found = payload_costs(repeats)
    table = Table("reply", "CPU, ms/token", "of the budget")
    for name, cost in found.items():
        table.add_row(name, f"{cost:.3f}", f"{cost / BUDGET:.2f}")
    console.print(table)


class ReadyAnswer:
    """An upstream's answer of which everything has come."""

    status, headers, encoding = 200, (), "identity"

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)

    async def piece(self) -> bytes:
        """The next piece."""
        return next(self._pieces, b"")


class SilentClient:
    """A client that takes everything."""

    async def begin(self, status: int, headers: Any) -> None:
        """Take the head."""

    async def write(self, piece: bytes) -> None:
        """Take a piece."""

    async def end(self) -> None:
        """Take the end."""


@app.command()
def relay(
    tokens: Annotated[int, typer.Option(help="Tokens of the stream.")] = 40,
    together: Annotated[int, typer.Option(help="Chunks that arrive together.")] = 4,
    repeats: Annotated[int, typer.Option(help="Runs; the least time counts.")] = 50,
    running: Annotated[bool, typer.Option(help="Ask for the values so far.")] = False,
    lines: Annotated[int, typer.Option(help="Functions of the profile to show.")] = 60,
) -> None:
    """Time of a token in the proxy without a network, and where it goes."""
    from semtoken.core.rules import ScoringRules
    from semtoken.core.scorer import scorer_for
    from semtoken.replies.formats.openai_choices import OpenAIChat
    from semtoken.web.limits import Workers
    from semtoken.web.proxy.asking import read_request
    from semtoken.web.proxy.distributions import LearnedDistributions
    from semtoken.web.proxy.metrics import ProxyMetrics
    from semtoken.web.proxy.scoring import AnswerScoring, ReplyScorer
    from semtoken.web.proxy.settings import ProxySettings
    from semtoken.web.proxy.stream import relay_stream
    from semtoken.web.proxy.upstream import Request as UpstreamRequest
    from semtoken.web.proxy.upstream import Upstream

    chunks = [*(chunk for _, chunk in prepared_chunks(tokens)), b"data: [DONE]\n\n"]
    pieces = [b"".join(chunks[i : i + together]) for i in range(0, len(chunks), together)]
    settings = ProxySettings("http://127.0.0.1:1")
    clusters = TokenClusters.from_pretrained(almanac_clusters_path())
    distributions = LearnedDistributions(Upstream(settings), settings.distribution)
    scorer = scorer_for(clusters, ScoringRules())
    scoring = AnswerScoring(scorer, settings, ProxyMetrics(), Workers(2, 64), distributions)
    request = UpstreamRequest("POST", b"/v1/chat/completions", [], b"")
    messages = [{"role": "user", "content": "hi"}]  # whose words are not new in an answer
    body = {"model": "m", "messages": messages, "stream": True} | ({"semtoken": {}} if running else {})
    asked = read_request(OpenAIChat, json.dumps(body).encode())
    assert asked is not None

    async def once() -> float:
        start = time.process_time()
        reply_scorer = ReplyScorer(scoring, asked, request, settings.top_logprobs, None)
        await relay_stream(ReadyAnswer(pieces), SilentClient(), reply_scorer)  # type: ignore[arg-type]
        return time.process_time() - start

    async def several() -> None:
        least = min([await once() for _ in range(repeats)])
        console.print(f"{1e6 * least / tokens:.1f} microseconds of processor time a token")
        with cProfile.Profile() as profile:
            for _ in range(repeats):
                await once()
        pstats.Stats(profile).sort_stats("cumulative").print_stats("semtoken", lines)

    asyncio.run(several())


if __name__ == "__main__":
    named = len(sys.argv) > 1 and sys.argv[1] in (
        "upstream",
        "bare",
        "compare",
        "replies",
        "relay",
        "delays",
        "workers",
    )
    app() if named else typer.run(compare)
