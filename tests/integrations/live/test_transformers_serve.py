"""`transformers serve`, which gives no log-probabilities, behind `semtoken proxy --read-with`. All run as commands."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from semtoken import STC
from semtoken.almanac import Question, almanac_path

MODEL = str(almanac_path())


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("transformers")), "serve", MODEL, "--host", "127.0.0.1"]
    with started([*command, "--port", str(port)]) as process:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 300
        while not _answers(url):
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline, "transformers serve did not start"
            time.sleep(1)
        yield url


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def proxy(upstream: str) -> Iterator[OpenAI]:
    options = ["--upstream", upstream, "--clusters", "almanac", "--read-with", MODEL, "--port", "0", "--hold", "30"]
    with started([sys.executable, "-c", "from semtoken.cli import main; main()", "proxy", *options]) as process:
        assert process.stderr is not None
        told = [process.stderr.readline()]
        while told[-1] and "semtoken proxy at" not in told[-1]:
            told.append(process.stderr.readline())
        found = re.search(r"http://[\d.:]+/v1", told[-1])
        assert found is not None, told
        yield OpenAI(base_url=found[0], api_key="none", max_retries=0, timeout=120)


def test_it_still_gives_no_log_probabilities(upstream: str, questions: list[Question]) -> None:
    """Once it does, the proxy scores its replies without a reader."""
    asked = {"model": MODEL, "messages": _messages(questions[0]), "logprobs": True, "top_logprobs": 5}
    [choice] = httpx.post(f"{upstream}/v1/chat/completions", json=asked, timeout=120).json()["choices"]
    assert choice["message"]["content"] and not choice.get("logprobs")


def _messages(question: Question) -> Any:
    return [{"role": "user", "content": question.question}]


def test_chats_have_the_score_of_stc(proxy: OpenAI, stc: STC, questions: list[Question]) -> None:
    for question in questions[:8]:
        asked: Any = {"model": MODEL, "messages": _messages(question), "temperature": 0.0, "max_tokens": 24}
        [choice] = proxy.chat.completions.create(**asked).choices
        [answer] = stc.generate([question.prompt()], 24, stop_at_newline=True)
        assert choice.message.content.strip() == answer.text.strip()
        assert choice.semtoken["uncertainty"] == pytest.approx(answer.uncertainty, abs=1e-5)
        assert (choice.semtoken["method"], choice.semtoken["read_with"]) == ("exact", MODEL)


def test_streams_have_it_on_the_last_text(proxy: OpenAI, stc: STC, questions: list[Question]) -> None:
    for question in questions[:4]:
        asked: Any = {"model": MODEL, "messages": _messages(question), "temperature": 0.0, "max_tokens": 24}
        chunks = [chunk.choices[0] for chunk in proxy.chat.completions.create(**asked, stream=True)]
        [answer] = stc.generate([question.prompt()], 24, stop_at_newline=True)
        assert "".join(chunk.delta.content or "" for chunk in chunks).strip() == answer.text.strip()
        last = [chunk for chunk in chunks if chunk.delta.content][-1]
        for chunk in (last, chunks[-1]):
            assert chunk.semtoken["final"] is True
            assert chunk.semtoken["uncertainty"] == pytest.approx(answer.uncertainty, abs=1e-5)


def test_completions_have_the_score_of_stc(proxy: OpenAI, stc: STC, questions: list[Question]) -> None:
    for question in questions[8:12]:
        asked: Any = {"model": MODEL, "prompt": question.prompt(), "temperature": 0.0, "max_tokens": 24}
        [choice] = proxy.completions.create(**asked).choices
        [answer] = stc.generate([question.prompt()], 24, stop_at_newline=True)
        assert choice.text.strip() == answer.text.strip()
        assert choice.semtoken["uncertainty"] == pytest.approx(answer.uncertainty, abs=1e-5)
