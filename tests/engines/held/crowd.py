"""Two hundred requests at once through the proxy in front of an engine: each answer is its own, to the byte.

A second proxy has a threshold and shows accepted answers only: each must be decided by its own number.

Between the proxy and the engine a relay notes what the engine sent for each request, since an engine that computes
many requests together does not send the same bytes twice. What a client gets, without our block, has to be those bytes.

    python -m tests.engines.held.crowd llama-server --model model.gguf --program llama-server
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import numpy as np
import typer
from aiohttp import web

from semtoken import Calibrator, Threshold, score_reply
from semtoken.core.rules import ScoringRules
from semtoken.guarantees import Fingerprint
from semtoken.guarantees.journal.store import Journal
from tests.engines.held.requests import CHAT
from tests.engines.held.starting import ENGINES, KEY, SERVED, started
from tests.engines.servers import running

READ_AGAIN = 1e-6
"""By how much a number may differ when a model reads the same answer in another batch."""
WITHHELD = "I do not know."
ADDED = ',"semtoken":'
TIMEOUT = aiohttp.ClientTimeout(total=3600)
BASE: dict[str, Any] = {"max_tokens": 12, "temperature": 0, "logprobs": True, "top_logprobs": 20}


def request(number: int) -> dict[str, Any]:
    """A request that no other client sends; every second one is a stream."""
    question = f"What is {number} plus {number % 7}? Answer in one sentence."
    stream = {"stream": True, "stream_options": {"include_usage": True}} if number % 2 else {}
    return (
        BASE
        | stream
        | {"messages": [{"role": "user", "content": question}], "user": f"client-{number}", "model": SERVED}
    )


class Relay:
    """Passes everything on to the engine and keeps the bytes that it sent to each user."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self.sent: dict[str, bytes] = {}

    async def __call__(self, asked: web.Request) -> web.StreamResponse:
        body = await asked.read()
        user = json.loads(body).get("user", "") if body else ""
        async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
            sent = KEY | {"content-type": asked.headers.get("content-type", "application/json")}
            async with session.request(asked.method, self._engine + asked.path_qs, data=body, headers=sent) as answer:
                passed = web.StreamResponse(status=answer.status)
                passed.content_type = answer.content_type
                await passed.prepare(asked)
                self.sent[user] = b""
                async for piece in answer.content.iter_any():
                    self.sent[user] += piece
                    await passed.write(piece)
                return passed

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """The base URL of the relay."""
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self)
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        await runner.cleanup()


async def ask(session: aiohttp.ClientSession, url: str, number: int) -> tuple[int, bytes]:
    async with session.post(url + CHAT, json=request(number)) as answer:
        return answer.status, await answer.read()


def block_of(got: bytes) -> dict[str, Any] | None:
    """The final block of a reply or a stream."""
    events = re.findall(rb"^data: (\{.*\})$", got, re.MULTILINE) or [got]
    blocks = [choice.get("semtoken") for text in events for choice in json.loads(text)["choices"]]
    return next((block for block in reversed(blocks) if block and block.get("final", True)), None)


def without_blocks(got: bytes) -> bytes:
    """The bytes that the client got, without those that the proxy added."""
    text, rest = "", got.decode()
    while (found := rest.find(ADDED)) >= 0:
        _, end = json.JSONDecoder().raw_decode(rest, found + len(ADDED))
        text, rest = text + rest[:found], rest[end:]
    return (text + rest).encode()


def verdicts(status: int, got: bytes, sent: bytes) -> dict[str, int]:
    """Checks of one client: its answer, its bytes, and the number that its own reply gives."""
    if status != 200:
        return {f"status {status}": 1}
    block = block_of(got)
    own = score_reply(sent.decode())[0].sequence_uncertainty
    same_number = block is not None and abs(block["sequence_uncertainty"] - own) < 1e-9
    return {"answered": 1, "same bytes": without_blocks(got) == sent, "same number": same_number}


