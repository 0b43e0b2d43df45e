"""Looking up how probable some tokens are behind some prompts, with any backend.

A transformers model reads all prompts as one tree, and goes on from it; other engines read each place as a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias

import numpy as np

from semtoken.backends.base import Backend
from semtoken.decisions.spellings import LogMasses, OptionReader, Path
from semtoken.errors import InvalidLogits
from semtoken.observers.steps import Observer, Step
from semtoken.support.arrays import FloatArray, IdArray, is_tensor

Place: TypeAlias = tuple[int, Path]
"""Number of a prompt, and the tokens that follow it."""
Look: TypeAlias = Callable[..., Generator[int, int | None, list[LogMasses]]]
"""Takes places, the tokens to look up at each, and whether it is the last look behind these prompts (`last`); gives
their log-probabilities, place by place.
"""
AT_ONCE = 32
"""How many places are read together where an engine reads each as a reply."""


def option_masses(
    backend: Backend, prompts: Sequence[Sequence[int]], readers: Sequence[OptionReader]
) -> Generator[int, int | None, list[tuple[FloatArray, FloatArray]]]:
    """Lower and upper bound of the mass of each option, [options] each, for each prompt's reader.

    Pauses after some prompts at a time, and after pieces of what is read together, so that a server can do other work
    in between; see `semtoken.backends.transformers.trees.read_trunk` for what it gives and gets then.

    Raises
    ------
    InvalidLogits
        The model gives NaN.
    InvalidInput
        The engine cannot read a prompt.
    """
    found: list[tuple[FloatArray, FloatArray]] = []
    for group in _groups(backend, prompts):
        found += yield from _masses_of_group(backend, [prompts[n] for n in group], [readers[n] for n in group])
        yield 0
    return found


def _masses_of_group(
    backend: Backend, prompts: Sequence[Sequence[int]], readers: Sequence[OptionReader]
) -> Generator[int, int | None, list[tuple[FloatArray, FloatArray]]]:
    look = yield from _look_at(backend, prompts)
    ends = [(place, ()) for place in range(len(prompts))]
    starts = yield from look(ends, [reader.first_tokens for reader in readers])
    wanted = [reader.first(start) for reader, start in zip(readers, starts, strict=True)]
    places = [(place, path) for place, one in enumerate(wanted) for path in one]
    tokens = [one[path] for one in wanted for path in one]
    found = (yield from look(places, tokens, last=True)) if places else []
    further: list[dict[Path, dict[int, tuple[float, float]]]] = [{} for _ in prompts]
    for (place, path), ids, (low, high) in zip(places, tokens, found, strict=True):
        pairs = zip(low.tolist(), high.tolist(), strict=True)
        further[place][path] = dict(zip(ids.tolist(), pairs, strict=True))
    return [reader.masses(one) for reader, one in zip(readers, further, strict=True)]


def _groups(backend: Backend, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    if not getattr(backend, "reads_trees", False):
        return [list(range(first, min(first + AT_ONCE, len(prompts)))) for first in range(0, len(prompts), AT_ONCE)]
    from semtoken.backends.transformers.trees import groups_of

    return groups_of(prompts)


def _look_at(backend: Backend, prompts: Sequence[Sequence[int]]) -> Generator[int, int | None, Look]:
    """A function of places and tokens that gives their log-probabilities."""
    if not getattr(backend, "reads_trees", False):
        return lambda places, tokens, last=False: _read_as_replies(backend, prompts, places, tokens)
    from semtoken.backends.transformers.trees import GrowingTree

    tree = GrowingTree(backend, prompts)  # type: ignore[arg-type]  # only transformers models read trees
    yield from tree.begin()

    def look(
        places: Sequence[Place], tokens: Sequence[IdArray], last: bool = False
    ) -> Generator[int, int | None, list[LogMasses]]:
        found: dict[int, LogMasses] = {}

        def take(number: int, row: Any) -> None:
            found[number] = _of_row(row, tokens[number], backend.vocabulary.size)

        yield from tree.read(places, take, last=last)
        return [found[number] for number in range(len(places))]

    return look


def _of_row(row: Any, ids: IdArray, size: int) -> LogMasses:
    """Log-probabilities of some tokens in a row of raw logits [columns], of which `size` are tokens."""
    if is_tensor(row):
        logits = row[:size].float()
        values = (logits[ids] - logits.logsumexp(-1)).cpu().numpy().astype(np.float64)
    else:
        logits = np.asarray(row[:size], dtype=np.float64)
        top = logits.max()
        values = logits[ids] - top - np.log(np.exp(logits - top).sum())
    if np.isnan(values).any():
        raise InvalidLogits("The model gives NaN or no finite logit after a prompt.")
    values = np.minimum(values, 0.0)
    return values, values


def _read_as_replies(
    backend: Backend, prompts: Sequence[Sequence[int]], places: Sequence[Place], tokens: Sequence[IdArray]
) -> Generator[int, int | None, list[LogMasses]]:
    looked = _LookedUp(tokens)
    sentinels = [[int(ids[0])] for ids in tokens]
    backend.read([[*prompts[number], *path] for number, path in places], sentinels, [looked], batch_size=AT_ONCE)
    yield 0
    return [looked.found[place] for place in range(len(places))]


class _LookedUp(Observer):
    """Keeps the log-probabilities of some tokens at the first step of each reply."""

    def __init__(self, tokens: Sequence[IdArray]) -> None:
        self.found: dict[int, LogMasses] = {}
        self._tokens = tokens

    def observe(self, step: Step) -> None:
        """Take in one step of some replies."""
        for k, answer in enumerate(step.answers):
            ids = self._tokens[answer]
            if step.logits is not None:
                self.found[answer] = _of_row(step.logits[step.rows[k]], ids, step.size)
            else:
                self.found[answer] = _of_list(*step.best[k], ids)


def _of_list(listed: IdArray, log_probs: FloatArray, ids: IdArray) -> LogMasses:
    """Bounds from a list of the best tokens: one that is not listed lies between nothing and the last of the list."""
    known = dict(zip(listed.tolist(), log_probs.tolist(), strict=True))
    left = np.log(max(1e-300, 1.0 - float(np.exp(log_probs).sum())))
    most = min(float(np.min(log_probs)), float(left))
    low = np.array([known.get(token, -np.inf) for token in ids.tolist()])
    return low, np.array([known.get(token, most) for token in ids.tolist()])
