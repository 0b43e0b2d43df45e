"""Models of many kinds: their answers alone, together, read again and sampled, against plain forward passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import semtoken as st
from semtoken.bench.statistics.decoding import LogProbabilities
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.models.base import Arrival, Decoding
from tests import tiny
from tests.models.plain_pass import SIZES

pytestmark = pytest.mark.slow

HEAD = {"head_dim": 8}
WINDOW = {**HEAD, "sliding_window": 8}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8}
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
KINDS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("Llama", "Qwen2", "Qwen3", "Olmo2", "Olmo3", "SmolLM3", "Granite", "Phi", "Phi3", "StableLm"), HEAD
    ),
    **dict.fromkeys(("Gemma", "Cohere", "Starcoder2", "Glm4", "Nemotron", "Ministral3", "Exaone4", "SeedOss"), HEAD),
    **dict.fromkeys(("Mistral", "Gemma2", "Gemma3Text", "Cohere2"), WINDOW),
    "Bamba": {**MAMBA, "attn_layer_indices": [1]},
    "DeepseekV3": {**EXPERTS, **LATENT, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_key_value_heads": 4},
    "FalconH1": {**MAMBA, "mamba_d_ssm": 64, "mamba_n_groups": 1},
    "GptOss": {**HEAD, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8},
    "Jamba": {"num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
    "Lfm2": {"layer_types": ["conv", "full_attention"]},
    "Llama4Text": {**HEAD, "num_local_experts": 2, "intermediate_size_mlp": 64, "attention_chunk_size": 8},
    "Mixtral": {"num_local_experts": 4},
    "Qwen3Moe": {**HEAD, **EXPERTS, "num_experts": 4},
    "Qwen3Next": {**HEAD, **EXPERTS, **LINEAR, "num_experts": 4, "shared_expert_intermediate_size": 16},
    "Qwen3_5Text": {**HEAD, **LINEAR},
}
PROMPTS = [
    "Question:\nwho is it , the capital of France , a television set\nAnswer:\n",
    "Question:\nwho is it , the capital of France , a television set or the same TV , 1990 and Paris\nAnswer:\n",
    "Question:\nwho is it , the capital of France , a television set 42\nAnswer:\n",
]
DECODING = Decoding(max_new_tokens=6)


def model_of(kind: str) -> Any:
    """A small model with random weights and rather sure predictions."""
    config_class = getattr(transformers, f"{kind}Config", None)
    if config_class is None:
        pytest.skip(f"transformers {transformers.__version__} has no {kind}Config")
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config_class(**(SIZES | KINDS[kind]))).eval().float()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(40)
    return model


def scored(model: Any, tokenizer: Any) -> st.ScoredModel:
    """The model with clusters at random."""
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    return st.ScoredModel(model, tokenizer, st.TokenClusters(np.arange(vocabulary.size) % 80, vocabulary))


def forward(model: Any, tokenizer: Any, prompt: str, ids: list[int]) -> list[float]:
    """Log-probabilities of the tokens after the prompt, from one pass without padding, batch or cache."""
    before = tokenizer(prompt)["input_ids"]
    with torch.no_grad():
        rows = model(torch.tensor([[*before, *ids]])).logits[0, :, : len(tokenizer)].double().log_softmax(-1)
    return [float(rows[len(before) - 1 + place, token]) for place, token in enumerate(ids)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_to_an_answer_has_the_numbers_of_a_plain_pass(kind: str) -> None:
    model, tokenizer = model_of(kind), tiny.byte_level_bpe()
    stc = scored(model, tokenizer)
    together = stc.generate(PROMPTS, max_new_tokens=6)
    alone = [stc.generate([prompt], max_new_tokens=6)[0] for prompt in PROMPTS]
    read = stc.score(PROMPTS, [answer.token_ids for answer in together])
    for one, other in [*zip(together, alone, strict=True), *zip(together, read, strict=True)]:
        assert one.token_ids == other.token_ids
        assert one.log_confidence == pytest.approx(other.log_confidence, abs=1e-3)
    for decoding in (
        DECODING,
        Decoding(max_new_tokens=6, share_prefix=True),
        Decoding(max_new_tokens=6, n=3, temperature=1.0, seed=1),
    ):
        seen = LogProbabilities()
        for answer, completion in enumerate(stc.backend.generate(PROMPTS, decoding, [seen])):
            expected = forward(model, tokenizer, PROMPTS[answer // decoding.n], completion.token_ids)
            np.testing.assert_allclose(seen.of(answer), expected, atol=1e-3)
    leaving = [replace(DECODING, max_new_tokens=limit) for limit in (2, 2, 6, 4, 2, 2, 2, 6, 2)]
    seen = LogProbabilities()
    for answer, completion in enumerate(stc.backend.generate(PROMPTS * 3, leaving, [seen])):
        expected = forward(model, tokenizer, PROMPTS[answer % 3], completion.token_ids)
        np.testing.assert_allclose(seen.of(answer), expected, atol=1e-3)
    if stc.backend.joins:
        encoded = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
        for first in (0, 3):  # the second time after a prompt that is known
            seen, waiting = LogProbabilities(), [[Arrival(i, ids, DECODING) for i, ids in enumerate(encoded, first)]]
            stc.backend.generate_joining(lambda waiting=waiting: waiting.pop() if waiting else [], [seen])
            for answer, one in enumerate(alone, first):
                expected = forward(model, tokenizer, PROMPTS[answer - first], one.token_ids)
                np.testing.assert_allclose(seen.of(answer), expected, atol=1e-3)
