"""Where the time of a request goes on the model's thread of `semtoken serve`, by layer, and what the model alone takes.

    python -m benchmarks.serve_layers                     # the embedded model, 50 clients
    python -m benchmarks.serve_layers --model smollm2 --requests 1

Clients that ask again as soon as they are answered are played in this process, so that nothing but the model's thread
runs. Processor time of the thread is counted, each layer without those that it calls. "The model" is the call of the
network itself: a bare loop over it with the same batches would take that and nothing else, which is the limit for any
server. `python -m benchmarks.batching` compares the same work with transformers' own continuous batching.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import torch
import typer

from semtoken import ScoredModel
from semtoken.models.answer_text import AnswerText
from semtoken.models.base import Decoding
from semtoken.models.transformers import joining, together
from semtoken.support.almanac import load_questions
from semtoken.web.serve import engine as serving
from semtoken.web.serve.orders import GenerationBatch, Order, RowToken

REST = "the rest: orders, rows, messages"


class Layers:
    """Processor seconds of this thread by layer, each without the layers that it calls."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._open = [REST]
        self._since = 0.0

    @contextmanager
    def layer(self, name: str) -> Iterator[None]:
        """Count what follows as that layer's."""
        self._change()
        self._open.append(name)
        self.calls[name] += 1
        try:
            yield
        finally:
            self._change()
            self._open.pop()

    def _change(self) -> None:
        now = time.thread_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def watch(self, owner: Any, function: str, name: Callable[[], str] | str) -> None:
        """Count the calls of a function of a module, a class or an object as a layer."""
        inner = getattr(owner, function)

        def watched(*args: Any, **kwargs: Any) -> Any:
            with self.layer(name if isinstance(name, str) else name()):
                return inner(*args, **kwargs)

        setattr(owner, function, watched)

    def begin(self) -> None:
        """Forget what was counted, and count from now on."""
        self.seconds.clear()
        self.calls.clear()
        self._since = time.thread_time()

    def end(self) -> None:
        """Count no more."""
        self._change()

    @property
    def inside(self) -> Sequence[str]:
        """The layers that are open now, the outermost first."""
        return self._open


def watch_all(layers: Layers, backend: Any) -> None:
    """Watch what the model's thread goes through."""
    prompts, further = "reading prompts, around the model", "reading further tokens, around the model"
    layers.watch(joining.JoiningRows, "_begin", prompts)
    layers.watch(together.RowWriter, "step", further)
    part = {prompts: "the model: prompts", further: "the model: further tokens"}
    layers.watch(backend.model, "forward", lambda: part[next(one for one in reversed(layers.inside) if one in part)])
    layers.watch(together, "chosen_tokens", "choosing tokens")
    for module in (joining, together):
        layers.watch(module, "join_batches", "rows that join and leave")
    layers.watch(serving._Rows, "observe", "the server's view of a step")
    layers.watch(serving._Rows, "settle", "the server's view of an end")
    layers.watch(AnswerText, "add", "text")
    layers.watch(ScoredModel, "results", "scores: whole answers")


def play(engine: serving.Engine, prompts: Sequence[Sequence[int]], clients: int, max_tokens: int) -> int:
    """Have clients ask, each the next prompt as soon as it is answered; the tokens of all answers."""
    waiting, ready, tokens = list(prompts), [], 0

    def emit(item: Any) -> None:
        nonlocal tokens
        tokens += isinstance(item, RowToken)
        if item is None:
            ask()

    def ask() -> None:
        if waiting:
            ready.append(Order(emit, work=GenerationBatch([waiting.pop()], Decoding(max_new_tokens=max_tokens))))

    def more(running: int) -> list[Order]:
        found, ready[:] = list(ready), []
        return found

    for _ in range(clients):
        ask()
    engine.run(more(0), more)
    while ready:  # those of clients whose answers ended last
        engine.run(more(0), more)
    return tokens


def main(
    model: Annotated[str, typer.Option(help="As in `semtoken serve`.")] = "almanac",
    clients: Annotated[int, typer.Option(help="Clients at once.")] = 50,
    requests: Annotated[int, typer.Option(help="Requests of each of them.")] = 4,
    max_tokens: Annotated[int, typer.Option(help="Longest answer.")] = 32,
    rounds: Annotated[int, typer.Option(help="Rounds; the one with the least time counts.")] = 5,
) -> None:
    """Print the layers for that many clients, and for one."""
    torch.set_num_threads(1)  # another thread's work would not be counted
    stc = ScoredModel.from_pretrained(model)
    engine, layers = serving.Engine(stc), Layers()
    engine.warm_up()
    watch_all(layers, stc.backend)
    observers = stc.observer

    def observer() -> Any:
        found = observers()
        layers.watch(found, "observe", "scores: steps")
        layers.watch(found, "running_together", "scores: values so far")
        return found

    setattr(stc, "observer", observer)  # noqa: B010
    asked = [stc.tokenizer(one.prompt())["input_ids"] for one in load_questions("test")][: clients * requests]
    best: dict[int, tuple[float, int, dict[str, float], dict[str, int]]] = {}
    for _ in range(rounds + 1):  # the first one warms up
        for who in (clients, 1):
            prompts = asked if who > 1 else asked[:20]
            layers.begin()
            tokens = play(engine, prompts, who, max_tokens)
            layers.end()
            found = (sum(layers.seconds.values()) / len(prompts), tokens, dict(layers.seconds), dict(layers.calls))
            best[who] = min(best.get(who, found), found, key=lambda one: one[0])
    for who, (each, tokens, seconds, calls) in best.items():
        n = len(asked) if who > 1 else 20
        print(f"{who} clients, {n} requests, {tokens} tokens: {1e3 * each:.3f} ms of the model's thread a request")
        for name, spent in sorted(seconds.items(), key=lambda one: -one[1]):
            print(f"  {1e3 * spent / n:7.3f} ms  {spent / n / each:4.0%}  {calls.get(name, 0):6} calls  {name}")
        alone = sum(spent for name, spent in seconds.items() if name.startswith("the model:"))
        print(f"  {1e3 * alone / n:7.3f} ms  {alone / n / each:4.0%}  the model alone, with these batches: the limit")


if __name__ == "__main__":
    typer.run(main)
