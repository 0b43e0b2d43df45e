"""Requests that are scored: what the client asked for, what the upstream is asked for instead, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, MutableMapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from semtoken.core.results.blocks import KEY
from semtoken.errors import InvalidInputError
from semtoken.replies.formats import Shape
from semtoken.replies.formats.openai_choices import OpenAIChat
from semtoken.support.questions import question_of
from semtoken.support.splice import Document, Put, without
from semtoken.web.block import BlockOptions, read_options
from semtoken.web.proxy.memory import new_memory
from semtoken.web.proxy.metrics import ProxyMetrics
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.proxy.upstream import Request, Upstream, UpstreamAnswer
from semtoken.web.wire import person_of

LONGEST_FORM = 500
_LIMIT = re.compile(
    r"(?:<=|≤|at most|up to|less than or equal to|no more than|(?:maximum|max|limit)(?: \w+){0,3})"
    r"\s*(?:is|of|:|=)?\s*(\d{1,4})(?![\d.]*\d)",
    re.IGNORECASE,
)


N_PROBS = "n_probs"
NOT_WITH_TOOLS = "logprobs is not supported with tools"
"""The words in which llama-server refuses `logprobs` in streams with tools; by its own name, `n_probs`, it gives
them."""


class Limit(NamedTuple):
    """The log-probabilities that the upstream gives to requests of one form."""

    most: int
    """The number of them for each token; 0: none."""
    by_n_probs: bool = False
    """True if they are asked for by `n_probs`."""


@dataclass(frozen=True)
class AnswerRequest:
    """A request whose answer can be scored, with the body that the upstream gets."""

    shape: type[Shape]
    body: Mapping[str, Any]
    """The client's request, without the field `semtoken`."""
    sent: bytes
    """The request as it goes to the upstream where nothing more is asked for."""
    options: BlockOptions
    kept: int | None
    """The number of log-probabilities of other tokens that the client asked for at each step, besides the chosen
    token's; None: it asked for none at all."""

    @property
    def form(self) -> str:
        """The features of a request on which an upstream's refusal may depend: model, fields and switches."""
        model = self.body.get("model")
        fields = (
            f"{name}={value}" if isinstance(value, bool | None) else name for name, value in sorted(self.body.items())
        )
        return f"{model if isinstance(model, str) else ''} {' '.join(fields)}"[:LONGEST_FORM]

    def about(self, choice: int) -> dict[str, Any]:
        """The fields of the request that the journal stores: prompt, last text, model and the person's tag."""
        try:
            prompt = self.shape.prompt(self.body, choice)
        except InvalidInputError:
            prompt = None
        model = self.body.get("model")
        return {
            "prompt": prompt,
            "question": question_of(self.body, choice),
            "model": model if isinstance(model, str) else None,
            "person": person_of(self.body),
        }

    def asking(self, limit: Limit, *, token_ids: bool) -> bytes:
        """The request to the upstream, which asks for so many log-probabilities for each token or more."""
        own = {N_PROBS: limit.most} if limit.by_n_probs else None
        fields = own or self.shape.asking(self.body, limit.most, token_ids=token_ids)
        return Document(self.sent.decode()).changed([Put((), fields)]).encode()

    def takes_n_probs(self, refusal: str) -> bool:
        """True if an upstream that refuses `logprobs` in these words gives them under llama-server's own name."""
        return self.shape is OpenAIChat and self.kept is None and NOT_WITH_TOOLS in refusal


def read_request(shape: type[Shape], body: bytes) -> AnswerRequest | None:
    """Parse a request; None for one that we do not understand, which the upstream is to judge.

    `ApiError` if the field `semtoken`, which is ours, holds something other than its options.
    """
    try:
        text = body.decode()
        parsed = _loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    marked = KEY in parsed
    # Without the field no scores so far: a client that knows nothing of them would pay for each chunk.
    wanted = read_options(parsed.pop(KEY, None)) if marked else BlockOptions(running=False)
    try:
        kept = shape.requested(parsed)
    except InvalidInputError:
        return None
    # Upstreams refuse fields that they do not know.
    sent = without(text, KEY).encode() if marked else body
    return AnswerRequest(shape, parsed, sent, wanted, kept)