async def crowd(engine: str, folder: Path, clients: int) -> dict[str, Any]:
    """Ask all at once and count what holds; then leave in mid-stream and see how soon the engine is free."""
    relay, journal = Relay(engine), folder / "journal.db"
    async with relay.running() as url, aiohttp.ClientSession(timeout=TIMEOUT, connector=_connector()) as session:
        command = ["-c", "from semtoken.cli import main; main()", "proxy", "--base-url", url]
        command += ["--limits.read-seconds", str(TIMEOUT.total)]
        with running([*command, "--journal", f"sqlite:///{journal}"], folder / "proxy.log") as proxy:
            found = await asyncio.gather(*(ask(session, proxy, number) for number in range(clients)))
            free = await left(session, proxy)
        held: Counter[str] = Counter()
        for number, (status, got) in enumerate(found):
            held.update(verdicts(status, got, relay.sent.get(f"client-{number}", b"")))
        blocks = [block_of(got) for status, got in found if status == 200]
        save_calibrator([block["sequence_uncertainty"] for block in blocks if block is not None], folder / "calibrator")
        options = ["--calibrator", str(folder / "calibrator"), "--calibration.abstain-text", WITHHELD]
        with running([*command, *options], folder / "deciding.log") as proxy:
            decided = await asyncio.gather(*(ask(session, proxy, number) for number in range(0, clients, 2)))
    held.update(shown_as_decided(json.loads(got), threshold_of(folder / "calibrator")) for _, got in decided)
    kept = Journal.open(f"sqlite:///{journal}", create=False)
    held["entries"] = sum(1 for _ in kept.entries())
    kept.close()
    return dict(held) | {"seconds until free": round(free, 1)}


def save_calibrator(uncertainties: list[float], folder: Path) -> None:
    """A calibrator whose threshold lies among these answers: the surer half is called right, the others wrong."""
    scores = np.log1p(-np.asarray(uncertainties))
    correct = scores > np.median(scores)
    origin = Fingerprint(signature=ScoringRules().signature, scores="top-k", k=BASE["top_logprobs"])
    threshold = Threshold.fit(scores, correct, alpha=0.3, fingerprint=origin)
    Calibrator.fit(scores, correct, fingerprint=origin).save(folder, threshold)


def threshold_of(folder: Path) -> float:
    threshold = Calibrator.load(folder).threshold
    assert threshold is not None and threshold.min_log_score is not None
    return -threshold.min_log_score


def shown_as_decided(reply: dict[str, Any], threshold: float) -> str:
    """Whether the answer is shown if its number is at the threshold or above, and only then.

    The threshold is the number of one of the answers, which may be read again with another last digit.
    """
    [choice] = reply["choices"]
    number, shown = -math.log1p(-choice["semtoken"]["sequence_uncertainty"]), choice["message"]["content"] != WITHHELD
    if not math.isclose(number, threshold, rel_tol=READ_AGAIN) and shown != (number <= threshold):
        return "decided wrongly"
    return "accepted" if shown else "withheld"


async def left(session: aiohttp.ClientSession, proxy: str) -> float:
    """Time of a short request whose predecessors left their long streams."""

    async def leave() -> None:
        body = request(1) | {"max_tokens": 400, "user": "gone"}
        async with session.post(proxy + CHAT, json=body) as answer:
            await answer.content.readany()

    await asyncio.gather(*(leave() for _ in range(16)))
    start = time.monotonic()
    await ask(session, proxy, -2)
    return time.monotonic() - start


def _connector() -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(limit=0, force_close=True)


def main(
    engine: Annotated[str, typer.Argument(help=f"One of {', '.join(ENGINES)}.")],
    model: Annotated[Path, typer.Option(help="What the engine serves.")],
    program: Annotated[Path | None, typer.Option(help="What starts the engine.")] = None,
    behind: Annotated[Path | None, typer.Option(help="llama-server, for a gateway in front of it.")] = None,
    clients: Annotated[int, typer.Option(min=60, help="How many ask at once.")] = 200,
) -> None:
    """Ask an engine through the proxy many times at once and print what held."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with started(ENGINES[engine], model, program, folder / "engine.log", behind) as url:
            found = asyncio.run(crowd(url, folder, clients))
    print(f"{engine}: of {clients} clients at once {found}", file=sys.stderr)
    if any(found.get(name) != clients for name in ("answered", "same bytes", "same number")):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
