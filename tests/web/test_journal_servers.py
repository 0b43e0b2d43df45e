"""`serve` and `proxy` with --journal as people start them: every reply has its entry, and calibrators are exchanged."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from semtoken.core.rules import ScoringRules
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.writer import adopt_left_behind
from tests.guarantees.databases import can_run_postgres, postgres
from tests.guarantees.made_up import put
from tests.web import lima
from tests.web.asking import CHAT, QUESTION, post, user
from tests.web.servers import answering, commanded, events, raw_upstream, response, streamed, wait_until
from tests.web.test_proxy_load import SEMTOKEN
from tests.web.test_proxy_workers import workers_of

TOKEN = "a token of the server's"
BEARER = {"authorization": f"Bearer {TOKEN}"}
PLACES = ("Peru", "Japan", "Norway", "Chile", "Kenya")


def put_calibrator(folder: Path, seed: int, **origin: Any) -> str:
    """A calibrator of the proxy's top-k scores from simulated labels, put into a folder at once; its checksum."""
    known: dict[str, Any] = {"signature": ScoringRules().signature, "scores": "top-k", "k": 20}
    put(folder, 0.2, seed, **(known | origin))
    return hashlib.sha256((folder / "calibrator.json").read_bytes()).hexdigest()


@contextmanager
def started(*command: str, within: float = 120) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
    """A command that listens, after so many seconds at most: its address, the process, and what it says."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as file:
            environment = {**os.environ, "SEMTOKEN_TOKEN": TOKEN}
            process = subprocess.Popen([*SEMTOKEN, *command, "--port", "0"], stderr=file, env=environment, text=True)
        try:
            wait_until(lambda: "(stop with Ctrl-C)" in log.read_text() or process.poll() is not None, within)
            found = re.search(r"http://[\d.:]+", log.read_text())
            assert found is not None and process.poll() is None, log.read_text()
            yield found.group(), process, log
        finally:
            process.kill()
            process.wait(10)


def ask(url: str, person: str, place: str = "Peru") -> dict[str, Any]:
    reply = post(url, json={"model": "almanac", "messages": user(f"What is the capital of {place}?"), "user": person})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()["choices"][0]
    return found


def exchange_at(path: str, url: str, action: str, headers: dict[str, str] = BEARER) -> httpx.Response:
    return httpx.post(url + path, json={"action": action}, headers=headers, timeout=60)


exchange = partial(exchange_at, "/semtoken/calibrator")


def entries_of(url: str, **conditions: Any) -> list[dict[str, Any]]:
    journal = Journal.open(url)
    try:
        adopt_left_behind(journal)  # as the next command does: on a busy machine a server may end before all is written
        rows = list(journal.entries())
    finally:
        journal.close()
    return [row for row in rows if all(row[name] == value for name, value in conditions.items())]


def test_every_answer_of_the_proxy_has_its_entry(served: str, tmp_path: Path) -> None:
    folder, database = tmp_path / "calibrator", str(tmp_path / "journal.db")
    checksum = put_calibrator(folder, 0)
    keep = ("--journal", database, "--journal.texts=true", "--journal.withhold", "Lima", "--journal.sample", "1")
    options = ("--base-url", served, "--tokenizer", "almanac", "--calibrator", str(folder))
    with commanded("proxy", *options, *keep) as (url, _):
        choices = {place: ask(url, f"person-{place}", place) for place in PLACES[:3]}
        post(url, json={"model": "almanac", "messages": "no"})
    rows = {row["person"]: row for row in entries_of(database)}
    assert len(rows) == len(entries_of(database)) == len(choices)
    for place, choice in choices.items():
        row, block = rows[f"person-{place}"], choice["semtoken"]
        assert (row["source"], row["model"], row["calibrator"], row["sampled"]) == ("proxy", "almanac", checksum, True)
        assert row["decision"] == block["decision"]
        for name in ("probability_correct", "sequence_uncertainty"):
            assert row[name] == pytest.approx(block[name], abs=1e-6)
        assert row["question"] == f"What is the capital of {place}?"
        assert "Lima" not in row["answer"]
        assert place == "Peru" or row["answer"].strip() == choice["message"]["content"].strip()


def test_a_reply_that_passes_as_it_came_has_an_entry_that_says_why(tmp_path: Path) -> None:
    replies = {
        "too_large": response(b'{"choices": []' + b" " * 2000 + b"}"),
        "encoded": response(b"?", b"Content-Encoding: unheard-of"),
        "not_json": response(b"Lima", kind=b"text/plain"),
    }

    behavior = answering(lambda received: replies[received.json()["user"]])
    keep = ["--journal", str(tmp_path / "journal.db"), "--journal.texts=true"]
    keep += ["--tokenizer", "almanac", "--limits.reply-mb", "0.001"]
    with raw_upstream(behavior) as seen, commanded("proxy", "--base-url", seen.url, *keep) as (url, _):
        for why, reply in replies.items():
            found = post(url, json=CHAT | {"user": why})
            assert found.headers["semtoken-unscored"] == why
            assert why == "encoded" or found.content == reply.split(b"\r\n\r\n", 1)[1]
        replies["no_end"] = streamed(events(lima.event(), done=False))
        post(url, json=CHAT | {"user": "no_end", "stream": True})
    entries = entries_of(keep[1])
    assert {row["question"] for row in entries} == {QUESTION}
    rows = {row["person"]: row["unscored"] for row in entries}
    assert "gave no reason of the answer's end" in rows.pop("no_end")
    words = {"too_large": "longer than the proxy scores", "encoded": "packed", "not_json": "neither JSON nor a stream"}
    assert rows.keys() == words.keys() and all(words[why] in rows[why] for why in words)


def test_a_server_takes_another_calibrator_refuses_one_that_does_not_belong_and_goes_back(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In this process, which gets the signals, too; the slow tests try several processes of their own."""
    monkeypatch.setenv("SEMTOKEN_TOKEN", TOKEN)
    folder, database = tmp_path / "calibrator", str(tmp_path / "journal.db")
    first = put_calibrator(folder, 0)
    options = ("--base-url", served, "--tokenizer", "almanac", "--calibrator", str(folder), "--journal", database)
    with commanded("proxy", *options) as (url, _):
        assert exchange(url, "reload", {}).status_code == exchange(url, "reload", {"origin": url}).status_code == 401
        assert exchange(url, "explode").status_code == 400
        assert exchange(url, "back").status_code == 400  # there was none before
        assert exchange(url, "reload").json()["calibrator"] == first

        second = put_calibrator(folder, 1)
        told = exchange(url, "reload").json()
        assert told["calibrator"] == second != first and "300 labels" in told["told"]

        put_calibrator(folder, 2, k=5)  # fitted on other scores
        refused = exchange(url, "reload")
        assert refused.status_code == 400 and "5" in refused.json()["error"]["message"]
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: "The calibrator stays as it is" in caplog.text)
        (folder / "calibrator.json").write_text('{"half of it')
        assert exchange(url, "reload").status_code == 400
        ask(url, "second")

        third = put_calibrator(folder, 3)
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: third[:12] in caplog.text)
        ask(url, "third")
        assert exchange(url, "back").json()["calibrator"] == second
        ask(url, "second")
        assert exchange(url, "back").json()["calibrator"] == third
    deciding = [(row["person"], row["calibrator"]) for row in entries_of(database)]
    assert deciding == [("second", second), ("third", third), ("second", second)]
    journal = Journal.open(database)
    assert {one.checksum for one in journal.in_use()} == {first, second, third}
    assert journal.in_use()[0].checksum == third
    journal.close()