def _loads(body: str) -> Any:
    """JSON, of which every number is one."""

    def number(digits: str) -> float:
        value = float(digits)
        if value in (float("inf"), -float("inf")):
            raise ValueError(f"{digits} is too large for a number")
        return value

    return json.loads(body, parse_float=number, parse_constant=_no_constant)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def lower_limit(message: str, asked: int) -> int | None:
    """The largest number of log-probabilities that an upstream's refusal allows, or None."""
    numbers = (int(match[1]) for match in _LIMIT.finditer(message))
    # Messages name several numbers: what was asked for is no limit, and the largest below it asks for most.
    return max((number for number in numbers if 0 < number < asked), default=None)


REFUSAL_WORDS = ("logprob", "log_prob", "logits_all", "return_token", "n_probs")


class Asking:
    """Sends requests that are to be scored, and remembers what the upstream refuses."""

    def __init__(self, upstream: Upstream, settings: ProxySettings, metrics: ProxyMetrics) -> None:
        self._upstream = upstream
        self._token_ids = settings.token_ids
        self._wanted = Limit(settings.top_logprobs)
        self._limits: MutableMapping[tuple[str, str], Limit] = new_memory()
        """The most that the upstream gives to requests of an endpoint and a form, where it refused to give all."""
        self._metrics = metrics

    async def answer(self, stack: AsyncExitStack, request: Request, asked: AnswerRequest) -> tuple[UpstreamAnswer, int]:
        """Send a request; returns the answer, and how many log-probabilities it asked for: 0 for the client's own
        request.

        A request is sent again once at most, and only where the upstream refused it and named log-probabilities: with
        as many as it says it gives, by llama-server's own name, or as the client sent it. `ApiError` if there is no
        answer.
        """
        plain = without_compression(request)
        limit = (
            Limit(0)
            if asked.shape.obstacle(asked.body)
            else self._limits.get((asked.shape.name, asked.form), self._wanted)
        )
        self._metrics.refusals_remembered.set(len(self._limits))
        attempt = await stack.enter_async_context(AsyncExitStack())
        answer = await self._upstream.send(attempt, self._with(plain, asked, limit))
        said = await refusal(answer) if limit.most else None
        if said is None:
            return answer, limit.most
        by_n_probs = asked.takes_n_probs(said) and not limit.by_n_probs
        other = Limit(limit.most, by_n_probs=True) if by_n_probs else Limit(lower_limit(said, limit.most) or 0)
        # The refused answer is closed before the next request, so that two never wait on the upstream for one client.
        await attempt.aclose()
        answer = await self._upstream.send(stack, self._with(plain, asked, other), fresh=True)
        if other.most and await refusal(answer) is not None:
            self._learn(asked, Limit(0))  # it does not give what it says: the next request asks for none
        elif answer.status < 400:
            # Only what was seen to work is remembered: another refusal may be about something else.
            self._learn(asked, other)
        return answer, other.most

    def _with(self, plain: Request, asked: AnswerRequest, limit: Limit) -> Request:
        return replace(plain, body=asked.asking(limit, token_ids=self._token_ids) if limit.most else asked.sent)

    def _learn(self, asked: AnswerRequest, limit: Limit) -> None:
        self._limits[asked.shape.name, asked.form] = limit
        self._metrics.refusals_remembered.set(len(self._limits))
        given = N_PROBS if limit.by_n_probs else "fewer" if limit.most else "none"
        self._metrics.refusals.labels(asked.shape.name, given).inc()


async def refusal(answer: UpstreamAnswer) -> str | None:
    """The upstream's message, if it refuses to give log-probabilities; else None."""
    if answer.status < 400:
        return None
    said = await answer.said()
    return said if any(word in said.lower() for word in REFUSAL_WORDS) else None


def without_compression(request: Request) -> Request:
    """A request for an answer that is not compressed."""
    headers = [(name, value) for name, value in request.headers if name.lower() != b"accept-encoding"]
    return replace(request, headers=[*headers, (b"accept-encoding", b"identity")])
