"""What scoring costs a whole generation: transformers' own greedy decoding with and without semtoken, in turn.

The model has the architecture and vocabulary of a real one and random weights, so nothing is downloaded:

    python benchmarks/generation.py                                   # 0.5B parameters, V = 151,936, float32
    python benchmarks/generation.py --hidden 2048 --layers 36         # 3B parameters

Both runs of a pair decode the same number of tokens from the same prompts, and take turns in coming first. Printed are
the median of the ratios of the pairs with its interval, and the time that was spent in semtoken beside the rest of the
same generation: on a busy machine the ratios vary by more than scoring costs, and only the second can be told.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
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
    """A byte-level tokenizer whose tokens are all bytes and then random words of 2 to 12 letters.

    Most begin with a blank, and none has one elsewhere, as with real tokenizers.
    """
    random = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    weights = np.array([8, 2, 3, 4, 13, 2, 2, 6, 7, 1, 1, 4, 2, 7, 8, 2, 1, 6, 6, 9, 3, 1, 2, 1, 2, 1.0])
    pieces = dict.fromkeys(["<|end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())])
    while len(pieces) < size:
        length = int(random.integers(2, 13))
        blank = "Ġ" if random.random() < 0.6 else ""
        pieces[blank + "".join(random.choice(letters, length, p=weights / weights.sum()))] = None
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


@dataclass
class TimedObserver:
    """A recorder that counts the seconds spent in it."""

    recorder: st.Recorder
    seconds: float = 0.0

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Take in a step."""
        start = time.perf_counter()
        found = self.recorder(ids, scores)
        self.seconds += time.perf_counter() - start
        return found

    def results(self, sequences: torch.Tensor) -> None:
        """Score the answers."""
        start = time.perf_counter()
        self.recorder.answers(sequences)
        self.seconds += time.perf_counter() - start


@dataclass(frozen=True)
class Cost:
    """What scoring costs generations that were run in pairs, one side right after the other."""

    plain: list[float]
    """Seconds of each generation without scores."""
    scored: list[float]
    """Seconds of the one beside it with scores."""
    inside: list[float]
    """Those of them that were spent in semtoken."""

    @property
    def ratios(self) -> list[float]:
        """Of each pair."""
        return [b / a for a, b in zip(self.plain, self.scored, strict=True)]

    @property
    def interval(self) -> tuple[float, float]:
        """Around the median ratio, by a bootstrap of the pairs, at 95 %."""
        drawn = np.random.default_rng(0).choice(self.ratios, (5000, len(self.ratios)))
        low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
        return float(low), float(high)

    @property
    def share(self) -> float:
        """Median of the time in semtoken by the rest of the same generation."""
        return statistics.median(i / (b - i) for i, b in zip(self.inside, self.scored, strict=True))


def cost(model: Qwen2ForCausalLM, clusters: st.TokenClusters, batch: int, tokens: int, pairs: int) -> Cost:
    """Greedy generations of made-up prompts, in pairs whose sides change places."""
    size = clusters.vocabulary.size
    inputs = {"input_ids": torch.randint(300, size, (batch, 32)), "attention_mask": torch.ones(batch, 32).long()}
    found = Cost([], [], [])
    for pair in range(-1, pairs):
        taken = {}
        for scored in (False, True) if pair % 2 else (True, False):
            timed = TimedObserver(st.Recorder(clusters.vocabulary))
            start = time.perf_counter()
            processors = [timed] if scored else None
            ids = model.generate(**inputs, max_new_tokens=tokens, do_sample=False, logits_processor=processors)
            if scored:
                timed.results(ids)
            taken[scored] = time.perf_counter() - start, timed.seconds
        if pair >= 0:  # the first one warms everything up
            found.plain.append(taken[False][0])
            found.scored.append(taken[True][0])
            found.inside.append(taken[True][1])
    return found


def made_up_model(
    tokenizer: PreTrainedTokenizerFast, hidden: int, layers: int, dtype: str
) -> tuple[Qwen2ForCausalLM, st.TokenClusters]:
    """A model with random weights and clusters of its vocabulary."""
    size = len(tokenizer)
    model = random_model(tokenizer, size, hidden, layers).to(getattr(torch, dtype))
    labels = np.random.default_rng(0).integers(0, 16_000, size).astype(np.int32)
    return model, st.TokenClusters(labels, st.Vocabulary.from_tokenizer(tokenizer))


def main(
    size: Annotated[int, typer.Option(help="Tokens of the vocabulary.")] = 151_936,
    hidden: Annotated[int, typer.Option(help="Width of the model.")] = 896,
    layers: Annotated[int, typer.Option(help="Layers of the model.")] = 24,
    tokens: Annotated[int, typer.Option(help="Tokens generated a prompt.")] = 16,
    batch: Annotated[list[int] | None, typer.Option(help="Prompts decoded together; several. [1 and 32]")] = None,
    pairs: Annotated[int, typer.Option(help="Pairs of generations.")] = 9,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16, of the weights.")] = "float32",
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 2,
) -> None:
    """Time greedy decoding with and without semtoken."""
    torch.set_num_threads(threads)
    model, clusters = made_up_model(made_up_tokenizer(size), hidden, layers, dtype)
    table = Table(
        title=f"{tokens} tokens, V = {size:,}, {hidden} x {layers}, {dtype}, {threads} threads, {pairs} pairs"
    )
    for heading in ("batch", "generate, s", "with scores, s", "median ratio", "95 %", "time in semtoken", "a step, ms"):
        table.add_column(heading, justify="right")
    for together in batch or [1, 32]:
        found = cost(model, clusters, together, tokens, pairs)
        (low, high), inside = found.interval, statistics.median(found.inside)
        table.add_row(
            str(together),
            *(f"{statistics.median(side):.3f}" for side in (found.plain, found.scored)),
            f"{statistics.median(found.ratios):.4f}",
            f"{low:.4f} to {high:.4f}",
            f"{found.share:.2%}",
            f"{inside / tokens * 1e3:.2f}",
        )
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
