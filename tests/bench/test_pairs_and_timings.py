"""Unique pairs, batches and the clock."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest

from semtoken.bench.statistics import Timings, UniquePairs
from semtoken.bench.statistics.pairs import Pair, with_question
from semtoken.bench.statistics.steps import STEP_OF_FIELD, seconds_for, steps_for
from semtoken.methods import METHODS
from semtoken.models.prompt_ids import in_batches_by_length


def test_a_pair_is_asked_once_and_answers_come_in_order() -> None:
    seen: list[Pair] = []

    def ask(pairs: Sequence[Pair]) -> np.ndarray:
        seen.extend(pairs)
        return np.array([len(a) * 10.0 + len(b) for a, b in pairs])

    unique = UniquePairs(ask)
    assert unique([("a", "bb"), ("aa", "b"), ("a", "bb")]).tolist() == [12.0, 21.0, 12.0]
    assert unique([("aa", "b"), ("b", "aa")]).tolist() == [21.0, 12.0]
    assert seen == [("a", "bb"), ("aa", "b"), ("b", "aa")]
    assert unique.asked == 3


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_batches_hold_every_position_once_with_similar_lengths(size: int) -> None:
    lengths = [5, 1, 9, 9, 2, 7, 1]
    batches = in_batches_by_length(lengths, size)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert max(map(len, batches)) <= size
    assert [lengths[i] for batch in batches for i in batch] == sorted(lengths, reverse=True)


def test_question_and_answer_are_stripped_with_one_blank_between() -> None:
    assert with_question(" who? ", " me\n") == "who? me"
    assert with_question(None, " me\n") == "me"
    assert with_question("who?", "\n") == "who?"


def test_a_step_inside_another_is_taken_out_of_the_outer_one() -> None:
    timings = Timings()
    start = time.perf_counter()
    with timings.measure("greedy"):
        time.sleep(0.02)
        with timings.measure("stc"):
            time.sleep(0.05)
        with timings.measure("stc"):
            time.sleep(0.05)
    whole = time.perf_counter() - start
    assert timings.seconds["stc"] >= 0.1
    assert 0.02 <= timings.seconds["greedy"] <= whole - timings.seconds["stc"] + 1e-3


def test_a_part_of_a_step_is_not_taken_out_of_it() -> None:
    timings = Timings()
    with timings.measure("greedy"):
        for _ in range(2):
            with timings.measure_too("in_model"):
                time.sleep(0.03)
    assert 0.06 <= timings.seconds["in_model"] <= timings.seconds["greedy"]


def test_a_failed_step_is_closed() -> None:
    timings = Timings()
    with pytest.raises(RuntimeError), timings.measure("greedy"):
        raise RuntimeError
    before = timings.seconds["greedy"]
    time.sleep(0.01)
    with timings.measure("sampling"):
        pass
    assert timings.seconds["greedy"] == before


def test_fields_that_share_a_step_are_charged_once() -> None:
    timings = Timings()
    for step in ("sampling", "sample_likelihoods", "similarity"):
        with timings.measure(step):
            time.sleep(0.01)
    seconds = timings.seconds
    assert seconds_for(METHODS["sentence_sar"].needs, seconds) == pytest.approx(sum(seconds.values()))
    assert seconds_for(METHODS["conu"].needs, seconds) == pytest.approx(seconds["sampling"] + seconds["similarity"])
    assert seconds_for(METHODS["perplexity"].needs, seconds) == 0.0


def test_every_method_is_charged_for_what_the_paper_charges_it() -> None:
    steps = {name: steps_for(method.needs) for name, method in METHODS.items()}
    assert all(field in STEP_OF_FIELD for method in METHODS.values() for field in method.needs)
    single = {name for name, method in METHODS.items() if method.single_sample}
    assert {name for name, needed in steps.items() if "sampling" not in needed} == single
    for name in ("ecc", "eigv", "deg"):  # on plain samples, without log-probabilities
        assert steps[name] == {"sampling", "entailment"}
    assert steps["semantic_entropy"] == {"sampling", "sample_likelihoods", "entailment"}
    assert steps["conu"] == {"sampling", "similarity"}
    assert steps["eigenscore"] == {"sampling", "hidden_states"}
