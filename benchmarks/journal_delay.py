"""What a journal adds to the delay of a reply: `semtoken proxy` with and without one, in turn, many clients at once.

    python benchmarks/journal_delay.py                             # 200 clients, 100 replies a second in all; a minute
    python benchmarks/journal_delay.py --seconds 500 --proxies 4   # narrower intervals
    python benchmarks/journal_delay.py --seconds 200 --no-postgres # SQLite alone
    python benchmarks/journal_delay.py --rate 40 --seconds 120     # with more room to spare
    python benchmarks/journal_delay.py --rate 0                    # as fast as they come: the proxies are always busy

Four kinds of proxy stand before one upstream: two without a journal, whose difference tells what the machine can tell,
one with a journal in SQLite, and one with PostgreSQL, if its server is installed (Debian's package). There are several
proxies of each kind (`--proxies`), since those that do the same differ from one start to the next; each round is for
another one. Upstream, proxies and the clients are processes of their own on this machine. The upstream gives a prepared
reply of 20 tokens with the 20 best of each. The clients ask one of the proxies for a round, and then the next, so that
other work on the machine slows all alike; the order is drawn again for each round, since a proxy that has just been
asked finds the processor's caches full of its own. Each client asks once, at a random time of a round, whose length
follows from the rate: two seconds with 200 clients. Delays are of whole replies. Intervals resample rounds.

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
from datetime import date
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import aiohttp
import numpy as np
import typer
import uvicorn
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from proxy import free_port, prepared_chunks, process, processor_seconds

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.guarantees.databases import can_run_postgres, postgres

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
    given = ("--base-url", f"http://127.0.0.1:{upstream_port}", "--tokenizer", "almanac")
    with process(*SEMTOKEN, "proxy", *given, *options, "--port", "0") as running:
        assert running.stderr is not None
        for line in running.stderr:
            if found := re.search(r"http://[\d.]+:\d+", line):
                yield found.group(), running.pid
                return
        raise SystemExit("the proxy does not start")


class Clients:
    """Clients of one proxy, who keep their connections."""

    def __init__(self, url: str, number: int) -> None:
        self._url, self._number = url, number
        timeout = aiohttp.ClientTimeout(total=120)
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)

    async def ask(self, rate: float, seed: int) -> list[float]:
        """Seconds of each reply; every client asks once, at a random time of the round if there is a rate."""
        length = self._number / rate if rate else 0.0
        times = np.sort(np.random.default_rng(seed).uniform(0, length, self._number))
        start = time.perf_counter()
        return await asyncio.gather(*(self._one(start + at, f"Question {i} of {seed}?") for i, at in enumerate(times)))

    async def _one(self, at: float, question: str) -> float:
        asked = {"model": "m", "messages": [{"role": "user", "content": question}]}
        await asyncio.sleep(at - time.perf_counter())
        begun = time.perf_counter()
        async with self.session.post(self._url + PATH, json=asked) as answer:
            body = await answer.read()
        taken = time.perf_counter() - begun
        assert answer.status == 200 and b'"sequence_uncertainty"' in body, body[:200]
        return taken


Proxies = dict[str, list[tuple[str, int]]]
"""Address and process of each proxy, by its kind."""
Delays = dict[str, list[list[float]]]
"""Seconds of the replies of each round, by the kind of proxy."""


async def measure(proxies: Proxies, clients: int, rate: float, seconds: float) -> tuple[Delays, dict[str, float]]:
    """Rounds of all kinds in turn until the time is over, two of each proxy at least; and processor seconds of a
    reply.
    """
    found: Delays = {kind: [] for kind in proxies}
    asking = {kind: [Clients(url, clients) for url, _ in some] for kind, some in proxies.items()}
    for one in chain(*asking.values()):
        await one.ask(rate, 0)  # opens the connections and warms the proxy up
    before = {kind: sum(processor_seconds(pid) for _, pid in some) for kind, some in proxies.items()}
    end = time.perf_counter() + seconds
    kinds, each = list(proxies), len(next(iter(proxies.values())))
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("Rounds", total=seconds)
        while time.perf_counter() < end or len(found[kinds[-1]]) < 2 * each:
            number = len(found[kinds[0]])
            for kind in np.random.default_rng(number).permutation(kinds).tolist():
                found[kind].append(await asking[kind][number % each].ask(rate, number + 1))
            progress.update(task, completed=seconds - (end - time.perf_counter()))
    for one in chain(*asking.values()):
        await one.session.close()
    more = {kind: sum(processor_seconds(pid) for _, pid in some) - before[kind] for kind, some in proxies.items()}
    return found, {kind: more[kind] / (len(rounds) * clients) for kind, rounds in found.items()}


def compare(
    clients: Annotated[int, typer.Option(help="Clients at one time.")] = 200,
    rate: Annotated[float, typer.Option(help="Replies a second, all together; 0: as fast as they come.")] = 100.0,
    seconds: Annotated[float, typer.Option(help="How long to measure; starting takes some more.")] = 45.0,
    proxies: Annotated[int, typer.Option(min=1, help="Proxies of each kind.")] = 1,
    texts: Annotated[bool, typer.Option(help="Keep texts.")] = True,
    with_postgres: Annotated[bool, typer.Option("--postgres/--no-postgres", help="Measure PostgreSQL, too.")] = True,
    output: Annotated[Path | None, typer.Option(help="A CSV file for the table.")] = None,
) -> None:
    """Measure and print quantiles with and without a journal, and their difference."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        journals: dict[str, list[str | None]] = {
            "none": [None] * proxies,
            "none, again": [None] * proxies,
            "SQLite": [f"{folder}/{i}.db" for i in range(proxies)],
        }
        if with_postgres and can_run_postgres():
            server = stack.enter_context(postgres(lasting=True))
            journals["PostgreSQL"] = [server.database() for _ in range(proxies)]
        elif with_postgres:
            console.print("PostgreSQL is not measured: its server is not installed (apt-get install postgresql).")
        port = free_port()
        stack.enter_context(process(sys.executable, __file__, "upstream", str(port), "20"))
        running: Proxies = {kind: [] for kind in journals}
        for i, kind in ((i, kind) for i in range(proxies) for kind in journals):
            url = journals[kind][i]
            keep = [] if url is None else ["--journal", url, "--journal.spool", f"{folder}/{kind}{i}"]
            keep += ["--journal.texts=true"] if url is not None and texts else []
            running[kind].append(stack.enter_context(proxy(port, *keep)))
        found, spent = asyncio.run(measure(running, clients, rate, seconds))
        how = f"{rate:g} replies a second" if rate else "as fast as they come"
        rounds = f"{len(found['none'])} rounds of each kind, of {proxies} proxies"
        show(found, spent, output, f"{clients} clients, {how}, {rounds}")


