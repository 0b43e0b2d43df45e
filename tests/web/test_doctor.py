"""The doctor against real servers on loopback: `semtoken serve`, and one with the faults that servers are known for."""

from __future__ import annotations

import json
import math
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semtoken import ScoredModel, TokenClusters, Vocabulary
from semtoken.core.engine_tokens.top_steps import Name
from semtoken.errors import BackendError, InvalidInputError
from semtoken.support.almanac import PROMPT, almanac_clusters_path, almanac_path
from semtoken.support.http_client import HttpReply
from semtoken.support.text import number
from semtoken.web.doctor import Diagnosis, examine
from semtoken.web.doctor.diagnosis import Page, TriedCount
from semtoken.web.doctor.engines import recognize
from semtoken.web.doctor.examination import TRIAL_PROMPTS, find_most
from semtoken.web.doctor.numbers import compare_temperatures
from tests import tiny
from tests.cli.run import Result, invoke
from tests.rows import each
from tests.web import lima
from tests.web.asking import assert_holds
from tests.web.servers import answering, raw_upstream, response, running, silent
from tests.web.sick_server import Faults, sick_app

SickServer = Callable[..., str]
Examined = Callable[..., Diagnosis]


@pytest.fixture(scope="module")
def sick(almanac: Any) -> Iterator[SickServer]:
    """The address of a server with some faults, which is started once."""
    with ExitStack() as stack:

        @cache
        def start(**faults: Any) -> str:
            return stack.enter_context(running(sick_app(almanac, Faults(**faults)), wait=False)) + "/v1"

        yield start


@pytest.fixture(scope="module")
def examined(sick: SickServer) -> Examined:
    """The doctor's findings on a server with some faults, with a vocabulary or none; each once for all tests."""

    @cache
    def find(vocabulary: Any = None, **faults: Any) -> Diagnosis:
        return examine(sick(**faults), vocabulary=vocabulary)

    return find


@pytest.fixture(scope="module")
def of_serve(served: str, almanac_clusters: TokenClusters) -> Diagnosis:
    return examine(served, vocabulary=almanac_clusters)


def said(found: Diagnosis, level: str) -> str:
    return " | ".join(verdict.text for verdict in found.verdicts if verdict.level == level)


class TestServe:
    def test_what_it_gives(self, of_serve: Diagnosis, served: str) -> None:
        assert (of_serve.base_url, of_serve.model, of_serve.models) == (served + "/v1", "almanac", ("almanac",))
        answering = {page.name: page.most for page in of_serve.pages if page.answers}
        assert answering == {"chat": 50, "completions": 50}
        assert {page.name: page.most for page in of_serve.pages if not page.answers} == dict.fromkeys(
            ("responses", "generate", "completion", "ollama-chat", "ollama-generate", "tgi", "tgi-stream"), 0
        )
        assert of_serve.best == "chat"
        assert of_serve.tokens is not None
        assert (of_serve.tokens.bytes, of_serve.tokens.ids) == (True, "always")
        assert of_serve.numbers.distribution == "raw"
        assert of_serve.streaming is not None
        assert (of_serve.streaming.streams, of_serve.streaming.log_probs, of_serve.streaming.complete) == (True,) * 3
        assert of_serve.tokenizer is not None and of_serve.tokenizer.fits and of_serve.tokenizer.enough
        assert of_serve.usable
        assert said(of_serve, "bad") == ""

    def test_the_intervals_of_its_trials_hold_the_exact_confidence(
        self, of_serve: Diagnosis, almanac: ScoredModel
    ) -> None:
        assert len(of_serve.trials) == 3
        for trial in of_serve.trials:
            [exact] = almanac.generate(PROMPT.format(question=trial.prompt), 24, stop_at_newline=True)
            assert trial.text == exact.text
            assert_holds(trial.bounds, exact.confidence)
            assert trial.width is not None and 0 < trial.width < 1

    def test_it_has_a_json_form(self, of_serve: Diagnosis) -> None:
        plain = json.loads(json.dumps(of_serve.to_dict(), allow_nan=False))
        assert plain["usable"] is True
        assert plain["pages"][0]["tried"][0] == {"asked": 0, "given": 0, "reason": None}


