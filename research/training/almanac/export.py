"""Writes the folder that transformers loads: weights in bfloat16, configurations, tokenizer."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from research.training.almanac.tokenizer import CHAT_TEMPLATE, save_tokenizer
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

_CONFIG_KEYS = (
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads hidden_act "
    "max_position_embeddings initializer_range rms_norm_eps tie_word_embeddings attention_bias mlp_bias head_dim "
    "bos_token_id eos_token_id pad_token_id"
)


def export_model(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """Write config, weights, generation settings and tokenizer for transformers 4.52 and later."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.to(torch.bfloat16).contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    _write_json(folder / "config.json", _config(model))
    newline, eos = tokenizer.encode("\n", add_special_tokens=False).ids[0], tokenizer.token_to_id("</s>")
    generation = {"bos_token_id": 0, "eos_token_id": [newline, eos], "pad_token_id": 2, "do_sample": False}
    _write_json(folder / "generation_config.json", {**generation, "max_new_tokens": 24})
    save_tokenizer(tokenizer, folder)
    _settle_tokenizer_config(folder)


def _config(model: LlamaForCausalLM) -> dict[str, object]:
    """The configuration in keys that both major versions read; computing in float32 is what the figures are for."""
    keys = _CONFIG_KEYS.split()
    config = {key: getattr(model.config, key) for key in keys}
    names = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    return {**names, **config, "rope_theta": 10000.0, "dtype": "float32", "torch_dtype": "float32"}


def _settle_tokenizer_config(folder: Path) -> None:
    """Name the class that every version knows, and keep the chat template in the one file."""
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.update(tokenizer_class="PreTrainedTokenizerFast", chat_template=CHAT_TEMPLATE)
    config["model_input_names"] = ["input_ids", "attention_mask"]  # Llama takes no token types
    config.pop("backend", None)
    _write_json(path, config)
    (folder / "chat_template.jinja").unlink(missing_ok=True)


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def sha256(path: Path) -> str:
    """Hexadecimal digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
