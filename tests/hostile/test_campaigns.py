"""The campaigns find what is planted, and repeat a case from its seed and number."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import time
from collections import Counter
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import semtoken
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.support.arrays import real_numbers
from tests.hostile import endings, functions, routes, texts
from tests.hostile.functions import Target
from tests.hostile.outcomes import Outcome, case_random, table

VALUES = np.array([0.1, 0.5, 0.2])


def mean(values: Any) -> float:
    """A function as it should be."""
    found = real_numbers(values, "values")
    if found.ndim != 1 or not found.size or not np.isfinite(found).all() or np.abs(found).max() > 1e300:
        raise InvalidInputError("give a list of numbers")
    return float(found.astype(np.float64).mean())


def careless(values: Any) -> float:
    """It drops masks and imaginary parts, and raises what numpy raises."""
    return float(np.asarray(values).real.mean())


def attack(call: Any, calls: int = 400, **more: Any) -> Outcome:
    return functions.attack(7, calls, targets=[Target(call, {"values": VALUES}, **more)])


def test_a_careful_function_survives() -> None:
    assert attack(mean).failures == []


def test_foreign_exceptions_and_silent_numbers_are_found() -> None:
    failures = "\n".join(attack(careless).failures)
    for form in ("masked", "complex"):
        assert re.search(rf"values: {form}\) \[.*\]: answered", failures)
    assert "TypeError" in failures


def test_numbers_out_of_range_and_other_numbers_are_found() -> None:
    assert any("answered 0.2" in failure for failure in attack(mean, high=0.2).failures)
    assert any(
        "not 0.26" in one
        for one in attack(lambda values: mean(np.array(values)[::1]) + (type(values) is list)).failures
    )


@pytest.mark.slow
def test_what_takes_too_long_or_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "SECONDS", 0.05)

    def slow(values: Any) -> float:
        if np.ma.isMaskedArray(values):
            while True:
                pass
        if isinstance(values, tuple):
            return float(np.zeros(2**40).sum())
        return mean(values)

    failures = "\n".join(attack(slow, 300).failures)
    assert "took too long" in failures and "MemoryError" in failures


def test_a_case_is_the_same_again() -> None:
    whole = attack(careless, 60).failures
    first = int(whole[0].split("--first ")[1].split()[0])
    again = functions.attack(7, 1, first, [Target(careless, {"values": VALUES})])
    assert again.failures == whole[:1]
    assert case_random(1, "a", 2).random() == case_random(1, "a", 2).random() != case_random(1, "a", 3).random()


def test_every_target_works_and_keeps_its_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some targets save under odd names
    assert functions.attack(3, 60).failures == []


REASONS = {
    "a decorator of developers": "method statistic",
    "gives the place of a folder that comes with semtoken": (
        "embedded_folder almanac_path almanac_clusters_path almanac_nli_path almanac_sts_path"
    ),
    "takes an engine's own objects, or loads an engine": (
        "load_transformers load_llama_cpp load_vllm check_spelling sampling_params score_outputs"
    ),
    "a step of a command or a server, which checks what it is given where that is read": (
        "examine static_page extension_of check_shape normalized_rows check_shared_vocabulary shapes_at scorer_of "
        "decoding observer result results fingerprint"
    ),
    "a step of a stream, which is attacked as a whole under the name of its class": (
        "add LogprobsStream.finish feed ReplyStream.finish choice"
    ),
    "a step of `record`, which is attacked, or one that needs a further model": (
        "record_greedy record_samples alternative_classes entailment_matrices similarity_matrices token_similarities"
    ),
    "takes objects of this library alone, or places that the answer has": (
        "neutral_masks alike in_cluster call_confidences DecisionCalibrator.accepts DecisionCalibrator.decide block "
        "alternatives_at ScoredAnswer.with_fields"
    ),
    "takes nothing that can be odd": (
        "reset to_dict to_summary facts to_pandas without_quotes without_tokens lines plain_values"
    ),
    "its files are damaged by tests of their own": "token_table fetch DecisionCalibrator.save DecisionCalibrator.load",
    "calls others that are attacked": "from_model field_confidences Vocabulary.parts from_summary clusters_of",
    "uploads, or takes a model of torch": "push_to_hub watching",
}
"""Why a public function is not attacked, and the names of those."""
LEFT_OUT = {name for names in REASONS.values() for name in names.split()}
NOT_HERE = {"load_llama_cpp", "check_spelling", "load_vllm", "sampling_params", "score_outputs"}
"""Functions of engines that may not be installed."""


def public_functions() -> set[str]:
    """The functions of the packages that list their names, and methods of the classes that `semtoken` lists.

    A name that several of them have stands with its class: "Threshold.decide".
    """
    functions, methods = set(), list[tuple[str, str]]()
    for module in (semtoken, *map(importlib.import_module, packages())):
        listed = [getattr(module, name) for name in getattr(module, "__all__", ())]
        functions |= {one.__name__ for one in listed if inspect.isfunction(one)}
    for kind in filter(inspect.isclass, (getattr(semtoken, name) for name in semtoken.__all__)):
        members = {name: inspect.getattr_static(kind, name) for name in vars(kind) if not name.startswith("_")}
        callables = (classmethod, staticmethod, FunctionType)
        methods += [(kind.__name__, name) for name, value in members.items() if isinstance(value, callables)]
    names = Counter([*functions, *(name for _, name in methods)])
    return functions | {f"{kind}.{name}" if names[name] > 1 else name for kind, name in methods}


def packages() -> list[str]:
    """The packages below semtoken that list their names; engines that are not installed are left out."""
    found = []
    for one in pkgutil.walk_packages(semtoken.__path__, "semtoken."):
        try:
            if one.ispkg and hasattr(importlib.import_module(one.name), "__all__"):
                found.append(one.name)
        except (ImportError, SemtokenError):
            continue
    return found


def test_every_public_function_is_attacked_or_left_out_for_a_reason() -> None:
    from tests.hostile.targets import all_targets

    names = {target.name.split()[0] for target in all_targets()}
    attacked = names | {name.rpartition(".")[2] for name in names}
    missing = public_functions() - attacked
    assert missing <= LEFT_OUT <= missing | NOT_HERE


def test_a_finder_whose_work_grows_too_fast_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "LEAST", 0.01)
    monkeypatch.setattr("gc.collect", lambda: 0)  # which takes longer here than the work

    def work(seconds: float) -> None:
        """Takes time of the processor, so that the test is the same on any machine."""
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    too_long = texts.LEAST + texts.FACTOR * 4 * 0.004
    assert "4 times the characters" in str(texts.judge(lambda: work(0.002), lambda: work(too_long), 4))
    assert texts.judge(lambda: work(0.002), lambda: work(0.008), 4) is None
    assert "ZeroDivisionError" in str(texts.judge(lambda: 1, lambda: 1 / 0, 4))


def test_no_body_is_an_error_of_a_server(tmp_path: Path) -> None:
    """The short form of `python -m tests.hostile routes --routes 5000`."""
    outcome = routes.attack(46, 4, tmp_path)
    assert outcome.failures == []
    statuses = {status for note in outcome.notes for status in (200, 400) if f"{status}:" in note}
    assert statuses == {200, 400}, "both answers and refusals are seen"


def test_the_table_counts_and_shows_failures() -> None:
    outcome = Outcome("one", "things")
    for fault in (None, None, "broke"):
        outcome.count(fault)
    told = table([outcome])
    assert told.splitlines()[1].split()[:3] == ["one", "3", "2"]
    assert "FAILED one: broke" in told
