"""The probabilities of options after their prompts, read with a model in this process.

A transformers model reads all prompts as one tree, and goes on from it; other engines read each text as a prompt with a
reply.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from semtoken.decisions.prompts import OrderedQuestion
from semtoken.decisions.spellings import LogMasses, OptionReader, OptionSpelling, Path
from semtoken.errors import InvalidLogits
from semtoken.methods.observers.steps import Observer, Step
from semtoken.models.base import Backend
from semtoken.models.prompt_ids import Place
from semtoken.support.arrays import FloatArray, IdArray, is_tensor

Look: TypeAlias = Callable[..., Generator[int, int | None, tuple[list[LogMasses], Any]]]
"""Takes prompts, places, the tokens to look up at each, and what was read before; gives the log-probabilities of these
tokens, place by place, and what texts that go on from the places can be read behind.
"""
AT_ONCE = 32
"""The number of texts that are read together where an engine reads each as a prompt with a reply."""


@dataclass(frozen=True, eq=False)
class PreparedPrompt:
    """The prompt of one question with its options in one order, as token ids."""

    number: int
    """The place of the question among those of its inquiry."""
    shown: OrderedQuestion
    ids: tuple[int, ...]
    spellings: tuple[OptionSpelling, ...]
    """The spellings of the options, in the order in which these are shown."""


def option_masses(
    backend: Backend, prompts: Sequence[PreparedPrompt]
) -> Generator[int, int | None, list[tuple[FloatArray, FloatArray]]]:
    """Lower and upper bound of the mass of each option, [options] each, for each prompt, in the order that it shows.

    Pauses after some prompts, and after pieces of what is read together, so that a server can do other work in between;
    see `semtoken.models.transformers.trees.read_trunk` for what it gives and gets then. `InvalidLogits` if the model
    gives NaN, `InvalidInputError` if the engine cannot read a prompt.
    """
    ids = [prompt.ids for prompt in prompts]
    if getattr(backend, "reads_trees", False):  # asked once, as a model looks at its weights then
        from semtoken.models.transformers.trees import groups_of

        look: Look = partial(_look_in_trees, backend)
        groups = groups_of(ids)
    else:
        look = partial(_look_in_replies, backend)
        groups = [list(range(first, min(first + AT_ONCE, len(ids)))) for first in range(0, len(ids), AT_ONCE)]
    masses: list[tuple[FloatArray, FloatArray]] = []
    for group in groups:
        masses += yield from _masses_of_group(look, [prompts[number] for number in group])
        yield 0
    return masses


def _masses_of_group(
    look: Look, prompts: Sequence[PreparedPrompt]
) -> Generator[int, int | None, list[tuple[FloatArray, FloatArray]]]:
    readers = [OptionReader(prompt.spellings) for prompt in prompts]
    # Two looks are enough: all spellings that are worth it are followed to their ends at once.
    ids = [prompt.ids for prompt in prompts]
    ends = [(number, ()) for number in range(len(prompts))]
    starts, read = yield from look(ids, ends, [reader.first_tokens for reader in readers], None)
    wanted = [reader.first(start) for reader, start in zip(readers, starts, strict=True)]
    places = [(place, path) for place, by_path in enumerate(wanted) for path in by_path]
    tokens = [by_path[path] for by_path in wanted for path in by_path]
    # Most questions have options of one token each, and need no second look.
    log_masses, _ = (yield from look(ids, places, tokens, read)) if places else ([], None)
    further: list[dict[Path, dict[int, tuple[float, float]]]] = [{} for _ in prompts]
    for (place, path), asked, (low, high) in zip(places, tokens, log_masses, strict=True):
        pairs = zip(low.tolist(), high.tolist(), strict=True)
        further[place][path] = dict(zip(asked.tolist(), pairs, strict=True))
    return [reader.masses(by_path) for reader, by_path in zip(readers, further, strict=True)]


def _look_in_trees(
    backend: Any, prompts: Sequence[tuple[int, ...]], places: Sequence[Place], tokens: Sequence[IdArray], behind: Any
) -> Generator[int, int | None, tuple[list[LogMasses], Any]]:
    """A `Look` of a model that reads trees."""
    masses: dict[int, LogMasses] = {}

    def take(number: int, row: Any) -> None:
        masses[number] = _of_row(row, tokens[number], backend.vocabulary.size)

    behind = yield from backend.read_ends(prompts, places, take, behind)
    return [masses[number] for number in range(len(places))], behind


def _look_in_replies(
    backend: Backend, prompts: Sequence[tuple[int, ...]], places: Sequence[Place], tokens: Sequence[IdArray], _: None
) -> Generator[int, int | None, tuple[list[LogMasses], None]]:
    """A `Look` of an engine that reads replies only: each text is given one of one token, whichever it is."""
    looked = _LookedUp(tokens)
    texts = [(*prompts[number], *path) for number, path in places]
    backend.read(texts, [[int(ids[0])] for ids in tokens], [looked], batch_size=AT_ONCE)
    yield 0
    return [looked.found[number] for number in range(len(places))], None


def _of_row(row: Any, ids: IdArray, size: int) -> LogMasses:
    """Log-probabilities of some tokens in a row of raw logits [columns], of which `size` are tokens."""
    if is_tensor(row):
        # Rows may have more columns than the vocabulary (padding to a multiple), and these are no tokens.
        logits = row[:size].float()
        values = (logits[ids] - logits.logsumexp(-1)).cpu().numpy().astype(np.float64)
    else:
        logits = np.asarray(row[:size], dtype=np.float64)
        top = logits.max()
        values = logits[ids] - top - np.log(np.exp(logits - top).sum())
    if np.isnan(values).any():
        raise InvalidLogits("The model gives NaN or no finite logit after a prompt.")
    # The subtraction can leave a hair above 0, which would be a probability above 1.
    values = np.minimum(values, 0.0)
    return values, values


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
    # No token outside the list can have more than what the list leaves over.
    left = np.log(max(1e-300, 1.0 - float(np.exp(log_probs).sum())))
    most = min(float(np.min(log_probs)), float(left))
    low = np.array([known.get(token, -np.inf) for token in ids.tolist()])
    return low, np.array([known.get(token, most) for token in ids.tolist()])
