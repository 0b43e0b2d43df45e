"""Generate with vLLM's second model runner on a CPU and print the answers' scores as JSON; a process of its own.

That runner needs Triton, which has no compiler for CPUs here; Triton's interpreter runs its kernels in Python. vLLM
asks whether a "cpu" backend is there, so the interpreter is entered under that name.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ.update(TRITON_INTERPRET="1", VLLM_USE_V2_MODEL_RUNNER="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")

from triton.backends import Backend, backends


class Interpreter:
    """A driver with what vLLM asks of one."""

    @staticmethod
    def is_active() -> bool:
        return True


backends["cpu"] = Backend(compiler=None, driver=Interpreter)

from vllm import LLM, SamplingParams  # noqa: E402

from semtoken import TokenClusters  # noqa: E402
from semtoken.models.vllm.processor import scoring_processor  # noqa: E402
from semtoken.support.almanac import almanac_clusters_path, almanac_path, load_questions  # noqa: E402

PROMPTS = [question.prompt() for question in load_questions("test")[:20]]
LONG = ["".join(PROMPTS[4 * i : 4 * i + 4]) for i in range(5)]


def parameters(i: int) -> SamplingParams:
    """Greedy and sampled, short and long, every fourth without an id."""
    return SamplingParams(
        max_tokens=1 + i % 9 if i < len(PROMPTS) else 150,
        temperature=0 if i % 2 else 1.2,
        repetition_penalty=1.3 if i % 5 == 0 else 1.0,
        ignore_eos=i % 3 == 0 or i >= len(PROMPTS),
        stop_token_ids=[] if i % 3 == 0 or i >= len(PROMPTS) else [201],
        extra_args={"semtoken_id": f"second-{i}"} if i % 4 else None,
    )


def main(result: str) -> None:
    processor = scoring_processor(TokenClusters.from_pretrained(almanac_clusters_path()))
    llm = LLM(
        model=str(almanac_path()),
        dtype="float32",
        max_model_len=400,
        max_num_seqs=6,
        max_num_batched_tokens=64,
        num_gpu_blocks_override=7,
        enforce_eager=True,
        distributed_executor_backend="uni",
        enable_prefix_caching=False,
        disable_log_stats=False,
        logits_processors=[processor],
    )
    prompts = PROMPTS + LONG
    outputs = llm.generate(prompts, [parameters(i) for i in range(len(prompts))], use_tqdm=False)
    answers = []
    for i, output in enumerate(outputs):
        ids = list(output.outputs[0].token_ids)
        if i % 4:
            scored = processor.take(f"second-{i}", ids)
            tokens = [token.log_agreeing_probability for token in scored.tokens]
            answers.append(
                {"prompt": prompts[i], "ids": ids, "tokens": tokens, "distribution": scored.distribution, "number": i}
            )
    facts = {
        "second_runner": llm.llm_engine.vllm_config.use_v2_model_runner,
        "preemptions": sum(m.value for m in llm.get_metrics() if m.name == "vllm:num_preemptions"),
        "left": list(processor.requests._watched),
        "answers": answers,
    }
    Path(result).write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
