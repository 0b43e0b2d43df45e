"""llama.cpp through llama-cpp-python, in process and over HTTP, against the same model in transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import llama_cpp
import numpy as np
import pytest
from llama_cpp.llama_tokenizer import BaseLlamaTokenizer
from tokenizers import Tokenizer
from transformers import AutoConfig

from semtoken import ScoredModel, TokenClusters, score_logprobs
from semtoken.core.results import ScoredAnswer
from semtoken.errors import InvalidInputError, VocabularyMismatch
from semtoken.models.llama_cpp import LONGEST_CONTEXT, LlamaCppBackend, load_llama_cpp
from semtoken.replies import read_reply
from semtoken.support.almanac import almanac_clusters_path, almanac_path
from tests.engines.servers import examined, proxied, running
from tests.engines.twins import NEWLINE, TOLERANCE, assert_holds, assert_same
from tests.gguf_model import write_gguf
from tests.known import known

HALF_CACHE = 5e-3  # llama.cpp keeps keys and values in half precision unless told otherwise


class AlmanacTokenizer(BaseLlamaTokenizer):
    """The model splits words in its own way, which llama.cpp does not know."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer.from_file(str(almanac_path() / "tokenizer.json"))

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        return self._tokenizer.encode(text.decode(), add_special_tokens=add_bos).ids

    def detokenize(self, tokens: list[int], prev_tokens: list[int] | None = None, special: bool = False) -> bytes:
        return self._tokenizer.decode(tokens, skip_special_tokens=not special).encode()


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(almanac_path(), tmp_path_factory.mktemp("gguf") / "almanac.gguf")


def load(gguf_file: Path, **options: Any) -> llama_cpp.Llama:
    return llama_cpp.Llama(str(gguf_file), **({"n_ctx": 256, "n_threads": 1, "verbose": False} | options))


@pytest.fixture(scope="module")
def scorer(gguf_file: Path, clusters: TokenClusters) -> Iterator[ScoredModel]:
    single = llama_cpp.GGML_TYPE_F32
    llama = load(gguf_file, tokenizer=AlmanacTokenizer(), type_k=single, type_v=single)
    yield ScoredModel(LlamaCppBackend(llama), clusters=clusters)
    llama.close()


def test_greedy_answers_equal_those_of_transformers(scorer: ScoredModel, stc: ScoredModel, prompts: list[str]) -> None:
    for scored, twin in zip(
        scorer.generate(prompts, 24, stop_token_ids=[NEWLINE]), stc.generate(prompts, max_new_tokens=24), strict=True
    ):
        assert_same(scored, twin)


def test_sampled_answers_are_scored_at_temperature_one(
    scorer: ScoredModel, stc: ScoredModel, prompts: list[str]
) -> None:
    sampled = scorer.generate(prompts[:8], 12, temp=1.5, top_p=0.9, repeat_penalty=1.3)
    assert len({scored.text for scored in scorer.generate([prompts[0]] * 8, 6, temp=2.0)}) > 1
    for scored, twin in zip(sampled, stc.score(prompts[:8], [s.token_ids for s in sampled]), strict=True):
        assert scored.log_confidence == pytest.approx(twin.log_confidence, abs=TOLERANCE)


def test_text_that_exists(scorer: ScoredModel, stc: ScoredModel, prompts: list[str]) -> None:
    responses = [["Paris", "London\n", "", "the", "1,234"][i % 5] for i in range(10)]
    for scored, twin in zip(scorer.score(prompts[:10], responses), stc.score(prompts[:10], responses), strict=True):
        assert_same(scored, twin)


def test_chat_messages_go_through_the_template_in_the_file(scorer: ScoredModel, stc: ScoredModel) -> None:
    chat = [{"role": "user", "content": "What is the capital of Peru?"}]
    (scored,) = scorer.generate(chat, 8, stop_at_newline=True)
    (twin,) = stc.generate(chat, max_new_tokens=8, stop_at_newline=True)
    assert_same(scored, twin)


def test_the_default_cache_costs_little(
    gguf_file: Path, clusters: TokenClusters, stc: ScoredModel, prompts: list[str]
) -> None:
    llama = load(gguf_file, tokenizer=AlmanacTokenizer())
    answers = [twin.token_ids for twin in stc.generate(prompts[:8], max_new_tokens=12)]
    scored = ScoredModel(LlamaCppBackend(llama), clusters=clusters).score(prompts[:8], answers)
    for mine, twin in zip(scored, stc.score(prompts[:8], answers), strict=True):
        assert mine.log_confidence == pytest.approx(twin.log_confidence, abs=HALF_CACHE)
    llama.close()


