"""Weights as people load them: what they hold is what is scored, against plain passes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import semtoken as st
from semtoken.errors import BackendError, ModelError, VocabularyMismatch
from semtoken.models.transformers import TransformersBackend
from tests import tiny
from tests.cli.run import invoke
from tests.models.plain_pass import PROMPTS, assert_right, backend_of, generated, tiny_model, with_adapter

pytestmark = pytest.mark.usefixtures("own_cache")


def loaded(folder: Path, **options: Any) -> TransformersBackend:
    backend = st.ScoredModel.from_pretrained(folder, **options).backend
    assert isinstance(backend, TransformersBackend)
    return backend


def test_sharded_weights(tmp_path: Path) -> None:
    model = tiny_model("Llama")
    backend = loaded(tiny.saved(model, tmp_path, max_shard_size="50KB"))
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert_right(backend, model)


def test_bin_weights(tmp_path: Path) -> None:
    model = tiny_model("Llama")
    tiny.saved(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    assert_right(loaded(tmp_path), model)


def test_a_vocabulary_that_grew_and_was_padded(tmp_path: Path) -> None:
    model, tokenizer = tiny_model("Llama", vocab_size=454), tiny.byte_level_bpe()
    tokenizer.add_tokens(["<new>", "<newer>"])
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64, mean_resizing=False)
    backend = loaded(tiny.saved(model, tmp_path, tokenizer))
    assert backend.vocabulary.size == 456
    assert_right(backend, model)
    assert max(max(one.token_ids) for one in st.ScoredModel(backend).generate(PROMPTS, max_new_tokens=8)) < 456


def test_several_end_tokens_and_sampling_defaults(tmp_path: Path) -> None:
    model = tiny_model("Llama")
    settings = model.generation_config
    settings.eos_token_id, settings.do_sample, settings.temperature, settings.top_k = [0, 7], True, 0.6, 5
    backend = loaded(tiny.saved(model, tmp_path))
    with torch.no_grad():
        backend.model.lm_head.weight[7] += 4 * backend.model.lm_head.weight.abs().max()
    ended = [one for one in st.ScoredModel(backend).generate(PROMPTS, max_new_tokens=40) if 7 in one.token_ids]
    assert all(one.token_ids.index(7) == len(one.token_ids) - 1 and not one.truncated for one in ended)


@pytest.mark.slow
@pytest.mark.parametrize("merged", [False, True])
def test_a_folder_of_an_adapter(tmp_path: Path, merged: bool) -> None:
    base = tiny_model("Llama")
    base.config._name_or_path = base.name_or_path = str(tiny.saved(base, tmp_path / "base"))
    model = with_adapter(base, r=4, init_lora_weights=False).eval()
    kept = model.merge_and_unload() if merged else model
    assert_right(loaded(tiny.saved(kept, tmp_path / "adapted")), kept)
    asked = invoke(["ask", "who?", "--model", tmp_path / "adapted", "--max-tokens", 2])
    assert asked.exit_code == 0, asked.output


def saved_adapter(folder: Path, **settings: Any) -> tuple[Any, Path, Path]:
    """A model with an adapter, and the folders of the adapter and of the model below."""
    base = tiny_model("Llama")
    tiny.saved(base, folder / "base")
    model = with_adapter(base, r=4, target_modules=["q_proj", "v_proj"], **settings).eval()
    model.peft_config["default"].base_model_name_or_path = str(folder / "base")
    torch.manual_seed(3)
    for name, weight in model.named_parameters():
        if "lora" in name:
            weight.data.normal_(0, 0.3)
    return model, tiny.saved(model, folder / "adapted"), folder / "base"


def without(file: Path, part: str) -> None:
    weights = load_file(file)
    kept = {name: weight for name, weight in weights.items() if part not in name}
    assert len(kept) < len(weights)
    save_file(kept, file, {"format": "pt"})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes")
@pytest.mark.parametrize("which", ["base", "adapted"])
def test_a_pipe_among_the_files_of_an_adapter_or_its_model_keeps_nobody_waiting(tmp_path: Path, which: str) -> None:
    _, adapter, _ = saved_adapter(tmp_path)
    os.mkfifo(tmp_path / which / "notes.json")
    with pytest.raises(ModelError, match=r"notes\.json is neither a file nor a folder"):
        loaded(adapter)


@pytest.mark.parametrize("which", ["base", "adapter"])
def test_an_adapter_is_refused_where_its_weights_or_those_of_its_model_are_missing(tmp_path: Path, which: str) -> None:
    _, adapter, base = saved_adapter(tmp_path)
    if which == "base":
        without(base / "model.safetensors", "layers.1.mlp")
        said = r"base is not a whole .*: its weights lack model\.layers\.1\.mlp"
    else:
        without(adapter / "adapter_model.safetensors", "layers.1")
        said = r"adapted is not a whole adapter: its weights lack"
    with pytest.raises(ModelError, match=said):
        loaded(adapter)


def test_a_folder_of_dora(tmp_path: Path) -> None:
    model, adapter, _ = saved_adapter(tmp_path, use_dora=True)
    assert_right(loaded(adapter), model)


def test_an_adapter_that_acts_behind_some_tokens_only(tmp_path: Path) -> None:
    tokenizer = tiny.byte_level_bpe()
    invoked = tokenizer(" the capital")["input_ids"]
    model, adapter, _ = saved_adapter(tmp_path, alora_invocation_tokens=invoked)
    without_it = backend_of("Llama")
    backend = loaded(adapter)
    assert_right(backend, model)
    reply = tokenizer("Paris and the rest")["input_ids"]
    asked = ["who is it , the capital of", "who is it , the town of"]
    [with_it, elsewhere] = st.ScoredModel(backend).score(asked, [reply] * 2)
    [plain, plain_elsewhere] = st.ScoredModel(without_it).score(asked, [reply] * 2)
    assert abs(with_it.log_confidence - plain.log_confidence) > 0.1
    assert elsewhere.log_confidence == pytest.approx(plain_elsewhere.log_confidence, abs=1e-3)


def test_parts_that_are_placed_by_a_map(tmp_path: Path) -> None:
    model = tiny_model("Llama")
    assert_right(loaded(tiny.saved(model, tmp_path), device_map={"": "cpu"}), model)


def test_dynamic_int8_is_refused_since_its_scales_depend_on_all_tokens_of_a_pass() -> None:
    model = torch.ao.quantization.quantize_dynamic(tiny_model("Llama"), {torch.nn.Linear}, dtype=torch.qint8)
    with pytest.raises(ModelError, match=r"tokens that follow.*without dynamic quantization"):
        _ = TransformersBackend(model, tiny.byte_level_bpe()).proof.padded


def test_a_tokenizer_larger_than_the_head_is_refused() -> None:
    tokenizer = tiny.byte_level_bpe()
    model = tiny_model("Llama", vocab_size=len(tokenizer) - 4)
    with pytest.raises(VocabularyMismatch, match=r"has 450 logits, its tokenizer 454 tokens"):
        st.ScoredModel(model, tokenizer).score(PROMPTS, ["Paris"] * 3)


def test_special_tokens_behind_the_head_are_never_written() -> None:
    """As Gemma 3 1B, whose tokenizer holds a token for images that its head does not have."""
    model = tiny_model("Llama", vocab_size=len(tiny.byte_level_bpe()))
    tokenizer = tiny.byte_level_bpe()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image_soft_token>"]})
    assert len(tokenizer) == model.config.vocab_size + 1
    backend = TransformersBackend(model, tokenizer)
    assert backend.vocabulary.size == model.config.vocab_size
    assert_right(backend)
    recorder = st.Recorder(tokenizer)
    [expected] = st.ScoredModel(backend).generate(PROMPTS[:1], 4)
    for _ in range(2):
        [found] = recorder.answers(generated(model, tokenizer, PROMPTS[:1], recorder, max_new_tokens=4))
        assert found.token_ids == expected.token_ids
        assert found.log_confidence == pytest.approx(expected.log_confidence, abs=1e-5)


def test_an_end_token_behind_a_hole_in_the_ids(tmp_path: Path) -> None:
    tiny.byte_level_bpe().save_pretrained(tmp_path)
    described = json.loads((tmp_path / "tokenizer.json").read_text())
    [end] = [one for one in described["added_tokens"] if one["content"] == "<|end|>"]
    end["id"] = described["model"]["vocab"]["<|end|>"] = 470  # the ids before it end at 453
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"), eos_token="<|end|>", pad_token="<|pad|>"
    )
    assert tokenizer.eos_token_id == 470 > len(tokenizer)
    model = tiny_model("Llama", eos_token_id=470)
    backend = TransformersBackend(model, tokenizer)
    assert backend.vocabulary.size == 471
    assert_right(backend)
    with torch.no_grad():
        model.lm_head.weight[470] = 3 * model.lm_head.weight.abs().max()
    answers = st.ScoredModel(TransformersBackend(model, tokenizer)).generate(PROMPTS, max_new_tokens=40)
    ended = [one for one in answers if 470 in one.token_ids]
    assert ended and all(one.token_ids.index(470) == len(one.token_ids) - 1 and not one.truncated for one in ended)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["PrefixTuningConfig", "PromptEncoderConfig"])
def test_tuned_prefixes_and_the_folder_of_one(tmp_path: Path, kind: str) -> None:
    base = tiny_model("Llama")
    base.config._name_or_path = base.name_or_path = str(tiny.saved(base, tmp_path / "base"))
    torch.manual_seed(0)
    model = with_adapter(base, kind, num_virtual_tokens=3).eval()
    assert_right(TransformersBackend(model, tiny.byte_level_bpe()))
    tiny.saved(model, tmp_path / "tuned")
    with pytest.raises(ModelError, match=r"is a tuned prompt, which transformers does not load\. Load it with peft's"):
        loaded(tmp_path / "tuned")


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes"])
def test_quantized_weights_name_the_package_that_they_need(tmp_path: Path, method: str) -> None:
    tiny.saved(tiny_model("Llama"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "bits": 4, "group_size": 16, "load_in_8bit": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"cannot be loaded: .*pip install"):
        loaded(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["static", "sliding_window"])
def test_caches_that_the_settings_name(cache: str) -> None:
    model = tiny_model("Llama")
    model.generation_config.cache_implementation = cache
    assert_right(TransformersBackend(model, tiny.byte_level_bpe()))


def test_a_quantized_cache_without_its_package_is_refused_in_words() -> None:
    model = tiny_model("Llama")
    model.generation_config.cache_implementation = "quantized"
    with pytest.raises(BackendError, match=r"generate fails with LlamaForCausalLM and its settings"):
        st.ScoredModel(model, tiny.byte_level_bpe()).generate(PROMPTS, max_new_tokens=2)
