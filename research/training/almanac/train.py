"""The training loop: one pass over the stream, losses at sampled positions, checkpoints to resume from."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from research.training.almanac.corpus import Document
from research.training.almanac.optimizer import (
    READ_SHARE,
    load_state_tensors,
    make_optimizers,
    set_rates,
    state_tensors,
)
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

ROWS, WIDTH = 8, 256  # sequences in a batch, tokens in a sequence
CLIP = 1.0
CHECKPOINT_EVERY = 200  # steps

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stream:
    """All tokens in reading order, and for each the probability that its prediction counts in the loss."""

    tokens: NDArray[np.int64]  # [n]
    weights: NDArray[np.float32]  # [n]
    ends: NDArray[np.int64]  # one past the last token of each document

    @property
    def steps(self) -> int:
        """Batches in one pass over everything."""
        return -(-(len(self.tokens) - 1) // (ROWS * WIDTH))

    @property
    def steps_read(self) -> int:
        """Batches that training reads."""
        return round(READ_SHARE * self.steps)

    @property
    def documents_read(self) -> int:
        """Documents that training reads to their end."""
        return int(np.searchsorted(self.ends, self.steps_read * ROWS * WIDTH, side="right"))


def make_stream(documents: list[Document], tokenizer: Tokenizer) -> Stream:
    """Tokenize the documents: `<s>`, the segments, `</s>`, one after the other."""
    segments = [segment for document in documents for segment in document.segments]
    bos, eos = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")
    encoded = iter(tokenizer.encode_batch_fast([text for text, _ in segments], add_special_tokens=False))
    tokens: list[int] = []
    weights: list[float] = []
    ends: list[int] = []
    for document in documents:
        tokens.append(bos)
        weights.append(0.0)
        for _, weight in document.segments:
            ids = next(encoded).ids
            tokens += ids
            weights += [weight] * len(ids)
        tokens.append(eos)
        weights.append(0.3)
        ends.append(len(tokens))
    return Stream(np.array(tokens), np.array(weights, dtype=np.float32), np.array(ends))


def make_model(vocab_size: int, seed: int) -> LlamaForCausalLM:
    """A Llama of 4.5 million parameters, 3.1 of them in the two tables."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    return LlamaForCausalLM(config)


def train(stream: Stream, vocab_size: int, seed: int, out: Path) -> LlamaForCausalLM:
    """Train on the share of the stream that is read; if `out` holds a checkpoint of this run, go on from there."""
    model = make_model(vocab_size, seed)
    optimizers = make_optimizers(model)
    checkpoint = out / "checkpoint.safetensors"
    first = _resume(checkpoint, model, optimizers) if checkpoint.exists() else 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    running = 0.0
    with Progress(*columns) as progress:
        bar = progress.add_task("training", total=stream.steps_read, completed=first)
        for step in range(first, stream.steps_read):
            set_rates(optimizers, step, stream.steps)
            loss = _train_step(model, optimizers, _batch(stream, step), _generator(seed, step))
            running = loss if step == first else 0.98 * running + 0.02 * loss
            progress.update(bar, advance=1, description=f"loss {running:.3f}")
            if step % 50 == 0:
                log.info("step %d of %d, loss %.4f", step, stream.steps_read, running)
            if (step + 1) % CHECKPOINT_EVERY == 0 or step + 1 == stream.steps_read:
                _save(checkpoint, model, optimizers, step + 1)
    return model


def _generator(seed: int, step: int) -> torch.Generator:
    """Which positions count at a step depends on seed and step alone, so a resumed run goes on as before."""
    return torch.Generator().manual_seed(seed * 1_000_003 + step)


def _batch(stream: Stream, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs, targets and loss shares of one step, each [ROWS, WIDTH]; the last batch wraps round, unscored."""
    start, size = step * ROWS * WIDTH, ROWS * WIDTH
    positions = np.arange(start, start + size)
    inside = positions + 1 < len(stream.tokens)
    inputs = stream.tokens[positions % len(stream.tokens)]
    following = (positions + 1) % len(stream.tokens)
    shape = (ROWS, WIDTH)
    return (
        torch.from_numpy(inputs.reshape(shape)),
        torch.from_numpy(stream.tokens[following].reshape(shape)),
        torch.from_numpy(np.where(inside, stream.weights[following], 0.0).reshape(shape)),
    )


def _train_step(
    model: LlamaForCausalLM,
    optimizers: list[torch.optim.Optimizer],
    batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    generator: torch.Generator,
) -> float:
    inputs, targets, shares = batch
    chosen = torch.rand(shares.shape, generator=generator) < shares
    hidden = model.model(input_ids=inputs, use_cache=False).last_hidden_state
    loss = functional.cross_entropy(model.lm_head(hidden[chosen]), targets[chosen])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


def _save(path: Path, model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer], step: int) -> None:
    tensors = {f"model|{name}": value for name, value in model.state_dict().items()} | state_tensors(optimizers)
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata={"step": str(step)})
    partial.replace(path)


def _resume(path: Path, model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer]) -> int:
    tensors = load_file(path)
    weights = {key.removeprefix("model|"): tensors.pop(key) for key in list(tensors) if key.startswith("model|")}
    model.load_state_dict(weights)
    load_state_tensors(optimizers, tensors)
    with safe_open(path, "pt") as file:
        step = int(file.metadata()["step"])
    log.info("going on from step %d", step)
    return step
