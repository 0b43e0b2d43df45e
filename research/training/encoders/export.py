"""Writes the folder that transformers and sentence-transformers load."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import DebertaForSequenceClassification, PreTrainedTokenizerFast

CONFIG_KEYS = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
    "initializer_range", "layer_norm_eps", "relative_attention", "max_relative_positions", "pad_token_id",
    "position_biased_input", "pos_att_type", "pooler_dropout", "pooler_hidden_act", "pooler_hidden_size", "id2label",
    "label2id",
)  # fmt: skip


def export_encoder(model: DebertaForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path) -> str:
    """Write weights in float16, configuration and tokenizer; returns the weights' sha256."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.to(torch.float16).contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", _config(model))
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.pop("backend", None)
    # DeBERTa's own tokenizer class would ignore this tokenizer's folding of case and accents
    _write_json(path, {**config, "tokenizer_class": "PreTrainedTokenizerFast"})
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def _config(model: DebertaForSequenceClassification) -> dict[str, object]:
    """The configuration in keys that both major versions of transformers read; the sigmoid is applied outside."""
    names = {"architectures": ["DebertaForSequenceClassification"], "model_type": "deberta"}
    config: dict[str, object] = {**names, **{key: getattr(model.config, key) for key in CONFIG_KEYS}}
    if model.config.num_labels == 1:
        config["num_labels"] = 1
        config["sentence_transformers"] = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    return {**config, "dtype": "float32", "torch_dtype": "float32"}


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
