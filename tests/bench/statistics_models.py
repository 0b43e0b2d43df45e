"""Small random models for the statistics: one that answers, an NLI classifier and a cross-encoder."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

import semtoken as st
from tests import tiny

LABELS = {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}
QUESTIONS = ["who is it", "The capital of France", "television", "is it the same no", "who is New York"]


@cache
def answering(kind: str = "byte-level", hidden: int = 16) -> Any:
    """An `ScoredModel` over a random Llama whose head is padded, with random clusters."""
    tokenizer = tiny.TOKENIZERS[kind]()
    model = tiny.llama(len(tokenizer) + 24, hidden=hidden)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    bias = torch.zeros(model.config.vocab_size)
    bias[tokenizer.eos_token_id or 0] = 4.0  # so that some answers end before others
    model.lm_head.bias = torch.nn.Parameter(bias)
    vocabulary = st.Vocabulary.from_tokenizer(tokenizer)
    clusters = st.TokenClusters(np.random.default_rng(0).integers(0, 80, vocabulary.size).astype(np.int32), vocabulary)
    return st.ScoredModel(model, tokenizer, clusters)


def encoder(labels: dict[int, str] | None = None, *, seed: int = 1) -> Any:
    """A BERT classifier with large random weights, so that different pairs get clearly different logits."""
    tokenizer = tiny.wordpiece()
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=96,
        initializer_range=0.6,
        pad_token_id=tokenizer.pad_token_id,
        id2label=labels or {0: "LABEL_0"},
        label2id={name: column for column, name in (labels or {0: "LABEL_0"}).items()},
    )
    return BertForSequenceClassification(config).eval()


def saved_encoder(directory: Path, labels: dict[int, str] | None = None) -> str:
    """The same in a directory, with its tokenizer."""
    encoder(labels).save_pretrained(directory)
    tiny.wordpiece().save_pretrained(directory)
    return str(directory)
