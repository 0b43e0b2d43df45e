"""Clients of the servers under test: questions, and the events and blocks of what comes back."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.web.servers import wait_until

QUESTION = "What is the capital of Peru?"
ROUNDING = 1e-5


def user(question: str) -> Any:
    """The messages of a chat that asks one question."""
    return [{"role": "user", "content": question}]


CHAT: dict[str, Any] = {"model": "almanac", "messages": user(QUESTION)}


def client_of(url: str) -> OpenAI:
    """The official client of a server."""
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def added_to(part: BaseModel) -> Any:
    """The block that stands beside OpenAI's own fields; the official client keeps it as an extra."""
    return (part.model_extra or {})["semtoken"]


def post(url: str, path: str = "/v1/chat/completions", *, timeout: float = 60, **request: Any) -> httpx.Response:
    """The reply to a chat, or to the `json` or `content` of another request."""
    given = {} if "content" in request else {"json": CHAT}
    return httpx.post(url + path, timeout=timeout, **(given | request))


def events_in(stream: str) -> list[Any]:
    """The values of a stream's events, without the mark of its end."""
    lines = (line.removeprefix("data:").strip() for line in stream.splitlines() if line.startswith("data:"))
    return [json.loads(line) for line in lines if line not in ("", "[DONE]")]


def blocks_in(value: Any) -> list[dict[str, Any]]:
    """All blocks of a reply or of events, wherever they stand."""
    if isinstance(value, list):
        return [block for one in value for block in blocks_in(one)]
    if not isinstance(value, dict):
        return []
    own = [value["semtoken"]] if "semtoken" in value else []
    return own + [block for name, one in value.items() if name != "semtoken" for block in blocks_in(one)]


def block_of(reply: httpx.Response) -> dict[str, Any]:
    """The block of an answer, which is the last one of a stream."""
    assert reply.status_code == 200, reply.text
    streamed = reply.headers["content-type"].startswith("text/event-stream")
    return blocks_in(events_in(reply.text) if streamed else reply.json())[-1]


def assert_holds(interval: Any, exact: float, rounding: float = ROUNDING) -> None:
    """The bounds of a score hold the exact one."""
    low, high = interval
    assert low - rounding <= exact <= high + rounding


def assert_error(reply: httpx.Response, status: int, code: str) -> None:
    """A reply is an error in OpenAI's shape, of this kind."""
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code), reply.text


def assert_bad_request(reply: httpx.Response, param: str, words: str = "") -> None:
    """A reply refuses a request for a field of it."""
    error = reply.json()["error"]
    assert (reply.status_code, error["param"], error["type"]) == (400, param, "invalid_request_error"), reply.text
    assert words in error["message"]


def without_block(data: bytes) -> bytes:
    """The bytes that the client got, without the proxy's block."""
    return re.sub(rb',"semtoken":\{(?:[^{}]|\{[^{}]*\})*\}', b"", data)


def figure(url: str, name: str) -> float:
    """One of the proxy's own figures, summed over its labels."""
    lines = httpx.get(url + "/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"semtoken_proxy_{name}"))


def final_figure(url: str, name: str) -> float:
    """The figure once no request is in flight: a client has its answer a little before it is counted."""
    wait_until(lambda: figure(url, "requests_in_flight") == 0)
    return figure(url, name)


def near(value: Any) -> Any:
    """A value that equals others of nearly the same numbers: the last digits are the machine's."""
    if isinstance(value, dict):
        return {name: near(one) for name, one in value.items()}
    if isinstance(value, list):
        return [near(one) for one in value]
    return pytest.approx(value, rel=1e-3, abs=1e-8) if isinstance(value, float) else value
