"""The duties of a reverse proxy: deliveries, refusals, deadlines, limits, paths, names, damaged streams."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semtoken import TokenClusters
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.replies import score_reply
from semtoken.web.callers import hosts_for
from semtoken.web.connections import ConnectionLimits
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.paths import check_target
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.running import FewOfAKind, address_of, listen, server_for
from semtoken.web.wire import ApiError
from tests.replies import recorded
from tests.replies.test_honest_streams import DAMAGE, by_the_standard, events_of
from tests.rows import each
from tests.web.conftest import Replaying, proxy_of
from tests.web.servers import (
    LAST_CHUNK,
    Received,
    Upstream,
    answering,
    chunk,
    raw_upstream,
    response,
    stream_head,
    streamed,
)
from tests.web.test_proxy_scores import LIMA, reply
from tests.web.test_proxy_transport import CHAT, figure, final_figure, post, wait_until, without_block

Start = Callable[..., tuple[str, Upstream]]


@contextmanager
def keeping_alive(answers: list[bytes | None]) -> Iterator[tuple[str, list[tuple[int, bytes]]]]:
    """A server that keeps connections open and answers from a list; None: it reads the request and closes.

    Yields its address, and the number of the connection and the body of every request.
    """
    got: list[tuple[int, bytes]] = []
    left = list(answers)
    listener = socket.create_server(("127.0.0.1", 0))

    def converse(connection: socket.socket, number: int) -> None:
        with connection, connection.makefile("rb") as lines:
            while True:
                length = 0
                while (line := lines.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line[15:])
                if not line:
                    return
                got.append((number, lines.read(length)))
                answer = left.pop(0) if left else None
                if answer is None:
                    return
                connection.sendall(answer)

    def serve() -> None:
        for number in range(100):
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=converse, args=(connection, number), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", got
    finally:
        listener.close()


class TestDeliveries:
    @pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
    def test_a_request_is_delivered_once(self, almanac_clusters: TokenClusters, path: str) -> None:
        """The upstream reads it in full on a connection that it had answered on, and closes: it may have acted."""
        fine = response(b'{"choices": []}')
        with keeping_alive([fine, None, fine]) as (upstream, got), proxy_of(upstream, almanac_clusters) as url:
            with httpx.Client() as client:
                first = client.post(url + path, json=CHAT | {"user": "first"})
                second = client.post(url + path, json=CHAT | {"user": "second"})
            assert (first.status_code, second.status_code) == (200, 502)
            assert second.json()["error"]["code"] == "upstream_broken"
            assert [json.loads(body)["user"] for _, body in got] == ["first", "second"]
            assert got[0][0] == got[1][0], "the connection was not used again, so nothing was tested"

    def test_a_request_on_a_new_connection_is_delivered_once(self, almanac_clusters: TokenClusters) -> None:
        with keeping_alive([None] * 10) as (upstream, got), proxy_of(upstream, almanac_clusters) as url:
            assert post(url).status_code == 502
            assert len(got) == 1

    @pytest.mark.parametrize(
        "words",
        [
            "logprobs is not supported with tools + stream (codes 19 18 17 16 15 14 13 12 11 10 9 8)",
            "top_logprobs must be at most 5, 4, 3, 2 or 1",
            "logprobs: the maximum is 19. logprobs: the maximum is 18.",
        ],
    )
    def test_a_refusal_is_answered_with_one_more_request(self, proxied: Start, words: str) -> None:
        error = json.dumps({"error": {"message": words}}).encode()
        url, upstream = proxied(answering(response(error, status=b"400 Bad Request")))
        assert post(url).status_code == 400
        assert len(upstream.requests) == 2


LAST = b"Connection: close"
"""Says that the upstream closes the connection, which a proxy on a busy machine may see too late."""


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "given"),
        [
            ("logprobs is not supported with tools + stream", "n_probs"),  # llama-server's, which has a name of its own
            ("no logprobs with tools in a stream", "none"),
        ],
    )
    def test_they_are_remembered_by_the_shape_of_the_request(self, proxied: Start, words: str, given: str) -> None:
        """An upstream may refuse log-probabilities with tools and a stream; all other requests are to be scored."""

        async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
            asked = received.json()
            if asked.get("tools") and asked.get("stream") and asked.get("logprobs"):
                error = json.dumps({"error": {"message": words}}).encode()
                writer.write(response(error, LAST, status=b"400 Bad Request"))
            else:
                writer.write(response(reply({"content": "Lima"}, LIMA), LAST))

        url, upstream = proxied(behave)
        with_tools = CHAT | {"tools": [{"type": "function"}], "stream": True}
        for _ in range(2):
            assert post(url, json=with_tools).status_code == 200
        assert [bool(r.json().get("logprobs")) for r in upstream.requests] == [True, False, False]
        named = given == "n_probs"
        assert [bool(r.json().get("n_probs")) for r in upstream.requests] == [False, named, named]
        for body in (CHAT, with_tools | {"stream": False}):
            assert "sequence_uncertainty" in post(url, json=body).json()["choices"][0]["semtoken"]
        assert final_figure(url, "semtoken_proxy_refusals_remembered") == 1
        assert final_figure(url, f'semtoken_proxy_refusals_total{{endpoint="chat",given="{given}"}}') == 1


class TestPaths:
    @each(
        "path",
        [
            "/v1/../admin",
            "/..",
            "/v1/%2e%2e/admin",
            "/v1/.%2E/x",
            "/v1/%252e%252e/x",
            "/v1/..%2fx",
            "/v1/..\\x",
            "/v1/./x",
            "/v1/..;/x",
            "//../x",
        ],
    )
    def test_the_upstreams_prefix_is_not_left(self, path: str) -> None:
        with pytest.raises(ApiError, match="segments"):
            check_target(path.encode() + b"?q=1")

    @each("path", ["/v1/a..b", "/v1/...", "/v1/.well-known", "/v1/x?path=../y", "/v1/gpt-4.1"])
    def test_dots_elsewhere_are_fine(self, path: str) -> None:
        check_target(path.encode())


@pytest.mark.parametrize("status", [b"600 Odd", b"999 Odd", b"000 Odd", b"101 Switching Protocols"])
def test_a_status_that_no_answer_has(proxied: Start, status: bytes) -> None:
    url, upstream = proxied(answering(response(b"{}", status=status)))
    for path in ("/v1/chat/completions", "/v1/other"):
        answer = httpx.post(url + path, json=CHAT)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_broken")
    assert len(upstream.requests) == 2


def test_what_is_no_path(proxied: Start) -> None:
    url, upstream = proxied(answering(response(b"{}")))
    for target in ("http://127.0.0.1:1/secret", "@evil.example/", "*", "/v1/x#y", "%2Fsecret", "/v1/../../admin"):
        with connected(url) as sock:
            sock.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % target.encode())
            assert sock.recv(4096).startswith(b"HTTP/1.1 400"), target
    assert not upstream.requests


def test_a_failure_of_the_proxy_itself_is_an_answer(
    proxied: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("in the middle")

    monkeypatch.setattr("semtoken.web.proxy.app.read_request", fail)
    url, _ = proxied(answering(response(b"{}")))
    answer = post(url)
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    assert "in the middle" not in answer.text and "in the middle" in caplog.text


@pytest.fixture(scope="module")
def named(almanac_clusters: TokenClusters) -> Iterator[tuple[str, Upstream]]:
    """A proxy that knows one more host and one more origin, and its upstream."""
    known: Any = {"allowed_hosts": hosts_for("127.0.0.1", ["models.lan"])}
    known |= {"allowed_origins": ("https://chat.example",)}
    with raw_upstream(answering(response(b"{}"))) as up, proxy_of(up.url, almanac_clusters, **known) as url:
        yield url, up


class TestNames:
    @each(
        ("headers", "status"),
        [
            ({}, 200),
            ({"host": "localhost:8001"}, 200),
            ({"host": "[::1]:8001"}, 200),
            ({"origin": "http://localhost:3000"}, 200),
            ({"host": "evil.example"}, 403),
            ({"host": "127.0.0.1.evil.example"}, 403),
            ({"origin": "https://evil.example"}, 403),
            ({"origin": "null"}, 403),
            ({"origin": ""}, 403),
            ({"origin": "://"}, 403),
            ({"origin": "http://[::1"}, 403),
            ({"origin": "http://[localhost]"}, 403),
            ({"origin": "http://caf\xe9\xbc.example"}, 403),
            ({"origin": "http://::1]:80"}, 403),
            ({"origin": "http://localhost:abc"}, 403),
            ({"origin": "http://localhost:99999"}, 403),
            ({"origin": "http://evil.example@localhost"}, 403),
            ({"origin": "http://localhost/page"}, 403),
            ({"origin": "http://localhost#evil.example"}, 403),
            ({"origin": "://localhost"}, 403),
            ({"origin": "http://[::1]:3000"}, 200),
            ({"host": "localhost:abc"}, 403),
            ({"host": "[::1"}, 403),
            ({"origin": "https://chat.example"}, 200),
            ({"host": "models.lan:80"}, 200),
        ],
    )
    def test_hosts_and_origins(self, named: tuple[str, Upstream], headers: dict[str, str], status: int) -> None:
        url, upstream = named
        before = len(upstream.requests)
        given = {name: value.encode("latin-1") for name, value in headers.items()}
        sent = httpx.post(url + "/v1/x", content=b"{}", headers={"content-type": b"text/plain", **given})
        assert sent.status_code == status
        assert len(upstream.requests) - before == (status == 200)

    def test_what_is_allowed_by_default(self) -> None:
        assert "evil.example" not in hosts_for("127.0.0.1", []) and "*" in hosts_for("0.0.0.0", [])
        assert "*" not in hosts_for("0.0.0.0", ["models.lan"])

    def test_proxies_of_the_environment_are_not_used(self, proxied: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("no_proxy", "")
        url, upstream = proxied(answering(response(b"{}")))
        with httpx.Client(trust_env=False) as client:
            assert client.get(url + "/v1/models").status_code == 200
        assert len(upstream.requests) == 1


@contextmanager
def limited(url: str, clusters: TokenClusters, limits: ConnectionLimits, **more: Any) -> Iterator[str]:
    """A proxy whose clients' connections are limited."""
    listener = listen("127.0.0.1", 0)
    server = server_for(proxy_app(ProxySettings(url, **more), clusters), grace=1.0, limits=limits)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield address_of(listener).url
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


def connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


class TestDeadlines:
    @pytest.mark.parametrize("sent", [b"", b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nX-A: ", b"GET /v1/mod"])
    def test_a_head_that_does_not_come(self, almanac_clusters: TokenClusters, sent: bytes) -> None:
        with (
            raw_upstream(answering(response(b"{}"))) as upstream,
            limited(upstream.url, almanac_clusters, ConnectionLimits(header_timeout=0.3)) as url,
            connected(url) as sock,
        ):
            if sent.startswith(b"GET"):  # the second one on a connection
                sock.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert sock.recv(4096).startswith(b"HTTP/1.1 200")
            sock.sendall(sent)
            start = time.monotonic()
            with suppress(ConnectionResetError):
                while sock.recv(4096):
                    pass
            assert time.monotonic() - start < 5

    def test_a_body_that_does_not_come(self, proxied: Start) -> None:
        url, upstream = proxied(answering(response(b"{}")), body_timeout=0.3)
        with connected(url) as sock:
            sock.sendall(b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab")
            assert sock.recv(4096).startswith(b"HTTP/1.1 408")
        assert not upstream.requests
        assert final_figure(url, 'semtoken_proxy_failures_total{reason="body_timeout"}') == 1

    def test_a_client_that_reads_nothing(self, almanac_clusters: TokenClusters) -> None:
        body = b"x" * 50_000_000
        with raw_upstream(answering(response(body, kind=b"text/plain"))) as upstream:
            limits = ConnectionLimits(write_timeout=0.3)
            with limited(upstream.url, almanac_clusters, limits) as url, connected(url) as sock:
                sock.sendall(b"GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
                sock.recv(100)
                wait_until(lambda: upstream.open == 0)
                wait_until(lambda: figure(url, "semtoken_proxy_requests_in_flight") == 0)

    def test_a_request_that_takes_too_long(self, proxied: Start) -> None:
        async def drip(_: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(stream_head())
            while True:
                writer.write(chunk(b": tick\n\n"))
                await writer.drain()
                await asyncio.sleep(0.05)

        url, upstream = proxied(drip, request_timeout=0.5)
        with pytest.raises(httpx.RemoteProtocolError):
            post(url)
        wait_until(lambda: upstream.open == 0)
        assert final_figure(url, 'semtoken_proxy_failures_total{reason="request_timeout"}') == 1

    def test_a_request_whose_answer_does_not_begin_in_time(self, proxied: Start) -> None:
        url, _ = proxied(lambda *_: asyncio.sleep(60), request_timeout=0.3)
        answer = post(url)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "request_timeout")


class TestLimits:
    @pytest.mark.parametrize(
        ("most", "status"), [({"max_connections": 2}, 503), ({"max_connections_per_client": 2}, 429)]
    )
    def test_requests_at_one_time(self, proxied: Start, most: dict[str, int], status: int) -> None:
        release = threading.Event()

        async def wait(_: Received, writer: asyncio.StreamWriter) -> None:
            while not release.is_set():
                await asyncio.sleep(0.01)
            writer.write(response(b"{}"))

        url, upstream = proxied(wait, **most)
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.append(post(url).status_code)) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(upstream.requests) == 2)
        refused = post(url)
        assert refused.status_code == status and refused.headers["retry-after"] == "1"
        release.set()
        for thread in threads:
            thread.join(10)
        assert found == [200, 200]
        assert post(url).status_code == 200

    def test_connections(self, almanac_clusters: TokenClusters) -> None:
        """One more than allowed takes the place of the one that is idle for longest, and of none that is at work."""
        release = threading.Event()

        async def wait(_: Received, writer: asyncio.StreamWriter) -> None:
            while not release.is_set():
                await asyncio.sleep(0.01)
            writer.write(response(b"{}"))

        with (
            raw_upstream(wait) as upstream,
            limited(upstream.url, almanac_clusters, ConnectionLimits(connections=3)) as url,
        ):
            held = [connected(url) for _ in range(3)]
            time.sleep(0.2)
            with connected(url), suppress(ConnectionResetError):
                assert held[0].recv(10) == b""
            at_work = [connected(url) for _ in range(3)]
            for sock in at_work:
                sock.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_until(lambda: len(upstream.requests) == 3)
            with connected(url) as refused, suppress(ConnectionResetError):
                assert refused.recv(10) == b""
            release.set()
            for sock in at_work:
                assert sock.recv(1000).startswith(b"HTTP/1.1 200")
            for sock in (*held, *at_work):
                sock.close()
            wait_until(lambda: reachable(url))

    def test_a_long_event_does_not_keep_others_waiting(self, almanac_clusters: TokenClusters, proxied: Start) -> None:
        """One event of 1,500 tokens takes a second to score; a request for another page meanwhile does not."""
        item = LIMA["content"][0]
        items = [{**item, "top_logprobs": [item] * 20}] * 1500
        choice = {"index": 0, "delta": {"content": "Lima" * 1500}, "logprobs": {"content": items}}
        events = [{"choices": [choice | {"finish_reason": "stop"}]}]
        stream = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events)
        begun = threading.Event()

        async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
            if b"completions" in received.line:
                begun.set()
                writer.write(stream_head() + chunk(stream) + LAST_CHUNK)
            else:
                writer.write(response(b"{}"))
            await writer.drain()

        url, _ = proxied(behave)
        took: list[float] = []

        def long() -> None:
            start = time.monotonic()
            answer = httpx.post(url + "/v1/chat/completions", json=CHAT | {"stream": True}, timeout=60)
            assert b'"final":true' in answer.content.replace(b" ", b"")
            took.append(time.monotonic() - start)

        thread = threading.Thread(target=long)
        thread.start()
        assert begun.wait(60)  # else it may be sent on the connection of another page, which this upstream closes
        waits = []
        with httpx.Client(base_url=url, timeout=60) as others:
            while thread.is_alive():
                start = time.monotonic()
                others.get("/v1/models")
                waits.append(time.monotonic() - start)
                time.sleep(0.05)
        thread.join()
        assert max(waits) < max(took[0] / 2, 0.5), (waits, took)

    @pytest.mark.parametrize(
        ("most", "words"),
        [({"max_scored_tokens": 3}, "more tokens"), ({"max_scoring_seconds": 1e-9}, "too long")],
    )
    def test_budgets(self, proxied: Start, most: dict[str, Any], words: str) -> None:
        chunks = [
            {"choices": [{"index": 0, "delta": {"content": "Lima"}, "logprobs": LIMA, "finish_reason": None}]}
        ] * 5
        last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        sent = b"".join(b"data: " + json.dumps(c).encode() + b"\n\n" for c in [*chunks, last])
        url, _ = proxied(answering(response(sent, kind=b"text/event-stream")), **most)
        block = final_blocks(post(url, json=CHAT | {"stream": True}).content)[0]
        assert words in block["reason"] and "sequence_uncertainty" not in block

    def test_the_budget_of_a_whole_reply(self, proxied: Start) -> None:
        message = {"role": "assistant", "content": "Lima"}
        choices = [{"index": i, "message": message, "logprobs": LIMA, "finish_reason": "stop"} for i in range(2)]
        body = json.dumps({"object": "chat.completion", "choices": choices}).encode()
        url, _ = proxied(answering(response(body)), max_scoring_seconds=1e-9)
        for choice in post(url).json()["choices"]:
            assert "too long" in choice["semtoken"]["reason"] and "sequence_uncertainty" not in choice["semtoken"]


def reachable(url: str) -> bool:
    try:
        return httpx.get(url + "/v1/models").status_code == 200
    except httpx.TransportError:
        return False


# --- streams ----------------------------------------------------------------------------------------------------------


def chunks_in(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(data) for data in by_the_standard(body) if data.startswith("{")]


def final_blocks(body: bytes) -> dict[int, Any]:
    """The last final block of each choice; under -1 that of the whole stream."""
    found: dict[int, Any] = {}
    for one in chunks_in(body):
        if one.get("semtoken", {}).get("final"):
            found[-1] = one["semtoken"]
        for choice in one.get("choices", []):
            if choice.get("semtoken", {}).get("final"):
                found[choice["index"]] = choice["semtoken"]
    return found


STREAMED = [name for name in recorded.STREAMED if "-chat" in name and "llama" not in name]


def through(replaying: Replaying, stream: bytes) -> bytes:
    headers = (b"Content-Encoding: gzip",) if stream.startswith(b"\x1f\x8b") else ()
    return post(replaying(streamed(stream, *headers)), json=CHAT | {"stream": True}).content


def expected(stream: bytes) -> list[tuple[float, float]] | None:
    try:
        return [result.sequence_uncertainty_interval for result in score_reply(stream, recorded.clusters())]
    except SemtokenError:
        return None


LOOKS: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda stream: stream,
    "mark": lambda stream: b"\xef\xbb\xbf" + stream,
    "crlf": lambda stream: stream.replace(b"\n", b"\r\n"),
    "cr": lambda stream: stream.replace(b"\n", b"\r"),
    "lines": lambda stream: stream.replace(b"data: {", b"data: {\ndata: "),
    "gzip": gzip.compress,
}


