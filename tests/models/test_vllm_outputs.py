"""vLLM's lists of log-probabilities, flat or as dicts, score as the same numbers do in other forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest
from scipy.special import log_softmax

import semtoken as st
from semtoken.errors import BackendError
from semtoken.models.vllm import score_outputs
from semtoken.models.vllm.outputs import steps_of
from tests import tiny

Lists: TypeAlias = Sequence[tuple[list[int], list[float]]]
"""The ids and log-probabilities of each step, the chosen token first."""
VOCABULARY = st.Vocabulary.from_tokenizer(tiny.byte_level_bpe())
SIZE = VOCABULARY.size
ROWS = log_softmax(np.random.default_rng(1).standard_normal((6, SIZE)) * 4, axis=1)
TOKENS = [int(row.argsort()[-place]) for row, place in zip(ROWS, (1, 2, 9, 1, 40, 3), strict=True)]


def listed(k: int) -> Lists:
    """The chosen token, and then the k best ones in their order, as vLLM lists them."""
    lists = []
    for row, token in zip(ROWS, TOKENS, strict=True):
        ids = [token, *row.argsort()[::-1][:k].tolist()]
        lists.append((ids, row[ids].tolist()))
    return lists


def flat(lists: Lists) -> Any:
    """`FlatLogprobs`: all steps in one list, with where each begins and ends."""
    ends = np.cumsum([len(ids) for ids, _ in lists]).tolist()

    class Flat(SimpleNamespace):
        def __len__(self) -> int:
            return len(ends)

    return Flat(
        start_indices=[0, *ends[:-1]],
        end_indices=ends,
        token_ids=[token for ids, _ in lists for token in ids],
        logprobs=[value for _, values in lists for value in values],
    )


def dicts(lists: Lists) -> Any:
    """A dict for each step, in which every token is there once."""
    return [
        {i: SimpleNamespace(logprob=v) for i, v in dict(zip(ids, values, strict=True)).items()} for ids, values in lists
    ]


def scored(logprobs: Any, tokens: Sequence[int] = TOKENS) -> st.ScoredAnswer:
    answer = SimpleNamespace(token_ids=list(tokens), logprobs=logprobs)
    [[found]] = score_outputs([SimpleNamespace(request_id="0", outputs=[answer])], VOCABULARY)
    return found


FORMS = pytest.mark.parametrize("form", [flat, dicts])


@FORMS
def test_the_whole_vocabulary_gives_the_score_of_its_rows(form: Callable[[Lists], Any]) -> None:
    found, expected = scored(form(listed(SIZE))), st.score_logits(ROWS, TOKENS, VOCABULARY)
    assert found.sequence_uncertainty_interval == (found.sequence_uncertainty,) * 2
    assert found.distribution == "raw"
    assert found.sequence_uncertainty == pytest.approx(expected.sequence_uncertainty, abs=1e-12)
    assert found.log_confidence == pytest.approx(expected.log_confidence, abs=1e-12)


@FORMS
@pytest.mark.parametrize("k", [1, 5, 20])
def test_the_best_tokens_give_the_score_of_the_same_list_by_ids(form: Callable[[Lists], Any], k: int) -> None:
    items = [
        {
            "token": f"token_id:{ids[0]}",
            "logprob": values[0],
            "top_logprobs": [
                {"token": f"token_id:{i}", "logprob": v} for i, v in zip(ids[1:], values[1:], strict=True)
            ],
        }
        for ids, values in listed(k)
    ]
    found, expected = scored(form(listed(k))), st.score_logprobs(items, VOCABULARY, distribution="raw")
    assert found.sequence_uncertainty_interval == pytest.approx(expected.sequence_uncertainty_interval, abs=1e-12)
    assert [token.alternatives for token in found.tokens] == [token.alternatives for token in expected.tokens]
    low, high = found.sequence_uncertainty_interval
    assert low <= st.score_logits(ROWS, TOKENS, VOCABULARY).sequence_uncertainty <= high


def test_steps_have_the_best_tokens_in_their_order_and_the_chosen_one() -> None:
    steps = list(steps_of(7, TOKENS, flat(listed(5)), SIZE, whole=False, stopped=True))
    assert [(step.answers, step.tokens) for step in steps] == [([7], [token]) for token in TOKENS]
    assert [list(step.ends) for step in steps] == [[False]] * 5 + [[True]]
    for step, row, token in zip(steps, ROWS, TOKENS, strict=True):
        [(ids, values)], best = step.best, row.argsort()[::-1][:5].tolist()
        assert ids.tolist() == (best if token in best else [*best, token])
        assert values == pytest.approx(row[ids])


@FORMS
def test_lists_that_do_not_fit_are_refused(form: Callable[[Lists], Any]) -> None:
    other = [(TOKENS[0] + 1) % SIZE, *TOKENS[1:]]
    with pytest.raises(BackendError, match="is not among the log-probabilities of its step"):
        scored(form(listed(1)), other)
    with pytest.raises(BackendError, match="for 5 tokens and 6 tokens"):
        scored(form(listed(5)[:-1]))
    with pytest.raises(BackendError, match="has no log-probabilities"):
        scored(None)
