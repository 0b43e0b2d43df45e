"""vLLM, in this process and through its server.

>>> from semtoken.backends.vllm import VLLMScorer, sampling_params  # doctest: +SKIP

Importing this package does not import vLLM. Tested with vLLM 0.32.
"""

from __future__ import annotations

from semtoken.backends.vllm.channel import read_channel
from semtoken.backends.vllm.model import VLLMBackend, load_vllm
from semtoken.backends.vllm.outputs import score_outputs
from semtoken.backends.vllm.scorer import BYTES_PER_NUMBER, VLLMScorer, sampling_params

__all__ = [
    "BYTES_PER_NUMBER",
    "VLLMBackend",
    "VLLMScorer",
    "load_vllm",
    "read_channel",
    "sampling_params",
    "score_outputs",
]
