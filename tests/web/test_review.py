"""The Review routes of a proxy that runs, and who may use them: this machine's page, or whoever has the token."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import httpx
import pytest

from semtoken import TokenClusters
from semtoken.guarantees.journal.entries import AnswerOrigin, Recording
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.writer import JournalWriter
from semtoken.web.callers import Gate
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.recorder import AnswerRecorder
from semtoken.web.review import GuaranteeWatch
from tests.guarantees.made_up import entry, rows_of
from tests.web.servers import connected, posted, running

TOKEN = "a token of the server's"
BEARER = {"authorization": f"Bearer {TOKEN}"}
LABEL = {"id": "entry-0", "reviewer": "ann", "correct": True}


@pytest.fixture
def start(almanac_clusters: TokenClusters, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a proxy whose journal holds ten answers, five of them in the random sample; its address."""
    with ExitStack() as stack:

        def started(token: str | None = None, **settings: Any) -> str:
            journal = Journal.open(str(tmp_path / "journal.db"))
            stack.callback(journal.close)
            made = [entry(i, sampled=i % 2 == 0, seen_twice=i == 0, confidence=i / 10) for i in range(9)]
            journal.add(rows_of([*made, entry(9, sampled=True, seen_twice=False, question=None, answer=None)]))
            rule, salt = journal.sampling(0.5, "x")
            recording = Recording(AnswerOrigin("proxy"), rule, salt)
            recorder = AnswerRecorder(recording, JournalWriter(journal), GuaranteeWatch(journal))
            app = proxy_app(
                ProxySettings("http://127.0.0.1:9", **settings), almanac_clusters, recorder=recorder, gate=Gate(token)
            )
            return stack.enter_context(running(app))

        yield started


def asked(url: str, reviewer: str, queue: str = "sample", **headers: str) -> httpx.Response:
    return httpx.get(
        f"{url}/semtoken/review", params={"reviewer": reviewer, "queue": queue}, headers=headers, timeout=60
    )


