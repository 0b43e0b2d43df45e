"""vLLM, in this process and through its server.

>>> from semtoken.backends.vllm import VLLMScorer, sampling_params  # doctest: +SKIP

Importing this package does not import vLLM. Tested with vLLM 0.32.
"""

from __future__ import annotations

from semtoken.backends.vllm.channel import read_channel
from semtoken.backends.vllm.model import VLLMScorer, sampling_params
from semtoken.backends.vllm.outputs import score_outputs

__all__ = ["VLLMScorer", "read_channel", "sampling_params", "score_outputs"]
