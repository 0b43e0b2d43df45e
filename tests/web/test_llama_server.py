"""llama.cpp's own server, from the wheel of xllamacpp, with the embedded model: its replies beside transformers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from semtoken import STC, TokenClusters, score_payload
from semtoken.almanac import almanac_path, load_questions
from semtoken.web.doctor.examination import examine
from tests.gguf_model import write_gguf
from tests.web.conftest import proxy_of

xllamacpp = pytest.importorskip("xllamacpp", reason="xllamacpp, which brings llama.cpp's server, has no wheel here")

CLOSE = 1e-4  # a token
PROMPTS = [question.prompt() for question in load_questions("test")[:4]]


@pytest.fixture(scope="module")
def llama_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address. Keys and values in float32, as the twin keeps them."""
    settings = xllamacpp.CommonParams()
    settings.model.path = str(write_gguf(almanac_path(), tmp_path_factory.mktemp("gguf") / "almanac.gguf"))
    settings.hostnames, settings.port, settings.verbosity = ["127.0.0.1"], 0, 0
    settings.n_ctx = settings.n_batch = 512
    settings.n_parallel = settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(settings)
    yield server.listening_address


def asked(stc: STC, prompt: str, **changes: Any) -> dict[str, Any]:
    """A greedy request. The prompt goes as ids: llama.cpp does not know how this model splits words."""
    ids = stc.tokenizer(prompt)["input_ids"]
    return {"prompt": ids, "max_tokens": 8, "temperature": 0, "logprobs": 20} | changes


def post(url: str, request: dict[str, Any]) -> dict[str, Any]:
    return httpx.post(f"{url}/v1/completions", json=request, timeout=60).raise_for_status().json()


@pytest.mark.parametrize("prompt", PROMPTS)
def test_its_replies_have_the_numbers_of_transformers(llama_server: str, almanac: STC, prompt: str) -> None:
    (scored,) = score_payload(post(llama_server, asked(almanac, prompt)))
    (greedy,) = almanac.generate(prompt, 8)
    assert scored.text == greedy.text
    (twin,) = almanac.score([prompt], [scored.token_ids])  # the server lists the end of the answer, too
    assert scored.log_probability == pytest.approx(twin.log_probability, abs=CLOSE * len(scored.token_ids))
    lower, upper = scored.uncertainty_bounds
    assert lower - CLOSE <= twin.uncertainty <= upper + CLOSE
    assert upper - lower < 0.5


def test_a_proxy_in_front_of_it_adds_the_score(
    llama_server: str, almanac: STC, almanac_clusters: TokenClusters
) -> None:
    with proxy_of(llama_server, almanac_clusters) as url:
        choice = post(url, asked(almanac, PROMPTS[0], logprobs=None))["choices"][0]
    (twin,) = almanac.generate(PROMPTS[0], 8)
    assert choice["text"] == twin.text
    assert not choice.get("logprobs")
    block = choice["semtoken"]
    assert block["lower"] - CLOSE <= twin.uncertainty <= block["upper"] + CLOSE


def test_the_doctor_finds_what_it_gives(llama_server: str, almanac_clusters: TokenClusters) -> None:
    found = examine(llama_server, vocabulary=almanac_clusters).to_dict()
    assert found["usable"] and found["numbers"]["distribution"] == "raw" and found["tokenizer"]["fits"]
    assert found["tokens"]["bytes"] and found["tokens"]["ids"]