def test_what_cannot_be_used_is_refused(scorer: ScoredModel, clusters: TokenClusters) -> None:
    with pytest.raises(InvalidInputError, match="the model reads 256"):
        scorer.generate("What? " * 200)
    with pytest.raises(InvalidInputError, match="Prompt 1 is empty"):
        scorer.generate(["What?", " "])
    with pytest.raises(InvalidInputError, match="2 prompts and 1 responses"):
        scorer.score(["What?", "Who?"], "Me")
    texts = list(clusters.vocabulary.texts)
    texts[300], texts[301] = texts[301], texts[300]
    pieces = tuple(text.encode() if text else b"" for text in texts)
    swapped = type(clusters.vocabulary)(
        tuple(texts), pieces, clusters.vocabulary.neutral, clusters.vocabulary.byte_tokens
    )
    with pytest.raises(VocabularyMismatch, match="belong to another model"):
        ScoredModel(LlamaCppBackend(scorer.model), clusters=TokenClusters(np.asarray(clusters.labels), swapped))


@pytest.fixture(scope="module")
def server(gguf_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    arguments = ["-m", "llama_cpp.server", "--model", str(gguf_file), "--model_alias", "almanac", "--n_ctx", "256"]
    arguments += ["--logits_all", "true", "--n_threads", "1"]
    with running(arguments, tmp_path_factory.mktemp("llama") / "log", ready="/v1/models") as url:
        yield url


QUESTION = "Answer these questions:\n\nQuestion:\nWhat is Peru?\nAnswer:\n"
REQUEST = {"model": "almanac", "prompt": QUESTION, "max_tokens": 6, "temperature": 0.0}


def ask(url: str, **changes: Any) -> dict[str, Any]:
    reply = httpx.post(f"{url}/v1/completions", json=REQUEST | changes, timeout=120).raise_for_status()
    found: dict[str, Any] = reply.json()
    return found


def exact_score(gguf_file: Path, clusters: TokenClusters) -> ScoredAnswer:
    llama = load(gguf_file)
    (scored,) = ScoredModel(LlamaCppBackend(llama), clusters=clusters).generate(QUESTION, 6)
    llama.close()
    return scored


def test_the_payload_of_the_server_gives_an_interval(server: str, gguf_file: Path, clusters: TokenClusters) -> None:
    """It names tokens by their texts, of which some are those of several tokens: the interval knows."""
    (choice,) = read_reply(ask(server, logprobs=30)).choices
    scored = score_logprobs(known(choice.segment("answer")).steps, clusters)
    lower, upper = scored.sequence_uncertainty_interval
    exact = exact_score(gguf_file, clusters)
    assert scored.token_ids == exact.token_ids
    assert_holds((lower, upper), exact)
    assert upper - lower < 0.5


def test_a_proxy_in_front_of_it_adds_the_uncertainty(
    server: str, gguf_file: Path, clusters: TokenClusters, tmp_path: Path
) -> None:
    with proxied(server, almanac_clusters_path(), tmp_path / "log") as url:
        choice = ask(url)["choices"][0]
    block = choice["semtoken"]
    exact = exact_score(gguf_file, clusters)
    assert choice["text"] == exact.text
    assert choice["logprobs"] is None
    assert_holds(block["sequence_uncertainty_interval"], exact)


def test_the_doctor_finds_what_the_server_gives(server: str) -> None:
    found = examined(server)
    assert found["usable"] and found["numbers"]["distribution"] == "raw" and found["tokenizer"]["fits"]
    assert found["tokens"] == {"bytes": False, "ids": None, "id_fields": []}


def test_the_context_is_as_long_as_the_model_was_trained_for(gguf_file: Path) -> None:
    trained = AutoConfig.from_pretrained(almanac_path()).max_position_embeddings
    assert load_llama_cpp(str(gguf_file), n_threads=1).max_length == trained < LONGEST_CONTEXT
    assert load_llama_cpp(str(gguf_file), n_threads=1, n_ctx=256).max_length == 256
