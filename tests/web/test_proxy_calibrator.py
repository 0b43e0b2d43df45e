"""The proxy with a calibrator: chance and decision in every final block, and calibrators that do not belong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

import semtoken as st
from semtoken import TokenClusters
from semtoken.calibration import Fingerprint
from semtoken.calibration.apply import Applied
from semtoken.scoring.rules import ScoringRules
from tests.web.servers import running

CHAT = {"model": "almanac", "messages": [{"role": "user", "content": "What is the capital of Peru?"}]}


def made(clusters: TokenClusters, folder: Path, **origin: Any) -> st.Calibrator:
    """A calibrator of top-k scores, from simulated labels."""
    generator = np.random.default_rng(0)
    scores = -generator.exponential(1, 300)
    correct = generator.random(300) < np.exp(scores / 4)
    signature = f"{clusters.signature}|{ScoringRules().signature}"
    known = Fingerprint(**({"signature": signature, "scores": "top-k", "k": 20} | origin))
    threshold = st.Threshold.fit(scores, correct, alpha=0.1, fingerprint=known)
    st.Calibrator.fit(scores, correct, fingerprint=known).save(folder, threshold)
    return st.Calibrator.load(folder)


def test_final_blocks_carry_chance_and_decision(served: str, almanac_clusters: TokenClusters, tmp_path: Path) -> None:
    from semtoken.web.proxy.app import proxy_app
    from semtoken.web.proxy.settings import ProxySettings

    calibrator = made(almanac_clusters, tmp_path)
    app = proxy_app(ProxySettings(served, hold=30.0), almanac_clusters, calibrator=Applied(calibrator))
    with running(app) as url:
        block = httpx.post(f"{url}/v1/chat/completions", json=CHAT, timeout=60).json()["choices"][0]["semtoken"]
        text = httpx.post(f"{url}/v1/chat/completions", json=CHAT | {"stream": True}, timeout=60).text
    assert block["chance"] == pytest.approx(calibrator.chance(np.log1p(-block["uncertainty"])), abs=1e-6)
    assert calibrator.threshold is not None
    assert (block["n_labels"], block["promise"]) == (300, calibrator.threshold.statement)
    assert block["decision"] in ("answer", "abstain")
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    blocks = [c["semtoken"] for found in chunks for c in found["choices"] if "semtoken" in c]
    assert blocks[-1]["chance"] == block["chance"]
    assert all(("chance" in one) == bool(one.get("final")) for one in blocks)


@pytest.mark.parametrize(
    ("origin", "named"), [({"scores": "exact"}, "'exact'"), ({"k": 5}, "5"), ({"signature": "k:9"}, "'k:9'")]
)
def test_the_proxy_does_not_start_with_a_calibrator_of_other_scores(
    almanac_clusters: TokenClusters, tmp_path: Path, origin: dict[str, Any], named: str
) -> None:
    from semtoken.cli.app import app

    made(almanac_clusters, tmp_path, **origin)
    options = [
        "--upstream",
        "http://127.0.0.1:9",
        "--clusters",
        "almanac",
        "--port",
        "0",
        "--calibrator",
        str(tmp_path),
    ]
    result = CliRunner().invoke(app, ["proxy", *options])
    assert result.exit_code == 1
    assert "This calibrator was fitted on scores with" in result.stderr and named in result.stderr
