"""The engine that answers, and what can be changed there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from semtoken.support.http_client import HttpReply


@dataclass(frozen=True)
class KnownEngine:
    """An engine that the doctor knows, and what to change there; nothing where nothing can be changed."""

    name: str
    more: str = ""
    """The change that brings more log-probabilities for each token."""
    raw: str = ""
    """The change that brings the model's own numbers, before temperature and samplers."""
    names: str = ""
    """The change that lets tokens be distinguished that are spelled alike."""


VLLM = KnownEngine(
    "vLLM",
    "start vLLM with --max-logprobs 20 or above",
    "start vLLM with --logprobs-mode raw_logprobs",
    'name the tokenizer and ask with "return_tokens_as_token_ids": true',
)
LLAMA_SERVER = KnownEngine("llama-server", raw='leave "post_sampling_probs" out of the request')
LLAMA_CPP_PYTHON = KnownEngine(
    "llama-cpp-python", names="llama-server gives ids and bytes for the same file: serve the model with it"
)
SGLANG = KnownEngine("SGLang", raw="ask at temperature 1: SGLang divides by the temperature before it lists")
OWNERS = {
    "llamacpp": LLAMA_SERVER,
    "vllm": VLLM,
    "sglang": SGLANG,
    "me": LLAMA_CPP_PYTHON,
    "library": KnownEngine("Ollama"),
    "semtoken": KnownEngine("semtoken serve"),
}
"""Engines by the `owned_by` of the models that they list."""
FORMATS = {"llama-cpp-python": LLAMA_CPP_PYTHON, "llama-cpp": LLAMA_SERVER, "vllm": VLLM, "sglang": SGLANG}
"""Engines by how the formats of their replies begin."""
ANY = KnownEngine("the server", raw="ask at temperature 1 without top_p, top_k and penalties for the model's own")
"""Any other engine."""
MLX_LM = KnownEngine("mlx-lm")
MLX_FINGERPRINT = re.compile(r"\d+\.\d+\.\d+-\d+\.\d+\.\d+-[A-Z]")
"""The form of its fingerprint: its version, that of mlx, and the platform."""


def recognize(reply: HttpReply, owner: object, format: str) -> tuple[KnownEngine, str]:
    """The engine, and what it goes by: headers and `system_fingerprint` of a reply, `owned_by` of the models that the
    server lists, the format of the reply as `semtoken.replies` names it.
    """
    headers, values = reply.headers, reply.values
    if any(name.startswith("x-litellm-") for name in headers):
        version = headers.get("x-litellm-version", "")
        return KnownEngine(f"LiteLLM {version}".strip()), "its headers; its engine is not known"
    if headers.get("server", "").startswith("llama.cpp"):
        return LLAMA_SERVER, "its header"
    if isinstance(owner, str) and owner in OWNERS:
        return OWNERS[owner], f"its list of models, owned by {owner!r}"
    fingerprint = values.get("system_fingerprint") if isinstance(values, dict) else None
    if isinstance(fingerprint, str) and MLX_FINGERPRINT.match(fingerprint):
        return MLX_LM, "its fingerprint"
    by_format = next((engine for start, engine in FORMATS.items() if format.startswith(start)), None)
    return (by_format, "the fields of its replies") if by_format else (ANY, "nothing that it says of itself")