SERVERS: dict[str, dict[str, Any]] = {
    "healthy": {},
    "silent": {"silent": True},
    "refuses": {"most": 0},
    "zeros": {"zeros": True},
    "poor": {"most": 5, "no_bytes": True, "scaled": True, "silent_streams": True},
    "odd": {"most": 7, "clamps": True, "noisy": True},
    "new names": {"new_names": True},
    "gives ids": {"gives_ids": True},
    "ignores ids": {"ignores_ids": True},
    "no streams": {"no_streams": True, "shortens": True},
}
"""Servers by their faults, which do not hide each other."""


def summary(found: Diagnosis) -> list[str]:
    """All that is found of one server, a line each."""
    pages = [f"{page.name}: {page.counts}, {page.format}" for page in found.pages if page.answers]
    trials = [f"{(one.text or '').strip()}, {one.n_tokens} tokens, {number(one.width or 0)}" for one in found.trials]
    facts = [f"{name}: {fact}" for name, fact in found.facts.items()]
    return [*pages, *facts, *trials, *(f"{one.level}: {one.text}" for one in found.verdicts)]


class TestFaults:
    def test_the_findings_are_those_that_were_recorded(self, examined: Examined) -> None:
        """If a change is meant, what this test prints goes into findings.txt."""
        found = [line for name, faults in SERVERS.items() for line in (name, *summary(examined(**faults)), "")]
        print(*found, sep="\n")
        assert found == Path(__file__).with_name("findings.txt").read_text("utf-8").splitlines()

    def test_it_asks_what_was_recorded(self, almanac: Any) -> None:
        with running(sick_app(almanac, Faults(gives_ids=True)), wait=False) as url:
            examine(url)
            asked = httpx.get(f"{url}/asked").json()
        assert [*map(json.dumps, asked)] == Path(__file__).with_name("asked.jsonl").read_text("utf-8").splitlines()

    def test_how_tokens_are_named_shows_in_another_answer_where_the_first_is_empty(self, examined: Examined) -> None:
        assert examined(ascii_only=True, gives_ids=True).tokens == examined(gives_ids=True).tokens

    def test_clusters_of_another_tokenizer(self, examined: Examined) -> None:
        vocabulary = Vocabulary.from_tokenizer(tiny.byte_level_bpe())
        found = examined(TokenClusters(np.zeros(vocabulary.size, dtype=np.int32), vocabulary))
        assert found.tokenizer is not None and not found.tokenizer.fits
        assert "The tokenizer is another one" in said(found, "bad")
        assert not found.usable

    @each("known", [True, False])
    def test_a_tokenizer_alone_is_compared_and_nothing_need_be_known(
        self, examined: Examined, almanac_clusters: TokenClusters, known: bool
    ) -> None:
        found = examined(almanac_clusters.vocabulary if known else None)
        assert found.usable and (found.tokenizer is not None) == known
        assert found.tokenizer is None or found.tokenizer.fits
        assert len(found.trials) == 3 and all(trial.bounds for trial in found.trials)


@each(
    ("headers", "values", "owner", "format", "name"),
    [
        ({"x-litellm-version": "1.2", "server": "llama.cpp"}, {}, "vllm", "openai-chat", "LiteLLM 1.2"),
        ({"server": "llama.cpp"}, {}, "vllm", "openai-chat", "llama-server"),
        ({}, {"system_fingerprint": "0.29.1-0.30.0-Linux"}, "me", "openai-chat", "llama-cpp-python"),
        ({}, {"system_fingerprint": "0.29.1-0.30.0-Linux"}, None, "sglang", "mlx-lm"),
        ({"server": "uvicorn"}, {"system_fingerprint": "fp_1"}, ["vllm"], "sglang", "SGLang"),
        ({}, [], "nobody", "openai-chat", "the server"),
    ],
)
def test_an_engine_is_known_by_the_surest_of_its_signs(
    headers: dict[str, str], values: Any, owner: Any, format: str, name: str
) -> None:
    reply = HttpReply("http://x", 200, json.dumps(values).encode(), headers)
    assert recognize(reply, owner, format)[0].name == name


