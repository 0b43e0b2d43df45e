"""The steps that a backend shows while a model writes, the parts of one that can be read, and `Observer`, which reads
them.

A step is one row of raw logits for each answer that is being written, and the token chosen from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from semtoken.core.rows import NormalizedRows, entropies_of, normalized_rows
from semtoken.support.arrays import (
    FloatArray,
    IdArray,
    Rows,
    best_columns,
    entropy_bounds,
    gather,
    is_tensor,
    log_normalizers,
)

Best: TypeAlias = tuple[IdArray, FloatArray]
"""Ids and log-probabilities [k] of the best tokens of one step, best first."""


Readable = Literal["log_probability", "entropy", "best", "row", "logits", "states", "attention"]
"""The kinds of data that a step can hold for an observer:

- `log_probability`: of the chosen token;
- `entropy`: of the next-token distribution, an interval where only the best tokens are known;
- `best`: the k best tokens with their log-probabilities;
- `row`: as much of the row of logits as the engine gives, all of it or its best tokens;
- `logits`: all of it;
- `states`: what the layer at a certain depth gives out;
- `attention`: how much every head attends to the token before the one that is chosen, from that token's own position,
  where the next one is chosen.
"""


@dataclass(frozen=True)
class Reading:
    """One kind of data that an observer needs of every step. See `Readable`."""

    what: Readable
    k: int = 0
    """The number of best tokens, for `best`."""
    depth: float = 0.0
    """The depth of the layer in the model, for `states`, in (0, 1]; 0.5 is the middle layer, 1 the last one."""


LOG_PROBABILITY = Reading("log_probability")
ENTROPY = Reading("entropy")
ROW = Reading("row")
LOGITS = Reading("logits")
ATTENTION = Reading("attention")


def best(k: int) -> Reading:
    """The reading of the k most probable tokens of a step."""
    return Reading("best", k=k)


def states(depth: float) -> Reading:
    """The reading of the hidden states of the layer at this depth of the model, in (0, 1]."""
    return Reading("states", depth=depth)


NEVER_GIVEN: Mapping[str, frozenset[Readable]] = {
    "llama-cpp": frozenset({"states", "attention"}),
    "vllm": frozenset({"states", "attention"}),
}
"""Readings that a backend gives of no model, by the backend's name: this is known before a model is loaded."""


_GIVEN_BY: Mapping[Readable, str] = {
    "logits": "transformers and llama-cpp give it, and vLLM with max_logprobs=-1",
    "row": "transformers and llama-cpp give it, and vLLM with logprobs_mode='raw_logprobs'",
    "states": "transformers gives it, for models whose layers it finds",
    "attention": "transformers gives it, for models whose attention can be computed in the plain way ('eager')",
}


_CALLED: Mapping[Readable, str] = {
    "log_probability": "the log-probabilities of the chosen tokens",
    "entropy": "the entropy of every step",
    "best": "the best tokens of every step",
    "row": "the distribution of every step",
    "logits": "all logits of every step",
    "states": "hidden states",
    "attention": "attention weights",
}


@dataclass(frozen=True)
class Completion:
    """An answer that a backend has generated, or a reply that it has read."""

    token_ids: list[int]
    """The tokens that were written, with the one that ended the answer."""
    truncated: bool | None
    """True if the limit on new tokens cut it off; None for a reply that was read and not generated."""


