"""Requests to `semtoken serve` as people start it: alone, and then among many others and clients that leave.

Lengths are mixed, prompts and seeds come again. Whoever else is there, an answer is the one that the request gets
alone: the same text, and numbers that differ by rounding only. docs/serving.md says what rounding can do: a greedy
token may change where two are as likely up to it, and a draw where its random number lies between two tokens.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from semtoken.support.almanac import PROMPT, load_questions
from tests.hostile.outcomes import Outcome, case_random
from tests.hostile.upstream import asked_together
from tests.hostile.watch import WatchedServer
from tests.web.test_proxy_load import SEMTOKEN

AT_ONCE = 40
ROUNDING = 2e-5
"""How far a number may be from that of the request alone."""
TIE = 1e-4
"""Log-probabilities of two tokens that rounding may exchange."""
DRAWS = 0.002
"""Share of drawn answers that rounding may change."""
ALIKE = 12
"""So many requests in a row have one prompt, half of them."""


@dataclass(frozen=True)
class Asked:
    """A request."""

    path: str
    body: dict[str, Any]
    leaves_after: float | None
    """Seconds after which the client is gone; None: it stays."""

    @property
    def draws(self) -> bool:
        """Whether probability decides its tokens."""
        return "temperature" in self.body


@dataclass
class MarkedAnswer:
    """The answer to a request, with the numbers of all its choices."""

    status: int = 0
    texts: list[str] = field(default_factory=list)
    uncertainties: list[float] = field(default_factory=list)
    tokens: list[list[dict[str, Any]]] = field(default_factory=list)
    """Items of the log-probabilities."""


class Plan:
    """Every request of a campaign, by its number."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._questions = [one.question for one in load_questions("test")]

    def asked(self, number: int) -> Asked:
        """A request; some of them are like others."""
        rng = case_random(self._seed, "serving", number)
        alike = case_random(self._seed, "serving prompt", number // ALIKE if rng.random() < 0.5 else -number)
        body: dict[str, Any] = {"model": "almanac", **self._about(alike), "max_tokens": rng.choice((1, 2, 5, 20, 60))}
        if rng.random() < 0.5:
            body |= {"temperature": rng.choice((0.3, 1.0, 1.5)), "seed": rng.choice((1, 2, 2**40))}
            body |= rng.choice(({}, {}, {"top_p": 0.9}, {"top_k": 40}))
        if rng.random() < 0.2:
            body["n"] = rng.randint(2, 4)
        body["stream"] = rng.random() < 0.5
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        shown: dict[str, Any] = {"logprobs": True, "top_logprobs": 2} if "messages" in body else {"logprobs": 2}
        leaves = rng.random() * 0.5 if rng.random() < 0.15 else None
        return Asked(path, body | shown, leaves)

    def _about(self, rng: random.Random) -> dict[str, Any]:
        """A question, a completion of some words, or of a page of them."""
        kind = rng.random()
        if kind < 0.4:
            return {"messages": [{"role": "user", "content": rng.choice(self._questions)}]}
        some = " ".join(rng.choice(self._questions) for _ in range(rng.choice((1, 1, 3, 12))))
        return {"prompt": PROMPT.format(question=some) if kind < 0.7 else some[: rng.randrange(1, len(some))]}


async def ask(http: aiohttp.ClientSession, url: str, asked: Asked) -> MarkedAnswer | None:
    """One request; None of a client that left."""

    async def answer() -> MarkedAnswer:
        async with http.post(url + asked.path, json=asked.body) as reply:
            return _read(reply.status, await reply.read(), streamed=bool(asked.body["stream"]))

    if asked.leaves_after is None:
        return await answer()
    try:
        return await asyncio.wait_for(answer(), asked.leaves_after)
    except TimeoutError:
        return None


def _read(status: int, content: bytes, *, streamed: bool) -> MarkedAnswer:
    found = MarkedAnswer(status)
    if status != 200:
        return found
    events = [line[6:] for line in content.split(b"\n") if line.startswith(b"data: {")] if streamed else [content]
    texts: dict[int, str] = {}
    numbers: dict[int, float] = {}
    items: dict[int, list[dict[str, Any]]] = {}
    for choice in (choice for event in events for choice in json.loads(event)["choices"]):
        index, said = choice["index"], choice.get("message") or choice.get("delta") or {}
        texts[index] = texts.get(index, "") + (said.get("content") or choice.get("text") or "")
        if not streamed or (choice.get("semtoken") or {}).get("final"):
            numbers[index] = choice["semtoken"]["sequence_uncertainty"]
        items.setdefault(index, []).extend(_items(choice.get("logprobs") or {}))
    order = sorted(texts)
    return MarkedAnswer(status, [texts[i] for i in order], [numbers[i] for i in order], [items[i] for i in order])


def _items(shown: dict[str, Any]) -> list[dict[str, Any]]:
    """Tokens with their log-probability and the best two, in both forms."""
    if "content" in shown:
        return [
            {"token": one["token"], "logprob": one["logprob"], "best": [b["logprob"] for b in one["top_logprobs"]]}
            for one in shown["content"] or ()
        ]
    columns = (shown.get("tokens") or [], shown.get("token_logprobs") or [], shown.get("top_logprobs") or [])
    return [
        {"token": token, "logprob": number, "best": sorted(best.values(), reverse=True)}
        for token, number, best in zip(*columns, strict=True)
    ]


def judge(asked: Asked, alone: MarkedAnswer, among: MarkedAnswer) -> tuple[str | None, str]:
    """The fault of an answer among others, and how it differs from the one alone: "", "tie" or "draw"."""
    if (alone.status, len(alone.texts)) != (among.status, len(among.texts)):
        return f"{among.status} with {len(among.texts)} choices, alone {alone.status} with {len(alone.texts)}", ""
    differs = ""
    rows = zip(alone.texts, among.texts, alone.uncertainties, among.uncertainties, strict=True)
    for row, (text, other, number, also) in enumerate(rows):
        first, second = alone.tokens[row], among.tokens[row]
        names = [[item["token"] for item in one] for one in (first, second)]
        if names[0] != names[1]:
            at = next((i for i, (a, b) in enumerate(zip(*names, strict=False)) if a != b), min(map(len, names)))
            if at < min(len(first), len(second)) and (asked.draws or _tied(first[at])):
                differs = "draw" if asked.draws else "tie"
                continue
            return f"choice {row}: {other!r}, alone {text!r}", ""
        if text != other or abs(number - also) > ROUNDING:
            return f"choice {row}: {other!r} with {also}, alone {text!r} with {number}", ""
    return None, differs


def _tied(item: dict[str, Any]) -> bool:
    """Whether the best two tokens of a step are as likely, up to rounding."""
    best = item["best"]
    return len(best) > 1 and best[0] - best[1] <= TIE


@contextmanager
def serve_process() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`semtoken serve` in a process of its own: its address, the process."""
    process = subprocess.Popen([*SEMTOKEN, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = next(filter(None, (re.search(r"http://[\d.:]+", line) for line in process.stderr)), None)
        assert found is not None
        yield found.group(), process
    finally:
        process.kill()
        process.wait(10)
        process.stderr.close()


async def ask_all(url: str, plan: Plan, numbers: list[int], at_once: int) -> dict[int, MarkedAnswer | None]:
    """Ask, so many at one time; alone nobody leaves."""

    def asking(http: aiohttp.ClientSession, number: int) -> Coroutine[Any, Any, MarkedAnswer | None]:
        one = plan.asked(number)
        return ask(http, url, one if at_once > 1 else Asked(one.path, one.body, None))

    return await asked_together(asking, numbers, at_once, 600)


def attack(seed: int, requests: int) -> Outcome:
    """Ask so many requests alone and among each other, and compare."""
    outcome = Outcome("serving", "requests to serve among others: the answers are those of each request alone")
    plan, numbers = Plan(seed), list(range(requests))
    largest, ties, draws, rows, compared = 0.0, 0, 0, 0, 0
    with serve_process() as (url, process):
        start = time.monotonic()
        alone = asyncio.run(ask_all(url, plan, numbers, 1))
        middle = time.monotonic()
        watched = WatchedServer("serve", process, AT_ONCE)
        among = asyncio.run(ask_all(url, plan, numbers, AT_ONCE))
        seconds = time.monotonic() - middle
        for number in numbers:
            one, other, asked = alone[number], among[number], plan.asked(number)
            assert one is not None
            if other is None:  # it left
                outcome.count(None)
                continue
            fault, how = judge(asked, one, other)
            outcome.count(fault, f"request {number} of --seed {seed}")
            compared += 1
            ties, draws, rows = ties + (how == "tie"), draws + (how == "draw"), rows + asked.draws
            if fault is None and not how:
                pairs = zip(one.uncertainties, other.uncertainties, strict=True)
                largest = max([largest, *(abs(a - b) for a, b in pairs)])
        if draws > max(1, DRAWS * rows):
            outcome.failures.append(f"{draws} of {rows} drawn answers are others than alone")
        outcome.failures += watched.stopped()
    outcome.notes.append(
        f"{requests - compared} clients left, {compared} answers compared, {rows} of them drawn; {ties} with another "
        f"token where two were as likely, {draws} with another draw; numbers differ by up to {largest:.1e}; "
        f"{requests / seconds:.1f} requests a second together, {requests / (middle - start):.1f} alone"
    )
    return outcome
