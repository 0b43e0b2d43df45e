"""The one-page report of a calibration: the guarantee, the figures, a reliability plot and a risk-coverage curve."""

from __future__ import annotations

import io
import math
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semtoken.guarantees.calibrator import Calibrator
from semtoken.guarantees.exact import percent
from semtoken.guarantees.fingerprint import known_values
from semtoken.guarantees.labels import LabeledScores
from semtoken.guarantees.measures import Interval, Report
from semtoken.guarantees.threshold import Threshold
from semtoken.methods.metrics import risk_coverage
from semtoken.support.extras import require
from semtoken.support.files.safe_files import replace_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXTRA = "calibrate"
OURS, OTHERS, CHOSEN = "#0b57a4", "#767680", "#b3541e"  # on white, in both schemes
AREA = (0.14, 0.13, 0.83, 0.84)
"""Left, bottom, width and height of the axes, as shares of a plot. To find them matplotlib would draw it twice."""
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "semtoken",
    "text.parse_math": False,
}


def write_report(path: Path, calibrator: Calibrator, report: Report, answers: LabeledScores, forecast: str) -> None:
    """Write an HTML page on how good a calibrator is: its probabilities, its guarantee, and its threshold.

    `forecast` says what more labels would do (see `exact.forecast`). `MissingExtra` without Jinja2 or matplotlib.
    """
    jinja2 = require("jinja2", extra=EXTRA)
    template = jinja2.Environment(autoescape=True, trim_blocks=False).from_string(
        files("semtoken.guarantees").joinpath("report.html.jinja").read_text(encoding="utf-8")
    )
    replace_text(path, template.render(**_content(calibrator, report, answers, forecast)))


def _content(calibrator: Calibrator, report: Report, answers: LabeledScores, forecast: str) -> dict[str, Any]:
    threshold = calibrator.threshold
    seen = (
        "Every probability comes from a calibrator that did not see the answer (ten-fold cross-validation)."
        if report.cross_validated
        else "On answers that the calibrator was not fitted on."
    )
    return {
        "task": str(calibrator.fingerprint.task or ""),
        "statement": "No guarantee was asked for." if threshold is None else threshold.statement,
        "forecast": forecast,
        "base": percent(round(report.base_rate, 3)),
        "figures": [
            ("Brier score", _interval_text(report.brier), _interval_text(report.brier_gain, signed=True)),
            ("log loss", _interval_text(report.log_loss), _interval_text(report.log_loss_gain, signed=True)),
            ("calibration error (ECE)", f"{report.calibration_error:.3f}", ""),
        ],
        "how": seen,
        "plots": _plots(report, answers, threshold),
        "n": f"{calibrator.n:,} labels ({calibrator.n_correct:,} right, {calibrator.n - calibrator.n_correct:,} wrong)",
        "facts": [
            ("curve", calibrator.method),
            ("made", calibrator.created),
            *[(name, str(value)) for name, value in known_values(calibrator.fingerprint).items()],
        ],
    }


def _interval_text(interval: Interval, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    return f"{interval.value:{sign}.3f} [{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"


def _plots(report: Report, answers: LabeledScores, threshold: Threshold | None) -> list[tuple[str, str]]:
    matplotlib = require("matplotlib", extra=EXTRA)
    with matplotlib.rc_context(STYLE):
        return [
            (
                _svg(reliability_plot(report)),
                "Reliability: how often answers were right, for groups of similar probability. Points on the line were "
                "right as often as the probability says. Bars are 95% intervals.",
            ),
            (
                _svg(risk_coverage_plot(answers, threshold)),
                "Risk and coverage on the labeled answers: how many answers are wrong if only the surest are given. "
                "The guarantee does not come from this curve.",
            ),
        ]


def reliability_plot(report: Report) -> Figure:
    """Plot the share of right answers against their probability of being right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 3.6))
    axis = figure.add_axes(AREA)
    axis.plot([0, 1], [0, 1], color=OTHERS, linewidth=1)
    right = np.array([b.right for b in report.bins])
    lengths = [[b.right - b.low for b in report.bins], [b.high - b.right for b in report.bins]]
    axis.errorbar([b.probability_correct for b in report.bins], right, yerr=lengths, fmt="o", color=OURS, capsize=2)
    axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability given", ylabel="share of right answers")
    return figure


def risk_coverage_plot(answers: LabeledScores, threshold: Threshold | None) -> Figure:
    """Plot the share of wrong answers among the accepted by coverage, what the guarantee allows, and the threshold."""
    from matplotlib.figure import Figure

    curve = risk_coverage(answers.uncertainty, answers.correct)
    figure = Figure(figsize=(4.2, 3.6))
    axis = figure.add_axes(AREA)
    axis.step(curve.coverage, curve.risk, where="post", color=OURS, linewidth=1.5)
    axis.axhline(1 - answers.correct.mean(), color=OTHERS, linewidth=1, linestyle=":")
    if threshold is not None:
        shares = np.linspace(0.005, 1, 200)
        allowed = threshold.claim.kind.allowed_risk(shares, threshold.alpha, 1 - float(answers.correct.mean()))
        axis.plot(shares, allowed, color=CHOSEN, linewidth=1, linestyle="--")
    accepted = None if threshold is None else threshold.accepts(answers.log_confidence)
    if accepted is not None and accepted.any():
        axis.plot(accepted.mean(), 1 - answers.correct[accepted].mean(), "o", color=CHOSEN, markersize=8)
    axis.set(xlim=(0, 1), ylim=(0, max(0.05, math.ceil(curve.risk.max() * 20) / 20)))
    axis.set(xlabel="coverage: share of questions answered", ylabel="risk: share of wrong answers among them")
    return figure


def _svg(figure: Figure) -> str:
    target = io.StringIO()
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    text = target.getvalue()
    # The head names a document type, which is not allowed inside HTML.
    return text[text.index("<svg") :]