@dataclass(frozen=True, eq=False)
class Step:
    """One decoding step of n answers: the model's own distribution, and the tokens that were chosen.

    Either `logits` holds whole rows, or, where an engine gives no more than that, `best` the k best tokens.
    """

    answers: Sequence[int]
    """[n] numbers of the answers, counted over all prompts of the call: with `n` answers a prompt, those of the first
    prompt are 0 to n-1."""
    tokens: Sequence[int]
    """[n] the chosen tokens."""
    size: int
    """V, the number of tokens; further columns of the logits are padding."""
    logits: Rows | None
    """[m, columns] raw logits: temperature 1, before any processing. Log-probabilities are logits too. A NumPy array,
    or a PyTorch tensor on any device and in any precision."""
    rows: Sequence[int] = ()
    """[n] the row of each answer in `logits`."""
    best: Sequence[Best] = ()
    """[n] without logits: the best tokens of each answer, the chosen one always among them (perhaps as the last)."""
    ends: Sequence[bool] = ()
    """[n] whether the token is one that ends its answer, such as an end-of-sequence token."""
    states: Mapping[float, Any] = field(default_factory=dict)
    """Outputs [m, H] of layers at the position that predicts the token, PyTorch tensors on the model's device, by the
    depths that observers asked for."""
    attention: Any = None
    """[m, L, heads], a PyTorch tensor, if an observer asked for it: how much the position that predicts the token
    attends to the token before, which is the newest one. Of the first step of an answer it is about the prompt and
    means nothing."""

    read: NormalizedRows | None = None
    """[n] the normalized row of each answer, if somebody has read it before; else None."""

    @cached_property
    def normalized(self) -> NormalizedRows:
        """[n] the normalized row of each answer, read once for all observers; only where `logits` is there."""
        return self.read or normalized_rows(self.logits, self.size, self.rows)

    @cached_property
    def log_normalizers(self) -> FloatArray:
        """[n] log-sum-exp of each answer's row."""
        normalizers: FloatArray = log_normalizers(self.own_rows, self.size)
        return normalizers

    @cached_property
    def own_rows(self) -> Rows:
        """[n, columns] the rows of logits of the n answers, as `logits` has them; only where that is there."""
        # Most steps have their rows in order, and a copy of [n, V] numbers is worth avoiding.
        rows = list(self.rows)
        return self.logits if rows == list(range(len(self.logits))) else self.logits[rows]  # type: ignore[arg-type,index]

    def log_distributions(self) -> FloatArray:
        """[n, V] log-probabilities of all tokens for each answer, an array of NumPy; only where `logits` is there.

        For statistics of whole distributions that read `LOGITS`. Each call makes another array, 8 bytes a number.
        """
        rows = self.own_rows[:, : self.size]
        wide = rows.detach().double().cpu().numpy() if is_tensor(rows) else rows.astype(np.float64)
        log_probs: FloatArray = wide - self.log_normalizers[:, None]
        return log_probs

    def of(self, place: int) -> Step:
        """The part of the step that belongs to the answer at this place."""
        return replace(
            self,
            answers=[self.answers[place]],
            tokens=[self.tokens[place]],
            rows=self.rows[place : place + 1],
            best=self.best[place : place + 1],
            ends=self.ends[place : place + 1],
            read=self.read and self.read.of(slice(place, place + 1)),
        )

    @cached_property
    def entropies(self) -> tuple[FloatArray, FloatArray]:
        """[n] bounds of the entropy of each answer's distribution, in nats: the same where the whole row is known."""
        if self.logits is None:
            bounds = [
                entropy_bounds(values, self.size, best=listed_best(token, ids, self.size))
                for token, (ids, values) in zip(self.tokens, self.best, strict=True)
            ]
            return np.array([low for low, _ in bounds]), np.array([high for _, high in bounds])
        row_entropies = entropies_of(self.normalized, self.size)
        return row_entropies, row_entropies

    def best_of(self, k: int) -> list[Best]:
        """[n] the k best tokens of each answer, best first; fewer where fewer are known.

        A chosen token that is listed last may stand behind better ones that are not listed: it is left out.
        """
        if self.logits is None:
            listed = zip(self.tokens, self.best, strict=True)
            known = [min(k, listed_best(token, ids, self.size)) for token, (ids, _) in listed]
            return [(ids[:n], values[:n]) for n, (ids, values) in zip(known, self.best, strict=True)]
        return best_columns(self.own_rows, self.log_normalizers, self.size, k)

    def log_probabilities(self) -> FloatArray:
        """[n] log-probabilities of the chosen tokens, at most 0."""
        if self.logits is None:
            chosen = [values[ids == token][0] for token, (ids, values) in zip(self.tokens, self.best, strict=True)]
            return np.minimum(np.array(chosen, dtype=np.float64), 0.0)
        values = gather(self.logits, np.asarray(self.rows), np.asarray(self.tokens))
        log_probs: FloatArray = np.minimum(values - self.log_normalizers, 0.0)
        return log_probs


class Observer:
    """Receives the decoding steps of a backend. Override the methods that you need."""

    reads: frozenset[Reading] = frozenset({ROW})
    """The data that it reads of a step. An engine gives no more than its observers ask for, and refuses before the
    first step what it cannot give."""

    def observe(self, step: Step) -> Collection[int] | None:
        """Called with each decoding step; may return the numbers of answers that should end after it.

        An engine that returns whole answers cannot end them.
        """

    def finish(self, answer: int, completion: Completion) -> None:
        """Called when an answer is complete, or in `Backend.read` when its reply has been read."""


def listed_best(token: int, ids: IdArray, size: int) -> int:
    """The number of tokens at the front of a step's list that are its best; the chosen token may follow after them.

    All are where the list holds the whole vocabulary of `size` tokens.
    """
    if len(ids) == size:
        return size
    # A chosen token that is not among the best is listed behind them. Where it is the last of the best itself, it is
    # left out, too, since the list looks the same.
    return max(len(ids) - (len(ids) > 1 and ids[-1] == token), 1)


def show(step: Step, observers: Sequence[Observer]) -> set[int]:
    """Pass a step to all observers; returns the numbers of answers that one of them ends."""
    return {answer for observer in observers for answer in observer.observe(step) or ()}


def readings(observers: Sequence[Observer]) -> frozenset[Reading]:
    """All kinds of data that some observers need of a step."""
    return frozenset().union(*(observer.reads for observer in observers))


def not_given(backend: str, missing: Collection[Readable], of: str = "") -> str:
    """The message for a user who asks for data that a backend cannot give."""
    named = " and ".join(_CALLED[what] for what in sorted(missing))
    advice = "; ".join(_GIVEN_BY[what] for what in sorted(missing) if what in _GIVEN_BY)
    return (
        f"The {backend} backend does not give {named}{of}"
        + (f" ({advice}). " if advice else ". ")
        + "Choose another backend, or leave out the methods that read it."
    )


def finish(answer: int, completion: Completion, observers: Sequence[Observer]) -> None:
    """Tell all observers that an answer is complete."""
    for observer in observers:
        observer.finish(answer, completion)
