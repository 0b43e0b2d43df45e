"""The proxy in front of vLLM's list of models and its recorded replies, by ids or by texts as the request asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from semtoken import ScoredModel
from semtoken.cli.proxy import _ids_and_tokenizer
from semtoken.support.almanac import almanac_path
from semtoken.web.proxy.upstream_tokenizer import root_of, tokenizer_here, vllm_model
from tests.replies.recorded import DATA
from tests.rows import each
from tests.web.asking import assert_holds, post
from tests.web.servers import commanded, running


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text("utf-8"))
    return found


@contextmanager
def vllm(root: str, owner: str = "vllm") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a server that lists its model as vLLM does and gives vLLM's replies, and what it was asked."""
    asked: list[dict[str, Any]] = []

    async def models(_: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [{"id": "called", "owned_by": owner, "root": root}]})

    async def chat(request: Request) -> JSONResponse:
        asked.append(await request.json())
        ids = "-ids" if asked[-1].get("return_tokens_as_token_ids") else ""
        return JSONResponse(recorded(f"vllm-chat{ids}")["reply"])

    routes = [Route("/v1/models", models), Route("/v1/chat/completions", chat, methods=["POST"])]
    with running(Starlette(routes=routes), wait=False, strict=False) as url:
        yield url, asked


def block_of(url: str) -> dict[str, Any]:
    body = {"model": "called", "messages": recorded("vllm-chat")["request"]["messages"], "temperature": 0}
    [choice] = post(url, json=body).json()["choices"]
    assert choice["logprobs"] is None and choice.get("token_ids") is None  # which nobody asked for
    block: dict[str, Any] = choice["semtoken"]
    return block


@pytest.fixture
def exact(almanac: ScoredModel) -> float:
    """The uncertainty by the same weights in transformers, of the tokens that vLLM wrote."""
    saved = recorded("vllm-chat-ids")["reply"]
    [answer] = almanac.score([saved["prompt_token_ids"]], [saved["choices"][0]["token_ids"]])
    return answer.sequence_uncertainty


def test_vllm_is_asked_for_ids_if_its_tokenizer_is_here(exact: float) -> None:
    with vllm(str(almanac_path())) as (upstream, asked), commanded("proxy", "--base-url", upstream) as (url, said):
        by_ids = block_of(url)
    assert f"the tokenizer is that in {almanac_path()}" in said
    assert asked[0]["return_tokens_as_token_ids"] is True
    with vllm("some-org/some-model") as (upstream, asked), commanded("proxy", "--base-url", upstream) as (url, said):
        by_texts = block_of(url)
    assert "The upstream is vLLM with some-org/some-model, whose tokenizer was not found on this machine" in said
    assert "return_tokens_as_token_ids" not in asked[-1]
    widths = []
    for block in (by_ids, by_texts):
        low, high = block["sequence_uncertainty_interval"]
        assert_holds((low, high), exact, 1e-4)
        widths.append(high - low)
    assert widths[0] <= widths[1]


def test_what_is_typed_is_taken() -> None:
    with vllm(str(almanac_path())) as (upstream, _):
        assert _ids_and_tokenizer("auto", upstream, None) == (True, str(almanac_path()))
        assert _ids_and_tokenizer("auto", upstream, "mine") == (True, "mine")
        assert _ids_and_tokenizer("no", upstream, None) == (False, None)
    assert _ids_and_tokenizer("yes", "http://127.0.0.1:9", "mine") == (True, "mine")
    assert _ids_and_tokenizer("auto", "http://127.0.0.1:9", "mine") == (False, "mine")


def test_what_is_no_vllm_names_nothing() -> None:
    with vllm(str(almanac_path()), owner="llamacpp") as (upstream, _):
        assert vllm_model(upstream) is None
    with vllm(str(almanac_path())) as (upstream, _):
        with_password = upstream.replace("//", "//user:password@")
        assert vllm_model(upstream) == vllm_model(with_password) == str(almanac_path())
        assert vllm_model(f"{upstream}/elsewhere") is None
    assert vllm_model("http://127.0.0.1:9") is None


def test_only_what_is_on_this_machine_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tokenizer_here(str(almanac_path())) == str(almanac_path())
    monkeypatch.chdir(almanac_path().parent)
    for name in (almanac_path().name, f"./{almanac_path().name}", "../../etc/passwd", "no-org/no-model", str(tmp_path)):
        assert tokenizer_here(name) is None


@each("path", ["", "/", "/v1", "/v1/", "/v1/decisions", "/v1/chat/completions?a=1"])
@each("server", ["http://127.0.0.1:8000", "http://v1.example", "https://v1.example/v1beta"])
def test_the_root_of_a_server_is_what_stands_before_its_own_v1(server: str, path: str) -> None:
    assert root_of(server + path) == server
