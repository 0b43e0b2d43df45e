"""A language model as the judge: chat requests to an OpenAI-compatible endpoint, and the paper's prompt.

Requests are concurrent, rate-limited and retried. Replies are kept on disk by the content of the request and the
address it goes to, so nothing is asked twice, also not after a kill.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal

from semtoken.bench.judges import AnswerToJudge, JudgeBase, OnJudged, Verdict
from semtoken.errors import BackendError, InvalidInputError
from semtoken.support.extras import require
from semtoken.support.http_client import HttpClient, Retries, checked_base_url, key_from
from semtoken.support.installation import cache_root

require("pydantic", extra="bench")

from pydantic import Field, PrivateAttr  # noqa: E402

OPENAI = "https://api.openai.com/v1"
GIVE_UP_AFTER = 5
"""After so many requests in a row have failed, each with all its retries, nothing more is asked."""
_REPEATED = frozenset({408, 409, 429, *range(500, 600)})
"""After these a request is sent again, and after a lost connection: to judge twice does no harm."""


DEFAULT_JUDGE_MODEL = "gpt-4.1-2025-04-14"
"""The model that judged answers in the paper."""
SYSTEM = """# Task
Evaluate whether the proposed answer to the question is correct based on real-world factual knowledge. \
Reference answers are provided to assist in your evaluation.

# Output
Respond strictly with a single token:
- `True' if the proposed answer is correct.
- `False' if the proposed answer is incorrect or only partially correct."""
_AROUND = " \t\r\n'\"`.,"
_VERDICTS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class Usage:
    """The number of tokens that some replies took, and the number of replies."""

    replies: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    """The number of prompt tokens that the endpoint had cached; these cost less."""
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: value + getattr(other, name) for name, value in asdict(self).items()})

    def __sub__(self, other: Usage) -> Usage:
        return Usage(**{name: value - getattr(other, name) for name, value in asdict(self).items()})


@dataclass(frozen=True)
class JudgeReply:
    """One reply of the endpoint: its text, empty where a filter stopped it, and the tokens that it took."""

    text: str
    usage: Usage


@dataclass(frozen=True)
class Replies:
    """The replies to some requests, and the tokens that they took."""

    replies: tuple[JudgeReply, ...]
    """One for each request, in their order."""
    spent: Usage
    """The number, and the tokens, of the replies that were not on disk."""
    relied_on: Usage
    """The same of all replies; those on disk count with the tokens that they took when they came. Equal requests count
    once."""


