"""A Llama checkpoint as a GGUF file, without llama.cpp's own converter: what the tests need and no more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import processors
from transformers import AutoModelForCausalLM

from tests import tiny

NORMAL, CONTROL = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL
TENSORS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def small_checkpoint(folder: Path) -> Path:
    """A random Llama of a few hundred tokens, all of them in the model of its tokenizer, as in a GGUF file."""
    tokenizer = tiny.byte_level_bpe(added=False)
    begin = processors.TemplateProcessing(single="<|pad|> $A", special_tokens=[("<|pad|>", 1)])
    tokenizer.backend_tokenizer.post_processor, tokenizer.bos_token = begin, "<|pad|>"
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    model = tiny.llama(len(tokenizer), hidden=32)
    for settings in (model.config, model.generation_config):
        settings.bos_token_id, settings.eos_token_id = 1, 0
    return tiny.saved(model, folder, tokenizer)


def write_gguf(checkpoint: Path, target: Path, renamed: Mapping[str, str] = MappingProxyType({})) -> Path:
    """The float32 weights and the byte-level BPE of a Llama checkpoint in one file; some tokens get another text."""
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    heads = config["num_attention_heads"]
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(config.get("rope_theta", 10_000.0))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_tokenizer(writer, checkpoint, config, renamed)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    for name, tensor in model.state_dict().items():
        writer.add_tensor(_renamed(name), _permuted(name, tensor.numpy(), config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _add_tokenizer(writer: Any, checkpoint: Path, config: dict[str, Any], renamed: Mapping[str, str]) -> None:
    saved = json.loads((checkpoint / "tokenizer.json").read_text(encoding="utf-8"))
    special = {token["id"] for token in saved["added_tokens"] if token["special"]}
    tokens = sorted(saved["model"]["vocab"], key=saved["model"]["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([renamed.get(token, token) for token in tokens])
    writer.add_token_types([CONTROL if i in special else NORMAL for i in range(len(tokens))])
    writer.add_token_merges([" ".join(pair) for pair in saved["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(True)
    settings = json.loads((checkpoint / "tokenizer_config.json").read_text(encoding="utf-8"))
    beside = checkpoint / "chat_template.jinja"
    writer.add_chat_template(beside.read_text("utf-8") if beside.exists() else settings["chat_template"])


def _renamed(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        layer, _, part = stem.removeprefix("model.layers.").partition(".")
        return f"blk.{layer}.{TENSORS[part]}.{kind}"
    return f"{TENSORS[stem]}.{kind}"


def _permuted(name: str, weight: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """llama.cpp rotates pairs of neighboring rows of a head, transformers pairs half a head apart."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight
    heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(weight.shape)
