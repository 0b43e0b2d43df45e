"""Every way to ask a model, against one plain pass of it over each text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
import transformers

from semtoken.bench.statistics.decoding import LogProbabilities
from semtoken.methods.observers.steps import Completion, Observer
from semtoken.models.base import Arrival, Decoding
from semtoken.models.transformers import TransformersBackend
from tests import tiny

Answers: TypeAlias = Iterator[tuple[Sequence[int], Sequence[int], Any]]
"""Ids of a prompt, ids of its answer, and log-probabilities that were seen."""
PlainPasses: TypeAlias = Callable[[tuple[int, ...], tuple[int, ...]], Any]
"""The log-probabilities of an answer's tokens, by the ids of its prompt and its own."""

LONGER = "Question:\nwho is it , the capital of France , a television set\nAnswer:\n"
PROMPTS = [LONGER, LONGER.replace(" set", " set or the same TV , 1990 and Paris"), "who is it"]
SIZES = {
    "vocab_size": 640,  # the tokenizer has fewer
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": 1,
}


def with_wide_weights(model: Any, seed: int = 0) -> Any:
    """The model with weights from N(0, .15), wide enough for what it keeps of its past to matter."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.15)
    return model.float().eval()


def tiny_model(kind: str, seed: int = 0, **sizes: Any) -> Any:
    """A small causal model of a kind of transformers, by the name of its configuration without "Config"."""
    config = getattr(transformers, f"{kind}Config")(**(SIZES | sizes))
    return with_wide_weights(transformers.AutoModelForCausalLM.from_config(config), seed)


def backend_of(kind: str = "Llama", **sizes: Any) -> TransformersBackend:
    """A small model of a kind, with a tokenizer of byte-level pairs."""
    return TransformersBackend(tiny_model(kind, **sizes), tiny.byte_level_bpe())


@contextmanager
def passes_of(model: Any) -> Iterator[list[tuple[int, ...]]]:
    """The shape [rows, tokens] of what each pass of a model reads from now on."""
    seen: list[tuple[int, ...]] = []

    def note(module: Any, args: Any, given: Any) -> None:
        seen.append(tuple(given["input_ids"].shape))

    with model.register_forward_pre_hook(note, with_kwargs=True):
        yield seen


def with_adapter(model: Any, config: str = "LoraConfig", **settings: Any) -> Any:
    """The model with an adapter by the name of its configuration in peft, without which the test is skipped."""
    peft = pytest.importorskip("peft", reason="peft, which makes adapters, is missing")
    return peft.get_peft_model(model, getattr(peft, config)(task_type="CAUSAL_LM", **settings))


def generated(model: Any, tokenizer: Any, prompts: Any, /, *processors: Any, side: str = "left", **options: Any) -> Any:
    """The result of transformers' own `generate` with these processors, greedily unless an option says otherwise."""
    given = tokenizer(prompts, return_tensors="pt", padding=True, padding_side=side, return_token_type_ids=False)
    greedy = {} if "generation_config" in options else {"do_sample": False}
    return model.generate(**given, logits_processor=list(processors), **greedy | options)


class Written(Observer):
    """Keeps the tokens of answers."""

    reads = frozenset()

    def __init__(self) -> None:
        self.ids: dict[int, list[int]] = {}

    def finish(self, answer: int, completion: Completion) -> None:
        self.ids[answer] = completion.token_ids


