"""The least and the largest value of each argument that has one: taken, and the next one refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken import methods, metrics
from semtoken.bench.statistics.recording import AnswerSettings
from semtoken.clustering.partition import cluster_table
from semtoken.errors import SemtokenError
from semtoken.models.base import Decoding
from semtoken.models.probing import competing, competing_in_record, disputed, with_choices
from semtoken.models.probing.p_true import p_true_log_probs
from tests import tiny
from tests.rows import each

SCORES, RIGHT = [0.1, 0.4, 0.3, 0.9], [1, 1, 0, 0]
ROWS: Any = np.log([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]])
ATTENTION = np.full((2, 1, 1), 0.5)
TABLE = np.eye(4, dtype=np.float32)
ALIKE = [[1.0, 0.2], [0.2, 1.0]]


@pytest.fixture(scope="module")
def stc() -> st.ScoredModel:
    tokenizer = tiny.byte_level_bpe()
    return st.ScoredModel(tiny.llama(len(tokenizer)), tokenizer)


Call = Callable[[Any, st.ScoredModel], Any]


@cache
def answer(stc: st.ScoredModel) -> Any:
    return stc.score("the", " TV of Paris")[0]


def of_answer(function: Callable[..., Any], name: str) -> Call:
    """An argument of a function that asks the model about its answer."""
    return lambda value, stc: function(stc, "the", answer(stc), **{name: value})


BOUNDS: list[tuple[str, Any, Any, Call]] = [
    ("n_bins", 1, 10_000, lambda n, _: metrics.expected_calibration_error(SCORES, RIGHT, n_bins=n)),
    ("n_resamples", 1, 10**7, lambda n, _: metrics.bootstrap("auroc", SCORES, RIGHT, n_resamples=n)),
    ("seed", 0, None, lambda n, _: metrics.bootstrap("auroc", SCORES, RIGHT, n_resamples=2, seed=n)),
    (
        *("n_permutations", 1, 10**7),
        lambda n, _: metrics.permutation_test("auroc", SCORES, SCORES[::-1], RIGHT, n_permutations=n),
    ),
    ("seed", 0, None, lambda n, _: metrics.permutation_test("auroc", SCORES, SCORES[::-1], RIGHT, seed=n)),
    ("best", 1, None, lambda n, _: methods.epr(ROWS, best=n)),
    ("step", 0, 1, lambda n, _: methods.first_content_entropy(ROWS, n, best=3)),
    ("width", 1, None, lambda n, _: methods.window_entropy([0.1, 0.2], width=n)),
    ("alpha", 0.0, 1.0, lambda a, _: methods.rauq(ROWS[:, 0], ATTENTION, alpha=a)),
    ("layers[0]", 0, 1, lambda n, _: methods.rauq(ROWS[:, 0], ATTENTION, layers=[n])),
    ("lambda_", 0.0, 1.0, lambda a, _: methods.conu(ALIKE, lambda_=a)),
    *((name, 1, None, lambda n, _, name=name: AnswerSettings(**{name: n})) for name in ("max_new_tokens", "n_samples")),
    *((name, 1, None, lambda n, _, name=name: AnswerSettings(**{name: n})) for name in ("batch_size", "top_k")),
    ("temperature", 0.0, None, lambda t, _: AnswerSettings(temperature=t)),
    *((name, 1, None, lambda n, _, name=name: Decoding(**{name: n})) for name in ("max_new_tokens", "n", "batch_size")),
    ("temperature", 0.0, np.inf, lambda t, _: Decoding(temperature=t)),
    ("seed", 0, 2**32 - 1, lambda n, _: st.cluster_tokens(TABLE, 2, algorithm="kmeans", seed=n)),
    ("threads", 1, None, lambda n, _: cluster_table(TABLE, 2, threads=n)),
    ("n", 1, None, of_answer(disputed, "n")),
    ("branch_tokens", 1, None, of_answer(disputed, "branch_tokens")),
    ("most", 0, None, of_answer(disputed, "max_steps")),
    ("doubtful", 0.0, 1.0, of_answer(disputed, "doubtful")),
    ("n", 1, None, lambda n, stc: competing(stc, "the", answer(stc), 0, n)),
    ("step", 0, 2, lambda n, stc: competing(stc, "the", answer(stc), n)),
    ("n", 1, None, lambda n, stc: competing_in_record(answer(stc), 0, stc.scorer, n)),
    ("step", 0, 2, lambda n, stc: competing_in_record(answer(stc), n, stc.scorer)),
    ("batch_size", 1, None, lambda n, stc: with_choices(stc, "the", answer(stc), [], batch_size=n)),
    ("batch_size", 1, None, lambda n, stc: p_true_log_probs(stc, ["a"], ["b"], batch_size=n)),
    ("batch_size", 1, None, lambda n, stc: stc.score("the", "TV", batch_size=n)),
    ("num_return_sequences", 1, 10_000, lambda n, stc: stc.generate("the", 1, num_return_sequences=n, do_sample=True)),
    ("chunk_size", 1, None, lambda n, stc: stc.backend.read(["the"], ["TV"], [], chunk_size=n)),  # type: ignore[call-arg]
    ("size", 1, None, lambda n, stc: stc.backend.vocabulary.first(n)),
]


@each(("name", "least", "most", "call"), BOUNDS, ids=str)
def test_bounds_are_taken_and_what_is_beyond_them_is_refused(
    stc: st.ScoredModel, name: str, least: Any, most: Any, call: Call
) -> None:
    for bound, sign in ((least, -1), (most, 1)):
        if bound is None:
            continue
        if bound < 1000:
            call(bound, stc)
        with pytest.raises(SemtokenError, match=name.replace("[", r"\[")):
            call(bound + sign * (0.01 if isinstance(bound, float) else 1), stc)
