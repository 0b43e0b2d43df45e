"""The duties of a reverse proxy: deliveries, refusals, deadlines, limits, paths, names, damaged streams."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
from semtoken.web.proxy.paths import check_target
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.running import FewOfAKind
from semtoken.web.wire import ApiError
from tests.replies import recorded
from tests.replies.test_honest_streams import DAMAGE, by_the_standard
from tests.rows import each
from tests.web import lima
from tests.web.asking import CHAT, assert_error, blocks_in, figure, final_figure, post
from tests.web.conftest import Replaying, Start, proxy_of
from tests.web.servers import (
    LAST_CHUNK,
    Received,
    Upstream,
    answering,
    chunk,
    connected,
    events,
    holding,
    posted,
    raw_upstream,
    response,
    said,
    stream_head,
    streamed,
    ticking,
    wait_until,
)

STREAM = CHAT | {"stream": True}


@contextmanager
def keeping_alive(answers: list[bytes | None]) -> Iterator[tuple[str, list[tuple[int, bytes]]]]:
    """A server that keeps connections open and answers from a list; None: it reads the request and closes.

    Yields its address, and the client's port and the body of every request.
    """
    got: list[tuple[int, bytes]] = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            got.append((self.client_address[1], self.rfile.read(int(self.headers["Content-Length"]))))
            answer = left.pop(0)
            self.wfile.write(answer or b"")
            self.close_connection = answer is None

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()


class TestDeliveries:
    @each("path", ["/v1/chat/completions", "/v1/embeddings"])
    def test_a_request_is_delivered_once(self, almanac_clusters: TokenClusters, path: str) -> None:
        """The upstream reads it in full on a connection that it had answered on, and closes: it may have acted."""
        fine = response(b'{"choices": []}', last=b"Connection: keep-alive")
        with keeping_alive([fine, None, fine]) as (upstream, got), proxy_of(upstream, almanac_clusters) as url:
            with httpx.Client() as client:
                first = client.post(url + path, json=CHAT | {"user": "first"})
                second = client.post(url + path, json=CHAT | {"user": "second"})
            assert first.status_code == 200
            assert_error(second, 502, "upstream_broken")
            assert [json.loads(body)["user"] for _, body in got] == ["first", "second"]
            assert got[0][0] == got[1][0], "the connection was not used again, so nothing was tested"

    def test_a_request_on_a_new_connection_is_delivered_once(self, almanac_clusters: TokenClusters) -> None:
        with keeping_alive([None] * 10) as (upstream, got), proxy_of(upstream, almanac_clusters) as url:
            assert post(url).status_code == 502
            assert len(got) == 1

    @each(
        "words",
        [
            "logprobs is not supported with tools + stream (codes 19 18 17 16 15 14 13 12 11 10 9 8)",
            "top_logprobs must be at most 5, 4, 3, 2 or 1",
            "logprobs: the maximum is 19. logprobs: the maximum is 18.",
        ],
    )
    def test_a_refusal_is_answered_with_one_more_request_and_remembered(self, proxied: Start, words: str) -> None:
        url, upstream = proxied(refusal(words))
        assert post(url).status_code == 400
        assert len(upstream.requests) == 2
        post(url)
        assert "top_logprobs" not in upstream.requests[2].json(), "what is refused is asked for again"


def refusal(words: str) -> bytes:
    return said({"error": {"message": words}}, b"400 Bad Request")


class TestRefusals:
    @each(
        ("words", "given"),
        [
            ("logprobs is not supported with tools + stream", "n_probs"),  # llama-server's, which has a name of its own
            ("no logprobs with tools in a stream", "none"),
        ],
    )
    def test_they_are_remembered_by_the_shape_of_the_request(self, proxied: Start, words: str, given: str) -> None:
        """An upstream may refuse log-probabilities with tools and a stream; all other requests are to be scored."""

        def answer(received: Received) -> bytes:
            asked = received.json()
            refused = asked.get("tools") and asked.get("stream") and asked.get("logprobs")
            return refusal(words) if refused else said(json.loads(lima.reply()))

        url, upstream = proxied(answering(answer))
        with_tools = STREAM | {"tools": [{"type": "function"}]}
        for _ in range(2):
            assert post(url, json=with_tools).status_code == 200
        assert [bool(r.json().get("logprobs")) for r in upstream.requests] == [True, False, False]
        named = given == "n_probs"
        assert [bool(r.json().get("n_probs")) for r in upstream.requests] == [False, named, named]
        for body in (CHAT, with_tools | {"stream": False}):
            assert "sequence_uncertainty" in post(url, json=body).json()["choices"][0]["semtoken"]
        assert final_figure(url, "refusals_remembered") == 1
        assert final_figure(url, f'refusals_total{{endpoint="chat",given="{given}"}}') == 1


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

    def test_what_is_no_path(self, proxied: Start) -> None:
        url, upstream = proxied(response(b"{}"))
        for target in ("http://127.0.0.1:1/secret", "@evil.example/", "*", "/v1/x#y", "%2Fsecret", "/v1/../../admin"):
            with connected(url) as sock:
                sock.sendall(posted(target, b"", "Connection: close"))
                assert sock.recv(4096).startswith(b"HTTP/1.1 400"), target
        assert not upstream.requests


def test_a_failure_of_the_proxy_itself_is_an_answer(
    proxied: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("in the middle")

    monkeypatch.setattr("semtoken.web.proxy.app.read_request", fail)
    url, _ = proxied(response(b"{}"))
    answer = post(url)
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    assert "in the middle" not in answer.text and "in the middle" in caplog.text


@pytest.fixture(scope="module")
def named(almanac_clusters: TokenClusters) -> Iterator[tuple[str, Upstream]]:
    """A proxy that knows one more host and one more origin, and its upstream."""
    known: Any = {"allowed_hosts": hosts_for("127.0.0.1", ["models.lan"])}
    known |= {"allowed_origins": ("https://chat.example",)}
    with raw_upstream(response(b"{}")) as up, proxy_of(up.url, almanac_clusters, **known) as url:
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
        sent = post(url, "/v1/x", content=b"{}", headers={"content-type": b"text/plain", **given})
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
        url, upstream = proxied(response(b"{}"))
        with httpx.Client(trust_env=False) as client:
            assert client.get(url + "/v1/models").status_code == 200
        assert len(upstream.requests) == 1


GET_MODELS = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"


class TestDeadlines:
    @each("sent", [b"", b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nX-A: ", b"GET /v1/mod"])
    def test_a_head_that_does_not_come(self, proxied: Start, sent: bytes) -> None:
        url, _ = proxied(response(b"{}"), limits=ConnectionLimits(header_timeout=0.3))
        with connected(url) as sock:
            if sent.startswith(b"GET"):  # the second one on a connection
                sock.sendall(GET_MODELS)
                assert sock.recv(4096).startswith(b"HTTP/1.1 200")
            sock.sendall(sent)
            start = time.monotonic()
            with suppress(ConnectionResetError):
                while sock.recv(4096):
                    pass
            assert time.monotonic() - start < 5

    def test_a_body_that_does_not_come(self, proxied: Start) -> None:
        url, upstream = proxied(response(b"{}"), body_timeout=0.3)
        with connected(url) as sock:
            sock.sendall(posted("/v1/x", b"ab", length=5))
            assert sock.recv(4096).startswith(b"HTTP/1.1 408")
        assert not upstream.requests
        assert final_figure(url, 'failures_total{reason="body_timeout"}') == 1

    def test_a_client_that_reads_nothing(self, proxied: Start) -> None:
        sent = response(b"x" * 50_000_000, kind=b"text/plain")
        url, upstream = proxied(sent, limits=ConnectionLimits(write_timeout=0.3))
        with connected(url) as sock:
            sock.sendall(GET_MODELS)
            sock.recv(100)
            wait_until(lambda: upstream.open == 0)
            wait_until(lambda: figure(url, "requests_in_flight") == 0)

    def test_a_request_that_takes_too_long(self, proxied: Start) -> None:
        url, upstream = proxied(ticking, request_timeout=0.5)
        with pytest.raises(httpx.RemoteProtocolError):
            post(url)
        wait_until(lambda: upstream.open == 0)
        assert final_figure(url, 'failures_total{reason="request_timeout"}') == 1


def long_event() -> dict[str, Any]:
    """One event of 1,500 tokens."""
    event = lima.event("Lima" * 1500, "stop")
    event["choices"][0]["logprobs"] = {"content": [lima.TOKEN | {"top_logprobs": [lima.TOKEN] * 20}] * 1500}
    return event


LONG_STREAM = streamed(events(long_event(), done=False), size=10**9)


class TestLimits:
    @each(("most", "status"), [({"max_connections": 2}, 503), ({"max_connections_per_client": 2}, 429)])
    def test_requests_at_one_time(self, proxied: Start, most: dict[str, int], status: int) -> None:
        release = threading.Event()
        url, upstream = proxied(holding(release, response(b"{}")), **most)
        with ThreadPoolExecutor(2) as pool:
            held = [pool.submit(post, url) for _ in range(2)]
            wait_until(lambda: len(upstream.requests) == 2)
            refused = post(url)
            assert refused.status_code == status and refused.headers["retry-after"] == "1"
            release.set()
            assert [one.result().status_code for one in held] == [200, 200]
        assert post(url).status_code == 200

    def test_connections(self, proxied: Start) -> None:
        """One more than allowed takes the place of the one that is idle for longest, and of none that is at work."""
        release = threading.Event()
        url, upstream = proxied(holding(release, response(b"{}")), limits=ConnectionLimits(connections=3))
        held = [connected(url) for _ in range(3)]
        time.sleep(0.2)
        with connected(url), suppress(ConnectionResetError):
            assert held[0].recv(10) == b""
        at_work = [connected(url) for _ in range(3)]
        for sock in at_work:
            sock.sendall(GET_MODELS)
        wait_until(lambda: len(upstream.requests) == 3)
        with connected(url) as refused, suppress(ConnectionResetError):
            assert refused.recv(10) == b""
        release.set()
        for sock in at_work:
            assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        for sock in (*held, *at_work):
            sock.close()
        wait_until(lambda: reachable(url))

    def test_a_long_event_does_not_keep_others_waiting(self, proxied: Start) -> None:
        """The event takes a second to score; a request for another page meanwhile does not."""
        begun = threading.Event()

        def answer(received: Received) -> bytes:
            if b"completions" not in received.line:
                return response(b"{}")
            begun.set()
            return LONG_STREAM

        url, _ = proxied(answering(answer))
        took: list[float] = []

        def ask() -> None:
            start = time.monotonic()
            assert b'"final":true' in post(url, json=STREAM).content.replace(b" ", b"")
            took.append(time.monotonic() - start)

        thread = threading.Thread(target=ask)
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

    def test_more_than_can_be_scored_arrives_with_that_reason(self, proxied: Start) -> None:
        url, _ = proxied(LONG_STREAM, scoring_threads=1, scoring_queue=1)
        with ThreadPoolExecutor(5) as pool:
            answers = [one.content for one in pool.map(lambda _: post(url, json=STREAM), range(5))]
        reasons = [final_blocks(answer)[0].get("reason", "") for answer in answers]
        busy = ["more to score than it can" in reason for reason in reasons]
        assert 0 < sum(busy) < 5 and busy == [bool(reason) for reason in reasons]
        assert final_figure(url, 'unscored_answers_total{reason="busy"}') == sum(busy)

    @each(
        ("most", "stream", "words"),
        [
            ({"max_scored_tokens": 5}, True, None),
            ({"max_scored_tokens": 4}, True, "more tokens"),
            ({"max_scoring_seconds": 1e-9}, True, "too long"),
            ({"max_scoring_seconds": 1e-9}, False, "too long"),
        ],
    )
    def test_budgets(self, proxied: Start, most: dict[str, Any], stream: bool, words: str | None) -> None:
        five = events(*[lima.event()] * 5, lima.event("", "stop"))
        whole = lima.reply(lima.choice(0), lima.choice(1))
        url, _ = proxied(streamed(five) if stream else response(whole), **most)
        answer = post(url, json=CHAT | {"stream": stream})
        blocks = list(final_blocks(answer.content).values()) if stream else blocks_in(answer.json())
        assert len(blocks) == (1 if stream else 2)
        for block in blocks:
            assert ("sequence_uncertainty" in block) == (words is None) and (words or "") in block.get("reason", "")


def reachable(url: str) -> bool:
    try:
        return httpx.get(url + "/v1/models").status_code == 200
    except httpx.TransportError:
        return False


# --- streams ----------------------------------------------------------------------------------------------------------


def chunks_in(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(data) for data in by_the_standard(body) if data.startswith("{")]


def final_blocks(body: bytes) -> dict[int, Any]:
    """The last final block of each choice."""
    choices = [choice for one in chunks_in(body) for choice in one.get("choices", [])]
    return {one["index"]: one["semtoken"] for one in choices if one.get("semtoken", {}).get("final")}


STREAMED = [name for name in recorded.STREAMED if "-chat" in name and "llama" not in name]


def through(replaying: Replaying, stream: bytes) -> bytes:
    headers = (b"Content-Encoding: gzip",) if stream.startswith(b"\x1f\x8b") else ()
    return post(replaying(streamed(stream, *headers)), json=STREAM).content


def recorded_stream(name: str) -> bytes:
    return recorded.recording(name).stream.encode()


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
    plain = recorded_stream(name)
    body = through(replaying, LOOKS[look](plain))
    assert b'"top_logprobs"' not in body  # which the client did not ask for
    found = final_blocks(body)
    numbers = expected(plain)
    if numbers is None:
        assert all("reason" in block for block in blocks_in(chunks_in(body)) if block.get("final"))
    else:
        assert [tuple(found[i]["sequence_uncertainty_interval"]) for i in sorted(found)] == numbers


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_stream_arrives_and_has_no_number(replaying: Replaying, data: st.DataObject) -> None:
    """The bytes of a damaged stream arrive; the blocks after it give a reason, or there are none."""
    name = data.draw(st.sampled_from(["vllm-chat", "openai-chat-awkward", "vllm-chat-two"]))
    parts = recorded.recording(name).events
    at = data.draw(st.integers(0, len(parts) - 1))
    how = data.draw(st.sampled_from(list(DAMAGE)))
    body = through(replaying, b"".join([*parts[:at], DAMAGE[how], *parts[at:]]))
    assert DAMAGE[how] in body
    damage = body.index(DAMAGE[how])
    after = body[damage + len(DAMAGE[how]) :]
    assert b'"sequence_uncertainty"' not in after
    if b'finish_reason":"' in after.replace(b" ", b"") or b"[DONE]" in after:
        ended_before = b'"final": true' in body[:damage] or b'"final":true' in body[:damage]
        assert b'"reason"' in after or ended_before


def test_more_after_the_end_withdraws_the_score(replaying: Replaying) -> None:
    once = through(replaying, events(lima.event(finish="stop")))
    assert "sequence_uncertainty" in final_blocks(once)[0]
    twice = through(replaying, events(lima.event(finish="stop"), lima.event()))
    assert "already" in final_blocks(twice)[0]["reason"] or "complete" in final_blocks(twice)[0]["reason"]


def test_an_event_may_end_several_answers(replaying: Replaying) -> None:
    both = [lima.event(finish="stop", index=i)["choices"][0] for i in (0, 1)]
    found = final_blocks(through(replaying, events({"choices": both})))
    assert found[0] == found[1] and "sequence_uncertainty" in found[0]


def test_a_stream_that_ends_no_answer_says_so(replaying: Replaying) -> None:
    found = through(replaying, events(lima.event()))
    [last] = [one["semtoken"] for one in chunks_in(found) if "semtoken" in one]
    assert last["final"] and "finish_reason" in last["reason"] and b'"sequence_uncertainty"' not in found


def test_values_so_far_are_for_those_who_ask(proxied: Start) -> None:
    def chunks(**ours: Any) -> list[Any]:
        body = post(url, json=STREAM | ours).content
        return [choice.get("semtoken") for one in chunks_in(body) for choice in one["choices"]]

    url, upstream = proxied(streamed(recorded_stream("vllm-chat-awkward-ids")), hold=30.0)
    everything, finals = chunks(semtoken={"running": True}), chunks(semtoken={"running": False})
    assert chunks(semtoken={}) == everything and chunks() == finals
    assert [block for block in everything if block and block.get("final")] == [block for block in finals if block]
    assert sum(block is not None for block in everything) > sum(block is not None for block in finals)
    assert all("semtoken" not in request.json() for request in upstream.requests)


LONG = 3.0
"""Seconds for which a proxy can be set to hold back, and which a busy machine does not take for nothing."""


class TestLastContent:
    def stream(self, wait: Callable[[], Awaitable[object]]) -> Any:
        """A token, and the end of the stream once `wait` is over."""

        async def behave(_: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(stream_head() + chunk(events(lima.event(), done=False)))
            await writer.drain()
            await wait()
            writer.write(chunk(events(lima.event("", "stop"), done=False)) + LAST_CHUNK)
            await writer.drain()

        return behave

    def test_it_carries_the_final_score(self, proxied: Start) -> None:
        url, _ = proxied(self.stream(lambda: asyncio.sleep(0.02)), hold=30.0)
        content, last = chunks_in(post(url, json=STREAM).content)
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
        asked = STREAM | {"semtoken": {"running": True}}
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


@each("name", ["top_logprobs", "decision_requests", "max_connections", "scoring_threads"])
def test_one_is_enough_of_what_a_proxy_may_do_and_none_is_refused(name: str) -> None:
    one: dict[str, Any] = {name: 1}
    none: dict[str, Any] = {name: 0}
    assert getattr(ProxySettings("http://127.0.0.1:9", **one), name) == 1
    with pytest.raises(InvalidInputError, match=rf"{name} must be .*, got 0"):
        ProxySettings("http://127.0.0.1:9", **none)