class LLMJudge(JudgeBase):
    """Asks a language model whether an answer is correct; also about empty answers, as the paper names no exception.

    Each reference answer stands on a line of its own, in the order of the question set. A reply counts as True or False
    in any case and with blanks, quotes, full stops or commas around it; every other reply is NaN.
    """

    kind: Literal["llm"] = "llm"
    model: str = DEFAULT_JUDGE_MODEL
    base_url: str | None = None
    """The address of the API. None: that of the environment variable OPENAI_BASE_URL, else OpenAI's."""
    key_env: str = "OPENAI_API_KEY"
    """Environment variable with the key; only OpenAI itself must have one."""
    concurrency: Annotated[int, Field(ge=1)] = 8
    """Most requests that are under way at one time."""
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    """Most requests that are sent in a minute, evenly spread, retries included. None: no limit."""
    max_retries: Annotated[int, Field(ge=0)] = 10
    """The most repetitions of one request, after 408, 409, 429, 5xx and lost connections: half a second at first,
    doubling up to 8 seconds, or what the endpoint asks for (Retry-After)."""
    timeout: Annotated[float, Field(gt=0)] = 60.0
    """The number of seconds for which the endpoint may be silent."""
    temperature: Annotated[float, Field(ge=0)] | None = 0.0
    """Temperature of the reply. None: not sent, for models that refuse it."""
    max_tokens: Annotated[int, Field(ge=1)] | None = 16
    """Most tokens of a reply. None: not sent."""
    extra: Mapping[str, Any] = Field(default_factory=dict)
    """More fields of the request, such as `{"reasoning_effort": "low"}`."""
    cache: Path | None = None
    """Folder of the replies. None: `verdicts` in the user's cache directory."""
    _spent: Usage = PrivateAttr(default_factory=Usage)
    _relied_on: Usage = PrivateAttr(default_factory=Usage)

    @property
    def spent(self) -> Usage:
        """The replies that this judge asked for, counted; those from disk are not in it."""
        return self._spent

    @property
    def relied_on(self) -> Usage:
        """All replies behind its verdicts, those from disk too: what they cost when they were asked for."""
        return self._relied_on

    @property
    def spent_sentence(self) -> str:
        """The cost of its verdicts as a sentence: new replies with their tokens, and replies from disk."""
        spent = self.spent
        return (
            f"{self.name}: {spent.replies:,} new replies, {spent.prompt_tokens:,} prompt tokens "
            f"({spent.cached_prompt_tokens:,} of them cached by the endpoint), {spent.completion_tokens:,} "
            f"completion tokens; {self.relied_on.replies - spent.replies:,} replies from disk."
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        """The model, its address and the form of the request. Speed, folders and the key do not decide verdicts."""
        return {"kind": self.kind, "url": self.url, "system": SYSTEM, **self._options, "model": self.model}

    @property
    def _options(self) -> dict[str, Any]:
        options = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        return {name: value for name, value in options.items() if value is not None} | dict(self.extra)

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """Judge answers by a language model; each verdict holds the text of its reply. Errors are those of `ask`."""
        count = on_judged or (lambda _: None)
        replies = self.ask([self.request(item) for item in items], count)
        count(len(items))
        self._spent += replies.spent
        self._relied_on += replies.relied_on
        return [Verdict(verdict_of(reply.text), reply=reply.text) for reply in replies.replies]

    def request(self, item: AnswerToJudge) -> dict[str, Any]:
        """The body of the request that asks the model about one answer."""
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user_message(item)}]
        return {"model": self.model, "messages": messages, **self._options}

    @property
    def url(self) -> str:
        """The address that requests are sent to.

        `InvalidInputError` if it is not one of HTTP, or holds a user name, a password or parameters.
        """
        return checked_base_url(self.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI)

    def pace(self) -> Callable[[], Any]:
        """A function that waits until the next request may be sent."""
        if self.requests_per_minute is None:
            return lambda: None
        limits = require("pyrate_limiter", extra="bench")
        # One request in each pause, not a burst at the beginning of each minute, which endpoints refuse.
        pause = math.ceil(60_000 / self.requests_per_minute)
        return limits.Limiter(limits.Rate(1, pause), buffer_ms=1).try_acquire  # type: ignore[no-any-return]

    @property
    def folder(self) -> Path:
        """The folder in which replies are kept, so that no request is paid for twice."""
        return self.cache or cache_root() / "verdicts"

    def ask(self, requests: Sequence[Mapping[str, Any]], on_reply: Callable[[int], None]) -> Replies:
        """Get a reply to every request, from disk where it is kept, else from the endpoint.

        Requests are bodies of chat completions; equal ones are asked once, and `on_reply` gets the number of different
        ones that have a reply. `BackendError` if a request failed with all its retries: every reply that came is kept,
        and the next call asks for the rest. `InvalidInputError` if there is no key for OpenAI, or the folder cannot be
        used.
        """
        keys = [self._key(request) for request in requests]
        with open_replies(self.folder) as kept:
            known = {key: kept[key] for key in dict.fromkeys(keys) if key in kept}
            replies = {key: JudgeReply(record["text"], Usage(**record["usage"])) for key, record in known.items()}
            missing = {key: request for key, request in zip(keys, requests, strict=True) if key not in replies}
            on_reply(len(replies))

            def keep(key: str, reply: JudgeReply) -> None:
                # As soon as it comes, since it is paid for; `retry` waits where another process writes.
                kept.set(key, asdict(reply), retry=True)
                replies[key] = reply
                on_reply(len(replies))

            if missing:
                _Asking(self, keep).all(missing)
        return Replies(
            tuple(replies[key] for key in keys),
            spent=sum((replies[key].usage for key in missing), Usage()),
            relied_on=sum((reply.usage for reply in replies.values()), Usage()),
        )

    def _key(self, request: Mapping[str, Any]) -> str:
        # With the address: two endpoints may serve different models under one name.
        content = json.dumps({"url": self.url, "request": request}, sort_keys=True)
        return hashlib.sha256(content.encode("ascii")).hexdigest()

    def api_key(self) -> str | None:
        """The key in the environment, which is written nowhere; `InvalidInputError` if OpenAI is asked without one."""
        key = key_from(self.key_env)
        if key is None and self.url == OPENAI:
            raise InvalidInputError(
                f"{OPENAI} needs a key: put it into the environment variable {self.key_env}, name another variable "
                "(key_env), or another endpoint (base_url)."
            )
        return key