@pytest.mark.slow
def test_two_processes_and_many_clients_lose_and_mix_nothing(served: str, tmp_path: Path) -> None:
    """With PostgreSQL; both processes take the calibrator of a POST to one of them."""
    if not can_run_postgres():
        pytest.skip("no PostgreSQL server on this machine (apt-get install postgresql)")
    folder = tmp_path / "calibrator"
    put_calibrator(folder, 0)
    with postgres() as server:
        database = server.database()
        keep = ("--journal", database, "--journal.texts=true", "--journal.spool", str(tmp_path / "spool"))
        options = ("--base-url", served, "--tokenizer", "almanac", "--calibrator", str(folder), "--workers", "2")
        with started("proxy", *options, *keep) as (url, process, log):
            people = [(f"person-{i}", PLACES[i % len(PLACES)]) for i in range(40)]
            with ThreadPoolExecutor(20) as pool:
                choices = list(pool.map(lambda one: ask(url, *one), people))
            second = put_calibrator(folder, 1)
            assert exchange(url, "reload").json()["calibrator"] == second
            wait_until(lambda: log.read_text().count(second[:12]) >= 2)
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda i: ask(url, f"later-{i}"), range(16)))
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        rows = entries_of(database)
        assert sorted(row["person"] for row in rows) == sorted(
            [name for name, _ in people] + [f"later-{i}" for i in range(16)]
        )
        by_person = {row["person"]: row for row in rows}
        for (name, place), choice in zip(people, choices, strict=True):
            assert by_person[name]["question"] == f"What is the capital of {place}?"
            assert by_person[name]["answer"].strip() == choice["message"]["content"].strip()
        assert {by_person[f"later-{i}"]["calibrator"] for i in range(16)} == {second}


