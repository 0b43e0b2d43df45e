"""The proxy in front of a living `transformers serve`."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.decisions.models import tiny, tokenizer
from tests.engines.servers import running as engine_running
from tests.web.asking import post
from tests.web.conftest import proxy_of
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
    command = ["-c", "from transformers.cli.transformers import main; main()", "serve", str(folder), "--device", "cpu"]
    with engine_running(command, folder / "log", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1") as url:
        yield url


def test_its_numbers_pass_with_a_block_beside_them(upstream: str) -> None:
    body = {"state": STATE, "questions": SYSTEM_ONE}
    own = post(upstream, "/v1/systemone", json=body, timeout=120).json()
    with proxy_of(upstream, None, page=False) as url:
        reply = post(url, "/v1/systemone", json=body, timeout=120).json()
        wrong = post(url, "/v1/systemone", json={"state": 1}, timeout=120)
    blocks = [answer.pop("semtoken") for answer in reply["answers"].values()]
    assert blocks == [{"option_mass": None}] * 3
    assert reply == own
    assert (wrong.status_code, wrong.json()["detail"][0]["loc"][:2]) == (422, ["body", "state"])


def test_openai_s_shape_is_answered_from_its_own_decisions(upstream: str) -> None:
    """It drops log-probabilities, so nothing is read from its texts: its other shape is asked, and translated."""
    body = {"input": STATE, "questions": [{"type": "predicate", "instructions": "Is a refund requested?"}]}
    with proxy_of(upstream, None, page=False) as url:
        reply = post(url, "/v1/decisions", json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    text = json.dumps(reply.json())
    probabilities = [float(one) for one in re.findall(r'"(?:probability|likelihood)": ([0-9.e-]+)', text)]
    assert probabilities and all(0 <= one <= 1 for one in probabilities), text