@dataclass
class _Asking:
    """One round of requests."""

    judge: LLMJudge
    keep: Callable[[str, JudgeReply], None]
    failures: list[str] = field(default_factory=list)
    kept: int = 0
    in_a_row: int = 0
    """Failures since the last reply."""
    is_over: bool = False
    """True if no further request is sent."""

    def all(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        """Ask everything; requests under way are finished before a failure ends it, for they are paid."""
        judge, one_at_a_time = self.judge, Lock()

        def ask(name: str) -> None:
            if self.is_over:
                return
            try:
                reply: JudgeReply | BackendError = _one_reply(client, f"{judge.url}/chat/completions", requests[name])
            except BackendError as error:
                reply = error
            with one_at_a_time:
                self._take(name, reply)

        at_once = min(judge.concurrency, len(requests))
        client = HttpClient(
            judge.url,
            key=judge.api_key(),
            timeout=judge.timeout,
            at_once=at_once,
            retries=Retries(judge.max_retries, _REPEATED, lost=True),
            before=judge.pace(),
        )
        with client, ThreadPoolExecutor(at_once) as pool:
            try:
                list(pool.map(ask, requests))
            finally:
                self.is_over = True  # after Ctrl-C, too
                client.stop_waiting()
        if self.failures:
            raise BackendError(
                f"{judge.url} fails: {self.failures[0].rstrip('.')}. {self.kept:,} of {len(requests):,} "
                f"replies came; they are kept in {judge.folder}, and the same command asks for the rest."
            )

    def _take(self, name: str, reply: JudgeReply | BackendError) -> None:
        """Keep a reply, or note why there is none."""
        if isinstance(reply, JudgeReply):
            self.keep(name, reply)
            self.kept, self.in_a_row = self.kept + 1, 0
            return
        self.failures.append(" ".join(str(reply).split())[:400])
        self.in_a_row += 1
        # One wrong key fails every request; a server that is down fails a few in a row.
        self.is_over |= isinstance(reply, _Hopeless) or self.in_a_row >= GIVE_UP_AFTER


class _Hopeless(BackendError):
    """A failure that no other request will escape: the key is wrong or may not do this, the model is unknown."""


def _one_reply(client: HttpClient, url: str, request: Mapping[str, Any]) -> JudgeReply:
    """One reply. What a content filter stops is a reply without text: to ask again would change nothing."""
    reply = client.post(url, request)
    if reply.status in (401, 403, 404):
        raise _Hopeless(reply.reason)
    # Azure answers 400 to what its content filter stops, which is an answer and not a failure.
    values = reply.values if reply.status == 400 else reply.json()
    match values:
        case {"error": {"code": "content_filter"}}:
            return JudgeReply("", Usage(replies=1))
        case {"choices": [{"message": {"content": str() | None as text}}, *_]}:
            return JudgeReply(text or "", _usage(values.get("usage")))
    if reply.status == 400:
        reply.json()  # raises with the server's reason
    raise BackendError(f"A reply without an answer came: {reply.text[:200]}.")


def _usage(usage: Any) -> Usage:
    """Tokens as the endpoint counts them; 0 where it does not say."""
    counted = usage if isinstance(usage, Mapping) else {}
    details = counted.get("prompt_tokens_details")
    return Usage(
        replies=1,
        prompt_tokens=counted.get("prompt_tokens") or 0,
        cached_prompt_tokens=(details.get("cached_tokens") if isinstance(details, Mapping) else None) or 0,
        completion_tokens=counted.get("completion_tokens") or 0,
    )


@contextmanager
def open_replies(folder: Path) -> Iterator[Any]:
    """The `diskcache.Cache` of a folder, made if it is missing: the hash of a request -> its reply as plain values.

    `InvalidInputError` if the folder cannot be used or is damaged, or an entry is not one of ours.
    """
    diskcache = require("diskcache", extra="bench")

    class PlainDisk(diskcache.JSONDisk):  # type: ignore[misc, name-defined]
        """A store that keeps keys as texts and values only as JSON. `JSONDisk` compresses keys, too, which not every
        build of zlib does alike.
        """

        def put(self, key: Any) -> Any:
            return diskcache.Disk.put(self, key)

        def get(self, key: Any, raw: Any) -> Any:
            return key

        def fetch(self, mode: int, filename: Any, value: Any, read: Any) -> Any:
            if mode == diskcache.core.MODE_PICKLE:
                raise InvalidInputError(
                    f"{folder} holds a pickled entry, which semtoken neither writes nor reads; delete it."
                )
            return super().fetch(mode, filename, value, read)

    try:
        # By default a cache drops old entries from 1 GB on.
        with diskcache.Cache(str(folder), disk=PlainDisk, eviction_policy="none", cull_limit=0) as disk:
            yield disk
    except (OSError, sqlite3.Error, zlib.error, json.JSONDecodeError) as error:
        raise InvalidInputError(
            f"The folder of replies {folder} cannot be used: {error}. Name another one (cache), or delete it if it is "
            "damaged."
        ) from error


def user_message(item: AnswerToJudge) -> str:
    """The message about one answer, in the wording of the paper."""
    references = "\n".join(item.question.answers)
    return (
        f"Question:\n{item.question.question}\n\nReference Answer(s):\n{references}\n\n"
        f"Proposed Answer:\n{item.answer.strip()}\n\nTrue/False:"
    )


def verdict_of(reply: str) -> float:
    """Read the verdict from a reply: 1 for True, 0 for False, NaN for anything else.

    >>> verdict_of(" 'true'."), verdict_of("False"), verdict_of("True, but only partially")
    (1.0, 0.0, nan)
    """
    return _VERDICTS.get(reply.strip(_AROUND).lower(), math.nan)
