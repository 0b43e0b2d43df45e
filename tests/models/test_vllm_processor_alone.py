"""The logits processor over stand-ins for what it takes from vLLM, in batches as either runner makes them.

vLLM itself is in tests/engines.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from enum import Enum, auto
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from semtoken import TokenClusters, score_logits
from semtoken.errors import BackendError, InvalidInputError, VocabularyMismatch
from tests.models.test_watched import Request, make_requests
from tests.rows import each
from tests.stand_ins import Fields, imported


class Direction(Enum):
    """vLLM's `MoveDirectionality`."""

    UNIDIRECTIONAL = auto()
    SWAP = auto()


@pytest.fixture(scope="module")
def module() -> Iterator[ModuleType]:
    first = {"LogitsProcessor": type("First", (), {}), "MoveDirectionality": Direction}
    with imported(
        "semtoken.models.vllm.processor",
        vllm={"__version__": "0.32.1"},
        vllm__v1__sample__logits_processor=first,
        vllm__v1__worker__gpu__sample__logits_processor={"LogitsProcessor": type("Second", (), {})},
    ) as found:
        yield found


PLAIN: dict[str, Any] = {
    "logit_bias": None,
    "bad_words": [],
    "allowed_token_ids": None,
    "min_tokens": 0,
    "structured_outputs": None,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "n": 1,
    "stop": [],
}


def params(name: str | None = None, **changes: Any) -> Fields:
    return Fields(**PLAIN | {"extra_args": None if name is None else {"semtoken_id": name}} | changes)


def config(columns: int, **more: Any) -> Fields:
    return Fields(model_config=Fields(get_vocab_size=lambda: columns), **more)


def made(module: ModuleType, almanac_clusters: TokenClusters, *runner: Any) -> Any:
    return module.scoring_processor(almanac_clusters)(config(almanac_clusters.vocabulary.size + 3), *runner)


def watched(request: Request) -> bool:
    """Every third request has no id."""
    return not request.name.endswith(("1", "4"))


def logits_of(batch: list[Request]) -> Any:
    return np.stack([request.logits[len(request.known)] for request in batch]).copy()


def first_runner(processor: Any, requests: list[Request], random: np.random.Generator, **changes: Any) -> None:
    """A batch of rows, in which the end closes gaps and rows change places; messages say so."""
    waiting, rows = list(requests), dict[int, Request]()
    while waiting or rows:
        removed = [row for row, request in rows.items() if len(request.known) == len(request.ids)]
        for row in removed:
            del rows[row]
        added, moved = [], []
        for row in range(4):
            if waiting and row not in rows and random.random() < 0.7:
                rows[row] = waiting.pop()
                name = rows[row].name if watched(rows[row]) else None
                added.append((row, params(name, **changes), None, rows[row].known))
        while rows and (gap := next((row for row in range(4) if row not in rows), 4)) < (last := max(rows)):
            rows[gap] = rows.pop(last)
            moved.append((last, gap, Direction.UNIDIRECTIONAL))
        if len(rows) > 1 and random.random() < 0.5:
            rows[0], rows[1] = rows[1], rows[0]
            moved.append((0, 1, Direction.SWAP))
        processor.update_state(Fields(removed=removed, added=added, moved=moved) if removed or added or moved else None)
        batch = [rows[row] for row in sorted(rows)]
        if batch:
            logits = logits_of(batch)
            assert processor.apply(logits) is logits
        for request in batch:
            request.known.append(request.ids[len(request.known)])


def second_runner(
    processor: Any, states: Any, requests: list[Request], random: np.random.Generator, **changes: Any
) -> None:
    """Slots that a request keeps, of which a step takes some in any order."""
    waiting, slots = list(requests), dict[int, Request]()
    while waiting or slots:
        for slot in range(4):
            if waiting and slot not in slots and random.random() < 0.7:
                slots[slot] = waiting.pop()
                states.prompt_len.np[slot] = 2 + slot
                name = slots[slot].name if watched(slots[slot]) else None
                assert processor.add_request(slot, params(name, **changes)) is watched(slots[slot])
        chosen = [slot for slot in random.permutation(sorted(slots)).tolist() if random.random() < 0.8]
        for slot in chosen:
            known = slots[slot].known
            states.total_len.gpu[slot] = 2 + slot + len(known)
            states.all_token_ids.gpu[slot, 2 + slot : 2 + slot + len(known)] = torch.tensor(known, dtype=torch.int32)
        batch = [slots[slot] for slot in chosen]
        if batch:
            ctx = Fields(idx_mapping_np=np.array(chosen), expanded_idx_mapping=np.array(chosen))
            processor.apply(torch.from_numpy(logits_of(batch)), ctx)
        for slot, request in zip(chosen, batch, strict=True):
            request.known.append(request.ids[len(request.known)])
            if len(request.known) == len(request.ids):
                del slots[slot]


