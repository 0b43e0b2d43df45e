"""Real engines with the embedded model. Makefile says which target installs which; no other run has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from semtoken.support.almanac import almanac_clusters_path, almanac_path, load_questions

if TYPE_CHECKING:
    from semtoken import ScoredModel, TokenClusters

WANTED = os.environ.get("SEMTOKEN_TEST_ENGINES") == "1"
collect_ignore_glob = [] if WANTED else ["test_*.py"]

VLLM_ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",  # no compiler at the first log-probability
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
if WANTED:
    os.environ.update(VLLM_ENVIRONMENT)


@pytest.fixture(scope="session")
def clusters() -> TokenClusters:
    from semtoken import TokenClusters

    return TokenClusters.from_pretrained(almanac_clusters_path())


@pytest.fixture(scope="session")
def stc(clusters: TokenClusters) -> ScoredModel:
    """The twin: the same weights in transformers, float32."""
    from semtoken import ScoredModel

    return ScoredModel.from_pretrained("almanac", dtype="float32", clusters=clusters)


@pytest.fixture(scope="session")
def prompts() -> list[str]:
    return [question.prompt() for question in load_questions("test")[:24]]


@pytest.fixture(scope="session")
def processor(clusters: TokenClusters) -> Any:
    """The class that scores inside the engine."""
    from semtoken.models.vllm.processor import scoring_processor

    return scoring_processor(clusters)


@pytest.fixture(scope="session")
def llm(processor: Any) -> Iterator[Any]:
    """vLLM in this process, with the logits processor; small enough that requests wait, come in pieces and give way."""
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0")
    from vllm import LLM

    yield LLM(
        model=str(almanac_path()),
        dtype="float32",
        max_model_len=400,
        max_logprobs=-1,
        max_num_seqs=8,
        max_num_batched_tokens=48,
        num_gpu_blocks_override=12,
        enforce_eager=True,
        distributed_executor_backend="uni",
        logits_processors=[processor],
        seed=0,
        enable_prefix_caching=False,
        disable_log_stats=False,  # preemptions are counted
    )
