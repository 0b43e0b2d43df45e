"""The proxy in front of a living `transformers serve`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.running import listen
from tests.decisions.models import tiny, tokenizer
from tests.web.servers import running
from tests.web.test_serve_decisions import STATE, SYSTEM_ONE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("transformers.cli.serving") is None
        or importlib.util.find_spec("transformers.cli.serving.systemone") is None,
        reason="this transformers has no /v1/systemone: it came with 5.23",
    ),
]


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("model")
    tiny().model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    listener.close()
    start = "from transformers.cli.transformers import main; main()"
    arguments = ["serve", str(folder), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-c", start, *arguments],
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        url, until = f"http://127.0.0.1:{port}", time.monotonic() + 240
        while not _answers(url):
            assert server.poll() is None and time.monotonic() < until, (folder / "log").read_text()[-3000:]
            time.sleep(0.5)
        yield url
    finally:
        server.terminate()
        server.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_its_numbers_pass_with_a_block_beside_them(upstream: str) -> None:
    body = {"state": STATE, "questions": SYSTEM_ONE}
    own = httpx.post(f"{upstream}/v1/systemone", json=body, timeout=120).json()
    with running(proxy_app(ProxySettings(upstream), page=False)) as url:
        reply = httpx.post(f"{url}/v1/systemone", json=body, timeout=120).json()
        wrong = httpx.post(f"{url}/v1/systemone", json={"state": 1}, timeout=120)
    blocks = [answer.pop("semtoken") for answer in reply["answers"].values()]
    assert blocks == [{"option_mass": None}] * 3
    assert reply == own
    assert (wrong.status_code, wrong.json()["detail"][0]["loc"][:2]) == (422, ["body", "state"])


def test_openai_s_shape_is_answered_from_its_own_decisions(upstream: str) -> None:
    """It drops log-probabilities, so nothing is read from its texts: its other shape is asked, and translated."""
    body = {"input": STATE, "questions": [{"type": "predicate", "instructions": "Is a refund requested?"}]}
    with running(proxy_app(ProxySettings(upstream), page=False)) as url:
        reply = httpx.post(f"{url}/v1/decisions", json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    text = json.dumps(reply.json())
    probabilities = [float(one) for one in re.findall(r'"(?:probability|likelihood)": ([0-9.e-]+)', text)]
    assert probabilities and all(0 <= one <= 1 for one in probabilities), text