@each(
    ("name", "look"),
    [*(("vllm-chat-two", look) for look in LOOKS), *zip(STREAMED, list(LOOKS) * len(STREAMED), strict=False)],
)
def test_what_streams_may_look_like(replaying: Replaying, name: str, look: str) -> None:
    plain = (recorded.recording(name).stream or "").encode()
    body = through(replaying, LOOKS[look](plain))
    assert b'"top_logprobs"' not in body  # which the client did not ask for
    found = final_blocks(body)
    numbers = expected(plain)
    if numbers is None:
        assert all("reason" in block for block in found.values())
    else:
        assert [tuple(found[i]["sequence_uncertainty_interval"]) for i in sorted(found)] == numbers


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_stream_arrives_and_has_no_number(replaying: Replaying, data: st.DataObject) -> None:
    """The bytes of a damaged stream arrive; the blocks after it give a reason, or there are none."""
    name = data.draw(st.sampled_from(["vllm-chat", "openai-chat-awkward", "vllm-chat-two"]))
    events = events_of(name)
    at = data.draw(st.integers(0, len(events) - 1))
    how = data.draw(st.sampled_from(list(DAMAGE)))
    body = through(replaying, b"".join([*events[:at], DAMAGE[how], *events[at:]]))
    assert DAMAGE[how] in body
    damage = body.index(DAMAGE[how])
    after = body[damage + len(DAMAGE[how]) :]
    assert b'"sequence_uncertainty"' not in after
    if b'finish_reason":"' in after.replace(b" ", b"") or b"[DONE]" in after:
        ended_before = b'"final": true' in body[:damage] or b'"final":true' in body[:damage]
        assert b'"reason"' in after or ended_before


