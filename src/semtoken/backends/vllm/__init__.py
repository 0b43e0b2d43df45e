"""vLLM, in this process and through its server.

model.py      `load_vllm` and `VLLMBackend`, the `Backend`; `STC` over it gives scores
outputs.py    `sampling_params` that ask for log-probabilities, and groups of prompts that fit into memory;
              `score_outputs`: what `LLM.generate` returned, scored
processor.py  the logits processor, which scores inside the engine; watch.py follows its requests
channel.py    how the scores of the processor come back: `read_channel`

Importing this package does not import vLLM. Tested with vLLM 0.32.
"""

from __future__ import annotations

from semtoken.backends.vllm.channel import read_channel, read_channels
from semtoken.backends.vllm.model import VLLMBackend, load_vllm
from semtoken.backends.vllm.outputs import sampling_params, score_outputs

__all__ = [
    "VLLMBackend",
    "load_vllm",
    "read_channel",
    "read_channels",
    "sampling_params",
    "score_outputs",
]
