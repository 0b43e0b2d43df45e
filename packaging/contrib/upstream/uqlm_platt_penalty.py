"""uqlm 0.6.7: `ScoreCalibrator("platt")` is penalized, so with few labels all chances are near the base rate.

pip install --no-deps uqlm==0.6.7 && pip install pandas scikit-learn && python uqlm_platt_penalty.py
"""

import sys
import types
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

ROOT = list(find_spec("uqlm").submodule_search_locations)
for name in ("uqlm", "uqlm.calibration", "uqlm.utils"):  # without their __init__, which imports PyTorch and more
    package = types.ModuleType(name)
    package.__path__ = [str(Path(folder).joinpath(*name.split(".")[1:])) for folder in ROOT]
    sys.modules[name] = package
from uqlm.calibration.score_calibrator import ScoreCalibrator  # noqa: E402

random = np.random.default_rng(0)
for n in (30, 100, 1000):
    scores = random.uniform(0.02, 0.98, n)
    right = random.random(n) < expit(2 * logit(scores))  # low scores are nearly always wrong, high ones right
    result = types.SimpleNamespace(data={"score": scores.tolist()})
    ScoreCalibrator("platt").fit_transform(result, right)
    theirs = result.data["calibrated_score"]
    free = LogisticRegression(C=np.inf, max_iter=1000).fit(scores.reshape(-1, 1), right)
    wide = free.predict_proba(scores.reshape(-1, 1))[:, 1]
    print(f"{n} labels: {theirs.min():.2f} to {theirs.max():.2f}", end=", ")
    print(f"without the penalty {wide.min():.2f} to {wide.max():.2f}")
    if n == 30:
        assert theirs.max() - theirs.min() < wide.max() - wide.min() - 0.1, "the defect is gone"