def test_more_after_the_end_withdraws_the_score(replaying: Replaying) -> None:
    def event(content: str, finish: str | None) -> bytes:
        choice = {"index": 0, "delta": {"content": content}, "logprobs": LIMA, "finish_reason": finish}
        return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"

    once = through(replaying, event("Lima", "stop") + b"data: [DONE]\n\n")
    assert "sequence_uncertainty" in final_blocks(once)[0]
    twice = through(replaying, event("Lima", "stop") + event("Lima", None) + b"data: [DONE]\n\n")
    assert "already" in final_blocks(twice)[0]["reason"] or "complete" in final_blocks(twice)[0]["reason"]


def test_an_event_may_end_several_answers(replaying: Replaying) -> None:
    choices = [{"index": i, "delta": {"content": "Lima"}, "logprobs": LIMA, "finish_reason": "stop"} for i in (0, 1)]
    sent = b"data: " + json.dumps({"choices": choices}).encode() + b"\n\ndata: [DONE]\n\n"
    found = final_blocks(through(replaying, sent))
    assert found[0] == found[1] and "sequence_uncertainty" in found[0]


def test_a_stream_that_ends_no_answer_says_so(replaying: Replaying) -> None:
    choice = {"index": 0, "delta": {"content": "Lima"}, "logprobs": LIMA, "finish_reason": None}
    found = through(replaying, b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\ndata: [DONE]\n\n")
    [last] = [one["semtoken"] for one in chunks_in(found) if "semtoken" in one]
    assert last["final"] and "finish_reason" in last["reason"] and b'"sequence_uncertainty"' not in found


def test_values_so_far_are_for_those_who_ask(proxied: Start) -> None:
    def chunks(**ours: Any) -> list[Any]:
        body = post(url, json=CHAT | {"stream": True} | ours).content
        return [choice.get("semtoken") for one in chunks_in(body) for choice in one["choices"]]

    plain = (recorded.recording("vllm-chat-awkward-ids").stream or "").encode()
    url, upstream = proxied(answering(response(plain, kind=b"text/event-stream")))
    everything, finals = chunks(semtoken={"running": True}), chunks(semtoken={"running": False})
    assert chunks(semtoken={}) == everything and chunks() == finals
    assert [block for block in everything if block and block.get("final")] == [block for block in finals if block]
    assert sum(block is not None for block in everything) > sum(block is not None for block in finals)
    assert all("semtoken" not in request.json() for request in upstream.requests)


LONG = 3.0
"""Seconds for which a proxy can be told to hold back, and which a busy machine does not take for nothing."""


class TestLastContent:
    def stream(self, wait: Callable[[], Awaitable[object]]) -> Any:
        """A token, and the end of the stream once `wait` is over."""

        def event(content: str, finish: str | None) -> bytes:
            choice = {"index": 0, "delta": {"content": content} if content else {}, "finish_reason": finish}
            found = {"choices": [choice | {"logprobs": LIMA if content else None}]}
            return chunk(b"data: " + json.dumps(found).encode() + b"\n\n")

        async def behave(_: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(stream_head() + event("Lima", None))
            await writer.drain()
            await wait()
            writer.write(event("", "stop") + LAST_CHUNK)
            await writer.drain()

        return behave

    def test_it_carries_the_final_score(self, proxied: Start) -> None:
        url, _ = proxied(self.stream(lambda: asyncio.sleep(0.02)), hold=30.0)
        content, last = chunks_in(post(url, json=CHAT | {"stream": True}).content)
        assert content["choices"][0]["semtoken"] == last["choices"][0]["semtoken"]
        assert content["choices"][0]["semtoken"]["final"] is True
        assert content["choices"][0]["delta"] == {"content": "Lima"}

    def test_it_is_held_back_for_as_long_as_is_said(self, proxied: Start) -> None:
        assert max(self.seconds_held_back(proxied, 0.0), self.seconds_held_back(proxied, 0.1)) < LONG
        assert self.seconds_held_back(proxied, LONG) >= LONG

    def seconds_held_back(self, proxied: Start, hold: float) -> float:
        """Until a client has the only content, of an upstream that says more only once the client has it."""
        arrived = threading.Event()
        url, _ = proxied(self.stream(lambda: asyncio.to_thread(arrived.wait, 20)), hold=hold)
        start = time.monotonic()
        asked = CHAT | {"stream": True, "semtoken": {"running": True}}
        with httpx.stream("POST", url + "/v1/chat/completions", json=asked, timeout=20) as answer:
            pieces = answer.iter_raw()
            first = next(pieces)
            seconds = time.monotonic() - start
            arrived.set()
            assert b'"final": false' in first
            assert b'"final": true' in b"".join(pieces)
        return seconds


def test_the_same_message_is_logged_a_few_times_a_minute() -> None:
    now = [0.0]
    storm = FewOfAKind(lambda: now[0])

    def record() -> logging.LogRecord:
        return logging.LogRecord("asyncio", logging.ERROR, "x", 1, "socket.accept() out of system resource", (), None)

    assert [storm.filter(record()) for _ in range(1000)].count(True) == 5
    now[0] = 61.0
    again = record()
    assert storm.filter(again) and "995 more" in again.msg


def test_without_block_knows_both_spellings() -> None:
    assert without_block(b'{"a":1,"semtoken":{"version": 1}}') == b'{"a":1}'


@pytest.mark.parametrize("name", ["top_logprobs", "decision_requests", "max_connections", "scoring_threads"])
def test_one_is_enough_of_what_a_proxy_may_do_and_none_is_refused(name: str) -> None:
    few: dict[str, Any] = {name: 1}
    assert getattr(ProxySettings("http://127.0.0.1:9", **few), name) == 1
    with pytest.raises(InvalidInputError, match=rf"{name} must be .*, got 0"):
        ProxySettings("http://127.0.0.1:9", **{name: 0})
