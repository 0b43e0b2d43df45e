"""uqlm 0.6.7: negentropy scorers give NaN, without an error, unless exactly `top_k_logprobs` entries are listed.

pip install --no-deps uqlm==0.6.7 && python uqlm_negentropy_nan.py
"""

import sys
import types
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np

for name in ("uqlm", "uqlm.white_box"):  # without their __init__, so that nothing but NumPy and SciPy is needed
    package = types.ModuleType(name)
    if name == "uqlm":
        package.__path__ = list(find_spec("uqlm").submodule_search_locations)
    else:
        package.__path__ = [str(Path(folder) / "white_box") for folder in sys.modules["uqlm"].__path__]
    sys.modules[name] = package
from uqlm.white_box.top_logprobs import TopLogprobsScorer  # noqa: E402

warnings.simplefilter("ignore")
FOUND = {}
for listed in (5, 15, 20):
    logs = np.log(np.full(listed, 1 / listed))
    token = {"logprob": logs[0], "top_logprobs": [{"logprob": value} for value in logs]}
    FOUND[listed] = TopLogprobsScorer().evaluate([[token]])["mean_token_negentropy"][0]
    print(f"{listed} entries listed: mean_token_negentropy = {FOUND[listed]}")

# Uniform over what is listed, so each should be 0.
assert abs(FOUND[15]) < 1e-9 and np.isnan(FOUND[5]) and np.isnan(FOUND[20]), "the defect is gone"
