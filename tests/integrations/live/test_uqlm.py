"""The recipe for uqlm, as it stands on the page, with its calibrator behind it."""

from __future__ import annotations

import numpy as np
import pytest
from uqlm.calibration import ScoreCalibrator

import semtoken as st
from tests.integrations.recipes import recorded, run, uncertainty


def test_its_calibrator_takes_the_confidences() -> None:
    [answer] = st.score_payload(recorded("serve")["whole"], "almanac")
    found = run("UQResult", answers=[answer] * 20, questions=["?"] * 20, texts=[answer.text] * 20)
    column = found["result"].to_df()["semtoken"]
    assert column.to_numpy() == pytest.approx([1 - answer.uncertainty] * 20)
    assert answer.uncertainty_bounds[0] <= uncertainty() + 1e-9 and uncertainty() <= answer.uncertainty_bounds[1] + 1e-9
    confidence = np.random.default_rng(0).random(100)
    calibrated = ScoreCalibrator().fit_transform(confidence, confidence > 0.5)
    assert len(np.asarray(calibrated)) == 100
