"""The embedded model in NumPy as a `Backend`: greedy answers, one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

from semtoken.clustering.rows import to_float32
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.models.one_by_one import OneByOne
from semtoken.models.prompt_ids import end_ids
from semtoken.support.almanac import almanac_path
from semtoken.support.checkpoints.stored_tensors import stored_tensors

Float32Array = npt.NDArray[np.float32]
WEIGHTS = "model.safetensors"


@dataclass
class Cache:
    """The keys and values of the tokens that were read: one array [T, heads, head size] for each layer."""

    keys: list[Float32Array] = field(default_factory=list)
    values: list[Float32Array] = field(default_factory=list)

    @property
    def length(self) -> int:
        """T, how many tokens of keys and values the cache holds."""
        return len(self.keys[0]) if self.keys else 0

    def add(self, layer: int, keys: Float32Array, values: Float32Array) -> tuple[Float32Array, Float32Array]:
        """Append the keys and values of new tokens to a layer; returns the whole keys and values of that layer."""
        if layer == len(self.keys):
            self.keys.append(keys)
            self.values.append(values)
        else:
            self.keys[layer] = np.concatenate([self.keys[layer], keys])
            self.values[layer] = np.concatenate([self.values[layer], values])
        return self.keys[layer], self.values[layer]


class Llama:
    """The decoder of Llama with as many key heads as query heads and no biases, such as the embedded model.
    Weights go by the names in the checkpoint, `config` is the content of its `config.json`.
    """

    def __init__(self, weights: dict[str, Float32Array], config: dict[str, Any]) -> None:
        self.weights, self.config = weights, config
        self.dtype = str(weights["lm_head.weight"].dtype)
        size = config["head_dim"]
        self._frequencies = config["rope_theta"] ** -(np.arange(0, size, 2) / size)

    @classmethod
    def load(cls, folder: Path) -> Llama:
        """Read a folder with `config.json` and `model.safetensors`; the weights become float32."""
        weights = {name: to_float32(stored.mapped()) for name, stored in stored_tensors(folder / WEIGHTS).items()}
        return cls(weights, json.loads((folder / "config.json").read_text(encoding="utf-8")))

    def read(self, ids: Sequence[int], cache: Cache) -> Float32Array:
        """Read further tokens and add them to the cache; returns the logits after the last one, [V]."""
        x = self.weights["model.embed_tokens.weight"][list(ids)]
        positions = np.arange(cache.length, cache.length + len(ids))
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            x = x + self._attention(self._norm(x, f"{name}.input_layernorm"), layer, positions, cache)
            x = x + self._gated(self._norm(x, f"{name}.post_attention_layernorm"), f"{name}.mlp")
        return self._linear(self._norm(x[-1], "model.norm"), "lm_head")

    def _linear(self, x: Float32Array, name: str) -> Float32Array:
        return x @ self.weights[f"{name}.weight"].T

    def _norm(self, x: Float32Array, name: str) -> Float32Array:
        """Root mean square normalization."""
        scale: Float32Array = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(self.config["rms_norm_eps"]))
        return x / scale * self.weights[f"{name}.weight"]

    def _attention(self, x: Float32Array, layer: int, positions: npt.NDArray[np.int64], cache: Cache) -> Float32Array:
        name, size = f"model.layers.{layer}.self_attn", self.config["head_dim"]
        queries, keys, values = (
            self._linear(x, f"{name}.{part}_proj").reshape(len(x), -1, size) for part in ("q", "k", "v")
        )
        keys, values = cache.add(layer, self._rotated(keys, positions), values)
        scores = np.einsum("qhd,khd->hqk", self._rotated(queries, positions), keys) / np.float32(np.sqrt(size))
        later = np.arange(len(keys)) > positions[:, None]  # [queries, keys]
        scores = np.where(later, np.float32(-np.inf), scores)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return self._linear(np.einsum("hqk,khd->qhd", shares, values).reshape(len(x), -1), f"{name}.o_proj")

    def _rotated(self, x: Float32Array, positions: npt.NDArray[np.int64]) -> Float32Array:
        """Rotary position embedding: pairs (i, i + size / 2) turned by position times frequency."""
        angles = positions[:, None, None] * self._frequencies
        cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
        left, right = np.split(x, 2, axis=-1)
        return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)

    def _gated(self, x: Float32Array, name: str) -> Float32Array:
        """The feed-forward layer: SiLU of the gate times the other half."""
        gate = self._linear(x, f"{name}.gate_proj")
        return self._linear(gate / (1 + np.exp(-gate)) * self._linear(x, f"{name}.up_proj"), f"{name}.down_proj")


class SmallTokenizer:
    """The tokenizer of the embedded model, called like those of transformers. It renders no chat messages."""

    chat_template = None

    def __init__(self, folder: Path) -> None:
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.eos_token = str(json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["eos_token"])
        self.eos_token_id = self.tokenizer.token_to_id(self.eos_token)

    def __call__(self, text: str, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, list[int]]:
        """Token ids of a text."""
        return {"input_ids": self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text that these token ids spell."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))


class SmallBackend(OneByOne):
    """The embedded model in NumPy; see `semtoken.models.base.Backend`.
    `MissingExtra` if its weights are not installed.
    """

    name = "numpy"

    def __init__(self) -> None:
        folder = almanac_path()
        self.model = Llama.load(folder)
        self.tokenizer = SmallTokenizer(folder)
        settings = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
        named = SimpleNamespace(generation_config=SimpleNamespace(**settings))
        self._ends = frozenset(end_ids(named, self.tokenizer))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the tokenizer."""
        return Vocabulary.from_tokenizer(self.tokenizer.tokenizer)

    @property
    def max_length(self) -> int:
        """The number of tokens of prompt and answer that the model can read together."""
        return int(self.model.config["max_position_embeddings"])

    def default_clusters(self, progress: Callable[..., None] | None = None) -> TokenClusters:
        """The clusters that are embedded with the model."""
        from semtoken.support.almanac import almanac_clusters_path

        return TokenClusters.from_pretrained(almanac_clusters_path())

    def _begin(self) -> Callable[[Sequence[int]], Float32Array]:
        cache = Cache()
        return lambda ids: self.model.read(ids, cache)
