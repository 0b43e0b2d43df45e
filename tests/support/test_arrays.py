"""Everything that may be handed over as logits and ids, and what is refused with a reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from semtoken import score_logits
from semtoken.errors import InvalidInputError, InvalidLogits, VocabularyError, VocabularyMismatch
from semtoken.support.arrays import as_ids, as_rows, copy_row, gather, is_tensor, log_normalizers, log_sum_exp
from tests import worked
from tests.rows import each

CLUSTERS = worked.clusters()
SIZE = len(worked.TOKENS)
IDS = worked.ids(*worked.ANSWER)
LOGITS = np.random.default_rng(0).normal(0, 3, (len(IDS), SIZE)).astype(np.float32)

FORMS: dict[str, Callable[[Any], Any]] = {
    "float64": lambda x: x.astype(np.float64),
    "list": lambda x: x.tolist(),
    "torch": torch.from_numpy,
    "torch float64": lambda x: torch.from_numpy(x).double(),
    "gradient": lambda x: torch.from_numpy(x).requires_grad_(),
    "column-major": np.asfortranarray,
    "torch column-major": lambda x: torch.from_numpy(x).T.contiguous().T,
    "masked, of which nothing is": np.ma.masked_array,
    "long double": lambda x: x.astype(np.longdouble),
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "log-probabilities": lambda x: torch.from_numpy(x).log_softmax(-1).numpy(),
    "float16": lambda x: x.astype(np.float16),
    "torch float16": lambda x: torch.from_numpy(x).half(),
    "torch bfloat16": lambda x: torch.from_numpy(x).bfloat16(),
    "whole": lambda x: np.round(x).astype(np.int64),
    "torch whole": lambda x: torch.from_numpy(np.round(x).astype(np.int64)),
}


@each("form", list(FORMS))
def test_every_form_of_logits_gives_the_numbers_of_its_exact_values(form: str) -> None:
    """The rounding is that of the logits as given, none is added on the way."""
    given_logits = FORMS[form](LOGITS)
    exact = given_logits.detach().double().numpy() if is_tensor(given_logits) else np.asarray(given_logits, np.float64)
    scored, expected = (score_logits(rows, IDS, CLUSTERS) for rows in (given_logits, exact))
    assert scored.log_confidence == pytest.approx(expected.log_confidence, rel=1e-6)
    found, wanted = ([token.log_probability for token in one.tokens] for one in (scored, expected))
    assert found == pytest.approx(wanted, 1e-5)


@pytest.mark.parametrize("form", [np.array, tuple, torch.tensor, lambda x: np.array(x, dtype=np.uint16)])
def test_every_form_of_ids(form: Any) -> None:
    assert score_logits(LOGITS, form(IDS), CLUSTERS) == score_logits(LOGITS, IDS, CLUSTERS)


@pytest.mark.parametrize("tensor", [False, True])
def test_forbidden_tokens_have_no_probability(tensor: bool) -> None:
    """-inf is legal: " television" is forbidden at step 2, so its share goes to the others."""
    rows = worked.logits(*worked.STEPS)
    rows[1, worked.ids(" television")] = -np.inf
    scored = score_logits(torch.from_numpy(rows) if tensor else rows, IDS, CLUSTERS, preset="paper")
    assert scored.tokens[1].agreeing_probability == pytest.approx((0.73 - 0.30) / 0.70)
    assert " television" not in [a.text for a in scored.tokens[1].alternatives]


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, pytest.param(None, id="all -inf")])
def test_broken_rows_are_refused_with_their_step(value: float | None, tensor: bool) -> None:
    rows = LOGITS.copy()
    rows[3, slice(None) if value is None else 4] = -np.inf if value is None else value
    with pytest.raises(InvalidLogits, match="step 3"):
        score_logits(torch.from_numpy(rows) if tensor else rows, IDS, CLUSTERS)


def test_the_step_is_counted_over_the_whole_answer() -> None:
    ids = IDS * 40
    rows = np.tile(LOGITS, (40, 1))
    rows[171, 0] = np.nan
    with pytest.raises(InvalidLogits, match="step 171"):
        score_logits(rows, ids, CLUSTERS)


@each(
    ("rows", "ids", "error", "message"),
    [
        (LOGITS[:0], [], InvalidLogits, r"shape \(0, 13\) and 0 ids"),
        ([], [], InvalidLogits, "shape"),
        (LOGITS[:4], IDS, InvalidLogits, r"shape \(4, 13\) and 5 ids"),
        (LOGITS[0], IDS[:1], InvalidLogits, r"shape \(13,\)"),
        (LOGITS[None], IDS, InvalidLogits, r"shape \(1, 5, 13\)"),
        (LOGITS[:, :12], IDS, VocabularyMismatch, "12 columns, the vocabulary has 13 tokens"),
        (LOGITS, [*IDS[:4], 13], VocabularyError, "Token id 13 at step 4 is out of range"),
        (LOGITS, [-1, *IDS[1:]], VocabularyError, "Token id -1 at step 0 is out of range"),
        (LOGITS, [float(i) for i in IDS], InvalidInputError, "token_ids must be whole numbers. Got 2.0 at step 0"),
        (LOGITS, [IDS], InvalidInputError, "token_ids must be whole numbers. Got .* at step 0"),
        (LOGITS, torch.tensor([IDS]), InvalidInputError, "token_ids must be whole numbers. Got .* at step 0"),
        (LOGITS, "12345", InvalidInputError, "token_ids must be whole numbers. Got '1' at step 0"),
        ([[0.0] * SIZE, [0.0]], IDS[:2], InvalidLogits, "rows of equal length"),
        ([["a"] * SIZE], IDS[:1], InvalidLogits, "numbers"),
        (LOGITS.astype(complex), IDS, InvalidLogits, "numbers"),
    ],
)
def test_what_cannot_be_one_answer_is_refused(rows: Any, ids: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        score_logits(rows, ids, CLUSTERS)


# --- the pieces --------------------------------------------------------------------------------------------------


@given(hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(-700, 700) | st.just(-math.inf)))
def test_log_sum_exp_by_hand(values: np.ndarray[Any, Any]) -> None:
    highest = max(values)
    total = math.fsum(math.exp(v - highest) for v in values) if highest > -math.inf else 0.0
    expected = highest + math.log(total) if total else -math.inf
    assert log_sum_exp(values) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_log_sum_exp_of_nothing_and_of_what_is_no_number() -> None:
    assert log_sum_exp(np.empty(0)) == -np.inf
    assert math.isnan(log_sum_exp(np.array([0.0, np.nan])))
    assert math.isnan(log_sum_exp(np.array([0.0, np.inf])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_tensors_and_arrays_have_the_same_normalizers(dtype: torch.dtype) -> None:
    tensor = torch.from_numpy(LOGITS).to(dtype)
    expected = np.logaddexp.reduce(tensor.double().numpy()[:, :9], axis=1)
    np.testing.assert_allclose(log_normalizers(tensor, 9), expected, rtol=1e-6)
    np.testing.assert_allclose(log_normalizers(tensor.double().numpy(), 9), expected, rtol=1e-12)


def test_tensors_and_arrays_are_read_at_the_same_places() -> None:
    rows, columns = np.array([0, 4, 2, 2]), np.array([1, 0, 12, 12])
    expected = [LOGITS[0, 1], LOGITS[4, 0], LOGITS[2, 12], LOGITS[2, 12]]
    assert gather(LOGITS, rows, columns).tolist() == expected
    assert gather(torch.from_numpy(LOGITS), rows, columns).tolist() == expected


@pytest.mark.parametrize("form", [np.array, torch.from_numpy])
def test_a_copied_row_outlives_its_matrix(form: Any) -> None:
    rows = form(LOGITS.copy())
    kept = copy_row(rows, 2, 10)
    rows[:] = 0
    np.testing.assert_array_equal(kept, LOGITS[2, :10])


def test_ids_become_plain_integers() -> None:
    assert all(type(i) is int for i in as_ids(np.array(IDS)))
    assert as_ids(iter(IDS)) == IDS


def test_nothing_is_copied_that_can_be_read_in_place() -> None:
    tensor = torch.from_numpy(LOGITS)
    assert np.shares_memory(as_rows(tensor), LOGITS)
    assert as_rows(LOGITS) is LOGITS
    assert is_tensor(tensor)
    assert not is_tensor(LOGITS)