def show(found: Delays, spent: dict[str, float], output: Path | None, title: str) -> None:
    """Print the table, and write it; milliseconds."""
    rows = [("quantile", "without", "journal", "with", "difference", "95 % interval")]
    load = os.getloadavg()[0]
    without = np.array(found["none"]) * 1e3  # [rounds, replies]
    spent = {name: 1e3 * seconds for name, seconds in spent.items()}
    draws = np.random.default_rng(0).integers(0, len(without), (1000, len(without)))
    for name in list(found)[1:]:
        kept = np.array(found[name]) * 1e3
        for q in QUANTILES:
            low, high = (float(np.quantile(one, q)) for one in (without, kept))
            ends = np.quantile([np.quantile(kept[d], q) - np.quantile(without[d], q) for d in draws], (0.025, 0.975))
            interval = f"{ends[0]:+.2f} to {ends[1]:+.2f}"
            rows.append((f"p{100 * q:.0f}", f"{low:.2f}", name, f"{high:.2f}", f"{high - low:+.2f}", interval))
        more = spent[name] - spent["none"]
        rows.append(("processor", f"{spent['none']:.2f}", name, f"{spent[name]:.2f}", f"{more:+.2f}", "a reply"))
    table = Table(*rows[0], title=f"{title}, ms; load {load:.1f} on {os.cpu_count()} cores")
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)
    if output is not None:
        with output.open("w", newline="") as file:
            run = f"{date.today()}, load {load:.1f}, {title.replace(',', ';')}"
            csv.writer(file, lineterminator="\n").writerows([(*rows[0], "run"), *((*row, run) for row in rows[1:])])


if __name__ == "__main__":
    if sys.argv[1:2] == ["upstream"]:
        upstream(int(sys.argv[2]), int(sys.argv[3]))
    else:
        typer.run(compare)
