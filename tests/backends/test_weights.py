"""Weights as people load them: what they hold is what is scored, against plain passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import semtoken as st
from semtoken.backends.transformers import TransformersBackend
from semtoken.errors import ModelError
from tests import tiny
from tests.backends.plain_pass import PROMPTS, off, tiny_model, ways


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path / "cache"))


def assert_right(backend: TransformersBackend, plain: Any = None) -> None:
    for name, way in ways(backend, tokens=4, lengths=(9, 3, 5)).items():
        assert off(backend, way, plain) < 1e-3, name


def loaded(folder: Path, **options: Any) -> TransformersBackend:
    backend = st.STC.from_pretrained(folder, **options).backend
    assert isinstance(backend, TransformersBackend)
    return backend


def test_sharded_weights(tmp_path: Path) -> None:
    model = tiny_model("Llama")
    model.save_pretrained(tmp_path, max_shard_size="50KB")
    tiny.byte_level_bpe().save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert_right(loaded(tmp_path), model)


def test_bin_weights(tmp_path: Path) -> None:
    model = tiny_model("Llama")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    tiny.byte_level_bpe().save_pretrained(tmp_path)
    assert_right(loaded(tmp_path), model)


def test_a_vocabulary_that_grew_and_was_padded(tmp_path: Path) -> None:
    model, tokenizer = tiny_model("Llama", vocab_size=454), tiny.byte_level_bpe()
    tokenizer.add_tokens(["<new>", "<newer>"])
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    backend = loaded(tmp_path)
    assert backend.vocabulary.size == 456
    assert_right(backend, model)
    assert max(max(one.token_ids) for one in st.STC(backend).generate(PROMPTS, max_new_tokens=8)) < 456


def test_several_end_tokens_and_sampling_defaults(tmp_path: Path) -> None:
    model = tiny_model("Llama")
    settings = model.generation_config
    settings.eos_token_id, settings.do_sample, settings.temperature, settings.top_k = [0, 7], True, 0.6, 5
    model.save_pretrained(tmp_path)
    tiny.byte_level_bpe().save_pretrained(tmp_path)
    backend = loaded(tmp_path)
    assert_right(backend, model)
    with torch.no_grad():
        backend.model.lm_head.weight[7] += 4 * backend.model.lm_head.weight.abs().max()
    ended = [one for one in st.STC(backend).generate(PROMPTS, max_new_tokens=40) if 7 in one.token_ids]
    assert all(one.token_ids.index(7) == len(one.token_ids) - 1 and not one.truncated for one in ended)


@pytest.mark.parametrize("merged", [False, True])
def test_a_folder_of_an_adapter(tmp_path: Path, merged: bool) -> None:
    peft = pytest.importorskip("peft", reason="peft, which makes adapters, is missing")
    base = tiny_model("Llama")
    base.save_pretrained(tmp_path / "base")
    tokenizer = tiny.byte_level_bpe()
    tokenizer.save_pretrained(tmp_path / "base")
    base.config._name_or_path = base.name_or_path = str(tmp_path / "base")
    config = peft.LoraConfig(r=4, task_type="CAUSAL_LM", init_lora_weights=False)
    model = peft.get_peft_model(base, config).eval()
    kept = model.merge_and_unload() if merged else model
    kept.save_pretrained(tmp_path / "adapted")
    tokenizer.save_pretrained(tmp_path / "adapted")
    assert_right(loaded(tmp_path / "adapted"), kept)


def test_parts_that_are_placed_by_a_map(tmp_path: Path) -> None:
    model = tiny_model("Llama")
    model.save_pretrained(tmp_path)
    tiny.byte_level_bpe().save_pretrained(tmp_path)
    placed = {"": "cpu"} | {"model.layers.1": "disk"}
    assert_right(loaded(tmp_path, device_map="auto"), model)
    del placed["model.layers.1"]
    assert_right(loaded(tmp_path, device_map=placed), model)


def test_dynamic_int8_is_refused_since_its_scales_depend_on_all_tokens_of_a_pass() -> None:
    model = torch.ao.quantization.quantize_dynamic(tiny_model("Llama"), {torch.nn.Linear}, dtype=torch.qint8)
    with pytest.raises(ModelError, match=r"tokens that follow.*without dynamic quantisation"):
        _ = TransformersBackend(model, tiny.byte_level_bpe()).proof
