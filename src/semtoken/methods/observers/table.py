"""`@statistic`: an observer of the answering model that fills a field of `Generation`; the table of all; our own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np

from semtoken.core.results.generation import PER_TOKEN, Layout, declare_field
from semtoken.methods.observers.steps import ATTENTION, ENTROPY, LOGITS, Completion, Observer, Step, best, states
from semtoken.support.arrays import FloatArray, row_divergences


class Statistic(Observer):
    """An observer that fills one field of `Generation`. Put `@statistic` above the class, and say what it `reads`."""

    field: ClassVar[str] = ""
    """The field, which `@statistic` sets."""

    def of(self, answer: int) -> Any:
        """The recorded value of an answer, by its number; None where the engine gave too little to know it.

        A subclass has to define it (`NotImplementedError` else).
        """
        raise NotImplementedError

    def bounds(self, answer: int) -> tuple[Any, Any] | None:
        """Lower and upper bounds of an answer's value, where only the best tokens of each step are known; else None."""
        return None

    def forget(self, answer: int) -> None:
        """Drop an answer, so that another one can have its number."""


Kind = TypeVar("Kind", bound=type[Statistic])
_statistics: dict[str, type[Statistic]] = {}
STATISTICS: Mapping[str, type[Statistic]] = MappingProxyType(_statistics)
"""Field of `Generation` -> the observer that fills it."""


def statistic(field: str, layout: Layout = PER_TOKEN) -> Callable[[Kind], Kind]:
    """Add the decorated observer to the table of statistics.

    It fills `field`, which becomes a further one of every record if `Generation` does not have it, and is laid out in a
    file like `layout`, by default as one number per token. `TypeError` if another observer fills the field, or it is
    laid out differently there.
    """

    def enter(observer: Kind) -> Kind:
        if field in _statistics:
            raise TypeError(f"{field!r} is filled by {_statistics[field].__name__} and by {observer.__name__}.")
        declare_field(field, layout)
        observer.field = field
        _statistics[field] = observer
        return observer

    return enter


class PerStep(Statistic):
    """A statistic with one value for every step. Override `values`, and `of` if a record holds them in another form."""

    def __init__(self) -> None:
        self._found: dict[int, list[Any]] = {}

    def values(self, step: Step) -> Iterable[Any]:
        """The value of each of the n answers in a step."""
        raise NotImplementedError

    def observe(self, step: Step) -> None:
        """Record the values of one decoding step."""
        for answer, value in zip(step.answers, self.values(step), strict=True):
            self._found.setdefault(answer, []).append(value)

    def recorded(self, answer: int) -> list[Any]:
        """The values of an answer, one for each of its steps."""
        return self._found.get(answer, [])

    def of(self, answer: int) -> Any:
        """The same, as the field of a record."""
        return self.recorded(answer)

    def forget(self, answer: int) -> None:
        """Drop what was recorded of an answer."""
        self._found.pop(answer, None)


class TokenNumbers(PerStep):
    """A statistic with one number for every step. Override `numbers`, and nothing else."""

    def numbers(self, step: Step) -> FloatArray | tuple[FloatArray, FloatArray]:
        """The number of each of the n answers in a step, [n]; or two such arrays, its lower and upper bounds.

        A subclass has to define it (`NotImplementedError` else).
        """
        raise NotImplementedError

    def values(self, step: Step) -> Iterable[tuple[float, float]]:
        """Lower and upper bound of the number of each answer in a step."""
        numbers = self.numbers(step)
        low, high = numbers if isinstance(numbers, tuple) else (numbers, numbers)
        return zip(low.tolist(), high.tolist(), strict=True)

    def of(self, answer: int) -> FloatArray:
        """The numbers of an answer, [n]; the middle of the bounds where these differ."""
        pairs = self._pairs(answer)
        return np.where(pairs[:, 0] == pairs[:, 1], pairs[:, 0], pairs.mean(axis=1))

    def bounds(self, answer: int) -> tuple[FloatArray, FloatArray] | None:
        """The lower and upper bounds of an answer's numbers, each [n]; None where every number is exact."""
        pairs = self._pairs(answer)
        return None if (pairs[:, 0] == pairs[:, 1]).all() else (pairs[:, 0], pairs[:, 1])

    def _pairs(self, answer: int) -> FloatArray:
        return np.array(self.recorded(answer), dtype=np.float64).reshape(-1, 2)


