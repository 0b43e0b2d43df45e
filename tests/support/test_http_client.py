"""The one HTTP client against real servers: busy, lost, endless, compressed, with the key in their replies."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from semtoken.errors import BackendError, InvalidInputError
from semtoken.support.http_client import HttpClient, HttpReply, Retries
from tests.web.servers import Received, raw_upstream, running

KEY = "sk-secret-1234"


@contextmanager
def served(answer: Any) -> Iterator[str]:
    app = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])
    with running(app, wait=False, strict=False) as url:
        yield url


@contextmanager
def replying(*replies: Response | Callable[[], Response]) -> Iterator[tuple[str, list[float]]]:
    """A server that gives each reply once, and then the last one; yields its address and when it was asked."""
    left, asked = list(replies), list[float]()

    async def answer(_: Request) -> Response:
        asked.append(time.monotonic())
        reply = left.pop(0) if len(left) > 1 else left[0]
        return reply if isinstance(reply, Response) else reply()

    with served(answer) as url:
        yield url, asked


def post(url: str, **options: Any) -> HttpReply:
    with HttpClient(url, **options) as client:
        return client.post(f"{url}/v1/x", {"a": 1})


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("said", ["1", "date", None])
def test_a_busy_server_is_waited_for(status: int, said: str | None) -> None:
    def busy() -> Response:
        wait = formatdate(time.time() + 1.9, usegmt=True) if said == "date" else said  # dates have whole seconds
        return Response(status_code=status, headers={} if wait is None else {"Retry-After": wait})

    with replying(busy, JSONResponse({"b": 2})) as (url, asked):
        assert post(url).json() == {"b": 2}
    assert len(asked) == 2
    assert asked[1] - asked[0] >= {"1": 0.95, "date": 0.6, None: 0.45}[said]


def test_a_server_that_asks_for_an_hour_or_stays_busy_is_not_waited_for() -> None:
    with replying(Response(status_code=429, headers={"Retry-After": "3600"})) as (url, asked):
        reply = post(url)
    with pytest.raises(BackendError, match=f"{url}/v1/x gave no answer: HTTP 429"):
        reply.json()
    assert len(asked) == 1
    with replying(Response(status_code=503, headers={"Retry-After": "0.01"})) as (url, asked):
        assert post(url, retries=Retries(most=3)).status == 503
    assert len(asked) == 4


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_other_refusals_are_not_repeated(status: int) -> None:
    with replying(JSONResponse({"error": {"message": "No."}}, status)) as (url, asked):
        reply = post(url)
    assert (reply.status, reply.reason, len(asked)) == (status, f"HTTP {status}: No.", 1)


def test_a_lost_connection_is_repeated_only_if_that_was_asked_for() -> None:
    tries: list[int] = []

    async def lost_once(_: Received, writer: asyncio.StreamWriter) -> None:
        tries.append(1)
        if len(tries) % 2:
            writer.close()
        else:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            await writer.drain()

    with raw_upstream(lost_once) as upstream:
        with pytest.raises(BackendError, match="broke the connection off"):
            post(upstream.url)
        tries.clear()
        assert post(upstream.url, retries=Retries(lost=True)).json() == {}
    assert len(tries) == 2


def test_eight_requests_are_under_way_at_a_time() -> None:
    under_way, most = [0], [0]

    async def answer(_: Request) -> Response:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        await asyncio.sleep(0.05)
        under_way[0] -= 1
        return JSONResponse({})

    with served(answer) as url, HttpClient(url) as client, ThreadPoolExecutor(32) as pool:
        replies = list(pool.map(lambda n: client.post(f"{url}/{n}", {}), range(32)))
    assert all(reply.ok for reply in replies) and most[0] == 8


def test_a_compressed_bomb_is_not_unpacked() -> None:
    """An eighth of a megabyte that stands for 128; what is packed twice was not asked for."""
    packer, megabyte = zlib.compressobj(9, wbits=31), bytes(2**20)
    bomb = b"".join([packer.compress(megabyte) for _ in range(128)]) + packer.flush()
    assert len(bomb) < 2**18
    for said in ("gzip", "gzip, gzip"):
        with replying(Response(bomb, headers={"content-encoding": said})) as (url, _):
            tracemalloc.start()
            try:
                with pytest.raises(BackendError, match=r"sent more than 64 MiB|which was not asked for"):
                    post(url)
                assert tracemalloc.get_traced_memory()[1] < 200e6
            finally:
                tracemalloc.stop()


def test_an_endless_reply_is_cut() -> None:
    sent = threading.Event()

    async def endless(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not sent.is_set():
            writer.write(bytes(2**16))
            await writer.drain()

    with raw_upstream(endless) as upstream, pytest.raises(BackendError, match="sent more than 1 MiB"):
        try:
            post(upstream.url, longest_reply=2**20)
        finally:
            sent.set()


def test_a_reply_that_drips_is_left_when_its_time_is_over() -> None:
    async def drips(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1\r\n.\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)

    with raw_upstream(drips) as upstream:
        begun = time.monotonic()
        with pytest.raises(BackendError, match=r"took more than 0\.5 seconds"):
            post(upstream.url, within=0.5)
        assert time.monotonic() - begun < 5


def test_the_key_is_sent_and_never_shown() -> None:
    async def repeats(request: Request) -> Response:
        said = request.headers["authorization"]
        return JSONResponse({"error": {"message": f"Incorrect key {said}"}}, 401, {"x-key": said})

    with served(repeats) as url:
        reply = post(url, key=KEY)
        with pytest.raises(BackendError, match=r"HTTP 401: Incorrect key Bearer \[key\]") as failed:
            reply.json()
    told = (reply.body, reply.headers, reply.reason, failed.value)
    assert not any("secret" in repr(one) for one in told)


@pytest.mark.parametrize("key", ["two words", "sk-\nx: y", "sk-ключ"])
def test_what_can_be_no_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidInputError, match="The key for the server") as failed:
        HttpClient("http://127.0.0.1:1", key=key)
    assert key not in str(failed.value)


def test_nothing_for_this_machine_goes_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with replying(JSONResponse({"from": "proxy"})) as (proxy, seen), replying(JSONResponse({"from": "it"})) as (url, _):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        port = url.rpartition(":")[2]
        for host in ("127.0.0.1", "localhost"):
            assert post(f"http://{host}:{port}", key=KEY).json() == {"from": "it"}
        assert not seen
        assert post("http://model.example:8000").json() == {"from": "proxy"}


def test_a_redirect_takes_no_key_elsewhere() -> None:
    with replying(JSONResponse({})) as (other, seen), replying(RedirectResponse(f"{other}/v1", 307)) as (url, _):
        reply = post(url, key=KEY)
    assert reply.reason == f"HTTP 307: it sends requests on to {other}/v1. Give that address, if you trust it"
    assert not seen


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Response("<!DOCTYPE html><title>Log in</title>", media_type="text/html"), "a web page \\(HTML\\)"),
        (Response("\n<html>", media_type="application/json"), "a web page \\(HTML\\)"),
        (Response("OK"), "no JSON: 'OK'"),
        (Response(b""), "no JSON: ''"),
        (Response(b"[" * 100_000), "no JSON"),
    ],
)
def test_a_success_that_is_no_json_is_named(reply: Response, why: str) -> None:
    with replying(reply) as (url, _), pytest.raises(BackendError, match=f"{url}/v1/x gave no answer but {why}"):
        post(url).json()


def test_what_cannot_be_sent_is_the_callers_mistake() -> None:
    with HttpClient("http://127.0.0.1:1") as client:
        for body in ({"a": "\ud800"}, {"a": float("nan")}, {"a": {1}}):
            with pytest.raises(InvalidInputError, match="cannot be written as JSON"):
                client.post("http://127.0.0.1:1/x", body)
    for address in ("ftp://x", "localhost:8000", "http://", ""):
        with pytest.raises(InvalidInputError, match="address"):
            HttpClient(address)
