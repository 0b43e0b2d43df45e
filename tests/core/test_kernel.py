"""The compiled kernel against sums in float64, what numpy finds of the same rows, and each answer alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semtoken import score_logits
from semtoken.core import AnswerBatch, normalized_rows, rows, scorer_for
from semtoken.core.results import ScoredToken
from semtoken.core.rules import ScoringRules
from semtoken.support.arrays import as_rows
from tests import tiny
from tests.core.test_scoring import RULES, draw_answer, random_logits, small_kind
from tests.rows import each

pytestmark = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small vocabularies too are read by the kernel."""
    monkeypatch.setattr(rows, "COMPILED_FROM", 0)
    yield


def exact_normalizers(logits: npt.NDArray[np.float32], size: int) -> npt.NDArray[np.float64]:
    return np.asarray(np.logaddexp.reduce(logits[:, :size].astype(np.float64), axis=1))


@each("size", [1, 15, 1023, 1024, 1025, 5000])
@each("scale", [0.01, 5.0, 5000.0])
def test_normalizers_are_those_of_float64(size: int, scale: float) -> None:
    random = np.random.default_rng(size)
    logits = (random.standard_normal((6, size + 3)) * scale).astype(np.float32)
    logits[0, : size // 2] = -np.inf
    logits[1] -= 30000
    found = normalized_rows(logits, size, [5, 0, 1])
    assert found.readable is not None
    np.testing.assert_allclose(found.log_normalizers, exact_normalizers(logits, size)[[5, 0, 1]], rtol=2e-7, atol=2e-7)


def test_bfloat16_is_read_as_the_float32_that_it_stands_for() -> None:
    torch = pytest.importorskip("torch")
    logits = (torch.randn(4, 3000, generator=torch.Generator().manual_seed(1)) * 4).bfloat16()
    found, wide = normalized_rows(as_rows(logits), 2999), normalized_rows(logits.float().numpy(), 2999)
    assert found.readable is not None and found.readable.dtype == np.uint16
    np.testing.assert_array_equal(found.log_normalizers, wide.log_normalizers)


@each("size", [1, 15, 1024, 1025, 5000])
@each("scale", [0.01, 5.0, 5000.0])
@each("dtype", ["float32", "bfloat16"])
def test_entropies_are_those_of_float64(size: int, scale: float, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    random = torch.Generator().manual_seed(size)
    logits = (torch.randn(6, size + 3, generator=random) * scale).to(getattr(torch, dtype))
    logits[0, : size // 2] = -torch.inf
    logits[1] -= 30000
    read = rows.entropies_of(normalized_rows(as_rows(logits), size, [5, 0, 1]), size)
    expected = torch.distributions.Categorical(logits=logits[[5, 0, 1], :size].double().clamp(min=-1e9)).entropy()
    np.testing.assert_allclose(read, expected.numpy(), rtol=1e-6, atol=1e-6)


def test_a_row_without_a_distribution_has_no_entropy() -> None:
    logits = np.zeros((3, 2000), dtype=np.float32)
    logits[1, 7], logits[2] = np.nan, -np.inf
    assert np.isfinite(rows.entropies_of(normalized_rows(logits, 2000, [0]), 2000)).all()
    for row in (1, 2):
        assert not np.isfinite(rows.entropies_of(normalized_rows(logits, 2000, [row]), 2000)).any()


@each("bits", [0x7F800000, 0x7FC00000, 0xFFC00000, 0xFF800001, 0x7F800001])
@each("place", [0, 700, 1999])
def test_infinities_and_every_nan_are_seen(bits: int, place: int) -> None:
    logits = np.random.default_rng(0).standard_normal((3, 2000)).astype(np.float32)
    logits.view(np.uint32)[1, place] = bits
    logits[2] = -np.inf
    assert np.isfinite(normalized_rows(logits, 2000).log_normalizers).tolist() == [True, False, False]


@each("compiled", [True, False])
@each("dtype", ["float32", "bfloat16"])
@each("place", [0, 1023, 1024, 2500, 2999, 3000])
def test_tokens_without_a_probability_are_seen_wherever_they_stand(
    place: int, dtype: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last place is padding behind the vocabulary, which says nothing."""
    torch = pytest.importorskip("torch")
    if not compiled:
        monkeypatch.setattr(rows, "COMPILED_FROM", 10**6)
    logits = torch.randn(3, 3001, generator=torch.Generator().manual_seed(place)).to(getattr(torch, dtype))
    logits[1, place] = -torch.inf
    for chosen, expected in (([0, 2], False), ([2, 1], place < 3000)):
        read = normalized_rows(as_rows(logits), 3000, chosen)
        assert (read.found is not None) == compiled
        assert rows.any_masked(read, 3000) == expected


def test_the_most_probable_tokens_stand_in_order() -> None:
    random = np.random.default_rng(3)
    logits = random.integers(-3, 12, (50, 1500)).astype(np.float32)  # many ties
    found = normalized_rows(logits, 1400)
    assert found.found is not None
    for row, normalizer, ids in zip(logits, found.log_normalizers, found.found.likely_ids, strict=True):
        expected = [i for i in np.lexsort((np.arange(1400), -row[:1400])) if row[i] - normalizer >= np.log(0.01)]
        assert [i for i in ids.tolist() if i >= 0] == expected[:9]


@each("level", [-30.0, 0.0, 30.0])
@each("places", [(5, 4999), (1023, 1024), (4000, 2500), (3071, 3072)])
def test_the_most_probable_tokens_are_found_in_every_part_of_a_row(places: tuple[int, int], level: float) -> None:
    """A row is read in parts of 1,024 numbers, and only those that may hold a probable token are looked at again."""
    logits = np.random.default_rng(6).standard_normal((1, 5000)).astype(np.float32) + np.float32(level)
    logits[0, places[0]] = level + 12
    logits[0, places[1]] = level + 11
    found = normalized_rows(logits, 5000).found
    assert found is not None and [i for i in found.likely_ids[0].tolist() if i >= 0] == list(places)


@each("name", ["byte-level", "wordpiece"])
@each("switches", RULES[::16])
def test_answers_of_a_batch_score_as_each_alone(name: str, switches: dict[str, object]) -> None:
    """Answers begin, end and rest at different steps, change their rows, and are looked at on the way."""
    kind, random = small_kind(name), np.random.default_rng(5)
    rules = ScoringRules(**switches)  # type: ignore[arg-type]
    lengths = [1, 9, 4, 12, 7]
    answers = [draw_answer(kind, seed, steps=length) for seed, length in enumerate(lengths)]
    batch, done = AnswerBatch(scorer_for(kind.clusters, rules)), [0] * len(lengths)
    while any(taken < length for taken, length in zip(done, lengths, strict=True)):
        running = [k for k in random.permutation(5).tolist() if done[k] < lengths[k] and random.random() < 0.7]
        logits = random_logits(9, len(running) + 1, kind.twin.size)
        places = random.permutation(len(running) + 1)[: len(running)]
        for k, place in zip(running, places, strict=True):
            logits[place] = answers[k][0][done[k], : kind.twin.size]
        read = normalized_rows(logits, kind.twin.size)
        batch.add([(running, [answers[k][1][done[k]] for k in running])], read.of(places))
        for k in running:
            done[k] += 1
        if random.random() < 0.3 and running:
            assert batch[running[0]].running().n_tokens == done[running[0]]
            assert batch.running(running) == [batch[k].running() for k in running]
    for k, (logits, ids) in enumerate(answers):
        alone = score_logits(logits[:, : kind.twin.size].copy(), ids, kind.clusters, preset=rules)
        assert batch[k].finish() == alone


def numbers(token: ScoredToken) -> list[float]:
    """All numbers of a token's record."""
    ends = [] if token.value_ends is None else dataclasses.astuple(token.value_ends)
    fields = [value for value in dataclasses.astuple(token) if isinstance(value, float)]
    return [*fields, *(number for end in ends if end is not None for number in end)]


@pytest.mark.parametrize("name", list(tiny.TOKENIZERS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([0.1, 3.0, 400.0]),
    holes=st.booleans(),
    rules=st.sampled_from(RULES),
)
def test_the_compiled_loops_find_what_numpy_does(
    name: str, seed: int, scale: float, holes: bool, rules: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, random, settings_ = small_kind(name), np.random.default_rng(seed), ScoringRules(**rules)  # type: ignore[arg-type]
    logits, ids = draw_answer(kind, seed % 1000)
    logits *= np.float32(scale)
    if holes:
        logits[random.random(logits.shape) < 0.5] = -np.inf
        logits[np.arange(len(ids)), ids] = scale
    found = score_logits(logits, ids, kind.clusters, settings_)
    with monkeypatch.context() as patch:
        patch.setattr(rows, "COMPILED_FROM", 1 << 60)
        expected = score_logits(logits, ids, kind.clusters, settings_)
    assert (found.text, found.neutral_only) == (expected.text, expected.neutral_only)
    assert [flag.code for flag in found.flags] == [flag.code for flag in expected.flags]
    for one, other in zip(found.tokens, expected.tokens, strict=True):
        np.testing.assert_allclose(numbers(one), numbers(other), rtol=1e-5, atol=3e-6)
        told = [[(alike.id, alike.source, alike.counted) for alike in token.alternatives] for token in (one, other)]
        assert told[0] == told[1]
