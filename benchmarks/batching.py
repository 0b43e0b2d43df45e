"""The server's batches, whose answers begin and end one by one, beside transformers' own continuous batching.

    python -m benchmarks.batching                          # the embedded model, in this process
    python -m benchmarks.batching --questions 64 --tokens 48

Both give the greedy answers to the same prompts, in turns, and the least processor time of a few rounds counts. What an
observer of transformers' batches can see is asked of them, too: a logits processor is given rows of logits and the
token that stands before each, and has to tell from that whose rows they are. docs/serving.md says what came of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import torch
import typer
from transformers import ContinuousBatchingConfig, GenerationConfig, LogitsProcessor, LogitsProcessorList

from semtoken.methods.observers.steps import Completion, Observer
from semtoken.models.base import Arrival, Decoding
from semtoken.models.transformers.loading import load_transformers
from semtoken.models.transformers.model import TransformersBackend
from semtoken.support.almanac import load_questions
from semtoken.support.checkpoints.sources import resolve

Answers = list[list[int]]


class Collected(Observer):
    """Keeps the token ids of the answers."""

    top_k = 0

    def __init__(self, count: int) -> None:
        self.answers: Answers = [[] for _ in range(count)]

    def finish(self, answer: int, completion: Completion) -> None:
        """Keep a finished answer."""
        self.answers[answer] = list(completion.token_ids)


class Seen(LogitsProcessor):  # type: ignore[misc]
    """Keeps what a logits processor is shown at each step: how many rows, and the tokens before them."""

    supports_continuous_batching = True

    def __init__(self) -> None:
        self.before: list[tuple[int, ...]] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Take a step in and change nothing."""
        self.before.append(tuple(input_ids.flatten().tolist()))
        return scores

    @property
    def ambiguous(self) -> float:
        """Share of the rows whose token before them stands before another row of the same step as well."""
        rows = [(step.count(token) > 1) for step in self.before for token in step]
        return sum(rows) / max(len(rows), 1)


def joining(backend: TransformersBackend, prompts: Sequence[Sequence[int]], tokens: int) -> Answers:
    """The answers by rows that join and leave a batch (`generate_joining`)."""
    collected = Collected(len(prompts))
    waiting = [[Arrival(n, ids, Decoding(max_new_tokens=tokens)) for n, ids in enumerate(prompts)]]
    backend.generate_joining(lambda: waiting.pop() if waiting else [], [collected])
    return collected.answers


def continuous(model: Any, prompts: Sequence[Sequence[int]], tokens: int) -> Answers:
    """The answers by transformers' own continuous batching, which is given the room that these prompts need."""
    config = GenerationConfig(
        do_sample=False, max_new_tokens=tokens, eos_token_id=model.generation_config.eos_token_id, pad_token_id=0
    )
    room = ContinuousBatchingConfig(page_size=32, num_blocks=8 * len(prompts), max_batch_tokens=2048)
    found = model.generate_batch([list(ids) for ids in prompts], config, room, warmup=False)
    return [list(output.generated_tokens) for output in found.values()]


def timed(make: Callable[[], Answers]) -> tuple[Answers, float, float]:
    """The answers, the processor seconds that they took, and the seconds."""
    processor, wall = time.process_time(), time.perf_counter()
    answers = make()
    return answers, time.process_time() - processor, time.perf_counter() - wall


def main(
    model: Annotated[str, typer.Option(help="A model that transformers loads.")] = "almanac",
    questions: Annotated[int, typer.Option(help="Prompts that come at once.")] = 32,
    tokens: Annotated[int, typer.Option(help="Tokens an answer may have.")] = 24,
    rounds: Annotated[int, typer.Option(help="Each way is tried so often; the best counts.")] = 3,
) -> None:
    """Both ways in turns, on the same prompts."""
    torch.set_num_threads(1)  # idle threads that spin would count as work
    backend = load_transformers(resolve(model).path, device="cpu", dtype="float32")
    prompts = [backend.tokenizer(one.prompt())["input_ids"] for one in load_questions("dev")[:questions]]
    ways: dict[str, Callable[[], Answers]] = {
        "rows that join and leave": lambda: joining(backend, prompts, tokens),
        "transformers' continuous batching": lambda: continuous(backend.model, prompts, tokens),
    }
    best: dict[str, tuple[float, float]] = {}
    answers: dict[str, Answers] = {}
    for _ in range(rounds):
        for name, make in ways.items():
            answers[name], processor, wall = timed(make)
            best[name] = min(best.get(name, (float("inf"),) * 2), (processor, wall))
    for name, (processor, wall) in best.items():
        count = sum(map(len, answers[name]))
        print(f"{name}: {count} tokens, {1e3 * processor / count:.2f} ms of processor time a token, {wall:.2f} s")
    ours, theirs = answers.values()
    print(f"the same answers: {sum(a == b for a, b in zip(ours, theirs, strict=True))} of {len(prompts)}")
    seen = Seen()
    backend.model._get_logits_processor = lambda *_, **__: LogitsProcessorList([seen])
    continuous(backend.model, prompts, tokens)
    steps = f"a logits processor saw {len(seen.before)} steps"
    print(f"{steps}; {seen.ambiguous:.0%} of the rows follow a token that other rows follow, too")


if __name__ == "__main__":
    typer.run(main)
