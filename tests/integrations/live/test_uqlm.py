"""The recipe for uqlm, as it stands on the page, with its calibrator behind it."""

from __future__ import annotations

import pytest
from uqlm.calibration import ScoreCalibrator

from semtoken import ScoredModel
from semtoken.support.almanac import Question, is_correct
from tests.integrations.recipes import run


def test_its_calibrator_takes_the_confidences(stc: ScoredModel, questions: list[Question]) -> None:
    answers = stc.generate([question.prompt() for question in questions], 24, stop_at_newline=True)
    texts = [answer.text for answer in answers]
    result = run("UQResult", answers=answers, questions=[one.question for one in questions], texts=texts)["result"]
    assert result.to_df()["semtoken"].tolist() == pytest.approx([answer.confidence for answer in answers])
    correct = [is_correct(text, question) for text, question in zip(texts, questions, strict=True)]
    ScoreCalibrator().fit_transform(result, correct)
    calibrated = result.to_df()["calibrated_semtoken"]
    assert len(calibrated) == len(answers) and calibrated.between(0, 1).all()
