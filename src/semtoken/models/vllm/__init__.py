"""vLLM in this process.

model.py      `load_vllm` and `VLLMBackend`, the `Backend`; `ScoredModel` over it gives scores
outputs.py    `sampling_params` that ask for log-probabilities, and groups of prompts that fit into memory;
              `score_outputs`: what `LLM.generate` returned, scored
processor.py  the logits processor, which scores inside the engine: `scoring_processor`
watched.py    the requests that it scores

Importing this package does not import vLLM. Tested with vLLM 0.32.
"""

from __future__ import annotations

from semtoken.models.vllm.model import VLLMBackend, load_vllm
from semtoken.models.vllm.outputs import sampling_params, score_outputs

__all__ = [
    "VLLMBackend",
    "load_vllm",
    "sampling_params",
    "score_outputs",
]
