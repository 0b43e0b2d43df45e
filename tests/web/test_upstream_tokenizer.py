"""The proxy in front of vLLM's list of models and its recorded replies, by ids or by texts as the request asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from semtoken import ScoredModel
from semtoken.support.almanac import almanac_path
from semtoken.web.proxy.upstream_tokenizer import ids_and_tokenizer, root_of, tokenizer_here, vllm_model
from tests.replies.recorded import DATA
from tests.rows import each
from tests.web.asking import assert_holds, post
from tests.web.servers import Received, Upstream, answering, commanded, raw_upstream, said


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text("utf-8"))
    return found


@contextmanager
def vllm(root: str, owner: str = "vllm") -> Iterator[Upstream]:
    """A server that lists its model as vLLM does and gives vLLM's replies."""

    def answer(received: Received) -> bytes:
        if received.line.startswith(b"GET /v1/models "):
            return said({"object": "list", "data": [{"id": "called", "owned_by": owner, "root": root}]})
        if not received.line.startswith(b"POST /v1/chat/completions "):
            return said({}, b"404 Not Found")
        ids = "-ids" if received.json().get("return_tokens_as_token_ids") else ""
        return said(recorded(f"vllm-chat{ids}")["reply"])

    with raw_upstream(answering(answer)) as upstream:
        yield upstream


def chats(upstream: Upstream) -> list[Any]:
    """The chats that a server was asked for."""
    return [received.json() for received in upstream.requests if received.body]


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
    with vllm(str(almanac_path())) as here, commanded("proxy", "--base-url", here.url) as (url, told):
        by_ids = block_of(url)
    assert f"the tokenizer is that in {almanac_path()}" in told
    assert chats(here)[0]["return_tokens_as_token_ids"] is True
    with vllm("some-org/some-model") as there, commanded("proxy", "--base-url", there.url) as (url, told):
        by_texts = block_of(url)
    assert "The upstream is vLLM with some-org/some-model, whose tokenizer was not found on this machine" in told
    assert "return_tokens_as_token_ids" not in chats(there)[-1]
    widths = []
    for block in (by_ids, by_texts):
        low, high = block["sequence_uncertainty_interval"]
        assert_holds((low, high), exact, 1e-4)
        widths.append(high - low)
    assert widths[0] <= widths[1]


def test_what_is_typed_is_taken() -> None:
    with vllm(str(almanac_path())) as upstream:
        assert ids_and_tokenizer("auto", upstream.url, None) == (True, str(almanac_path()))
        assert ids_and_tokenizer("auto", upstream.url, "mine") == (True, "mine")
        assert ids_and_tokenizer("no", upstream.url, None) == (False, None)
    assert ids_and_tokenizer("yes", "http://127.0.0.1:9", "mine") == (True, "mine")
    assert ids_and_tokenizer("auto", "http://127.0.0.1:9", "mine") == (False, "mine")


def test_what_is_no_vllm_names_nothing() -> None:
    with vllm(str(almanac_path()), owner="llamacpp") as upstream:
        assert vllm_model(upstream.url) is None
    with vllm(str(almanac_path())) as upstream:
        with_password = upstream.url.replace("//", "//user:password@")
        assert vllm_model(upstream.url) == vllm_model(with_password) == str(almanac_path())
        assert vllm_model(f"{upstream.url}/elsewhere") is None
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
