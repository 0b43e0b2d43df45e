"""vLLM's outputs, scored, against the same model in transformers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from semtoken import ScoredModel, TokenClusters
from semtoken.errors import BackendError, InsufficientMemory, VocabularyMismatch
from semtoken.models.vllm import VLLMBackend, sampling_params, score_outputs
from semtoken.models.vllm.outputs import BYTES_PER_NUMBER
from tests.engines.twins import TOLERANCE, assert_holds, assert_same


@pytest.fixture(scope="module")
def scorer(llm: Any, clusters: TokenClusters) -> ScoredModel:
    return ScoredModel(VLLMBackend(llm), clusters=clusters)


def test_the_whole_vocabulary_gives_the_scores_of_transformers(
    scorer: ScoredModel, stc: ScoredModel, prompts: list[str]
) -> None:
    answers = scorer.generate(prompts, max_new_tokens=24)
    for scored, twin in zip(answers, stc.generate(prompts, max_new_tokens=24), strict=True):
        assert_same(scored, twin)
        assert scored.distribution == "raw"


def test_sampled_answers_are_scored_at_temperature_one(
    scorer: ScoredModel, stc: ScoredModel, prompts: list[str]
) -> None:
    sampling: dict[str, Any] = {"temperature": 1.7, "top_p": 0.9, "repetition_penalty": 1.2}
    answers = scorer.generate(prompts[:6], max_new_tokens=12, num_return_sequences=2, **sampling)
    asked = [prompt for prompt in prompts[:6] for _ in range(2)]
    twins = stc.score(asked, [scored.token_ids for scored in answers])
    for scored, twin in zip(answers, twins, strict=True):
        assert_same(scored, twin)


def test_dicts_and_flat_lists_score_alike(llm: Any, clusters: TokenClusters, prompts: list[str]) -> None:
    options: dict[str, Any] = {"exact": True, "temperature": 0, "max_tokens": 4}
    flat = llm.generate(prompts[:2], sampling_params(**options), use_tqdm=False)
    dicts = llm.generate(prompts[:2], sampling_params(**options, flat_logprobs=False), use_tqdm=False)
    assert type(flat[0].outputs[0].logprobs) is not type(dicts[0].outputs[0].logprobs)
    for (a,), (b,) in zip(score_outputs(flat, clusters), score_outputs(dicts, clusters), strict=True):
        assert a == b


def test_the_interval_of_the_k_best_holds_the_exact_score_and_shrinks(
    llm: Any, stc: ScoredModel, clusters: TokenClusters, prompts: list[str]
) -> None:
    exact = stc.generate(prompts, max_new_tokens=24)
    widths = []
    for k in (1, 5, 20, 100, 1000):
        params = sampling_params(top_k=k, temperature=0, max_tokens=24)
        (bounded,) = zip(*score_outputs(llm.generate(prompts, params, use_tqdm=False), clusters), strict=True)
        for scored, twin in zip(bounded, exact, strict=True):
            assert_holds(scored.sequence_uncertainty_interval, twin)
            assert scored.token_ids == twin.token_ids
        widths.append([upper - lower for lower, upper in (scored.sequence_uncertainty_interval for scored in bounded)])
    for wider, narrower in pairwise(widths):
        assert all(b <= a + TOLERANCE for a, b in zip(wider, narrower, strict=True))
    assert max(widths[-1]) < 0.05 < max(widths[0])


def test_text_that_exists(scorer: ScoredModel, stc: ScoredModel, prompts: list[str]) -> None:
    responses = [["Paris", "London\n", "", "the", "1,234"][i % 5] for i in range(10)]
    twins = stc.score(prompts[:10], responses)
    for scored, twin in zip(scorer.score(prompts[:10], responses), twins, strict=True):
        assert_same(scored, twin)


def test_chat_messages_go_through_the_template(scorer: ScoredModel, stc: ScoredModel) -> None:
    chat = [{"role": "user", "content": "What is the capital of Peru?"}]
    (scored,) = scorer.generate(chat, max_new_tokens=8)
    assert_same(scored, stc.generate(chat, max_new_tokens=8)[0])


def test_whole_vocabularies_stay_within_the_memory_budget(
    llm: Any, clusters: TokenClusters, prompts: list[str]
) -> None:
    one = 4 * clusters.vocabulary.size * BYTES_PER_NUMBER
    runs: list[int] = []

    class Counting:
        """The engine, telling how many prompts come at a time."""

        def __getattr__(self, name: str) -> Any:
            return getattr(llm, name)

        def generate(self, inputs: list[Any], *args: Any, **kwargs: Any) -> Any:
            runs.append(len(inputs))
            return llm.generate(inputs, *args, **kwargs)

    small = ScoredModel(VLLMBackend(Counting(), memory_budget=2 * one), clusters=clusters)
    whole = ScoredModel(VLLMBackend(llm), clusters=clusters).generate(prompts[:5], 4)
    assert small.generate(prompts[:5], 4) == whole
    assert runs == [2, 2, 1]
    with pytest.raises(InsufficientMemory, match="memory_budget"):
        ScoredModel(VLLMBackend(llm, memory_budget=one - 1), clusters=clusters).generate(prompts[:1], 4)


# --- what is refused ----------------------------------------------------------------------------------------------


def test_outputs_without_log_probabilities_are_refused(llm: Any, clusters: TokenClusters, prompts: list[str]) -> None:
    from vllm import SamplingParams

    outputs = llm.generate(prompts[:1], SamplingParams(max_tokens=2), use_tqdm=False)
    with pytest.raises(BackendError, match=r"no log-probabilities.*sampling_params"):
        score_outputs(outputs, clusters)


def test_beams_are_refused(llm: Any, clusters: TokenClusters, prompts: list[str]) -> None:
    from vllm.sampling_params import BeamSearchParams

    outputs = llm.beam_search([{"prompt": prompts[0]}], BeamSearchParams(beam_width=2, max_tokens=2))
    with pytest.raises(BackendError, match="Beam search is rejected"):
        score_outputs(outputs, clusters)


def test_logits_in_place_of_log_probabilities(llm: Any, clusters: TokenClusters, prompts: list[str]) -> None:
    outputs = llm.generate(prompts[:1], sampling_params(top_k=5, max_tokens=2), use_tqdm=False)
    with pytest.raises(BackendError, match="are logits"):
        score_outputs(outputs, clusters, logprobs_mode="raw_logits")
    with pytest.raises(BackendError, match="'cooked' is not known"):
        score_outputs(outputs, clusters, logprobs_mode="cooked")
    ((scored,),) = score_outputs(outputs, clusters, logprobs_mode="processed_logprobs")
    assert scored.distribution == "processed"


def test_clusters_of_another_tokenizer_are_refused(llm: Any) -> None:
    import numpy as np

    from semtoken import Vocabulary
    from tests.tiny import byte_level_bpe

    vocabulary = Vocabulary.from_tokenizer(byte_level_bpe())
    with pytest.raises(VocabularyMismatch):
        ScoredModel(VLLMBackend(llm), clusters=TokenClusters(np.zeros(vocabulary.size, dtype=np.int32), vocabulary))
