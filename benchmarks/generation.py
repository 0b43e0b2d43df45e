"""What scoring costs a whole generation: transformers' own greedy decoding with and without semtoken, in turn.

The model has the architecture and vocabulary of a real one and random weights, so nothing is downloaded:

    python benchmarks/generation.py                                   # 0.5B parameters, V = 151,936, float32
    python benchmarks/generation.py --hidden 2048 --layers 36         # 3B parameters

Both runs decode the same number of tokens from the same prompts. The ratio of each pair is printed, and the
memory that scoring adds on top of the generation.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

import semtoken as st

console = Console()


def made_up_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer whose tokens are all bytes and then random words of 2 to 12 letters."""
    random = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyzĠ"))
    weights = np.array([8, 2, 3, 4, 13, 2, 2, 6, 7, 1, 1, 4, 2, 7, 8, 2, 1, 6, 6, 9, 3, 1, 2, 1, 2, 1, 12.0])
    pieces = dict.fromkeys(["<|end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())])
    while len(pieces) < size:
        length = int(random.integers(2, 13))
        pieces["".join(random.choice(letters, length, p=weights / weights.sum()))] = None
    backend = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>")


def random_model(tokenizer: PreTrainedTokenizerFast, rows: int, hidden: int, layers: int) -> Qwen2ForCausalLM:
    """A Qwen2.5-like model with random weights; it never ends an answer by itself."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=rows,
        hidden_size=hidden,
        intermediate_size=hidden * 11 // 2,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def seconds(run: object) -> float:
    """Wall time of a call."""
    start = time.perf_counter()
    run()  # type: ignore[operator]
    return time.perf_counter() - start


def main(
    size: Annotated[int, typer.Option(help="Tokens of the vocabulary.")] = 151_936,
    hidden: Annotated[int, typer.Option(help="Width of the model.")] = 896,
    layers: Annotated[int, typer.Option(help="Layers of the model.")] = 24,
    tokens: Annotated[int, typer.Option(help="Tokens generated a prompt.")] = 32,
    batch: Annotated[int, typer.Option(help="Prompts decoded together.")] = 4,
    pairs: Annotated[int, typer.Option(help="Pairs of runs.")] = 5,
) -> None:
    """Time greedy decoding with and without semtoken."""
    tokenizer = made_up_tokenizer(size)
    model = random_model(tokenizer, size, hidden, layers)
    vocabulary = st.Vocabulary.from_tokenizer(tokenizer)
    clusters = st.TokenClusters(np.random.default_rng(0).integers(0, 16_000, size), vocabulary)
    inputs = {"input_ids": torch.randint(300, size, (batch, 32)), "attention_mask": torch.ones(batch, 32).long()}
    options = {"max_new_tokens": tokens, "do_sample": False}
    recorder = st.ClusterRecorder(clusters)

    def plain() -> None:
        model.generate(**inputs, **options)

    def scored() -> None:
        recorder.results(model.generate(**inputs, **options, logits_processor=[recorder]))

    plain()
    scored()
    times = [(seconds(plain), seconds(scored)) for _ in range(pairs)]
    tracemalloc.start()
    scored()
    _, peak = tracemalloc.get_traced_memory()
    ratios = sorted(b / a for a, b in times)
    table = Table("", "median", "least", "most", title=f"{batch} x {tokens} tokens, V = {size:,}, {hidden} x {layers}")
    for name, values in (("generate, s", [a for a, _ in times]), ("generate + semtoken, s", [b for _, b in times])):
        table.add_row(name, *(f"{v:.3f}" for v in (statistics.median(values), min(values), max(values))))
    table.add_row("ratio of a pair", *(f"{v:.4f}" for v in (statistics.median(ratios), ratios[0], ratios[-1])))
    console.print(table)
    full = batch * tokens * size * 4
    console.print(f"Python and numpy memory at the peak: {peak / 2**20:.1f} MiB (n x V floats: {full / 2**20:.0f} MiB)")


if __name__ == "__main__":
    typer.run(main)