def ways(backend: TransformersBackend, tokens: int, lengths: Sequence[int]) -> dict[str, Callable[[], Answers]]:
    """The ways to ask: each gives answers with the log-probabilities that observers saw.

    `tokens` are written at most; given replies have these lengths.
    """
    encoded = [list(backend.tokenizer(prompt)["input_ids"]) for prompt in PROMPTS]
    greedy = Decoding(max_new_tokens=tokens)
    draw = np.random.default_rng(1)
    replies = [draw.integers(2, backend.vocabulary.size, length).tolist() for length in lengths]

    def generate(prompts: list[list[int]], decoding: Decoding | list[Decoding]) -> Answers:
        seen, n = LogProbabilities(), 1 if isinstance(decoding, list) else decoding.n
        for answer, completion in enumerate(backend.generate(prompts, decoding, [seen])):
            yield prompts[answer // n], completion.token_ids, seen.of(answer)

    def read(size: int) -> Answers:
        seen = LogProbabilities()
        backend.read(encoded, replies, [seen], batch_size=size)
        for number, reply in enumerate(replies):
            yield encoded[number], reply, seen.of(number)

    def join() -> Answers:
        seen, written = LogProbabilities(), Written()
        waves = [[0], [], [1, 2], [], [3]]

        def arrivals() -> list[Arrival]:
            return [Arrival(number, encoded[number % 3], greedy) for number in waves.pop(0)] if waves else []

        backend.generate_joining(arrivals, [seen, written])
        for answer, ids in written.ids.items():
            yield encoded[answer % 3], ids, seen.of(answer)

    def follow() -> Answers:
        continuations = [(5, 6), (7,), (8, 9, 10)]
        found = backend.next_log_probs(encoded, continuations)
        for row, ids in enumerate(encoded):
            for column, continuation in enumerate(continuations):
                yield ids, continuation, found[row, column]

    drawn = replace(greedy, n=3, temperature=1.0, seed=1)
    # With any of its options transformers' generate writes, and the draws are ours.
    theirs = replace(drawn, max_new_tokens=min(tokens, 4), n=2, options={"do_sample": False})
    limits = [replace(greedy, max_new_tokens=limit) for limit in (2, 2, tokens, 3, 2, 2, 2, tokens, 2)]
    found = {
        "together": lambda: generate(encoded, greedy),
        "alone": lambda: generate(encoded, replace(greedy, batch_size=1)),
        "a shared beginning": lambda: generate(encoded[:2], replace(greedy, share_prefix=True)),
        "three samples": lambda: generate(encoded, drawn),
        "samples by generate": lambda: generate(encoded, theirs),
        "answers that leave": lambda: generate(encoded * 3, limits),
        "given together": lambda: read(8),
        "given alone": lambda: read(1),
        "what follows": follow,
    }
    return found | ({"joined": join} if backend.joins else {})


def plain_passes(backend: TransformersBackend, model: Any = None) -> PlainPasses:
    """Log-probabilities of the tokens of an answer, from one pass of a model over each text, which is made once."""

    @cache
    def log_probs(prompt: tuple[int, ...], ids: tuple[int, ...]) -> Any:
        with torch.no_grad():
            logits = (model or backend.model)(input_ids=torch.tensor([[*prompt, *ids]])).logits[0]
        rows = logits[-len(ids) - 1 : -1, : backend.vocabulary.size].double().log_softmax(-1)
        return rows[range(len(ids)), list(ids)].numpy()

    return log_probs


def off(way: Callable[[], Answers], plain: PlainPasses) -> float:
    """The distance of a way's log-probabilities from plain passes, in nats, at the worst token."""
    worst = 0.0
    for prompt, ids, seen in way():
        if SIZES["pad_token_id"] in ids:
            continue  # some models leave padding out of their positions; a trained one writes none
        expected = plain(tuple(prompt), tuple(ids))
        worst = max(worst, float(np.abs(np.asarray(seen) - (expected if np.ndim(seen) else expected.sum())).max()))
    return worst


FEW = ("together", "samples by generate", "a shared beginning", "given together", "what follows")
"""Batches that write, a prefix read once, a batch that is read, and continuations."""


def assert_right(backend: TransformersBackend, model: Any = None) -> None:
    """A few ways to ask a model give the log-probabilities of plain passes of it, or of another `model`."""
    plain, found = plain_passes(backend, model), ways(backend, tokens=4, lengths=(9, 3, 5))
    for name in FEW:
        assert off(found[name], plain) < 1e-3, name
