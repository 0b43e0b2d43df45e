"""Answers without scores pass untouched, and the client gets bytes and an honest end, whatever the upstream does."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from itertools import product
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.keys import KeyFilter
from semtoken.web.proxy.settings import ProxySettings
from tests.rows import each
from tests.web import lima
from tests.web.asking import CHAT, assert_error, figure, final_figure, post, without_block
from tests.web.conftest import Start, proxy_of
from tests.web.servers import (
    LAST_CHUNK,
    Received,
    answering,
    chunk,
    connected,
    events,
    holding,
    posted,
    raw_upstream,
    response,
    running,
    said,
    silent,
    stream_head,
    streamed,
    ticking,
    wait_until,
)

NO_LOGPROBS = b'{"choices": [{"index": 0, "message": {"content": "hi"}, "logprobs": null}]}'
PATHS = ("/v1/chat/completions", "/v1/other")
"""One of an answer that is scored, and another one."""
PACKED = b"Content-Encoding: gzip"
EVENTS = b"text/event-stream"


def streaming(url: str, path: str = "/v1/chat/completions", **fields: Any) -> Any:
    """A request whose answer is read as it comes."""
    return httpx.stream("POST", url + path, json=CHAT | fields, timeout=60)


def packed_stream(events: bytes) -> bytes:
    return streamed(gzip.compress(events), PACKED, size=10**9)


class TestUntouched:
    def test_method_target_headers_and_body(self, proxied: Start) -> None:
        url, upstream = proxied(response(b"\x00\xff", b"X-A: 1", b"x-a: 2", b"Date: never", kind=b"a/b"))
        body = bytes(range(256))
        headers = [("Authorization", "Bearer k"), ("X-Odd", "a"), ("X-Odd", "b"), ("Connection", "X-Hop")]
        answer = httpx.request(
            "PATCH",
            f"{url}/v1/files/a%2Fb%20?x=%20a+b&key=secret&y[]=1|2",
            content=body,
            headers=[*headers, ("X-Hop", "1")],
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

    @each("status", ["204 No Content", "307 Go", "400 Bad", "401 Who", "422 Oh", "429 Slow", "500 Oh"])
    def test_other_statuses_of_scored_requests(self, proxied: Start, status: str) -> None:
        body = b"" if status.startswith("204") else b'{"error": {"message": "no"}}'
        url, upstream = proxied(response(body, b"Retry-After: 3", b"Location: /x", status=status.encode()))
        answer = post(url)
        assert (answer.status_code, answer.content) == (int(status[:3]), body)
        assert answer.headers["retry-after"] == "3"
        assert len(upstream.requests) == 1

    @each(
        ("path", "body", "kind", "headers", "why"),
        [
            ("/x", gzip.compress(b"hello " * 100), b"text/plain", [PACKED], None),
            (PATHS[0], b"not packed", b"application/json", [PACKED], "encoded"),
            (PATHS[0], b"not packed", EVENTS, [PACKED], "encoded"),
            (PATHS[0], gzip.compress(b" " * 10_000_000 + NO_LOGPROBS), b"application/json", [PACKED], "encoded"),
            (PATHS[0], b'{"choices": [' + b" " * 300_000 + b"]}", b"application/json", [], "too_large"),
            (PATHS[0], b'data: {"choices":[{"text":"%s"}]}\n\n' % (b"x" * 300_000), EVENTS, [], "too_large"),
            *((PATHS[0], body, b"application/json", [], None) for body in (b'{"a":  1.0 }', b"[]", b"garbage \xff")),
            (PATHS[0], b'{"choices": null}', b"application/json", [], None),
        ],
    )
    def test_an_answer_that_cannot_be_scored_has_every_byte(
        self, proxied: Start, path: str, body: bytes, kind: bytes, headers: list[bytes], why: str | None
    ) -> None:
        url, _ = proxied(response(body, *headers, kind=kind), max_scored_bytes=100_000)
        with streaming(url, path) as answer:
            assert b"".join(answer.iter_raw()) == body
            assert answer.headers.get("content-encoding") == ("gzip" if headers else None)
        assert why is None or final_figure(url, f'unscored_answers_total{{reason="{why}"}}') == 1

    def test_compressed_requests_and_those_that_are_no_json(self, proxied: Start) -> None:
        url, upstream = proxied(response(b'{"choices": [{"index": 0}]}'))
        packed = gzip.compress(json.dumps(CHAT).encode())
        same = post(url, content=packed, headers={"content-encoding": "gzip"})
        other = post(url, content=b"\x00no json")
        assert [r.body for r in upstream.requests] == [packed, b"\x00no json"]
        assert same.content == other.content == b'{"choices": [{"index": 0}]}'

    def test_head_and_options(self, proxied: Start) -> None:
        url, upstream = proxied(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n")
        assert httpx.head(url + "/v1/models").headers["content-length"] == "7"
        assert upstream.requests[0].line.startswith(b"HEAD ")

    def test_the_upstreams_own_health_and_figures(self, proxied: Start) -> None:
        url, upstream = proxied(response(b"{}"))
        assert httpx.get(url + "/upstream/health?a=1").content == b"{}"
        assert httpx.get(url + "/upstream/metrics").content == b"{}"
        assert [r.line for r in upstream.requests] == [b"GET /health?a=1 HTTP/1.1", b"GET /metrics HTTP/1.1"]

    @each("suffix", ["", "/", "/v1", "/v1/"])
    def test_an_upstream_below_a_path(self, almanac_clusters: Any, suffix: str) -> None:
        with (
            raw_upstream(response(b"{}")) as upstream,
            proxy_of(upstream.url + "/openai" + suffix, almanac_clusters) as url,
        ):
            httpx.get(url + "/v1/models")
        assert upstream.requests[0].line == b"GET /openai/v1/models HTTP/1.1"

    def test_cookies_of_one_client_never_reach_another(self, proxied: Start) -> None:
        url, upstream = proxied(response(b"{}", b"Set-Cookie: secret=1; Path=/"))
        assert httpx.get(url + "/a").headers["set-cookie"] == "secret=1; Path=/"
        httpx.get(url + "/b")
        assert upstream.requests[1].header(b"cookie") is None


class TestRefusals:
    @each(
        ("words", "most", "status", "asked"),
        [
            (b"top_logprobs must be at most 5", 5, b"400 Bad Request", [20, 5, 5, 5]),
            (b"logprobs is not supported", 0, b"400 Bad Request", [20, None, None, None]),
            (b"logprobs need logits_all=True", 0, b"500 Internal Server Error", [20, None, None, None]),
        ],
    )
    def test_fewer_or_none_are_asked_for_and_remembered(
        self, proxied: Start, words: bytes, most: int, status: bytes, asked: list[int | None]
    ) -> None:
        error = response(b'{"error": {"message": "%s"}}' % words, status=status)

        def answer(received: Received) -> bytes:
            return error if received.json().get("top_logprobs", 0) > most else response(NO_LOGPROBS)

        url, upstream = proxied(answering(answer))
        first, second, third = (post(url) for _ in range(3))
        assert first.status_code == 200 and first.json() == second.json() == third.json()
        assert [r.json().get("top_logprobs") for r in upstream.requests] == asked
        assert upstream.requests[1].body == upstream.requests[2].body
        reason = first.json()["choices"][0]["semtoken"]["reason"]
        assert ("does not give log-probabilities" in reason) == (most == 0)

    def test_a_bad_field_of_ours_is_refused(self, proxied: Start) -> None:
        url, upstream = proxied(response(b"{}"))
        answer = post(url, json=CHAT | {"semtoken": "yes"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "semtoken")
        assert not upstream.requests


class TestFaults:
    def test_an_upstream_that_is_not_there(self, almanac_clusters: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with proxy_of(f"http://127.0.0.1:{port}", almanac_clusters) as url:
            for path in ("/v1/chat/completions", "/v1/models"):
                assert_error(post(url, path), 502, "upstream_unreachable")
            assert httpx.get(url + "/health").json()["upstream"] == {"answers": False, "status": None}

    @each("answer", [b"garbage\r\n\r\n", b"", b"HTTP/1.1 abc\r\n\r\n", b"\x16\x03\x01" * 50])
    @each("path", PATHS)
    def test_garbage_instead_of_http(self, proxied: Start, answer: bytes, path: str) -> None:
        url, upstream = proxied(answer)
        assert_error(post(url, path), 502, "upstream_broken")
        assert len(upstream.requests) == 1

    @each("status", [b"600 Odd", b"999 Odd", b"000 Odd", b"101 Switching Protocols"])
    @each("path", PATHS)
    def test_a_status_that_no_answer_has(self, proxied: Start, status: bytes, path: str) -> None:
        url, upstream = proxied(response(b"{}", status=status))
        assert_error(post(url, path), 502, "upstream_broken")
        assert len(upstream.requests) == 1

    def test_a_body_longer_than_it_says(self, proxied: Start) -> None:
        """The place where the next answer begins is not known any more: none is made of it."""
        url, upstream = proxied(response(b"{}") + b"more")
        for _ in range(3):
            assert_error(post(url), 502, "upstream_broken")
        assert len(upstream.requests) == 3

    @each(("limit", "code"), [("read_timeout", "upstream_timeout"), ("request_timeout", "request_timeout")])
    def test_an_upstream_that_says_nothing(self, proxied: Start, limit: str, code: str) -> None:
        url, upstream = proxied(silent, **{limit: 0.2})
        assert_error(post(url), 504, code)
        wait_until(lambda: upstream.open == 0)

    STREAMED = b'data: {"choices":[{"index":0,"delta":{"content":"Lima"}}]}\n\ndata: {"choi'

    @each("path", PATHS)
    @each("stall", [True, False])
    def test_a_stream_that_breaks_off(self, proxied: Start, path: str, stall: bool) -> None:
        begun = stream_head() + chunk(self.STREAMED)
        url, upstream = proxied(holding(threading.Event(), b"", begun) if stall else begun, read_timeout=0.3)
        got = b""
        with (
            pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"),
            streaming(url, path) as answer,
        ):
            for piece in answer.iter_raw():
                got += piece
        assert without_block(got) == self.STREAMED
        assert final_figure(url, "failures_total") == 1
        assert figure(url, 'unscored_answers_total{reason="too_large"}') == 0
        wait_until(lambda: upstream.open == 0)

    @each("path", PATHS)
    def test_a_body_shorter_than_it_says(self, proxied: Start, path: str) -> None:
        url, _ = proxied(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{}")
        with connected(url) as sock:
            sock.sendall(posted(path, json.dumps(CHAT).encode(), "Connection: close"))
            head, _, body = b"".join(iter(lambda: sock.recv(65536), b"")).partition(b"\r\n\r\n")
        assert b"Content-Length: 99" in head
        assert body == b"{}"

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

    def test_an_error_that_comes_in_pieces_is_passed_on_in_their_order(self, proxied: Start) -> None:
        body = json.dumps({"error": {"message": " ".join(map(str, range(500)))}}).encode()

        async def drip(_: Received, writer: asyncio.StreamWriter) -> None:
            head = response(body, status=b"400 Bad")[: -len(body)]
            for piece in (head, *(body[at : at + 400] for at in range(0, len(body), 400))):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.002)

        url, _ = proxied(drip)
        assert post(url).content == body

    def test_a_stream_without_a_last_chunk_but_closed_by_http_1_0(self, proxied: Start) -> None:
        url, _ = proxied(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: [DONE]\n\n")
        assert post(url).content == b"data: [DONE]\n\n"

    def test_a_compressed_reply_nobody_asked_for_is_unpacked_for_its_score(self, proxied: Start) -> None:
        url, _ = proxied(response(gzip.compress(NO_LOGPROBS), PACKED))
        answer = post(url)
        assert "content-encoding" not in answer.headers
        assert without_block(answer.content) == NO_LOGPROBS

    @each("size", [1, 13, 10**9])
    @each("padding", [b"", bytes(512)])
    def test_a_stream_in_several_members_of_gzip_is_read_to_its_end(
        self, proxied: Start, size: int, padding: bytes
    ) -> None:
        """As servers write it that pack each event for itself."""
        whole = events(lima.event("Lima"), lima.event("", "stop"))
        plain = post(proxied(streamed(whole))[0], json=CHAT | {"stream": True}).content
        members = b"".join(map(gzip.compress, whole.splitlines(keepends=True)))
        url, _ = proxied(streamed(members + padding, PACKED, size=size))
        assert post(url, json=CHAT | {"stream": True}).content == plain and b"confidence" in plain
        url, _ = proxied(streamed(members[:-12], PACKED, size=size))
        with pytest.raises(httpx.RemoteProtocolError):
            post(url, json=CHAT | {"stream": True})

    def test_a_reply_in_several_members_of_gzip_arrives_as_it_is(self, proxied: Start) -> None:
        url, _ = proxied(response(gzip.compress(lima.reply()) + gzip.compress(b" \n"), PACKED))
        with streaming(url) as answer:
            packed = b"".join(answer.iter_raw())
        assert gzip.decompress(packed) == lima.reply() + b" \n"
        assert final_figure(url, 'unscored_answers_total{reason="encoded"}') == 1

    @each("beyond", [0, 1])
    def test_a_compressed_stream_is_broken_off_where_it_unpacks_to_more_than_the_limit(
        self, proxied: Start, beyond: int
    ) -> None:
        """A mebibyte that unpacks to a gibibyte would do the same; the bytes up to the limit arrive."""
        comment = b":" + b" " * 997 + b"\n\n"
        limit = 1_000_000
        stream = comment * 999 + b" " * beyond + comment
        url, _ = proxied(packed_stream(stream), max_scored_bytes=limit)
        got = bytearray()
        with streaming(url, stream=True) as answer:
            assert "content-encoding" not in answer.headers
            try:
                for piece in answer.iter_raw():
                    got += piece
                broken_off = False
            except httpx.RemoteProtocolError:
                broken_off = True
        assert broken_off == bool(beyond) and stream.startswith(got) and len(got) > limit - 2**16
        assert final_figure(url, 'unscored_answers_total{reason="too_large"}') == beyond

    def test_others_are_answered_while_a_few_bytes_unpack_until_the_client_leaves(self, proxied: Start) -> None:
        """All of these events take a minute."""
        url, _ = proxied(packed_stream(b"data: a\n\n" * 3_000_000))
        begun = time.process_time()
        with streaming(url, stream=True) as answer:
            pieces = answer.iter_raw()
            assert next(pieces)
            assert figure(url, "requests_in_flight") == 1
        wait_until(lambda: figure(url, "requests_in_flight") == 0)
        assert time.process_time() - begun < 10

    def test_requests_that_are_too_large(self, proxied: Start) -> None:
        url, upstream = proxied(response(b"{}"), max_request_bytes=1000)
        pieces = (b"x" * 100 for _ in range(50))
        assert post(url, content=b"x" * 1001).status_code == 413
        assert_error(post(url, content=pieces), 413, "request_too_large")
        assert post(url, content=b"x" * 1000).status_code == 200
        assert len(upstream.requests) == 1


class TestClients:
    def test_one_that_leaves_ends_the_request(self, proxied: Start) -> None:
        url, upstream = proxied(ticking)
        for path in PATHS:
            with streaming(url, path) as answer:
                next(answer.iter_raw())
        wait_until(lambda: upstream.open == 0)
        assert upstream.gone == 2
        wait_until(lambda: figure(url, 'failures_total{reason="client_gone"}') == 2)
        wait_until(lambda: figure(url, "requests_in_flight") == 0)

    def test_one_that_leaves_before_the_answer_begins(self, proxied: Start) -> None:
        url, upstream = proxied(silent)
        with pytest.raises(httpx.ReadTimeout):
            post(url, timeout=0.3)
        wait_until(lambda: upstream.gone == 1)

    def test_one_that_closes_its_sending_half_gets_its_answer_however_late(self, proxied: Start) -> None:
        async def late(_: Received, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(3.5)
            writer.write(response(NO_LOGPROBS))
            await writer.drain()

        def answered(path: str, version: str) -> bytes:
            with half_closed(url, path, version) as sock:
                reply = HTTPResponse(sock)
                reply.begin()  # past the interim responses
                body = reply.read()
                assert reply.status == 200 and sock.recv(1) == b""  # and the connection ends with it
            return without_block(body)

        url, upstream = proxied(late)
        ways = list(product(PATHS, ("1.1", "1.0")))
        with ThreadPoolExecutor(len(ways)) as pool:
            assert set(pool.map(answered, *zip(*ways, strict=True))) == {NO_LOGPROBS}
        assert (len(upstream.requests), upstream.gone) == (len(ways), 0)

    def test_one_that_closes_both_halves_is_missed(self, proxied: Start) -> None:
        """Its last packet is the same; a write that its system refuses shows the difference."""
        url, upstream = proxied(silent)
        half_closed(url, "/v1/chat/completions", "1.1").close()
        wait_until(lambda: upstream.gone == 1)
        wait_until(lambda: figure(url, 'failures_total{reason="client_gone"}') == 1)


def half_closed(url: str, path: str, version: str) -> socket.socket:
    """The socket of a client that has sent a request and says that it will send nothing more."""
    sock = connected(url)
    sock.sendall(posted(path, json.dumps(CHAT).encode(), version=version))
    sock.shutdown(socket.SHUT_WR)
    return sock


@pytest.mark.parametrize("grace", [10, 0.5])
def test_running_streams_end_before_the_server_stops_but_are_not_waited_for_for_ever(
    almanac_clusters: Any, grace: float
) -> None:
    release = threading.Event()
    behavior = holding(release, chunk(b"data: [DONE]\n\n") + LAST_CHUNK, stream_head() + chunk(b": begun\n\n"))
    got: list[bytes] = []

    def read_on(pieces: Iterator[bytes]) -> None:
        with suppress(httpx.RemoteProtocolError):
            got.extend(pieces)

    began = time.monotonic()
    with raw_upstream(behavior) as upstream, ExitStack() as opened:
        with running(proxy_app(ProxySettings(upstream.url), almanac_clusters), grace=grace) as url:
            pieces = opened.enter_context(streaming(url)).iter_raw()
            next(pieces)
            reader = threading.Thread(target=read_on, args=(pieces,))
            reader.start()
            if grace > 1:
                threading.Timer(0.3, release.set).start()
        reader.join(10)
        assert time.monotonic() - began < 10 and not reader.is_alive()
    assert got == ([b"data: [DONE]\n\n"] if grace > 1 else [])


def test_keys_are_never_logged(proxied: Start, caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    def answer(received: Received) -> bytes:
        return response(b"{}") if b"fine" in received.line else b""

    with caplog.at_level(logging.DEBUG):
        url, upstream = proxied(answering(answer))
        headers = {"Authorization": "Bearer sk-secret", "api-key": "sk-secret", "x-api-key": "sk-secret"}
        for path in ("/v1/chat/completions?key=sk-secret", "/v1/fine?key=sk-secret", "/v1/models?key=sk-secret"):
            post(url, path, headers=headers)
    assert upstream.requests[0].header(b"authorization") == b"Bearer sk-secret"
    told = [record.getMessage() for record in caplog.records if not record.name.startswith("httpx._test")]
    ours = [line for line in told if "127.0.0.1" not in line or upstream.url in line]
    out = capfd.readouterr()
    assert "sk-secret" not in out.out + out.err
    assert not [line for line in ours if "sk-secret" in line]


KEY = "sk-proj-0123456789"
BASIC = base64.b64encode(f"user:{KEY}".encode()).decode()
SENT: list[tuple[dict[str, str], str]] = [
    ({"Authorization": f"Bearer {KEY}"}, ""),
    ({"api-key": KEY}, ""),
    ({"x-goog-api-key": KEY}, ""),
    ({"Authorization": f"Basic {BASIC}"}, ""),
    ({}, f"?key={KEY}"),
    ({}, f"?a=b&api%5Fkey={KEY}"),
]
"""Headers and queries that hold a key."""


@each(("headers", "query"), SENT)
@each("path", [*PATHS, "/v1/decisions"])
def test_a_key_that_an_error_repeats_is_hidden(proxied: Start, headers: dict[str, str], query: str, path: str) -> None:
    """As OpenAI does, and Google with a 400: whoever shows or logs the error would show the key."""
    url, _ = proxied(said({"error": {"message": f"Incorrect API key: {KEY} ({KEY})."}}, status=b"400 Bad Request"))
    reply = post(url, path + query, headers=headers)
    assert reply.status_code == 400
    assert KEY not in reply.text and reply.text.count("***6789") == 2


def test_the_password_in_the_upstreams_address_is_hidden_too(almanac_clusters: Any) -> None:
    def refusing(received: Received) -> bytes:
        assert dict(received.headers)[b"accept-encoding"] == b"identity"
        return said({"sent": str(received.header(b"authorization")), "read": KEY}, status=b"403 Forbidden")

    with ExitStack() as stack:
        upstream = stack.enter_context(raw_upstream(answering(refusing)))
        with_password = upstream.url.replace("//", f"//user:{KEY}@")
        reply = httpx.get(stack.enter_context(proxy_of(with_password, almanac_clusters)) + "/v1/models").text
    assert KEY not in reply and BASIC not in reply and "***6789" in reply


@each("status", [b"200 OK", b"401 Unauthorized"])
@each("word", ["none", "undefined", "lm-studio", "no-key-required"])
def test_answers_and_words_that_are_no_key_stay_as_they_are(proxied: Start, status: bytes, word: str) -> None:
    key = KEY if status == b"200 OK" else word
    url, _ = proxied(said({"text": f"This {key} is no secret."}, status=status))
    assert post(url, "/v1/files", headers={"api-key": key}).json() == {"text": f"This {key} is no secret."}


@each("form", ["abc/+d 6789", "abc%2F%2Bd+6789", r"abc\/+d 6789"])
def test_a_key_is_hidden_in_each_form_that_a_message_repeats(proxied: Start, form: str) -> None:
    url, _ = proxied(response(form.encode(), status=b"401 Unauthorized"))
    assert post(url, "/v1/files?key=abc%2F%2Bd+6789").text == "*" * (len(form) - 4) + "6789"


def test_credentials_that_are_not_ascii_are_passed_on(proxied: Start) -> None:
    url, _ = proxied(said({"error": "no"}, status=b"401 Unauthorized"))
    headers: Any = {b"Authorization": "Basic pässwort".encode()}
    assert httpx.get(url + "/v1/models", headers=headers).status_code == 401


@each("path", PATHS)
def test_a_key_is_hidden_wherever_it_is_in_a_long_error(proxied: Start, path: str) -> None:
    filler = b"x" * (2**19 - 5)
    body = filler + b"%s %s" % (KEY.encode(), KEY.encode()) + filler + KEY[:9].encode()
    url, _ = proxied(response(body, status=b"503 Busy"))
    assert post(url, path, headers={"api-key": KEY}).content == body.replace(KEY[:-4].encode(), b"*" * (len(KEY) - 4))


def test_an_error_that_comes_in_pieces_is_passed_on_as_it_comes(proxied: Start) -> None:
    head = stream_head().replace(b"200 OK", b"503 Busy")
    url, _ = proxied(holding(threading.Event(), b"", head + chunk(f"data: {KEY}\n\n".encode())))
    with httpx.stream("GET", f"{url}/v1/other?key={KEY}", timeout=20) as answer:
        assert next(answer.iter_raw()) == b"data: " + b"*" * (len(KEY) - 4) + b"6789\n\n"


@given(st.lists(st.sampled_from(["ab1", "a", "b1", "1", "ab2"])))
def test_keys_are_hidden_wherever_a_message_is_cut(pieces: list[str]) -> None:
    """As in the whole message, and nothing waits that cannot be the beginning of a key."""
    keys = [b"ab1ab1ab2", b"b1ab1ab", b"1ab1ab"]
    cut = KeyFilter(keys)
    shown = b""
    for n, piece in enumerate(pieces, 1):
        shown += cut.hidden(piece.encode())
        waiting = "".join(pieces[:n]).encode()[len(shown) :]
        assert not waiting or any(key.startswith(waiting) for key in keys)
    message = "".join(pieces).encode()
    assert shown + cut.hidden(b"", last=True) == KeyFilter(keys).hidden(message, last=True)
