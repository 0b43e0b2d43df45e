"""Rows of logits that the recorder keeps until their tokens are known: every answer scored as from its own matrix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

import semtoken as st
from semtoken import Recorder, score_logits
from semtoken.core import rows
from semtoken.errors import BackendError, InvalidLogits, VocabularyError
from tests.core.test_scoring import small_kind
from tests.rows import each

pytest.importorskip("numba")
KIND = "byte-level"
PROMPT, STEPS, END = 3, 19, 7


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small vocabularies too are read by the kernel."""
    monkeypatch.setattr(rows, "COMPILED_FROM", 0)
    yield


def made_up(answers: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [steps, answers, V + 2] and sequences [answers, prompt + steps]; some hold the end of the answer."""
    size, random = small_kind(KIND).clusters.vocabulary.size, np.random.default_rng(seed)
    logits = torch.from_numpy(random.normal(size=(STEPS, answers, size + 2)).astype(np.float32) * 3)
    ids = torch.from_numpy(random.integers(8, size, (answers, PROMPT + STEPS)))
    for i in range(0, answers, 2):
        ids[i, PROMPT + 5 + i] = END
    return logits, ids


def fed(recorder: Recorder, logits: Any, ids: torch.Tensor, asked: tuple[int, ...] = ()) -> None:
    """The calls of a generation, in which the row that was given is overwritten and the ids are new each time."""
    for step, given in enumerate(logits):
        row = given.clone()
        assert recorder(ids[:, : PROMPT + step].clone(), row) is row
        row[:] = float("nan")
        if step in asked:
            known = recorder.running(ids[:, : PROMPT + step + 1].clone() if step % 2 else None)
            seen = step + step % 2
            ends = [row.index(END) + 1 if END in row[:seen] else seen for row in ids[:, PROMPT:].tolist()]
            assert [one.n_tokens for one in known] == ends


ASKED: list[tuple[int, ...]] = [(), (0, 1, 9, 10, 14), tuple(range(STEPS))]
TYPES = [torch.float32, torch.bfloat16]


@each(
    ("answers", "asked", "dtype", "alone"),
    [(answers, ASKED[number % 3], TYPES[number % 2], number == 1) for number, answers in enumerate([1, 2, 9, 3])],
)
def test_every_answer_is_scored_from_its_own_rows(
    answers: int, asked: tuple[int, ...], dtype: torch.dtype, alone: bool
) -> None:
    """A vocabulary alone is enough."""
    clusters = small_kind(KIND).clusters
    known = clusters.vocabulary if alone else clusters
    logits, ids = made_up(answers)
    logits = logits.to(dtype)
    recorder = Recorder(known, eos_token_id=END)
    for _ in range(2):  # it can be used again
        fed(recorder, logits, ids, asked)
        for i, result in enumerate(recorder.answers(ids)):
            written = ids[i, PROMPT:].tolist()
            length = written.index(END) + 1 if END in written else STEPS
            assert result == score_logits(logits[:length, i], written[:length], known, distribution="unknown")


def test_rows_of_another_type_go_on() -> None:
    clusters = small_kind(KIND).clusters
    logits, ids = made_up(2, seed=1)
    mixed = [given.to(kind) for given, kind in zip(logits, [torch.bfloat16, torch.float32, torch.float64] * 7)]  # noqa: B905
    recorder = Recorder(clusters)
    fed(recorder, mixed, ids)
    for i, result in enumerate(recorder.answers(ids)):
        exact = score_logits(torch.stack([row[i].double() for row in mixed]), ids[i, PROMPT:], clusters)
        assert result.log_confidence == pytest.approx(exact.log_confidence, abs=1e-4)


@pytest.mark.parametrize("answers", [1, 2])
def test_far_logits_and_masked_tokens(answers: int) -> None:
    clusters = small_kind(KIND).clusters
    logits, ids = made_up(answers, seed=2)
    logits[3] += 2.0**22
    logits[5, :, :7] = -torch.inf
    recorder = Recorder(clusters)
    fed(recorder, logits, ids)
    for i, result in enumerate(recorder.answers(ids)):
        assert result.distribution == "processed"
        exact = score_logits(logits[:, i].double(), ids[i, PROMPT:], clusters)
        assert result.log_confidence == pytest.approx(exact.log_confidence, abs=1e-3)


@pytest.mark.parametrize("bad", [0, 4, STEPS - 1])
def test_a_row_without_a_distribution_is_named(bad: int) -> None:
    logits, ids = made_up(2, seed=3)
    logits[bad, 1, 3] = torch.nan
    recorder = Recorder(small_kind(KIND).clusters)
    with pytest.raises(InvalidLogits, match=rf"^Sequence 1 of the batch: The logits of step {bad} hold NaN"):
        fed(recorder, logits, ids)
        recorder.answers(ids)


@each(("bad", "asked"), [(bad, asked) for bad in (0, 4, STEPS - 1) for asked in ((), (0, 1))])
def test_an_id_outside_the_vocabulary_is_named_by_its_step(bad: int, asked: tuple[int, ...]) -> None:
    logits, ids = made_up(2, seed=3)
    clusters = small_kind(KIND).clusters
    ids[1, PROMPT + bad] = clusters.vocabulary.size
    recorder = Recorder(clusters)
    with pytest.raises(VocabularyError, match=f"^Token id {clusters.vocabulary.size} at step {bad} is out of range"):
        fed(recorder, logits, ids, asked)
        recorder.answers(ids)


@pytest.mark.parametrize("bad", [4, STEPS - 1])
def test_an_answer_with_a_row_without_a_distribution_never_gets_a_score(bad: int) -> None:
    """Neither does another one of its batch, whoever asks first."""
    logits, ids = made_up(2, seed=3)
    logits[bad, 1, 3] = torch.nan
    recorder = Recorder(small_kind(KIND).clusters)
    with suppress(InvalidLogits):
        fed(recorder, logits, ids)
    known = ids[:, : PROMPT + STEPS] if bad == STEPS - 1 else None
    for sequences in (known, None, None):
        with pytest.raises(InvalidLogits, match=f"of step {bad} hold"):
            recorder.running(sequences)
    with pytest.raises((InvalidLogits, BackendError)):
        recorder.answers(ids)
    recorder.reset()
    fed(recorder, made_up(2)[0], ids)
    assert [answer.n_tokens for answer in recorder.answers(ids, lengths=[STEPS, STEPS])] == [STEPS, STEPS]


def test_sequences_that_change_places_are_refused() -> None:
    logits, ids = made_up(2, seed=4)
    recorder = st.Recorder(small_kind(KIND).clusters)
    recorder(ids[:, :PROMPT], logits[0])
    recorder(ids[:, : PROMPT + 1], logits[1])
    with pytest.raises(BackendError, match="changed places"):
        recorder(ids[:, : PROMPT + 2].flip(0), logits[2])


def test_another_sequence_is_refused_at_the_end_at_the_latest() -> None:
    logits, ids = made_up(1, seed=5)
    recorder = st.Recorder(small_kind(KIND).clusters)
    other = ids.clone()
    other[0, 1] += 1
    with pytest.raises(BackendError, match="changed places"):
        for step, given in enumerate(logits[:5]):
            recorder((ids if step < 2 else other)[:, : PROMPT + step], given)
        recorder.answers(other[:, : PROMPT + 5])
