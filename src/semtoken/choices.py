"""Every set of named choices, once: the library checks against them, and the command line offers them.

Nothing else is imported here, so that `--help` stays quick.
"""

from __future__ import annotations

from typing import Literal

BackendName = Literal["transformers", "vllm", "llama-cpp"]
"""These engines run a model (`semtoken.models`)."""
DType = Literal["auto", "float32", "bfloat16", "float16"]
"""Precision of the weights; `auto` is that of the checkpoint."""
ModelOrigin = Literal["auto", "packages", "hub"]
"""The place from which `semtoken fetch` gets a model; see `semtoken.support.checkpoints.fetch`."""

Algorithm = Literal["agglomerative", "kmeans"]
"""The way in which tokens are clustered; see `semtoken.clustering.partition` for these and the next two."""
Linkage = Literal["complete", "average", "single"]
"""The way in which the distance of two clusters follows from those of their tokens."""
Metric = Literal["cosine", "euclidean"]
"""The measure of the distance of two tokens."""
Embedding = Literal["concatenated", "input", "output"]
"""The matrices of a model that make the table which is clustered; see `semtoken.clustering.tables`."""

Preset = Literal["paper", "default"]
"""Rules for which tokens agree, by name; see `semtoken.core.rules` for these and the next three."""
Equality = Literal["meaning", "surface", "exact"]
"""The names of what may count as the same token."""
FunctionWords = Literal["paper", "whole-word", "off"]
"""The function words that count as certain."""
Members = Literal["all", "spelling"]
"""The members of a cluster that count."""

PartKind = Literal["word", "phrase", "sentence", "number", "reference", "field", "identifier", "tool_call"]
"""Kinds of parts of an answer; see `semtoken.core.parts`."""
Distribution = Literal["raw", "processed", "unknown"]
"""The distribution that was scored. `raw`: the model's own at temperature 1. `processed`: one after penalties, masks or
temperature. `unknown`: that of an engine that does not say."""
SegmentKind = Literal["answer", "reasoning", "refusal", "tool_call"]
"""A choice of a reply consists of these segments (`semtoken.replies`)."""

CurveName = Literal["blend", "beta", "venn-abers", "platt", "temperature"]
"""The way in which a score becomes a probability; see `semtoken.guarantees.curves`."""
Guarantee = Literal["selective_risk", "miss_rate", "joint_risk"]
"""A threshold gives one of these guarantees (`semtoken.guarantees.exact`)."""

PTrueSpelling = Literal["bare", "with blank", "both"]
"""The spelling of "True" for P(True): "True", " True", or both summed. After a colon a byte-level tokenizer expects the
second; LM-Polygraph takes the first."""

Reading = Literal["labels", "words"]
"""The text whose probability counts for an option: its label (A, B, ...) or its own words; see `semtoken.decisions`."""
