"""The files through which an input passes to its result: a reader of the code goes the same way.

Counted are the files of the package in which a function runs, each once, and how often one goes from one file to
another. Helpers that know nothing of scores are left out: nobody has to open them to follow.
"""

from __future__ import annotations

import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import numpy as np
import pytest

import semtoken
from semtoken import TokenClusters, score_logits
from semtoken.bench.run import run_benchmark
from semtoken.bench.settings import check_settings
from semtoken.replies import score_reply
from semtoken.replies.checking import rank_replies
from semtoken.support.almanac import almanac_clusters_path
from semtoken.support.files.strict_json import dump_json
from semtoken.support.plain_values import load_json
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from tests.bench.runs import tiny_model, tiny_questions
from tests.web.servers import answering, raw_upstream, response, running

PACKAGE = Path(semtoken.__file__).parent
REPLY = Path(__file__).parents[2] / "examples" / "replies" / "japan.json"
HELPERS = ("support", "files", "errors.py", "choices.py")
LONGEST = {"row": 12, "reply": 24, "check": 45, "proxy": 44, "bench run": 44}
"""Files of each walk as they are, so that a change that makes one longer says so. The aim is 15."""
JUMPS = {"row": 25, "reply": 72, "check": 158}
"""How often each walk goes from one file to another, a little above what it does. The aims are 15, 60 and 150."""


@contextmanager
def walked() -> Iterator[list[str]]:
    """The files in which functions run meanwhile, call by call, in this thread and in those that begin."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # and no body of a class, which runs at an import
        if (
            event == "call"
            and is_function
            and name.startswith(str(PACKAGE))
            and not frame.f_code.co_name.startswith("<")
        ):
            found.append(str(Path(name).relative_to(PACKAGE)))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def files(found: list[str]) -> list[str]:
    """The files that count of a walk."""
    return sorted({name for name in found if not name.startswith(HELPERS)})


def check_walk(name: str, walk: Callable[[], object]) -> None:
    """Hold a walk against its figures, once everything that is made at first use is there."""
    walk()
    with walked() as found:
        walk()
    assert len(files(found)) <= LONGEST[name], files(found)
    steps = [file for file in found if not file.startswith(HELPERS)]
    assert sum(one != other for one, other in itertools.pairwise(steps)) <= JUMPS[name]


@pytest.fixture(scope="module")
def clusters() -> TokenClusters:
    return TokenClusters.from_pretrained(PACKAGE / "support" / "checkpoints" / "clusters" / "smollm2")


def test_a_row() -> None:
    clusters = TokenClusters.from_pretrained(almanac_clusters_path())
    rows = np.zeros((2, clusters.vocabulary.size), dtype=np.float32)
    check_walk("row", lambda: score_logits(rows, [5, 6], clusters))


def test_a_saved_reply() -> None:
    reply = load_json(REPLY.read_bytes())["reply"]
    check_walk("reply", lambda: score_reply(reply))


def test_check() -> None:
    check_walk("check", lambda: rank_replies([str(REPLY)]))


def test_a_whole_reply_through_the_proxy(clusters: TokenClusters) -> None:
    body = dump_json(load_json(REPLY.read_bytes())["reply"])
    with raw_upstream(answering(response(body))) as upstream:
        with running(proxy_app(ProxySettings(upstream.url), clusters)) as first:
            ask(first)
        with walked() as found, running(proxy_app(ProxySettings(upstream.url), clusters)) as url:
            ask(url)
            found.clear()
            assert ask(url)["choices"][0]["semtoken"]["n_tokens"] > 0
            walk = files(found)  # before the server stops
    assert len(walk) <= LONGEST["proxy"], walk


def ask(url: str) -> dict[str, Any]:
    """A question to a server at this address."""
    body = {"model": "m", "messages": [{"role": "user", "content": "What is the capital of Japan?"}]}
    return dict(httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).raise_for_status().json())


def test_bench_run(tmp_path: Path) -> None:
    content: dict[str, Any] = {
        "models": [{"name": str(tiny_model(tmp_path / "tiny")), "device": "cpu"}],
        "datasets": [{"name": str(tiny_questions(tmp_path / "questions.jsonl")), "prompt": "Q: {question}\nA:"}],
        "decoding": {"max_new_tokens": 4},
        "methods": ["perplexity"],
    }
    settings = check_settings(content, "the test")
    with walked() as found:
        assert run_benchmark(settings, tmp_path / "run") == []
    walk = files(found)
    assert len(walk) <= LONGEST["bench run"], walk