MOST = 20
"""The most log-probabilities that are kept of each step: as many as APIs list, and as any method here reads."""


@statistic("token_entropies")
class TokenEntropies(TokenNumbers):
    """Entropy of every next-token distribution, in nats. An interval where only the best tokens are known."""

    reads = frozenset({ENTROPY})

    def numbers(self, step: Step) -> tuple[FloatArray, FloatArray]:
        """[n] lower and upper bounds of the entropies, the same where the whole rows are known."""
        return step.entropies


@statistic("uniform_divergences")
class UniformDivergences(TokenNumbers):
    """Divergence of the uniform distribution from every next-token distribution, KL(U || p), in nats."""

    reads = frozenset({LOGITS})

    def numbers(self, step: Step) -> FloatArray:
        """The divergence of each of the n answers in this step, [n]."""
        return row_divergences(step.own_rows, step.log_normalizers, step.size)


@statistic("best_log_probs", Layout("float64", 2, "token", "arrays"))
class BestLogProbabilities(PerStep):
    """Log-probabilities of the best tokens of every step, best first: 20 of them, or as many as there are."""

    reads = frozenset({best(MOST)})

    def values(self, step: Step) -> list[FloatArray]:
        """The best log-probabilities of each answer in a step, in descending order."""
        return [np.sort(np.asarray(log_probs, dtype=np.float64))[::-1] for _, log_probs in step.best_of(MOST)]


@statistic("attention_to_previous", Layout("float64", 3, "token", "array"))
class AttentionToPrevious(PerStep):
    """Records how much each head attends to the previous token where each token is chosen."""

    reads = frozenset({ATTENTION})

    def values(self, step: Step) -> list[Any]:
        """The attention of each answer in a step to the previous token, [L, heads]."""
        attended = step.attention.float().cpu().numpy()
        return [attended[row] for row in step.rows]

    def of(self, answer: int) -> FloatArray:
        """The attention to the previous token, [n, L, heads]; that of the first token is about the prompt, and has no
        meaning.
        """
        return np.array(self.recorded(answer), dtype=np.float64)


MIDDLE = 0.5
"""Depth of the middle layer."""


class LastStates(Observer):
    """Records the hidden state of every answer at the position that chose its last token, of the layer at a depth."""

    def __init__(self, depth: float = MIDDLE) -> None:
        self.depth = depth
        self.reads = frozenset({states(depth)})
        self._rows: dict[int, tuple[Any, int]] = {}

    def observe(self, step: Step) -> None:
        """Record the hidden states of one decoding step, replacing those of the step before."""
        for answer, row in zip(step.answers, step.rows, strict=True):
            # Without a copy: each step replaces it, and only the last one counts.
            self._rows[answer] = (step.states[self.depth], row)

    def finish(self, answer: int, completion: Completion) -> None:
        """Keep the state of a complete answer, apart from its batch."""
        if answer in self._rows:
            batch_states, row = self._rows[answer]
            # A view would keep the states of the whole batch in memory for as long as this answer is kept.
            self._rows[answer] = (batch_states[row].clone()[None], 0)

    def of(self, answer: int) -> FloatArray | None:
        """The hidden state [H] that chose the last token of an answer; None for an answer without tokens."""
        if answer not in self._rows:
            return None
        batch_states, row = self._rows[answer]
        state: FloatArray = batch_states[row].double().cpu().numpy()
        return state

    def forget(self, answer: int) -> None:
        """Drop what was recorded of an answer."""
        self._rows.pop(answer, None)
