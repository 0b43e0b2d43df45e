"""`semtoken serve` with many clients at once against one client: tokens a second, in one run.

    python benchmarks/serve.py                            # the embedded model
    python benchmarks/serve.py --model smollm2 --clients 50 --requests 1
    python benchmarks/serve.py --temperature 2            # longer answers, by chance
    python benchmarks/serve.py --model smollm2 --long-prompt 500   # what running streams wait
    python benchmarks/serve.py --model smollm2 --long-prompt 500 --decision   # the same for a typed question
    python benchmarks/serve.py --beside FOLDER            # another checkout's server, in turn with this one's

The server is a process of its own, as its clients are elsewhere too. Every client sends its requests one after the
other; a stream's first token is timed where it comes. The processor seconds are those of the server.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import aiohttp
import typer

from semtoken.support.almanac import load_questions


@dataclass(frozen=True)
class Load:
    """What some clients got."""

    clients: int
    tokens: int
    seconds: float
    processor_seconds: float
    """Of the server."""
    first_token: float
    """Median seconds until the first token of an answer."""
    last_first_token: float
    """The longest of these waits."""

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds

    @property
    def processor_rate(self) -> float:
        """Tokens a processor second of the server."""
        return self.tokens / self.processor_seconds


def _serve(model: str, clusters: str | None, pipe: Any) -> None:
    """The server's process: says its port, and then its processor seconds as often as it is asked."""
    import threading

    from semtoken import ScoredModel
    from semtoken.web.running import listen, server_for
    from semtoken.web.serve.app import serve_app
    from semtoken.web.serve.engine import Engine
    from semtoken.web.serve.service import Offer

    engine = Engine(ScoredModel.from_pretrained(model, clusters=clusters))
    engine.warm_up()
    listener = listen("127.0.0.1", 0)  # the command's own: on others asyncio may wait to fill packets
    server = server_for(serve_app(engine, Offer(model)), grace=1, strict=False)
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    pipe.send(listener.getsockname()[1])
    while pipe.recv():
        pipe.send(time.process_time())


@contextmanager
def server(model: str = "almanac", clusters: str | None = None) -> Iterator[tuple[str, Any]]:
    """A server in a process of its own: its address, and a pipe that answers with its processor seconds."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(model, clusters, there), daemon=True)
    process.start()
    yield f"http://127.0.0.1:{here.recv()}", here
    here.send(False)
    process.join()


async def _client(http: Any, url: str, asked: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """(Tokens, seconds to the first) of each answer."""
    found = []
    for one in asked:
        began, first, tokens = time.perf_counter(), 0.0, 0
        async with http.post(url + "/v1/completions", json=one, raise_for_status=True) as reply:
            async for line in reply.content:
                if line.startswith(b"data: {") and b'"finish_reason":null' in line:
                    first = first or time.perf_counter() - began
                    tokens += 1
        found.append((tokens, first))
    return found


async def _clients(url: str, asked: list[list[dict[str, Any]]]) -> tuple[list[tuple[int, float]], float]:
    """The answers of clients who ask at the same time, and how long it took."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        began = time.perf_counter()
        found = await asyncio.gather(*(_client(http, url, requests) for requests in asked))
        return [answer for one in found for answer in one], time.perf_counter() - began


