"""The distribution behind vLLM's log-probabilities, found out by asking: replies do not show its `--logprobs-mode`."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import MutableMapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from cachetools import TTLCache

from semtoken.choices import Distribution
from semtoken.core.engine_tokens import TopStep
from semtoken.errors import BackendError, SemtokenError
from semtoken.replies import read_reply
from semtoken.replies.formats import ProbeQuestion
from semtoken.web.doctor.numbers import judge
from semtoken.web.proxy.asking import AnswerRequest, without_compression
from semtoken.web.proxy.upstream import BrokenOff, Request, Upstream
from semtoken.web.wire import ApiError

logger = logging.getLogger("semtoken.proxy")

QUESTION = "What is the capital of France?"
MAX_TOKENS = 8
TEMPERATURES = (1.0, 0.5)
LONGEST = 2**22
"""Most bytes of a reply to one of these questions."""
ASKING_SECONDS = 60.0
WAITING_SECONDS = 5.0
"""Seconds that the first answers of a model wait for what is found."""
PAUSE = 300.0
"""Seconds after which questions that failed may be asked again; more than they take."""
MOST_MODELS = 100
PROCESSED = (
    "The log-probabilities of %s follow the temperature, so they are called processed: start vLLM with "
    "--logprobs-mode raw_logprobs for those of the model itself."
)


class LearnedDistributions:
    """The distribution behind the upstream's log-probabilities, by model.

    Each model of vLLM is asked two short questions once, with the credentials of the request that made it known, and
    its first answers wait a little for the result.
    """

    def __init__(self, upstream: Upstream, wanted: Distribution | None) -> None:
        self._upstream = upstream
        self._wanted = wanted
        self._asking: MutableMapping[str, asyncio.Task[None]] = TTLCache(MOST_MODELS, PAUSE)
        """The questions that are asked, or failed a while ago, by the model's name."""
        self.known: dict[str, Distribution] = {}
        """The distributions that were found, by the model's name."""

    def of(self, model: str | None, said: Distribution) -> Distribution:
        """The distribution of an answer: as set, else as was found by asking, else as its reply says (`said`)."""
        if self._wanted is not None:
            return self._wanted
        return "processed" if self.known.get(model or "") == "processed" else said

    async def settle(
        self, model: str | None, format: str | None, request: Request, asked: AnswerRequest, top: int
    ) -> None:
        """Ask what the numbers of a model are, if its reply leaves it open and nothing is known yet; waits for a while.

        `top`: how many log-probabilities the answer was asked for.
        """
        name = model or ""
        if self._wanted is not None or not top or format is None or not format.startswith("vllm") or name in self.known:
            return
        task = self._asking.get(name)
        if task is None:
            if len({*self._asking, *self.known}) >= MOST_MODELS:
                return
            task = asyncio.create_task(self._ask(name, without_compression(request), asked, top))
            self._asking[name] = task
        await asyncio.wait([task], timeout=WAITING_SECONDS)

    async def aclose(self) -> None:
        """Ask no more."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, model: str, request: Request, asked: AnswerRequest, top: int) -> None:
        try:
            async with asyncio.timeout(ASKING_SECONDS):
                at_1, at_half = [await self._steps(request, asked, top, temperature) for temperature in TEMPERATURES]
        except (SemtokenError, ApiError, BrokenOff, TimeoutError, ValueError) as error:
            logger.info("What the log-probabilities of %s are could not be found out: %s", model, error)
            return
        found = judge(at_1, at_half)
        self.known[model] = found.distribution
        if found.distribution == "processed":
            logger.warning(PROCESSED, model)
        else:
            logger.info("The log-probabilities of %s: %s (%s)", model, found.distribution, found.reason)

    async def _steps(self, request: Request, asked: AnswerRequest, top: int, temperature: float) -> Sequence[TopStep]:
        model = asked.body.get("model")
        question = ProbeQuestion(QUESTION, MAX_TOKENS, top, temperature, {"seed": 1}, model)
        async with AsyncExitStack() as stack:
            body = json.dumps(asked.shape.body(question)).encode()
            answer = await self._upstream.send(stack, replace(request, body=body))
            raw = await answer.whole(LONGEST)
        if answer.status != 200:
            raise BackendError(f"it rejected the question (HTTP {answer.status})")
        parsed_reply = read_reply(raw.decode(), temperature=temperature)
        return [step for part in parsed_reply.choices[0].segments for step in part.steps]
