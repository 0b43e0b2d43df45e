"""Replies that engines really sent, through the proxy: scored as the library scores them, else with its reason."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from semtoken import TokenClusters
from semtoken.errors import SemtokenError
from semtoken.payloads import score_payload
from tests.web.conftest import proxy_of
from tests.web.servers import LAST_CHUNK, Received, chunk, raw_upstream, response, stream_head

DATA = Path(__file__).parents[1] / "payloads" / "data"
RECORDED = {path.stem: json.loads(path.read_text()) for path in sorted(DATA.glob("*.json"))}
SCORED = [
    name
    for name, recorded in RECORDED.items()
    if isinstance(recorded, dict) and str(recorded.get("path", "")).endswith("/completions")
]


@pytest.fixture(scope="module")
def proxy(almanac_clusters: TokenClusters) -> Iterator[str]:
    async def replay(received: Received, writer: asyncio.StreamWriter) -> None:
        name, _, how = received.json()["user"].partition(" ")
        if how == "stream":
            writer.write(stream_head() + chunk(RECORDED[name]["stream"].encode()) + LAST_CHUNK)
        else:
            writer.write(response(json.dumps(RECORDED[name]["reply"]).encode()))
        await writer.drain()

    with raw_upstream(replay) as upstream, proxy_of(upstream.url, almanac_clusters) as url:
        yield url


def expected(recorded: Any, reply: Any, clusters: TokenClusters) -> Any:
    try:
        return score_payload(reply, clusters, temperature=recorded["request"].get("temperature"))
    except SemtokenError as error:
        return str(error)


def check(block: Any, found: Any, number: int) -> None:
    if isinstance(found, str):
        assert set(block) - {"final"} == {"version", "reason"}
    else:
        lower, upper = found[number].uncertainty_bounds
        assert (block["uncertainty"], block["lower"], block["upper"]) == (found[number].uncertainty, lower, upper)
        assert block["distribution"] == found[number].distribution


def test_there_are_recordings_of_several_engines() -> None:
    assert {name.partition("-")[0] for name in SCORED} >= {"vllm", "llama", "transformers"}


@pytest.mark.parametrize("name", SCORED)
def test_whole_replies(proxy: str, almanac_clusters: TokenClusters, name: str) -> None:
    recorded = RECORDED[name]
    asked = {key: value for key, value in recorded["request"].items() if key != "echo"} | {"user": name}
    reply = httpx.post(proxy + recorded["path"], json=asked, timeout=20).json()
    found = expected(recorded, recorded["reply"], almanac_clusters)
    choices = sorted(reply["choices"], key=lambda choice: choice["index"])
    if len(choices) == 1 or not isinstance(found, str):
        for number, choice in enumerate(choices):
            check(choice["semtoken"], found, number)


@pytest.mark.parametrize("name", [name for name in SCORED if RECORDED[name].get("stream")])
def test_streams(proxy: str, almanac_clusters: TokenClusters, name: str) -> None:
    recorded = RECORDED[name]
    asked = {key: value for key, value in recorded["request"].items() if key != "echo"}
    body = httpx.post(
        proxy + recorded["path"], json=asked | {"user": f"{name} stream", "stream": True}, timeout=20
    ).text
    chunks = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    found = expected(recorded, recorded["stream"], almanac_clusters)
    finals = {
        choice["index"]: choice["semtoken"]
        for one in chunks
        for choice in one.get("choices", [])
        if choice.get("semtoken", {}).get("final")
    }
    ended = {c["index"] for one in chunks for c in one.get("choices", []) if c.get("finish_reason")}
    assert set(finals) == ended
    if len(finals) == 1 or not isinstance(found, str):
        for number, index in enumerate(sorted(finals)):
            check(finals[index], found, number)