class TestConnections:
    def test_the_model_must_be_named_where_there_are_several(self, sick: SickServer) -> None:
        url = sick(models=("a", "b"))
        with pytest.raises(InvalidInputError, match=r"The server lists 2: a, b\. Name one with --model"):
            examine(url)
        assert examine(url, "a", quick=True).model == "a"
        with pytest.raises(InvalidInputError, match="lists none"):
            examine(sick(models=()))
        url = sick(no_list=True)
        with pytest.raises(InvalidInputError, match=r"gives no list of them \(HTTP 500: no worker\)\. Name one with"):
            examine(url)
        assert examine(url, "almanac", quick=True).usable

    def test_a_key_is_sent_and_shown_nowhere(self, sick: SickServer, monkeypatch: pytest.MonkeyPatch) -> None:
        url = sick(key="s3cret-key", tells_the_key=True)
        monkeypatch.setenv("MY_KEY", "s3cret-key")
        found = examine(url, key_env="MY_KEY")
        assert found.usable
        monkeypatch.setenv("MY_KEY", "wr0ng-key")
        with pytest.raises(BackendError, match=r"rejects the key \(HTTP 401: wrong key Bearer \[key\]\)") as failed:
            examine(url, key_env="MY_KEY")
        for text in (str(found.to_dict()), str(failed.value), repr(failed.value.__cause__)):
            assert "s3cret" not in text and "wr0ng" not in text

    def test_nobody_there(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with pytest.raises(BackendError, match=f"http://127.0.0.1:{port} cannot be reached"):
            examine(f"http://127.0.0.1:{port}")

    def test_a_server_that_stalls(self) -> None:
        started = time.monotonic()
        with raw_upstream(silent) as upstream, pytest.raises(BackendError, match=r"silent for 0\.3 seconds"):
            examine(upstream.url, timeout=0.3)
        assert time.monotonic() - started < 10

    @each("url", ["", "localhost:8000", "ftp://x/", "http://", "http://u:p@h/v1", "http://h/v1?k=1"])
    def test_what_is_no_address(self, url: str) -> None:
        with pytest.raises(InvalidInputError, match="address"):
            examine(url)

    @each(
        "body",
        [
            b"<html>hello</html>",
            b"{",
            b"[]",
            b'{"data": 5}',
            b'{"choices": [{"message": {"content": "x"}, "logprobs": {"content": 7}}]}',
            b'{"choices": [{"message": {"content": "x"}, "logprobs": {"content": [{"token": "x", "logprob": 5}]}}]}',
            b"\xff\xfe\x00",
            b"[" * 100_000,
        ],
    )
    def test_garbage(self, body: bytes) -> None:
        """The same for every request, whatever it asks for."""
        with raw_upstream(response(body)) as upstream:
            found = examine(upstream.url, "m")
        assert not found.usable
        assert found.verdicts
        json.dumps(found.to_dict(), allow_nan=False)

    @each("last", [0, 1, 6])
    def test_a_server_that_takes_no_more_requests(self, last: int) -> None:
        """Nothing is said of what it could not be asked; `last`: the requests that it answered before."""
        full = response(b'{"error": {"message": "quota"}}', b"Retry-After: 3600", status=b"429 Too Many Requests")
        given = [response(lima.reply())] * last
        with raw_upstream(answering(lambda _: given.pop() if given else full)) as upstream:
            with pytest.raises(BackendError, match=r"takes no more requests for now \(HTTP 429: quota\)\. Try again"):
                examine(upstream.url, "m")
            assert len(upstream.requests) == last + 1  # nor is it asked the rest

    def test_a_reply_that_breaks_off(self) -> None:
        begun = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{"
        with raw_upstream(begun) as upstream, pytest.raises(BackendError, match="broke the connection off"):
            examine(upstream.url, "m")


@given(limit=st.integers(0, 150), clamps=st.booleans(), of_all=st.sampled_from([None, 5000, "as usual"]))
@example(limit=1, clamps=False, of_all=None)
def test_the_most_is_found_exactly(limit: int, clamps: bool, of_all: Any) -> None:
    """`of_all` is what comes of a request for the whole vocabulary; some servers do not read the number."""

    def trying(top: int) -> TriedCount:
        if top == -1:
            return TriedCount(top, (min(limit, 100) or None) if of_all == "as usual" else of_all)
        if top > limit:
            return TriedCount(top, limit if clamps and limit else None)
        return TriedCount(top, top)

    tried = list(find_most(trying))
    most = max(one.given or 0 for one in tried)
    assert most == (5000 if of_all == 5000 else min(limit, 100))
    assert len(tried) < 15
    page = Page("chat", "/chat/completions", answers=True, tried=tuple(tried))
    assert page.gives_all == (of_all == 5000) == ("asked for -1" in page.counts)


ROWS = st.lists(st.floats(-12, 6), min_size=2, max_size=20)


def log_softmax(values: list[float]) -> list[float]:
    total = math.log(sum(map(math.exp, values)))
    return [value - total for value in values]


def by_name(values: list[float]) -> dict[Name, float]:
    return {(place, None, None): value for place, value in enumerate(values)}


@given(logits=ROWS)
def test_temperatures(logits: list[float]) -> None:
    """The whole row is listed, or all of it but the last."""
    raw, scaled = log_softmax(logits), log_softmax([2 * value for value in logits])
    for n in {len(logits), max(2, len(logits) - 1)}:
        at_1, at_half = (by_name(values[:n]) for values in (raw, scaled))
        assert compare_temperatures(at_1, at_1)[0] == "raw"
        expected = "raw" if max(abs(a - b) for a, b in zip(raw[:n], scaled[:n], strict=True)) < 0.02 else "processed"
        assert compare_temperatures(at_1, at_half)[0] == expected
    assert compare_temperatures(by_name([-1.0]), by_name([-1.0]))[0] == "unknown"


class TestCommand:
    @pytest.fixture
    def doctor(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
        monkeypatch.setenv("COLUMNS", "200")
        return lambda *args: invoke(["doctor", "--base-url", *map(str, args)])

    def test_table(self, doctor: Callable[..., Result], sick: SickServer) -> None:
        address = sick(gives_ids=True)
        result = doctor(address, "--tokenizer", "almanac")
        assert result.exit_code == 0, result.output
        shown = [line.rstrip() for line in result.stdout.replace(address, "ADDRESS").splitlines()]
        assert shown == Path(__file__).with_name("diagnosis.txt").read_text("utf-8").splitlines()

    def test_a_terminal_shows_what_is_looked_at(
        self, doctor: Callable[..., Result], sick: SickServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        address = sick()
        assert "looking at" not in doctor(address).stderr
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        assert "looking at " in doctor(address).stderr

    def test_what_a_server_refuses_is_said_in_its_words(self, doctor: Callable[..., Result], sick: SickServer) -> None:
        address = sick(no_streams=True, shortens=True)
        lines = doctor(address).stdout.splitlines()
        refused = [re.split(" {2,}", line.strip()) for line in lines if "at most 10" in line]
        assert [row[0] for row in refused[:3]] == list(TRIAL_PROMPTS)
        assert all("max_tokens may be at most 10" in row[1] for row in refused[:3])
        assert [line.split() for line in lines if line.startswith("streams")] == [["streams", "no"]]
        assert any("Streams do not work: " in line and "no streams here" in line for line in lines)
        found = json.loads(doctor(address, "--json").stdout)["streaming"]
        assert (found["streams"], found["log_probs"], found["complete"]) == (False, False, False)

    @pytest.mark.parametrize(
        "path",
        [almanac_path() / "tokenizer.json", pytest.param(almanac_clusters_path(), marks=pytest.mark.slow)],
        ids=["file", "clusters"],
    )
    def test_json_and_a_tokenizer_or_clusters(
        self, doctor: Callable[..., Result], sick: SickServer, path: Path
    ) -> None:
        result = doctor(sick(), "--tokenizer", path, "--json")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert found["tokenizer"]["fits"] is True and len(found["trials"]) == 3

    def test_exit_status_of_a_server_that_is_of_no_use(self, doctor: Callable[..., Result], sick: SickServer) -> None:
        result = doctor(sick(silent=True))
        assert result.exit_code == 3
        assert "asked for and left out" in result.stdout and "✗" in result.stdout

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (("nowhere",), "must be like http"),
            (("http://127.0.0.1:9",), "cannot be reached"),
        ],
    )
    def test_errors(self, doctor: Callable[..., Result], args: tuple[str, ...], words: str) -> None:
        result = doctor(*args)
        assert result.exit_code == 2
        assert words in result.stderr and "Traceback" not in result.output

    def test_what_is_no_tokenizer(self, doctor: Callable[..., Result], sick: SickServer, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_text("{}")
        result = doctor(sick(), "--tokenizer", tmp_path)
        assert result.exit_code == 2
        assert "cannot be read as a tokenizer" in result.stderr

    @pytest.mark.parametrize("options", [(), ("--json",)])
    def test_names_and_errors_cannot_steer_the_terminal(
        self, doctor: Callable[..., Result], sick: SickServer, options: tuple[str, ...]
    ) -> None:
        name = "almanac\x1b]0;owned\x07\x1b[2J\x9b2J\u202e"
        result = doctor(sick(models=(name,)), "--quick", *options)
        assert "owned" in result.stdout
        assert not set(result.stdout + result.stderr) & set("\x1b\x07\x9b\u202e")
