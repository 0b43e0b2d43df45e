"""Several prompts that begin alike, such as questions about one text: what they share is read once.

Its keys and values are repeated for every prompt, and the rest of each is read behind them, padded at the right. Tokens
that follow a prompt are read behind its own keys and values in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from semtoken.models.prompt_ids import pad
from semtoken.models.transformers.passes import (
    ReadsTokens,
    SharedPrefix,
    cache_of,
    copied,
    from_column,
    repeated,
    shared_beginning,
    with_rows_behind,
)

MOST_TAILS = 1024
"""The most tokens of a group of prompts behind what all of them begin with, padding counted."""
MOST_KEPT = 2**14
"""The most tokens of all rows of a pass whose keys and values exist at one time."""
CHUNK = 512
"""How many tokens of a shared beginning are read at one time, if nobody says otherwise."""
A_PASS = 32
"""For how many tokens more a pass is worth saving."""

Take: TypeAlias = Callable[[int, torch.Tensor], None]
"""Gets the number of a place and its logits [columns]."""
PromptPlace: TypeAlias = tuple[int, tuple[int, ...]]
"""The number of a prompt, and the tokens behind it."""


def groups_of(prompts: Sequence[Sequence[int]], most: int = MOST_TAILS) -> list[list[int]]:
    """Divide prompts into groups that are read together, in order: one joins the group before it unless that makes the
    model read more, or the rows behind what all of them share would have over `most` tokens.

    >>> groups_of([[1, 2, 3], [1, 2, 3], [1, 2, 4], [5, 6, 7]], most=3)
    [[0, 1, 2], [3]]
    """
    groups: list[list[int]] = []
    trunk = longest = cost = 0
    for number, ids in enumerate(prompts):
        if groups:
            shared = min(trunk, len(shared_beginning((prompts[groups[-1][0]], ids))))
            longer = max(longest, len(ids))
            tails = (longer - shared) * (len(groups[-1]) + 1)
            if tails <= most and shared + tails <= cost + len(ids) + A_PASS:
                groups[-1].append(number)
                trunk, longest, cost = shared, longer, shared + tails
                continue
        groups.append([number])
        trunk = longest = cost = len(ids)
    return groups


@dataclass(frozen=True, eq=False)
class _Tails:
    """Some prompts that were read together behind what all of them share."""

    row: dict[int, int]
    """The row of each prompt."""
    cache: Any
    """Keys and values of their own tokens alone."""
    mask: npt.NDArray[np.int64]
    """[rows, tokens] 0 where padded at the right."""


class Branches:
    """Prompts that the model reads behind what all of them begin with, and tokens that it reads behind them later.
    `begin` reads what they share. The backend must say that it `reads_branches`.

    The generators pause before each pass, give the number of tokens that were read since the pause before, and get how
    many may be read until the next one; None for as many as are good.
    """

    def __init__(self, backend: ReadsTokens, prompts: Sequence[Sequence[int]]) -> None:
        self._backend = backend
        self._trunk = shared_beginning(prompts)
        self._tails = [list(ids[len(self._trunk) :]) for ids in prompts]
        self._cache: Any = None
        self._read: list[_Tails] = []

    def begin(self) -> Generator[int, int | None, None]:
        """Read the beginning that all prompts share."""
        self._cache = yield from read_trunk(self._backend, self._trunk)

    @torch.inference_mode()
    def read(self, places: Sequence[PromptPlace], take: Take) -> Generator[int, int | None, None]:
        """Read the ends of prompts, or places behind prompts whose ends were read; `take` gets the logits of each."""
        ends = [number for number, (_, path) in enumerate(places) if not path]
        yield from self._rows(places, ends, None, take)
        for tails in list(self._read):
            behind = [number for number, (prompt, path) in enumerate(places) if path and prompt in tails.row]
            yield from self._rows(places, behind, tails, take)

    def _rows(
        self, places: Sequence[PromptPlace], numbers: Sequence[int], tails: _Tails | None, take: Take
    ) -> Generator[int, int | None, None]:
        """Read some places as rows, as many at a time as there is room for; those of prompts are kept."""
        texts = {number: list(places[number][1]) or self._tails[places[number][0]] for number in numbers}
        known, first, read = len(self._trunk) + (0 if tails is None else tails.mask.shape[1]), 0, 0
        while first < len(numbers):
            most = (yield read) or MOST_TAILS
            width = max(len(texts[number]) for number in numbers[first:])
            count = max(1, min(most // width, MOST_KEPT // (known + width)))
            some, first = numbers[first : first + count], first + count
            prompts = [places[number][0] for number in some]
            batch = pad([texts[number] for number in some], 0, left=False)
            cache, mask = self._before(prompts, tails)
            ends, stop = batch.mask.sum(axis=1) - 1, 0
            while stop < batch.ids.shape[1]:
                if stop:
                    most = (yield read) or MOST_TAILS
                begin, stop = stop, min(batch.ids.shape[1], stop + max(1, most // len(some)))
                mask = np.concatenate([mask, batch.mask[:, begin:stop]], axis=1)
                columns = np.unique(ends[(ends >= begin) & (ends < stop)]) - begin
                columns = columns if len(columns) else np.array([stop - begin - 1])
                output = self._backend.passes.rows(batch.ids[:, begin:stop], mask=mask, cache=cache, keep=columns)
                cache, read = cache_of(output), len(some) * (stop - begin)
                logits = output.logits if output.logits.shape[1] == len(columns) else output.logits[:, columns]
                for column, place in enumerate((columns + begin).tolist()):
                    for row in np.flatnonzero(ends == place).tolist():
                        take(some[row], logits[row, column])
                float(logits[0, -1, 0])  # a GPU is waited for, so that who paces this knows what reading takes
            if tails is None:
                rows = {prompt: row for row, prompt in enumerate(prompts)}
                self._read.append(_Tails(rows, from_column(cache, known), batch.mask))
        if read:
            yield read

    def _before(self, prompts: Sequence[int], tails: _Tails | None) -> tuple[Any, npt.NDArray[np.int64]]:
        """Cache and mask of what is before new rows: what all prompts share, and the prompts themselves, if read."""
        cache = None if self._cache is None else repeated(self._cache, len(prompts))
        mask = np.ones((len(prompts), len(self._trunk)), dtype=np.int64)
        if tails is None:
            return cache, mask
        rows = [tails.row[prompt] for prompt in prompts]
        return with_rows_behind(cache, tails.cache, rows), np.concatenate([mask, tails.mask[rows]], axis=1)


@torch.inference_mode()
def read_trunk(backend: ReadsTokens, trunk: Sequence[int]) -> Generator[int, int | None, Any]:
    """Read the beginning that all prompts share, reusing the backend's last one as far as it fits.

    Pauses before each piece of a trunk, gives the number of tokens that it has read since the pause before, and gets
    how many it may read until the next one; None for as many as are good.
    """
    known = backend.last_trunk
    cache, start = None, 0
    if known is not None and (shared := len(shared_beginning((known.token_ids, [*trunk, 0])))) > 0:
        cache, start = known.cut(min(shared, len(trunk))), min(shared, len(trunk))
    read = 0
    while start < len(trunk):
        ids = np.array([trunk[start : start + ((yield read) or CHUNK)]], dtype=np.int64)
        read = ids.shape[1]
        start += read
        mask = np.ones((1, start), dtype=np.int64)
        output = backend.passes.rows(ids, mask=mask, cache=cache)
        cache = cache_of(output)
        float(output.logits[0, -1, 0])  # a GPU is waited for, so that who paces this knows what reading takes
    if trunk:
        backend.last_trunk = SharedPrefix(tuple(trunk), cache)
        cache = copied(cache)
    return cache