def run(
    module: ModuleType,
    almanac_clusters: TokenClusters,
    runner: int,
    requests: list[Request],
    random: np.random.Generator,
    **changes: Any,
) -> Any:
    """The processor of one of vLLM's runners, after these requests."""
    if runner == 1:
        processor = made(module, almanac_clusters, "cpu", False)
        first_runner(processor, requests, random, **changes)
        return processor
    lengths = torch.zeros(4, dtype=torch.int32)
    ids = Fields(gpu=torch.zeros((4, 32), dtype=torch.int32))
    states = Fields(prompt_len=Fields(np=np.zeros(4, dtype=int)), total_len=Fields(gpu=lengths), all_token_ids=ids)
    processor = made(module, almanac_clusters, states)
    second_runner(processor, states, requests, random, **changes)
    return processor


@each(("runner", "seed"), [(runner, seed) for runner in (1, 2) for seed in range(3)])
def test_answers_of_either_runner_have_the_scores_of_their_logits(
    module: ModuleType, almanac_clusters: TokenClusters, runner: int, seed: int
) -> None:
    requests, random = make_requests(almanac_clusters.vocabulary.size, 7, seed), np.random.default_rng(seed)
    processor = run(module, almanac_clusters, runner, requests, random)
    for request in requests:
        if watched(request):
            found = processor.take(request.name, request.ids, "What?")
            expected = score_logits(request.logits, request.ids, almanac_clusters)
            assert found.log_confidence == pytest.approx(expected.log_confidence, rel=1e-9)
            assert (found.distribution, found.question) == ("raw", "What?")
            with pytest.raises(InvalidInputError, match="semtoken_id"):
                processor.take(request.name, request.ids)  # a score is kept until it is taken
    assert processor.is_argmax_invariant() is False


@each(
    ("changes", "first", "second"),
    [
        ({}, "raw", "raw"),
        ({"logit_bias": {3: 1.0}}, "processed", "processed"),
        ({"bad_words": ["x"]}, "processed", "processed"),
        ({"allowed_token_ids": [3]}, "processed", "processed"),
        ({"min_tokens": 1}, "processed", "processed"),
        ({"structured_outputs": object()}, "processed", "processed"),
        ({"presence_penalty": 0.1}, "raw", "processed"),
        ({"frequency_penalty": 0.1}, "raw", "processed"),
        ({"repetition_penalty": 1.1}, "raw", "processed"),
    ],
)
def test_what_the_engine_changed_before_is_noted(
    module: ModuleType, almanac_clusters: TokenClusters, changes: dict[str, Any], first: str, second: str
) -> None:
    for runner, expected in ((1, first), (2, second)):
        [request] = make_requests(almanac_clusters.vocabulary.size, 1, seed=0)
        processor = run(module, almanac_clusters, runner, [request], np.random.default_rng(0), **changes)
        assert processor.take(request.name, request.ids).distribution == expected


def test_requests_that_could_not_be_scored_are_refused(module: ModuleType, almanac_clusters: TokenClusters) -> None:
    check = made(module, almanac_clusters, "cpu", False).validate_params
    for fine in (params("x"), params(n=2, stop=["."]), Fields(), params("x", extra_args={})):
        check(fine)
    for bad, message in (
        (params("x", n=2), "needs n=1"),
        (params("x", stop=["."]), "stop_token_ids"),
        (params(extra_args={"semtoken_id": 7}), "'semtoken_id' must be a text"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            check(bad)


def test_engines_that_it_cannot_score_are_refused(
    module: ModuleType, almanac_clusters: TokenClusters, caplog: pytest.LogCaptureFixture
) -> None:
    processor, size = module.scoring_processor(almanac_clusters, "paper"), almanac_clusters.vocabulary.size
    [request] = make_requests(size, 1, seed=0)
    first_runner(processor(config(size, speculative_config=None), "cpu", False), [request], np.random.default_rng(0))
    assert processor.take(request.name, request.ids).preset == "paper"
    assert not caplog.records
    with pytest.raises(VocabularyMismatch, match=f"gives {size - 1:,} logits a step"):
        processor(config(size - 1), "cpu", False)
    with pytest.raises(BackendError, match="Speculative decoding"):
        processor(config(size, speculative_config=Fields()), "cpu", False)
    module.vllm.__version__ = "0.33.0"
    with caplog.at_level(logging.WARNING, "vllm.semtoken"):
        processor(config(size), "cpu", False)
    module.vllm.__version__ = "0.32.1"
    assert [record.getMessage() for record in caplog.records] == [
        "semtoken's logits processor was tested with vLLM 0.32, not 0.33.0"
    ]


def test_what_fails_spoils_the_answer_and_not_the_engine(module: ModuleType, almanac_clusters: TokenClusters) -> None:
    processor = made(module, almanac_clusters, Fields())
    processor.add_request(0, params("x"))
    rows = np.zeros((2, almanac_clusters.vocabulary.size), dtype=np.float32)
    drafted = Fields(idx_mapping_np=np.array([0]), expanded_idx_mapping=np.array([0, 0]))
    assert processor.apply(rows, drafted) is rows
    with pytest.raises(BackendError, match="several rows a request"):
        processor.take("x", [5])
    other = Fields(idx_mapping_np=np.array([1]), expanded_idx_mapping=np.array([1]))
    assert processor.apply(rows[:1], other) is not None
