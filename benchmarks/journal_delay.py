"""What a journal adds to the delay of a reply: `semtoken proxy` with and without one, in turn, many clients at once.

    python benchmarks/journal_delay.py                             # 200 clients, 100 replies a second in all
    python benchmarks/journal_delay.py --rate 0 --rounds 5         # as fast as they come: the proxy is always busy
    python benchmarks/journal_delay.py --server                    # the journal in PostgreSQL, started for the while

Upstream, both proxies and the clients are processes of their own on this machine. The upstream gives a prepared reply
of 20 tokens with the 20 best of each. The clients ask one of the proxies for a round, and then the other, so that other
work on the machine slows both alike; which one begins changes from pair to pair. Each client asks at random times of a
round, whose length follows from the rate: four seconds with 200 clients that ask twice. Delays are those of whole
replies. The interval resamples pairs of rounds. The whole takes two minutes.

A client that asks again at once (`--rate 0`) waits for all others: its delay is the time that one reply keeps the
processor busy times the number of clients, and grows with what the journal takes of the processor in that proportion.
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import aiohttp
import numpy as np
import typer
import uvicorn
from rich.console import Console
from rich.progress import track
from rich.table import Table

from proxy import free_port, prepared_chunks, process, processor_seconds
from semtoken.almanac import almanac_clusters_path

console = Console(width=110)
PATH = "/v1/chat/completions"
SEMTOKEN = (sys.executable, "-c", "from semtoken.cli import main; main()")
QUANTILES = (0.5, 0.9, 0.99)


def prepared_reply(tokens: int) -> bytes:
    """A whole reply with log-probabilities."""
    chunks = [json.loads(chunk.removeprefix(b"data: "))["choices"][0] for _, chunk in prepared_chunks(tokens)]
    text = "".join(choice["delta"].get("content", "") for choice in chunks)
    items = [item for choice in chunks for item in (choice["logprobs"] or {"content": []})["content"]]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "logprobs": {"content": items},
        "finish_reason": "stop",
    }
    reply = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps(reply, separators=(",", ":")).encode()


def upstream(port: int, tokens: int) -> None:
    """The server behind the proxies: the same bytes for everybody."""
    reply = prepared_reply(tokens)
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(reply)).encode())]

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        while scope["type"] == "http" and (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": reply})

    uvicorn.run(answer, port=port, log_level="error", lifespan="off", timeout_keep_alive=120)


@contextmanager
def proxy(upstream_port: int, *options: str) -> Iterator[tuple[str, int]]:
    """A proxy's address and process."""
    given = ("--upstream", f"http://127.0.0.1:{upstream_port}", "--clusters", str(almanac_clusters_path()))
    with process(*SEMTOKEN, "proxy", *given, *options, "--port", "0") as running:
        assert running.stderr is not None
        for line in running.stderr:
            if found := re.search(r"http://[\d.]+:\d+", line):
                yield found.group(), running.pid
                return
        raise SystemExit("the proxy does not start")


async def one_round(url: str, clients: int, replies: int, rate: float, seed: int) -> list[float]:
    """Seconds of each reply; every client asks `replies` times, at random times of the round if there is a rate."""
    length = clients * replies / rate if rate else 0.0
    times = np.sort(np.random.default_rng(seed).uniform(0, length, (clients, replies)))
    start = time.perf_counter()
    scored: list[bool] = []

    async def one_client(number: int) -> list[float]:
        found = []
        for i in range(replies):
            await asyncio.sleep(start + times[number, i] - time.perf_counter())
            question = {"role": "user", "content": f"Question {number} of {seed}.{i}?"}
            begun = time.perf_counter()
            async with session.post(url + PATH, json={"model": "m", "messages": [question]}) as answer:
                body = await answer.read()
            found.append(time.perf_counter() - begun)
            assert answer.status == 200, body[:200]
            scored.append(b'"semtoken"' in body and b'"uncertainty"' in body)
        return found

    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        several = await asyncio.gather(*(one_client(number) for number in range(clients)))
    if not all(scored):
        console.print(f"{scored.count(False)} of {len(scored)} replies of a round came without a score.")
    return [seconds for one in several for seconds in one]


