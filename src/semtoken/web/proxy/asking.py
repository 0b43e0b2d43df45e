"""Asking the upstream for log-probabilities: as many as it gives, and none where it refuses."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from semtoken.web.proxy.limits import LearnedLimits
from semtoken.web.proxy.relay import Answer
from semtoken.web.proxy.rewriting import Asked, lower_limit
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.proxy.transport import Request, Upstream

LONGEST_ERROR = 2**16
REFUSALS = (400, 422)
REFUSAL_WORDS = (b"logprob", b"logits_all")


class Asking:
    """Sends requests that are to be scored, and remembers what the upstream refuses."""

    def __init__(self, upstream: Upstream, settings: ProxySettings) -> None:
        self._upstream = upstream
        self._token_ids = settings.token_ids
        self._limits = LearnedLimits(settings.top_logprobs)

    async def answer(self, stack: AsyncExitStack, request: Request, asked: Asked) -> tuple[Answer, int]:
        """The upstream's answer, and how many log-probabilities a token it was asked for; 0 is the client's request.

        A refusal is answered with a request for fewer, then with the client's own; what that one brings is the answer.

        Raises
        ------
        ApiError
            There is no answer.
        """
        headers = [(name, value) for name, value in request.headers if name.lower() != b"accept-encoding"]
        plain = replace(request, headers=[*headers, (b"accept-encoding", b"identity")])
        top = 0 if asked.obstacle else self._limits.most(asked.endpoint, asked.model)
        refused = False
        while True:
            body = asked.asking(top, token_ids=self._token_ids) if top else asked.sent
            attempt = await stack.enter_async_context(AsyncExitStack())
            answer = Answer(await self._upstream.send(attempt, replace(plain, body=body)))
            if refused and answer.status < 400:
                self._limits.learn(asked.endpoint, asked.model, top)
            if not top or not await is_refusal(answer):
                return answer, top
            message = await answer.beginning(LONGEST_ERROR)
            refused, top = True, lower_limit(message.decode("utf-8", "replace"), top) or 0
            await attempt.aclose()


async def is_refusal(answer: Answer) -> bool:
    """Whether an answer may be due to what was asked for beyond the client's request."""
    if answer.status < 400:
        return False
    said = (await answer.beginning(LONGEST_ERROR)).lower()
    return answer.status in REFUSALS or any(word in said for word in REFUSAL_WORDS)
