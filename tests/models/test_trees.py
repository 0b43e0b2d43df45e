"""Texts that are read as a tree have the logits of plain passes behind them, whatever they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from semtoken.models.transformers import TransformersBackend, trees
from tests.models.plain_pass import backend_of, passes_of

pytestmark = pytest.mark.usefixtures("own_cache")

ASKED = [(5, 6, 7, 8, 9), (5, 6, 7, 8), (5, 6, 7, 9, 9), (5, 6, 7, 8, 9), (5, 6, 10)]
"""The first, which comes twice, goes on from the second, and all share two tokens."""
FURTHER = [(*ASKED[2], 11), (*ASKED[2], 11, 12), (*ASKED[0], 13), (*ASKED[4], 5, 6, 7)]


def proved() -> TransformersBackend:
    """A small model whose proof is made."""
    backend = backend_of("Llama")
    assert backend.reads_trees
    return backend


def run(steps: Any, most: int | None) -> Any:
    """The result of a generator that is sent `most` at each pause."""
    next(steps)
    try:
        while True:
            steps.send(most)
    except StopIteration as end:
        return end.value


def ends(backend: TransformersBackend, texts: Sequence[tuple[int, ...]], take: Any, behind: Any = None) -> Any:
    """`read_ends` of whole texts, each a prompt with nothing behind it."""
    return backend.read_ends(texts, [(number, ()) for number in range(len(texts))], take, behind)


def assert_plain(
    backend: TransformersBackend, texts: Sequence[tuple[int, ...]], seen: Mapping[int, torch.Tensor]
) -> None:
    """The logits of every text are those of a pass of its own."""
    for number, text in enumerate(texts):
        with torch.no_grad():
            expected = backend.model(torch.tensor([text])).logits[0, -1]
        np.testing.assert_allclose(seen[number].numpy(), expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("nodes", [2, 512])
@pytest.mark.parametrize("most", [None, 1, 3])
@pytest.mark.parametrize("start", [(), (40, 41, 42, 43)])
def test_every_text_has_the_logits_of_a_plain_pass(
    start: tuple[int, ...], most: int | None, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "MOST_NODES", nodes)
    backend, behind = proved(), None
    for asked in (ASKED, FURTHER):
        texts, seen = [start + text for text in asked], dict[int, torch.Tensor]()
        with passes_of(backend.model) as passes:
            behind = run(ends(backend, texts, seen.__setitem__, behind), most)
        assert max(tokens for _, tokens in passes) <= (most or 512)
        assert_plain(backend, texts, seen)


def test_a_text_that_was_read_before_has_its_logits_too() -> None:
    backend, seen = proved(), dict[int, torch.Tensor]()
    behind = run(ends(backend, ASKED, lambda number, row: None), None)
    texts = [(*ASKED[2], 11), ASKED[0][:3]]  # the second is the beginning of three
    run(ends(backend, texts, seen.__setitem__, behind), None)
    assert_plain(backend, texts, seen)


def test_what_was_read_is_not_read_again_where_texts_go_on_from_it() -> None:
    backend, behind, known = proved(), None, set[tuple[int, ...]]()
    for asked in (ASKED, FURTHER):
        with passes_of(backend.model) as passes:
            behind = run(ends(backend, asked, lambda number, row: None, behind), None)
        beginnings = {text[:length] for text in asked for length in range(1, len(text) + 1)}
        assert sum(tokens for _, tokens in passes) == len(beginnings - known)
        known |= beginnings
