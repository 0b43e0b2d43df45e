"""From a ranking to a decision: probabilities, thresholds with a guarantee, and the file that carries both.

    labels.py          scored answers and labels -> checked arrays, or a refusal with the number that is missing
    answer_records.py  answers in files, which stand in for scored ones
    curves.py          maps from log_confidence to a probability (numpy alone), and how they are fitted
    exact.py           the exact arithmetic of the guarantees
    fitting.py         the loosest threshold for a guarantee, or why there is none; threshold.py makes thresholds of
                       it and decides; threshold_sets.py has one for each of a few groups, and bands to accept, look
                       at and discard
    judge.py           the kinds of guarantees, and how new labels test them; betting.py has the tests that may be
                       looked at after every label
    calibrator.py      `Calibrator`: fit, probability, bounds, report, compare, save, load, and calibrator.json
    group_names.py     the name of a group of answers, whatever file its value comes from
    labeling.py        files of answers that a person labels: the order, the labels so far
    groups.py          a calibrator for each group of answers in files, with guarantees that hold together
    auditing.py        what newer answers say of a calibrator of answers
    measures.py        Brier score, log loss, reliability; cross_validation.py has probabilities for them by calibrators
                       that did not see the answers
    drift.py           how far recent scores are from the labeled ones
    fingerprint.py     where the labeled answers came from, and what does not belong
    apply.py           the probability, decision and flags of one answer by a calibrator, for every command and server
    report_page.py     the report of a calibration as one page

Fitting needs the extra `calibrate` (scipy); applying a saved calibrator needs numpy alone.
"""

from __future__ import annotations

from semtoken.core.results import Decision
from semtoken.guarantees.calibrator import Calibrator
from semtoken.guarantees.drift import Drift
from semtoken.guarantees.fingerprint import Fingerprint
from semtoken.guarantees.measures import Report
from semtoken.guarantees.threshold import Threshold, select
from semtoken.guarantees.threshold_sets import Bands, GroupThresholds

__all__ = [
    "Bands",
    "Calibrator",
    "Decision",
    "Drift",
    "Fingerprint",
    "GroupThresholds",
    "Report",
    "Threshold",
    "select",
]