def said(url: str, body: Any, **headers: str) -> httpx.Response:
    """As the page sends it, unless other headers are given; bytes go as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"origin": url, "content-type": "application/json", **headers}
    return httpx.post(f"{url}/semtoken/review", content=content, headers=sent, timeout=60)


def test_a_person_labels_the_sample_and_sees_nothing_twice(start: Callable[..., str]) -> None:
    url = start()
    seen: list[str] = []
    while items := asked(url, "ann").json()["items"]:
        first = items[0]
        assert set(first) == {"id", "question", "answer", "doubts", "model"}  # not how sure the model was
        body = {"id": first["id"], "reviewer": "ann", "correct": [True, False, None][len(seen) % 3]}
        assert said(url, body).json() == {"labeled": first["id"]}
        seen.append(first["id"])
    assert sorted(seen) == [f"entry-{i}" for i in (0, 2, 4, 6, 8)]  # one without texts is for nobody
    assert [one["id"] for one in asked(url, "bob").json()["items"]] == ["entry-0"]
    doubtful = asked(url, "ann", "doubtful").json()
    assert [one["id"] for one in doubtful["items"]] == [f"entry-{i}" for i in (1, 3, 5, 7)]
    assert (doubtful["labels"], doubtful["sampled"], doubtful["answers"]) == (5, 6, 10)


def test_one_can_undo_the_own_labels_only(start: Callable[..., str]) -> None:
    url = start()
    for person, name, correct in (("ann", "entry-0", True), ("ann", "entry-2", True), ("bob", "entry-0", False)):
        assert said(url, {"id": name, "reviewer": person, "correct": correct}).status_code == 200
    assert "1 of 1 answers" in asked(url, "cy").json()["agreement"]
    assert said(url, {"undo": True, "reviewer": "ann"}).json() == {"undone": "entry-2"}
    assert said(url, {"undo": True, "reviewer": "ann"}).json() == {"undone": "entry-0"}
    assert said(url, {"undo": True, "reviewer": "ann"}).json() == {"undone": None}
    assert asked(url, "cy").json()["labels"] == 1
    left = sorted(one["id"] for one in asked(url, "ann").json()["items"])
    assert left == [f"entry-{i}" for i in (0, 2, 4, 6, 8)]


BAD: list[Any] = [
    {},
    [],
    {"reviewer": "ann"},
    {"reviewer": "ann", "id": "entry-0"},
    LABEL | {"correct": "yes"},
    LABEL | {"correct": 1},
    LABEL | {"id": 0},
    LABEL | {"id": "no such"},
    LABEL | {"reviewer": " "},
    LABEL | {"reviewer": "a" * 101},
    {"reviewer": None, "undo": True},
]


def test_bad_requests_are_refused_with_words(start: Callable[..., str]) -> None:
    url = start()
    for body in BAD:
        reply = said(url, body)
        assert reply.status_code == 400 and reply.json()["error"]["message"], body
    for length, status in ((16_384, 400), (16_385, 413)):  # no such entry; too long a body
        empty = json.dumps(LABEL | {"id": ""})
        assert said(url, LABEL | {"id": "e" * (length - len(empty))}).status_code == status
    halves = (b'{"id": "\\ud800", "reviewer": "ann", "correct": true}', b'{"\\udfff": 1}', b'{"id": NaN}')
    for content in (b"[" * 10_000, *halves):
        reply = said(url, content)
        assert (reply.status_code, reply.json()["error"]["message"]) == (400, "The body of the request is not JSON.")
    assert said(url, {}, **{"content-type": "text/plain"}).status_code == 415
    assert asked(url, "ann", "no such").status_code == asked(url, "").status_code == 400
    assert asked(url, "ann").json()["labels"] == 0


def test_pages_of_others_and_programs_without_the_token_write_nothing(start: Callable[..., str]) -> None:
    url = start()
    foreign = [{"origin": one} for one in ("http://evil.example", "null", "")]
    foreign += [{"sec-fetch-site": one} for one in ("cross-site", "same-site")]
    for headers in foreign:
        assert said(url, LABEL, **headers).status_code == 403, headers
    assert httpx.post(f"{url}/semtoken/review", json=LABEL).status_code == 403
    assert asked(url, "ann").json()["labels"] == 0


def test_where_there_is_a_token_everybody_needs_it(start: Callable[..., str]) -> None:
    url = start(TOKEN)
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}):
        assert asked(url, "ann", **headers).status_code == said(url, LABEL, **headers).status_code == 401
        assert httpx.get(f"{url}/semtoken/watch", headers=headers).status_code == 401
    assert said(url, LABEL, **BEARER).status_code == 200
    assert httpx.post(f"{url}/semtoken/review", json=LABEL, headers=BEARER).status_code == 200  # a program
    foreign = said(url, LABEL, **BEARER, origin="http://evil.example")
    assert foreign.status_code == 403
    assert httpx.get(f"{url}/semtoken/watch", headers=BEARER).json()["state"] == "no_guarantee"


def test_a_server_that_others_can_reach_shows_nothing_without_a_token(start: Callable[..., str]) -> None:
    url = start(allowed_hosts=("127.0.0.1", "proxy.example"))
    assert asked(url, "ann").status_code == 403
    assert httpx.get(f"{url}/semtoken/watch").status_code == 403


def sent_by_hand(url: str, body: bytes, *, length: int, closes: bool) -> tuple[int, bytes] | None:
    """The server's answer to a POST of a body, which need not be as long as its head says."""
    head, host = (f"Origin: {url}", "Content-Type: application/json"), url.removeprefix("http://")
    with connected(url) as connection:
        connection.sendall(posted("/semtoken/review", body, *head, length=length, host=host))
        if closes:
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):  # which `http.client` also raises for a connection that was closed
            response = HTTPResponse(connection)
            response.begin()
            return response.status, response.read()
    return None


def test_a_body_that_does_not_come_is_not_waited_for(
    start: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semtoken.web.callers.SECONDS_FOR_BODY", 0.3)
    reply = sent_by_hand(start(), b'{"reviewer": ', length=100, closes=False)
    assert reply is not None and reply[0] == 408 and b"body_timeout" in reply[1]


def test_a_client_that_has_said_all_and_closes_its_sending_half_gets_its_answer(start: Callable[..., str]) -> None:
    body = json.dumps(LABEL).encode()
    url = start()
    reply = sent_by_hand(url, body, length=len(body), closes=True)
    assert reply == (200, b'{"labeled":"entry-0"}')
    assert sent_by_hand(url, body[:9], length=len(body), closes=True) is None  # and one that broke off is forgotten
    assert asked(url, "ann").json()["labels"] == 1
