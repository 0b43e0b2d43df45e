"""vLLM's OpenAI server with worker processes: its replies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from semtoken import ScoredModel, TokenClusters, score_logprobs
from semtoken.replies import read_reply
from semtoken.support.almanac import almanac_clusters_path, almanac_path
from tests.engines.servers import examined, proxied, running
from tests.engines.twins import NEWLINE, assert_holds
from tests.known import known


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    arguments = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(almanac_path())]
    arguments += ["--served-model-name", "almanac", "--dtype", "float32", "--max-model-len", "256"]
    arguments += ["--max-logprobs", "100", "--enforce-eager", "--generation-config", "vllm"]
    with running(arguments, tmp_path_factory.mktemp("vllm") / "log", VLLM_ENABLE_V1_MULTIPROCESSING="1") as url:
        yield url


def test_the_payload_gives_an_interval_around_the_exact_score(
    server: str, clusters: TokenClusters, stc: ScoredModel, prompts: list[str]
) -> None:
    client = openai.OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0)
    for prompt in prompts[:8]:
        question = prompt.split("Question:\n")[1].removesuffix("\nAnswer:\n")
        reply = client.chat.completions.create(
            model="almanac",
            messages=[{"role": "user", "content": question}],
            temperature=0,
            max_tokens=12,
            logprobs=True,
            top_logprobs=20,
            extra_body={"return_tokens_as_token_ids": True, "return_token_ids": True, "stop_token_ids": [NEWLINE]},
        )
        (choice,) = read_reply(reply).choices
        scored = score_logprobs(known(choice.segment("answer")).steps, clusters)
        (twin,) = stc.score([prompt], [known(reply.choices[0].model_extra)["token_ids"]])
        assert scored.token_ids == twin.token_ids
        lower, upper = scored.sequence_uncertainty_interval
        assert_holds((lower, upper), twin)
        assert upper - lower < 0.5


@pytest.mark.parametrize("stream", [False, True])
def test_a_proxy_in_front_of_it_adds_the_uncertainty(
    server: str, stc: ScoredModel, prompts: list[str], tmp_path: Path, stream: bool
) -> None:
    options: dict[str, Any] = {"model": "almanac", "stream": stream, "temperature": 0, "max_tokens": 12}
    body = {"stop_token_ids": [NEWLINE], "return_token_ids": True}
    with proxied(server, almanac_clusters_path(), tmp_path / "log", "--endpoint.token-ids", "yes") as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        for prompt in prompts[:4]:
            reply = client.completions.create(prompt=prompt, extra_body=body, **options)
            parts = [part.choices[0] for part in (reply if stream else [reply])]
            ids = [token for part in parts for token in part.token_ids or ()]
            (twin,) = stc.score([prompt], [ids])
            block = parts[-1].semtoken
            assert_holds(block["sequence_uncertainty_interval"], twin)
            assert block["n_tokens"] == len(ids)
            assert all(part.logprobs is None for part in parts)


def test_the_doctor_finds_what_the_server_gives(server: str) -> None:
    found = examined(server)
    assert found["usable"] and found["numbers"]["distribution"] == "raw" and found["tokenizer"]["fits"]
    assert found["tokens"]["ids"] == "on request"
    assert found["streaming"]["log_probs"]
    chat = next(page for page in found["pages"] if page["name"] == "chat")
    assert max(tried["given"] or 0 for tried in chat["tried"]) == 100  # --max-logprobs