def measure(url: str, pipe: Any, clients: int, requests: int, max_tokens: int = 32, temperature: float = 0.0) -> Load:
    """Have clients ask at the same time."""
    prompts = [question.prompt() for question in load_questions("test")][: clients * requests]
    asked = [
        {"prompt": prompt, "max_tokens": max_tokens, "stream": True, "temperature": temperature, "seed": number}
        for number, prompt in enumerate(prompts)
    ]
    pipe.send(True)
    before = pipe.recv()
    answers, seconds = asyncio.run(_clients(url, [asked[i::clients] for i in range(clients)]))
    pipe.send(True)
    waits = sorted(first for _, first in answers)
    tokens = sum(tokens for tokens, _ in answers)
    return Load(clients, tokens, seconds, pipe.recv() - before, waits[len(waits) // 2], waits[-1])


async def _gaps(url: str, words: int, max_tokens: int, seed: int, decision: bool) -> tuple[list[float], list[float]]:
    """Seconds between the tokens of a stream: before somebody else's long prompt comes, and while it is read."""
    story = "Once upon a time there was a king who"
    asked = {"prompt": story, "max_tokens": max_tokens, "stream": True, "temperature": 1.0, "seed": seed}
    # Another prompt for every seed: what two prompts have in common is read once.
    text = f"{seed} " * words
    path, long = "/v1/completions", {"prompt": text, "max_tokens": 1, "temperature": 0.0}
    if decision:
        questions = {"so": {"type": "noul", "instructions": "Is it so?"}}
        path, long = "/v1/systemone", {"state": text, "questions": questions}
    before: list[float] = []
    meanwhile: list[float] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def read() -> None:
            async with http.post(url + path, json=long, raise_for_status=True) as reply:
                await reply.read()

        other: asyncio.Task[None] | None = None
        async with http.post(url + "/v1/completions", json=asked, raise_for_status=True) as reply:
            last, waiting = None, False
            async for line in reply.content:
                if not line.startswith(b"data: {") or b'"finish_reason":null' not in line:
                    continue
                now = time.perf_counter()
                if last is not None and (other is None or waiting):
                    (before if other is None else meanwhile).append(now - last)
                last, waiting = now, other is not None and not other.done()  # as a wait begins, not as it ends
                if len(before) == 10 and other is None:
                    other, waiting = asyncio.create_task(read()), True
        if other is not None:
            await other
    return before, meanwhile


def stalls(url: str, words: int, streams: int = 8, max_tokens: int = 64, *, decision: bool = False) -> list[float]:
    """Worst wait of running streams for a token while a long prompt is read, each in medians of its waits before.

    `decision`: the prompt is the state of a typed question.
    """
    found = []
    for seed in range(4 * streams):
        before, meanwhile = asyncio.run(_gaps(url, words, max_tokens, seed, decision))
        if len(before) == 10 and meanwhile:  # of a stream that ended before, nothing is known
            found.append(max(meanwhile) / sorted(before)[5])
        if len(found) == streams:
            break
    return found


def compared(
    model: str = "almanac",
    clusters: str | None = None,
    *,
    clients: int = 50,
    requests: int = 4,
    alone: int = 20,
    max_tokens: int = 32,
    temperature: float = 0.0,
    rounds: int = 3,
) -> tuple[Load, Load]:
    """One client and many, in turn; of each the round with the most tokens a second."""
    with server(model, clusters) as (url, pipe):
        measure(url, pipe, clients, 1, max_tokens, temperature)  # warms up
        found = [
            [measure(url, pipe, *who, max_tokens, temperature) for who in ((1, alone), (clients, requests))]
            for _ in range(rounds)
        ]
    one, many = (max(loads, key=lambda load: load.rate) for loads in zip(*found, strict=True))
    return one, many


_OTHER = "import serve, sys; from multiprocessing.connection import Connection as Pipe; "
_OTHER += "serve._serve(sys.argv[1], sys.argv[2] or None, Pipe(int(sys.argv[3])))"


@contextmanager
def other_server(checkout: Path, model: str, clusters: str | None = None) -> Iterator[tuple[str, Any]]:
    """As `server`, with the code of another checkout of this project and the packages of this one."""
    here, there = multiprocessing.Pipe()
    folders = f"{checkout / 'benchmarks'}{os.pathsep}{checkout / 'src'}"
    process = subprocess.Popen(
        [sys.executable, "-c", _OTHER, model, clusters or "", str(there.fileno())],
        env=os.environ | {"PYTHONPATH": folders},
        pass_fds=[there.fileno()],
    )
    there.close()  # or nobody hears that the process has ended
    yield f"http://127.0.0.1:{here.recv()}", here
    here.send(False)
    process.wait()


def beside(
    checkout: Path, model: str, clusters: str | None, clients: int, requests: int, most: int, temperature: float, n: int
) -> list[tuple[Load, Load]]:
    """The load of many clients on this server and on that of another checkout, in turn, `n` times."""

    def load(url: str, pipe: Any) -> Load:
        return measure(url, pipe, clients, requests, most, temperature)

    with server(model, clusters) as here, other_server(checkout, model, clusters) as there:
        for one in (here, there):
            measure(*one, clients, 1, most, temperature)  # warms up
        return [(load(*here), load(*there)) for _ in range(n)]


def show_beside(pairs: list[tuple[Load, Load]]) -> None:
    """Print each round, and the ratio of tokens a processor second: its median, least and greatest."""
    print(f"{'':8} {'tokens':>8} {'tokens/s':>9} {'tokens a processor s':>21} {'first token':>12} {'the last one':>13}")
    for pair in pairs:
        for name, load in zip(("here", "beside"), pair, strict=True):
            print(
                f"{name:8} {load.tokens:8} {load.rate:9.1f} {load.processor_rate:21.1f} {load.first_token:10.3f} s "
                f"{load.last_first_token:11.3f} s"
            )
    ratios = sorted(here.processor_rate / there.processor_rate for here, there in pairs)
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    print(f"Here are {median(ratios):.2f} times the tokens a processor second (median of {len(ratios)}; {spread}).")


def main(
    model: Annotated[str, typer.Option(help="As in `semtoken serve`.")] = "almanac",
    clusters: Annotated[str | None, typer.Option(help="As in `semtoken serve`.")] = None,
    clients: Annotated[int, typer.Option(help="Clients at once.")] = 50,
    requests: Annotated[int, typer.Option(help="Requests of each of them.")] = 4,
    alone: Annotated[int, typer.Option(help="Requests of the one client.")] = 20,
    max_tokens: Annotated[int, typer.Option(help="Longest answer.")] = 32,
    temperature: Annotated[float, typer.Option(help="Of the answers.")] = 0.0,
    rounds: Annotated[int, typer.Option(help="Times both are measured; the best time of each counts.")] = 3,
    long_prompt: Annotated[int, typer.Option(help="Words of a prompt that comes into running streams.")] = 0,
    decision: Annotated[bool, typer.Option(help="The prompt is the state of a typed question.")] = False,
    other: Annotated[Path | None, typer.Option("--beside", help="Another checkout, with as many clients.")] = None,
) -> None:
    """Print both and their ratio; or how long running streams wait while a long prompt is read; or this server beside
    that of another checkout.
    """
    if other is not None:
        show_beside(beside(other, model, clusters, clients, requests, max_tokens, temperature, rounds))
        return
    if long_prompt:
        with server(model, clusters) as (url, _):
            stalls(url, long_prompt, 2, decision=decision)  # warms up
            waits = sorted(stalls(url, long_prompt, decision=decision))
        print(f"While a prompt of {long_prompt} words is read, the worst wait of {len(waits)} running streams")
        middle, least, most = waits[len(waits) // 2], waits[0], waits[-1]
        print(f"for a token is {middle:.1f} times the median before it (median; {least:.1f} to {most:.1f}).")
        return
    loads = compared(
        model,
        clusters,
        clients=clients,
        requests=requests,
        alone=alone,
        max_tokens=max_tokens,
        temperature=temperature,
        rounds=rounds,
    )
    print(
        f"{'clients':>8} {'tokens':>8} {'seconds':>8} {'tokens/s':>9} {'processor ms a token':>21} {'first token':>12}"
    )
    for load in loads:
        cost = 1000 * load.processor_seconds / load.tokens
        print(
            f"{load.clients:8} {load.tokens:8} {load.seconds:8.2f} {load.rate:9.1f} {cost:21.2f} "
            f"{load.first_token:10.3f} s"
        )
    one, many = loads
    print(f"{clients} clients get {many.rate / one.rate:.1f} times the tokens a second of one.")


if __name__ == "__main__":
    typer.run(main)
