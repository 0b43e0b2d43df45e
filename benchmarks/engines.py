"""What scores cost in vLLM: tokens a second alone, with the 20 best, with the whole vocabulary, with the processor.

All four in one engine in this process, in turn, on the same prompts and as many tokens; what is counted are processor
seconds, the scoring included, so that other work on the machine disturbs little. Run it where vLLM is installed
(`make test-engines` makes such a place):

    .venv-engines/bin/python benchmarks/engines.py                              # the embedded model, 8,192 tokens
    .venv-engines/bin/python benchmarks/engines.py --vocabulary 151936          # random weights, a real vocabulary size
    .venv-engines/bin/python benchmarks/engines.py --vocabulary 151936 --layers 24 --width 896 --no-whole   # 0.5B
"""

from __future__ import annotations

import gc
import json
import os
import random
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

# Before torch is imported: of two OpenMP threads one waits busily while the other scores, and both would count.
os.environ.update(
    {
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }
)

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import semtoken as st
from generation import made_up_tokenizer
from semtoken.support.almanac import almanac_clusters_path, almanac_path

console = Console()


def made_up(folder: Path, vocabulary: int, layers: int, width: int) -> tuple[Path, Path]:
    """A checkpoint with random weights and clusters with random labels."""
    model, clusters = folder / "model", folder / "clusters"
    made_up_tokenizer(vocabulary).save_pretrained(model)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(model)
    tokenizer = AutoTokenizer.from_pretrained(model)  # as vLLM will read it
    labels = np.random.default_rng(0).integers(0, 16_000, len(tokenizer)).astype(np.int32)
    st.TokenClusters(labels, st.Vocabulary.from_tokenizer(tokenizer)).save_pretrained(clusters)
    return model, clusters


def ways(
    llm: Any, vocabulary: st.TokenClusters | st.Vocabulary, processor: Any, tokens: int
) -> dict[str, Callable[[list[str]], object]]:
    """How to answer prompts, from without a score to the exact one."""
    from vllm import SamplingParams

    from semtoken.models.vllm import VLLMBackend, sampling_params, score_outputs

    options: dict[str, Any] = {"temperature": 0, "max_tokens": tokens, "ignore_eos": True}
    stc = st.ScoredModel(VLLMBackend(llm), clusters=vocabulary if isinstance(vocabulary, st.TokenClusters) else None)

    def best(prompts: list[str]) -> object:
        return score_outputs(llm.generate(prompts, sampling_params(top_k=20, **options), use_tqdm=False), vocabulary)

    def watched(prompts: list[str]) -> object:
        names = [uuid.uuid4().hex for _ in prompts]
        params = [SamplingParams(**options, extra_args={"semtoken_id": name}) for name in names]
        outputs = llm.generate(prompts, params, use_tqdm=False)
        return [processor.take(name, one.outputs[0].token_ids) for name, one in zip(names, outputs, strict=True)]

    return {
        "vLLM alone": lambda prompts: llm.generate(prompts, SamplingParams(**options), use_tqdm=False),
        "20 best": best,
        "logits processor": watched,
        "whole vocabulary": lambda prompts: stc.generate(prompts, max_new_tokens=tokens, ignore_eos=True),
    }


def main(
    vocabulary: Annotated[int, typer.Option(help="Tokens of a random model; 0: the embedded one.")] = 0,
    layers: Annotated[int, typer.Option(help="Layers of a random model.")] = 2,
    width: Annotated[int, typer.Option(help="Its width, a multiple of 64; its MLPs are twice as wide.")] = 256,
    prompts: Annotated[int, typer.Option(help="Prompts answered together.")] = 16,
    tokens: Annotated[int, typer.Option(help="Tokens of each answer.")] = 32,
    rounds: Annotated[int, typer.Option(help="Times each way is run.")] = 5,
    whole: Annotated[bool, typer.Option(help="Also by the whole vocabulary, which takes long.")] = True,
    meanings: Annotated[bool, typer.Option(help="Also find the masses of meanings, which need clusters.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the seconds of each way into this JSON file.")] = None,
) -> None:
    """Print tokens a second of each way and their ratios to vLLM alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, labels = (
            made_up(folder, vocabulary, layers, width) if vocabulary else (almanac_path(), almanac_clusters_path())
        )
        from vllm import LLM

        from semtoken.models.vllm.processor import scoring_processor

        clusters = st.TokenClusters.from_pretrained(labels)
        vocabulary_or_clusters = clusters if meanings else clusters.vocabulary
        processor = scoring_processor(vocabulary_or_clusters)
        llm = LLM(
            model=str(model),
            dtype="float32",
            max_model_len=256,
            max_logprobs=-1,
            enforce_eager=True,
            distributed_executor_backend="uni",
            enable_prefix_caching=False,
            logits_processors=[processor],
        )
        questions = [f"Question:\nWhat is number {i}?\nAnswer:\n" for i in range(prompts)]
        found = ways(llm, vocabulary_or_clusters, processor, tokens)
        if not whole:
            del found["whole vocabulary"]
        seconds: dict[str, list[float]] = {way: [] for way in found}
        for turn in range(rounds + 1):
            for way, answer in random.sample(sorted(found.items()), len(found)):
                gc.collect()  # what the last way left is not this one's
                start = time.process_time()
                answer(questions)
                if turn:  # the first round warms up
                    seconds[way].append(time.process_time() - start)
    report(seconds, prompts * tokens)
    if out is not None:
        out.write_text(json.dumps({way: min(times) for way, times in seconds.items()}) + "\n")


def report(seconds: dict[str, list[float]], tokens: int) -> None:
    """One row a way, by its best round: other work on the machine only ever adds."""
    table = Table("", "tokens per processor second", "vLLM alone = 1", "ms a token more")
    alone = min(seconds["vLLM alone"])
    for way, times in seconds.items():
        best = min(times)
        table.add_row(way, f"{tokens / best:,.0f}", f"{best / alone:.2f}", f"{1000 * (best - alone) / tokens:.3f}")
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
