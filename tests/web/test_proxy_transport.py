"""Answers without scores pass untouched, and the client gets bytes and an honest end, whatever the upstream does."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest

from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from tests.web.conftest import proxy_of
from tests.web.servers import (
    LAST_CHUNK,
    Received,
    Upstream,
    answering,
    chunk,
    raw_upstream,
    response,
    running,
    stream_head,
)

Start = Callable[..., tuple[str, Upstream]]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
NO_LOGPROBS = b'{"choices": [{"index": 0, "message": {"content": "hi"}, "logprobs": null}]}'


def post(url: str, path: str = "/v1/chat/completions", **kwargs: Any) -> httpx.Response:
    return httpx.post(url + path, timeout=20, **({"json": CHAT} | kwargs))


def bytes_until_end(url: str, path: str, body: bytes) -> bytes:
    """All bytes that a plain socket gets, whatever they are."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        sock.sendall(head.encode() + body)
        parts = []
        while part := sock.recv(65536):
            parts.append(part)
    return b"".join(parts)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def figure(url: str, name: str) -> float:
    lines = httpx.get(url + "/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def final_figure(url: str, name: str) -> float:
    """The figure once no request is in flight: a client has its answer a little before it is counted."""
    wait_until(lambda: figure(url, "semtoken_proxy_requests_in_flight") == 0)
    return figure(url, name)


class TestUntouched:
    def test_method_target_headers_and_body(self, proxied: Start) -> None:
        url, upstream = proxied(answering(response(b"\x00\xff", b"X-A: 1", b"x-a: 2", b"Date: never", kind=b"a/b")))
        body = bytes(range(256))
        answer = httpx.request(
            "PATCH",
            f"{url}/v1/files/a%2Fb%20?x=%20a+b&key=secret&y[]=1|2",
            content=body,
            headers=[
                ("Authorization", "Bearer k"),
                ("X-Odd", "a"),
                ("X-Odd", "b"),
                ("Connection", "X-Hop"),
                ("X-Hop", "1"),
            ],
        )
        [received] = upstream.requests
        assert received.line == b"PATCH /v1/files/a%2Fb%20?x=%20a+b&key=secret&y[]=1|2 HTTP/1.1"
        assert received.body == body
        assert (b"authorization", b"Bearer k") in received.headers
        assert [v for k, v in received.headers if k == b"x-odd"] == [b"a", b"b"]
        assert received.header(b"x-hop") is None
        assert received.header(b"host") == upstream.url.removeprefix("http://").encode()
        assert received.header(b"accept-encoding") == b"gzip, deflate"
        assert answer.content == b"\x00\xff"
        assert answer.headers.raw == [
            *[(b"Content-Type", b"a/b"), (b"Content-Length", b"2")],
            *[(b"X-A", b"1"), (b"x-a", b"2"), (b"Date", b"never")],
        ]

    @pytest.mark.parametrize(
        "status", [b"204 No Content", b"307 Go", b"400 Bad", b"401 Who", b"422 Oh", b"429 Slow", b"500 Oh"]
    )
    def test_other_statuses_of_scored_requests(self, proxied: Start, status: bytes) -> None:
        body = b"" if status.startswith(b"204") else b'{"error": {"message": "no"}}'
        sent = response(body, b"Retry-After: 3", b"Location: /x", status=status)
        url, upstream = proxied(answering(sent))
        answer = post(url)
        assert answer.status_code == int(status[:3])
        assert answer.content == body
        assert answer.headers["retry-after"] == "3"
        assert len(upstream.requests) == 1

    def test_compressed_answers_of_other_requests(self, proxied: Start) -> None:
        packed = gzip.compress(b"hello " * 100)
        url, _ = proxied(answering(response(packed, b"Content-Encoding: gzip", kind=b"text/plain")))
        with httpx.stream("GET", url + "/x") as answer:
            assert b"".join(answer.iter_raw()) == packed

    def test_compressed_requests_and_those_that_are_no_json(self, proxied: Start) -> None:
        url, upstream = proxied(answering(response(b'{"choices": [{"index": 0}]}')))
        packed = gzip.compress(json.dumps(CHAT).encode())
        same = post(url, json=None, content=packed, headers={"content-encoding": "gzip"})
        other = post(url, json=None, content=b"\x00no json")
        assert [r.body for r in upstream.requests] == [packed, b"\x00no json"]
        assert same.content == other.content == b'{"choices": [{"index": 0}]}'

    def test_head_and_options(self, proxied: Start) -> None:
        url, upstream = proxied(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"))
        assert httpx.head(url + "/v1/models").headers["content-length"] == "7"
        assert upstream.requests[0].line.startswith(b"HEAD ")

    def test_the_upstreams_own_health_and_figures(self, proxied: Start) -> None:
        url, upstream = proxied(answering(response(b"{}")))
        assert httpx.get(url + "/upstream/health?a=1").content == b"{}"
        assert httpx.get(url + "/upstream/metrics").content == b"{}"
        assert [r.line for r in upstream.requests] == [b"GET /health?a=1 HTTP/1.1", b"GET /metrics HTTP/1.1"]

    @pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
    def test_an_upstream_below_a_path(self, almanac_clusters: Any, suffix: str) -> None:
        with (
            raw_upstream(answering(response(b"{}"))) as upstream,
            proxy_of(upstream.url + "/openai" + suffix, almanac_clusters) as url,
        ):
            httpx.get(url + "/v1/models")
        assert upstream.requests[0].line == b"GET /openai/v1/models HTTP/1.1"

    def test_a_reply_without_choices_keeps_its_bytes(self, proxied: Start) -> None:
        for body in (b'{"a":  1.0 }', b"[]", b"garbage \xff", b'{"choices": null}'):
            url, _ = proxied(answering(response(body)))
            assert post(url).content == body

    def test_cookies_of_one_client_never_reach_another(self, proxied: Start) -> None:
        url, upstream = proxied(answering(response(b"{}", b"Set-Cookie: secret=1; Path=/")))
        assert httpx.get(url + "/a").headers["set-cookie"] == "secret=1; Path=/"
        httpx.get(url + "/b")
        assert upstream.requests[1].header(b"cookie") is None


class TestRefusals:
    def refusing(self, words: bytes, most: int, status: bytes = b"400 Bad Request") -> Any:
        async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
            asked = received.json().get("top_logprobs", 0)
            error = b'{"error": {"message": "%s"}}' % words
            writer.write(response(error, status=status) if asked > most else response(NO_LOGPROBS))

        return behave

    def asked(self, upstream: Upstream) -> list[int | None]:
        return [r.json().get("top_logprobs") for r in upstream.requests]

    def test_fewer_are_asked_for_and_remembered(self, proxied: Start) -> None:
        url, upstream = proxied(self.refusing(b"top_logprobs must be at most 5", 5))
        assert [post(url).status_code for _ in range(3)] == [200] * 3
        assert self.asked(upstream) == [20, 5, 5, 5]

    def test_none_are_asked_for_where_none_are_given(self, proxied: Start) -> None:
        url, upstream = proxied(self.refusing(b"logprobs is not supported", 0))
        first, second = post(url).json(), post(url).json()
        assert self.asked(upstream) == [20, None, None]
        assert first == second
        assert "does not give log-probabilities" in first["choices"][0]["semtoken"]["reason"]
        assert upstream.requests[1].body == upstream.requests[2].body

    def test_servers_that_answer_500(self, proxied: Start) -> None:
        url, upstream = proxied(self.refusing(b"logprobs need logits_all=True", 0, b"500 Internal Server Error"))
        assert post(url).status_code == 200
        assert self.asked(upstream) == [20, None]

    def test_a_bad_field_of_ours_is_refused(self, proxied: Start) -> None:
        url, upstream = proxied(answering(response(b"{}")))
        answer = post(url, json=CHAT | {"semtoken": "yes"})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "semtoken"
        assert not upstream.requests


class TestFaults:
    def test_an_upstream_that_is_not_there(self, almanac_clusters: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with proxy_of(f"http://127.0.0.1:{port}", almanac_clusters) as url:
            for path in ("/v1/chat/completions", "/v1/models"):
                answer = post(url, path)
                assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
            assert httpx.get(url + "/health").json()["upstream"] == {"answers": False, "status": None}

    @pytest.mark.parametrize("garbage", [b"garbage\r\n\r\n", b"", b"HTTP/1.1 abc\r\n\r\n", b"\x16\x03\x01" * 50])
    def test_garbage_instead_of_http(self, proxied: Start, garbage: bytes) -> None:
        url, _ = proxied(answering(garbage))
        answer = post(url)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_broken")

    def test_an_upstream_that_stalls(self, proxied: Start) -> None:
        async def stall(_: Received, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(60)

        url, upstream = proxied(stall, read_timeout=0.2)
        answer = post(url)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
        wait_until(lambda: upstream.open == 0)

    STREAMED = b'data: {"choices":[{"index":0,"delta":{"content":"Lima"}}]}\n\ndata: {"choi'

    @pytest.mark.parametrize("scored", [True, False])
    @pytest.mark.parametrize("stall", [True, False])
    def test_a_stream_that_breaks_off(self, proxied: Start, scored: bool, stall: bool) -> None:
        async def behave(_: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(stream_head() + chunk(self.STREAMED))
            await writer.drain()
            if stall:
                await asyncio.sleep(60)

        url, upstream = proxied(behave, read_timeout=0.3)
        got = b""
        with (
            pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"),
            httpx.stream("POST", url + ("/v1/chat/completions" if scored else "/v1/other"), json=CHAT) as answer,
        ):
            for piece in answer.iter_raw():
                got += piece
        assert without_block(got) == self.STREAMED
        assert final_figure(url, "semtoken_proxy_failures_total") == 1
        wait_until(lambda: upstream.open == 0)

    @pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/other"])
    def test_a_body_shorter_than_it_says(self, proxied: Start, path: str) -> None:
        url, _ = proxied(
            answering(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{}")
        )
        got = bytes_until_end(url, path, json.dumps(CHAT).encode())
        head, _, body = got.partition(b"\r\n\r\n")
        assert b"Content-Length: 99" in head
        assert body == b"{}"

    def test_a_body_longer_than_it_says(self, proxied: Start) -> None:
        """The place where the next answer begins is not known any more: none is made of it."""
        url, upstream = proxied(answering(response(b"{}") + b"more"))
        for answer in (post(url), post(url), post(url)):
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_broken")
        assert len(upstream.requests) == 3

    def test_a_slow_drip_is_no_stall(self, proxied: Start) -> None:
        whole = b"".join(b'data: {"choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n' % i for i in range(20))

        async def drip(_: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(stream_head())
            for at in range(0, len(whole), 7):
                writer.write(chunk(whole[at : at + 7]))
                await writer.drain()
                await asyncio.sleep(0.002)
            writer.write(LAST_CHUNK)

        url, _ = proxied(drip, read_timeout=0.3)
        assert without_block(post(url, json=CHAT | {"stream": True}).content) == whole

    def test_a_stream_without_a_last_chunk_but_closed_by_http_1_0(self, proxied: Start) -> None:
        url, _ = proxied(answering(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: [DONE]\n\n"))
        assert post(url).content == b"data: [DONE]\n\n"

    def test_a_compressed_reply_nobody_asked_for_is_unpacked_for_its_score(self, proxied: Start) -> None:
        url, _ = proxied(answering(response(gzip.compress(NO_LOGPROBS), b"Content-Encoding: gzip")))
        answer = post(url)
        assert "content-encoding" not in answer.headers
        assert without_block(answer.content) == NO_LOGPROBS

    def test_a_reply_that_unpacks_to_too_much_passes(self, proxied: Start) -> None:
        packed = gzip.compress(b" " * 10_000_000 + NO_LOGPROBS)
        url, _ = proxied(answering(response(packed, b"Content-Encoding: gzip")), max_scored_bytes=1_000_000)
        with httpx.stream("POST", url + "/v1/chat/completions", json=CHAT) as answer:
            assert b"".join(answer.iter_raw()) == packed

    @pytest.mark.parametrize("beyond", [0, 1])
    def test_a_compressed_stream_is_broken_off_where_it_unpacks_to_more_than_the_limit(
        self, proxied: Start, beyond: int
    ) -> None:
        """A mebibyte that unpacks to a gibibyte would do the same; the bytes up to the limit arrive."""
        comment = b":" + b" " * 997 + b"\n\n"
        limit = 1_000_000
        stream = comment * 999 + b" " * beyond + comment
        head = stream_head().replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
        url, _ = proxied(answering(head + chunk(gzip.compress(stream)) + LAST_CHUNK), max_scored_bytes=limit)
        got = bytearray()
        with httpx.stream("POST", url + "/v1/chat/completions", json=CHAT | {"stream": True}, timeout=60) as answer:
            assert "content-encoding" not in answer.headers
            try:
                for piece in answer.iter_raw():
                    got += piece
                broken_off = False
            except httpx.RemoteProtocolError:
                broken_off = True
        assert broken_off == bool(beyond) and stream.startswith(got) and len(got) > limit - 2**16
        assert final_figure(url, 'semtoken_proxy_unscored_answers_total{reason="too_large"}') == beyond

    def test_others_are_answered_while_a_few_bytes_unpack_until_the_client_leaves(self, proxied: Start) -> None:
        """All of these events take a minute."""
        head = stream_head().replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
        packed = gzip.compress(b"data: a\n\n" * 3_000_000)
        url, _ = proxied(answering(head + chunk(packed) + LAST_CHUNK))
        begun = time.process_time()
        with httpx.stream("POST", url + "/v1/chat/completions", json=CHAT | {"stream": True}, timeout=60) as answer:
            pieces = answer.iter_raw()
            assert next(pieces)
            assert figure(url, "semtoken_proxy_requests_in_flight") == 1
        wait_until(lambda: figure(url, "semtoken_proxy_requests_in_flight") == 0)
        assert time.process_time() - begun < 10

    @pytest.mark.parametrize("kind", [b"application/json", b"text/event-stream"])
    def test_what_cannot_be_unpacked_passes(self, proxied: Start, kind: bytes) -> None:
        url, _ = proxied(answering(response(b"not packed", b"Content-Encoding: gzip", kind=kind)))
        with httpx.stream("POST", url + "/v1/chat/completions", json=CHAT) as answer:
            assert answer.headers["content-encoding"] == "gzip"
            assert b"".join(answer.iter_raw()) == b"not packed"

    def test_requests_that_are_too_large(self, proxied: Start) -> None:
        url, upstream = proxied(answering(response(b"{}")), max_request_bytes=1000)

        def pieces() -> Any:
            for _ in range(50):
                yield b"x" * 100

        assert post(url, json=None, content=b"x" * 1001).status_code == 413
        assert post(url, json=None, content=pieces()).json()["error"]["code"] == "request_too_large"
        assert post(url, json=None, content=b"x" * 1000).status_code == 200
        assert len(upstream.requests) == 1

    @pytest.mark.parametrize("kind", [b"application/json", b"text/event-stream"])
    def test_replies_that_are_too_large_pass_unscored(self, proxied: Start, kind: bytes) -> None:
        body = b'data: {"choices":[{"index":0,"text":"' + b"x" * 300_000 + b'"}]}\n\n'
        url, _ = proxied(answering(response(body, kind=kind)), max_scored_bytes=1000)
        assert post(url).content == body
        assert final_figure(url, 'semtoken_proxy_unscored_answers_total{reason="too_large"}') == 1

    def test_a_client_that_leaves_ends_the_request(self, proxied: Start) -> None:
        async def endless(_: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(stream_head())
            while True:
                writer.write(chunk(b": tick\n\n"))
                await writer.drain()
                await asyncio.sleep(0.01)

        url, upstream = proxied(endless)
        for path in ("/v1/chat/completions", "/v1/other"):
            with httpx.stream("POST", url + path, json=CHAT) as answer:
                next(answer.iter_raw())
        wait_until(lambda: upstream.open == 0)
        assert upstream.gone == 2
        wait_until(lambda: figure(url, 'semtoken_proxy_failures_total{reason="client_gone"}') == 2)
        wait_until(lambda: figure(url, "semtoken_proxy_requests_in_flight") == 0)

    def test_a_client_that_leaves_before_the_answer_begins(self, proxied: Start) -> None:
        async def stall(_: Received, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(60)

        url, upstream = proxied(stall)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url + "/v1/chat/completions", json=CHAT, timeout=0.3)
        wait_until(lambda: upstream.gone == 1)

    @pytest.mark.parametrize("version", ["1.1", "1.0"])
    @pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/other"])
    def test_a_client_that_closes_its_sending_half_gets_its_answer_however_late(
        self, proxied: Start, path: str, version: str
    ) -> None:
        async def late(_: Received, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(3.5)
            writer.write(response(NO_LOGPROBS))
            await writer.drain()

        url, upstream = proxied(late)
        with half_closed(url, path, version) as sock:
            reply = HTTPResponse(sock)
            reply.begin()  # past the interim responses
            assert reply.status == 200 and json.loads(reply.read())["choices"][0]["message"]["content"] == "hi"
            assert sock.recv(1) == b""  # and the connection ends with it
        assert upstream.gone == 0

    def test_a_client_that_closes_both_halves_is_missed(self, proxied: Start) -> None:
        """Its last packet is the same; it is told apart by a write that its system refuses."""

        async def stall(_: Received, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(60)

        url, upstream = proxied(stall)
        half_closed(url, "/v1/chat/completions", "1.1").close()
        wait_until(lambda: upstream.gone == 1)
        wait_until(lambda: figure(url, 'semtoken_proxy_failures_total{reason="client_gone"}') == 1)


def half_closed(url: str, path: str, version: str) -> socket.socket:
    """The socket of a client that has sent a request and says that it will send nothing more."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(CHAT).encode()
    sock = socket.create_connection((host, int(port)), timeout=20)
    head = f"POST {path} HTTP/{version}\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    sock.sendall(head.encode() + body)
    sock.shutdown(socket.SHUT_WR)
    return sock


def without_block(data: bytes) -> bytes:
    """The bytes that the client got, without the proxy's block."""
    return re.sub(rb',"semtoken":\{(?:[^{}]|\{[^{}]*\})*\}', b"", data)


@pytest.mark.parametrize("grace", [10, 0.5])
def test_running_streams_end_before_the_server_stops_but_are_not_waited_for_for_ever(
    almanac_clusters: Any, grace: float
) -> None:
    release = threading.Event()

    async def behave(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(stream_head() + chunk(b": begun\n\n"))
        while not release.is_set():
            await asyncio.sleep(0.01)
        writer.write(chunk(b"data: [DONE]\n\n") + LAST_CHUNK)

    got: list[bytes] = []

    def read_on(pieces: Iterator[bytes]) -> None:
        with suppress(httpx.RemoteProtocolError):
            got.extend(pieces)

    began = time.monotonic()
    with raw_upstream(behave) as upstream, ExitStack() as opened:
        with running(proxy_app(ProxySettings(upstream.url), almanac_clusters), grace=grace) as url:
            answer = opened.enter_context(httpx.stream("POST", url + "/v1/chat/completions", json=CHAT, timeout=20))
            pieces = answer.iter_raw()
            next(pieces)
            reader = threading.Thread(target=read_on, args=(pieces,))
            reader.start()
            if grace > 1:
                threading.Timer(0.3, release.set).start()
        reader.join(10)
        assert time.monotonic() - began < 10 and not reader.is_alive()
    assert got == ([b"data: [DONE]\n\n"] if grace > 1 else [])


def test_keys_are_never_logged(proxied: Start, caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    async def die(received: Received, writer: asyncio.StreamWriter) -> None:
        if b"fine" in received.line:
            writer.write(response(b"{}"))

    with caplog.at_level(logging.DEBUG):
        url, upstream = proxied(die)
        headers = {"Authorization": "Bearer sk-secret", "api-key": "sk-secret", "x-api-key": "sk-secret"}
        for path in ("/v1/chat/completions?key=sk-secret", "/v1/fine?key=sk-secret", "/v1/models?key=sk-secret"):
            post(url, path, headers=headers)
    assert upstream.requests[0].header(b"authorization") == b"Bearer sk-secret"
    told = [record.getMessage() for record in caplog.records if not record.name.startswith("httpx._test")]
    ours = [line for line in told if "127.0.0.1" not in line or upstream.url in line]
    out = capfd.readouterr()
    assert "sk-secret" not in out.out + out.err
    assert not [line for line in ours if "sk-secret" in line]
