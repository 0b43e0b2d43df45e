"""Asking the upstream for log-probabilities: as many as it gives, and none where it refuses."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace

from semtoken.web.proxy.metrics import ProxyMetrics
from semtoken.web.proxy.rewriting import AnswerRequest, lower_limit
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.proxy.upstream import Answer, Request, Upstream

REMEMBERED_SECONDS = 300.0
MOST_FORMS = 1000


class LearnedLimits:
    """The largest numbers of log-probabilities that the upstream gives, by kind and form of request, for five
    minutes.
    """

    def __init__(self, wanted: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._wanted = wanted
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[int, float]] = {}

    def __len__(self) -> int:
        now = self._clock()
        return sum(now < until for _, until in self._known.values())

    def most(self, endpoint: str, form: str) -> int:
        """How many log-probabilities to ask for; 0 if the upstream refuses to give any."""
        most, until = self._known.get((endpoint, form), (self._wanted, 0.0))
        return most if self._clock() < until else self._wanted

    def learn(self, endpoint: str, form: str, most: int) -> None:
        """Remember that the upstream refused to give more than `most` to requests of this form."""
        now = self._clock()
        if len(self._known) >= MOST_FORMS:  # they come from clients: keep only what still counts
            self._known = {key: known for key, known in self._known.items() if now < known[1]}
        if len(self._known) < MOST_FORMS or (endpoint, form) in self._known:
            self._known[endpoint, form] = (most, now + REMEMBERED_SECONDS)


LONGEST_ERROR = 2**16
REFUSAL_WORDS = (b"logprob", b"log_prob", b"logits_all", b"return_token")


class Asking:
    """Sends requests that are to be scored, and remembers what the upstream refuses."""

    def __init__(self, upstream: Upstream, settings: ProxySettings, metrics: ProxyMetrics) -> None:
        self._upstream = upstream
        self._token_ids = settings.token_ids
        self._limits = LearnedLimits(settings.top_logprobs)
        self._metrics = metrics

    async def answer(self, stack: AsyncExitStack, request: Request, asked: AnswerRequest) -> tuple[Answer, int]:
        """Send a request; returns the answer, and how many log-probabilities it asked for (0: the client's own
        request).

        A request is sent again once at most, and only where the upstream refused it and named log-probabilities: with
        as many as it says it gives, or as the client sent it.

        Raises
        ------
        ApiError
            There is no answer.
        """
        plain = without_compression(request)
        top = 0 if asked.obstacle else self._limits.most(asked.endpoint, asked.form)
        self._metrics.refusals_remembered.set(len(self._limits))
        attempt = await stack.enter_async_context(AsyncExitStack())
        answer = await self._upstream.send(attempt, self._with(plain, asked, top))
        said = await refusal(answer) if top else None
        if said is None:
            return answer, top
        fewer = lower_limit(said, top) or 0
        await attempt.aclose()
        answer = await self._upstream.send(stack, self._with(plain, asked, fewer), fresh=True)
        if fewer and await refusal(answer) is not None:
            self._learn(asked, 0)  # it does not give what it says: the next request asks for none
        elif answer.status < 400:
            self._learn(asked, fewer)
        return answer, fewer

    def _with(self, plain: Request, asked: AnswerRequest, top: int) -> Request:
        return replace(plain, body=asked.asking(top, token_ids=self._token_ids) if top else asked.sent)

    def _learn(self, asked: AnswerRequest, most: int) -> None:
        self._limits.learn(asked.endpoint, asked.form, most)
        self._metrics.refusals_remembered.set(len(self._limits))
        self._metrics.refusals.labels(asked.endpoint, "fewer" if most else "none").inc()


async def refusal(answer: Answer) -> str | None:
    """The upstream's message, if it refuses to give log-probabilities; else None."""
    if answer.status < 400:
        return None
    said = await answer.beginning(LONGEST_ERROR)
    return said.decode("utf-8", "replace") if any(word in said.lower() for word in REFUSAL_WORDS) else None


def without_compression(request: Request) -> Request:
    """A request for an answer that is not compressed."""
    headers = [(name, value) for name, value in request.headers if name.lower() != b"accept-encoding"]
    return replace(request, headers=[*headers, (b"accept-encoding", b"identity")])