def compare(
    clients: Annotated[int, typer.Option(help="Clients at one time.")] = 200,
    rate: Annotated[float, typer.Option(help="Replies a second, all together; 0: as fast as they come.")] = 100.0,
    rounds: Annotated[int, typer.Option(help="Pairs of rounds.")] = 12,
    replies: Annotated[int, typer.Option(help="Replies for each client in a round.")] = 2,
    server: Annotated[bool, typer.Option(help="The journal in PostgreSQL (Debian's package).")] = False,
    texts: Annotated[bool, typer.Option(help="Keep texts.")] = True,
    output: Annotated[Path | None, typer.Option(help="A CSV file for the table.")] = None,
) -> None:
    """Measure and print quantiles with and without a journal, and their difference."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        url = f"{folder}/journal.db"
        if server:
            sys.path.insert(0, str(Path(__file__).parents[1]))
            from tests.journal.databases import postgres

            url = stack.enter_context(postgres(lasting=True)).database()
        port = free_port()
        stack.enter_context(process(sys.executable, __file__, "upstream", str(port), "20"))
        keep = ("--journal", url, "--journal-spool", f"{folder}/spool", *(["--journal-texts"] if texts else []))
        kinds = {
            "without": stack.enter_context(proxy(port)),
            "with": stack.enter_context(proxy(port, *keep)),
        }
        for address, _ in kinds.values():
            asyncio.run(one_round(address, 1, 20, 0.0, 0))  # warm
        before = {name: processor_seconds(pid) for name, (_, pid) in kinds.items()}
        found: dict[str, list[list[float]]] = {"without": [], "with": []}
        for number in track(range(rounds), "Pairs of rounds", console=console, transient=True):
            for name in ("without", "with") if number % 2 else ("with", "without"):
                found[name].append(asyncio.run(one_round(kinds[name][0], clients, replies, rate, number)))
        answered = rounds * clients * replies
        spent = {name: 1e3 * (processor_seconds(pid) - before[name]) / answered for name, (_, pid) in kinds.items()}
        asked = f"{rate:g} replies a second" if rate else "as fast as they come"
        database = "PostgreSQL" if server else "SQLite"
        show(found, spent, output, f"{database}, {clients} clients, {asked}, {answered:,} replies of each")


def show(found: dict[str, list[list[float]]], spent: dict[str, float], output: Path | None, title: str) -> None:
    """Print the table, and write it."""
    without, kept = (np.array(found[name]) * 1e3 for name in ("without", "with"))  # [rounds, replies], ms
    rows = [("quantile", "without, ms", "with, ms", "difference, ms", "95 % interval")]
    generator = np.random.default_rng(0)
    draws = generator.integers(0, len(without), (1000, len(without)))
    for q in QUANTILES:
        low, high = (float(np.quantile(one, q)) for one in (without, kept))
        resampled = [np.quantile(kept[d], q) - np.quantile(without[d], q) for d in draws]
        ends = np.quantile(resampled, (0.025, 0.975))
        rows.append(
            (f"p{100 * q:.0f}", f"{low:.2f}", f"{high:.2f}", f"{high - low:+.2f}", f"{ends[0]:+.2f} to {ends[1]:+.2f}")
        )
    more = spent["with"] - spent["without"]
    rows.append(("processor", f"{spent['without']:.2f}", f"{spent['with']:.2f}", f"{more:+.2f}", "a reply"))
    table = Table(*rows[0], title=f"{title}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)
    if output is not None:
        with output.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["upstream"]:
        upstream(int(sys.argv[2]), int(sys.argv[3]))
    else:
        typer.run(compare)
