"""Metrics of how well an uncertainty separates wrong answers from right ones.

Every metric takes an uncertainty per answer (higher is riskier) and a judgment of the same answers:
`correct` is 1 (right), 0 (wrong) or NaN (not judged), `quality` is any number where larger is better.

========================== ================== ========= ==============================================
name                       range              better    undefined, so NaN with a reason, when
========================== ================== ========= ==============================================
auroc                      [0, 1]             higher    no answer, or only right or only wrong ones
prr                        (-inf, 1]          higher    no answer, all of one quality or none rejected
aurc                       [0, 1]             lower     no answer
expected_calibration_error [0, 1]             lower     no answer
========================== ================== ========= ==============================================

One policy for awkward input, in all of them:

- An answer that was not judged (NaN in `correct` or `quality`) is left out, and counted.
- An uncertainty of NaN or +inf is never dropped: it shares the worst rank, and is counted. -inf is the best rank.
- Answers of equal uncertainty are tied, and a tie is never broken by the order of the input.
- An undefined metric is NaN: the plain functions warn with `UndefinedMetric`, `Estimate` holds the reason.
- Arrays of different lengths, labels outside their range, text where numbers belong, options that a metric lacks and
  intervals from answers to one question raise `InvalidInputError`.

`bootstrap` puts an interval around any of them, `paired_difference` compares two uncertainties of the
same answers, `resample` does both for many uncertainties, and `holm` adjusts the p-values of many comparisons.
"""

from __future__ import annotations

from semtoken.methods.metrics.calibration import expected_calibration_error
from semtoken.methods.metrics.inputs import UndefinedMetric
from semtoken.methods.metrics.ranking import (
    RejectionAreas,
    RiskCoverage,
    SelectiveRisk,
    aurc,
    auroc,
    prr,
    rejection_areas,
    risk_coverage,
    risk_coverage_curve,
)
from semtoken.methods.metrics.resampling import (
    Difference,
    Estimate,
    ResampledMetric,
    bootstrap,
    paired_difference,
    resample,
)
from semtoken.methods.metrics.significance import holm, permutation_test

__all__ = [
    "Difference",
    "Estimate",
    "RejectionAreas",
    "ResampledMetric",
    "RiskCoverage",
    "SelectiveRisk",
    "UndefinedMetric",
    "aurc",
    "auroc",
    "bootstrap",
    "expected_calibration_error",
    "holm",
    "paired_difference",
    "permutation_test",
    "prr",
    "rejection_areas",
    "resample",
    "risk_coverage",
    "risk_coverage_curve",
]
