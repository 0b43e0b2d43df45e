"""By which number an answer counts: the product, the headline, another method; with its bounds, and from files."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from semtoken.calibration.labels import answer_record, log_score_ends, log_scores
from semtoken.errors import CalibratorMismatch, InvalidInput


def answer(name: str, **more: Any) -> SimpleNamespace:
    headline = SimpleNamespace(name=name, value=0.7, confidence_bounds=(0.4, 0.6))
    known = {"log_score": -0.5, "log_score_bounds": (-0.9, -0.3), "scores": {"own": 2.0}}
    return SimpleNamespace(**known | {"score_bounds": {"own": (1.0, 3.0)}, "headline": headline} | more)


def test_which_number_and_which_bounds_count() -> None:
    for by, name, score, ends in (
        (None, "stc", -0.5, (-0.9, -0.3)),
        (None, "new_phrases", -0.5, (-0.9, -0.3)),
        ("headline", "stc", -0.5, (-0.9, -0.3)),
        ("headline", "new_phrases", -0.7, (math.log(0.4), math.log(0.6))),
        ("own", "stc", -math.log1p(math.exp(2)), (-math.log1p(math.exp(3)), -math.log1p(math.exp(1)))),
    ):
        one = answer(name)
        assert log_scores([one], by).tolist() == pytest.approx([score])
        assert log_score_ends(one, by) == pytest.approx(ends)
    exact = answer("new_phrases", score_bounds={})
    exact.headline.confidence_bounds = None
    assert log_score_ends(exact, "headline") is None and log_score_ends(exact, "own") is None
    certain = answer("new_phrases")
    certain.headline.confidence_bounds = (0.0, 1.0)
    assert log_score_ends(certain, "headline") == (-math.inf, 0.0)
    with pytest.raises(CalibratorMismatch):
        log_scores([exact], "another")
    assert log_scores([answer("stc", scores={"own": None})], "own").tolist() == [-math.inf]


@pytest.mark.parametrize("nested", [True, False])
def test_the_headline_of_a_file(nested: bool) -> None:
    def read(name: str, value: Any) -> Any:
        fields = (
            {"headline": {"name": name, "value": value}} if nested else {"headline_name": name, "headline_value": value}
        )
        return answer_record("a file, line 1", {"log_score": -0.5, **fields}).headline

    for value, found in ((0.25, 0.25), (0, 0.0), (3, 3.0), (None, math.inf)):
        assert (read("new_phrases", value).name, read("new_phrases", value).value) == ("new_phrases", found)
        assert read("stc", value).value == found
    assert read("another", 0.25) is None
    for value in (-1e-9, True, "0.25", [0.25]):
        with pytest.raises(InvalidInput, match="a number from 0 on"):
            read("stc", value)
    with pytest.raises(InvalidInput, match="earlier release"):
        read("phrase_and_mean", 0.25)