@pytest.mark.slow
def test_two_processes_go_back_together_and_so_does_one_that_is_started_later(served: str, tmp_path: Path) -> None:
    folder, database = tmp_path / "calibrator", str(tmp_path / "journal.db")
    first = put_calibrator(folder, 0)
    options = ("--base-url", served, "--tokenizer", "almanac", "--calibrator", str(folder), "--workers", "2")
    with started("proxy", *options, "--journal", database) as (url, process, log):

        def told(checksum: str) -> int:
            found = re.findall(rf"calibrator (?:in use is the one that is there: )?{checksum[:12]}", log.read_text())
            return len(found)

        def asked(phase: str) -> None:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda i: ask(url, f"{phase}-{i}"), range(16)))

        assert exchange(url, "back").status_code == 400  # there was none before
        second = put_calibrator(folder, 1)
        assert exchange(url, "reload").json()["calibrator"] == second
        wait_until(lambda: told(second) == 2)
        assert exchange(url, "back").json()["calibrator"] == first
        wait_until(lambda: told(first) == 2)
        asked("back")
        [one, _] = workers = workers_of(process.pid)
        os.kill(one, signal.SIGKILL)
        wait_until(lambda: len(workers_of(process.pid) - workers) == 1)
        asked("replaced")
        assert exchange(url, "back").json()["calibrator"] == second  # whichever process it asks
        wait_until(lambda: told(second) >= 3)  # one that has just started may not hear of it, and takes it at its start
        asked("again")
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    found = {(str(row["person"]).partition("-")[0], row["calibrator"]) for row in entries_of(database)}
    assert found == {("back", first), ("replaced", first), ("again", second)}


@pytest.mark.slow
def test_serve_keeps_its_answers_and_shows_them_for_review(tmp_path: Path) -> None:
    database = str(tmp_path / "journal.db")
    with started("serve", "--journal", database, "--journal.texts=true", "--journal.sample", "1") as (url, process, _):
        for place in PLACES:
            ask(url, "ann", place)
        wait_until(lambda: len(entries_of(database)) == len(PLACES))
        items = httpx.get(f"{url}/semtoken/review", params={"reviewer": "me"}, headers=BEARER).json()["items"]
        asked = [f"What is the capital of {place}?" for place in PLACES]
        assert sorted(one["question"] for one in items) == sorted(asked)  # each person has an order of their own
        health = httpx.get(f"{url}/health").json()["journal"]
        assert (health["acknowledged"], health["dropped"]) == (len(PLACES), 0)
        assert exchange(url, "reload").status_code in (400, 404, 405)  # started without a calibrator
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    copied = shutil.copy(database, tmp_path / "copy.db")  # the file alone, without SQLite's log
    assert len(entries_of(str(copied))) == len(PLACES)
