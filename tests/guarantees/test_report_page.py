"""The plots of a calibration's report show the numbers that they are about, and the page says them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import semtoken as st
from semtoken.choices import Guarantee
from semtoken.guarantees import Fingerprint
from semtoken.guarantees.group_names import Group
from semtoken.guarantees.labels import labeled
from semtoken.guarantees.measures import Bin, Interval, Report
from semtoken.guarantees.report_page import reliability_plot, risk_coverage_plot, write_report

pytest.importorskip("matplotlib")

BINS = (Bin(30, 0.2, 0.3, 0.25, 0.45), Bin(20, 0.6, 0.5, 0.35, 0.55), Bin(10, 0.9, 0.8, 0.65, 0.85))
REPORT = Report(
    n=60,
    cross_validated=True,
    base_rate=0.4567,
    brier=Interval(0.2, 0.1, 0.3),
    log_loss=Interval(0.5, 0.4, 0.6),
    calibration_error=0.0625,
    brier_gain=Interval(-0.05, -0.1, 0.01),
    log_loss_gain=Interval(-0.07, -0.2, 0.02),
    bins=BINS,
)
ANSWERS = labeled([-0.1, -0.2, -0.3, -0.4], [1, 0, 1, 1])


def test_reliability_is_plotted_over_the_whole_square_with_its_intervals() -> None:
    [axis] = reliability_plot(REPORT).axes
    assert (axis.get_xlim(), axis.get_ylim()) == ((0, 1), (0, 1))
    diagonal, points = axis.lines[:2]
    assert np.array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])
    assert np.array_equal(points.get_xydata(), [[0.2, 0.3], [0.6, 0.5], [0.9, 0.8]])
    bars = [segment for bar in axis.containers[0][2] for segment in bar.get_segments()]
    ends = [[(0.2, 0.25), (0.2, 0.45)], [(0.6, 0.35), (0.6, 0.55)], [(0.9, 0.65), (0.9, 0.85)]]
    assert np.allclose(bars, ends)


@pytest.mark.parametrize(("uncertainty", "point"), [(0.35, (0.75, 1 / 3)), (0.15, (0.25, 0.0)), (0.05, None)])
def test_risk_is_plotted_with_the_guarantee_and_where_the_threshold_stands(
    uncertainty: float, point: tuple[float, float] | None
) -> None:
    """The second of the four surest answers is wrong: 0, 1/2, 1/3, 1/4 of the accepted."""
    threshold = st.Threshold(-uncertainty, "selective_risk", 0.2, 0.1, "guaranteed", 4, 1)
    [axis] = risk_coverage_plot(ANSWERS, threshold).axes
    curve, base, guaranteed, *chosen = axis.lines
    assert np.allclose(curve.get_xydata()[-4:], [[0.25, 0], [0.5, 1 / 2], [0.75, 1 / 3], [1, 1 / 4]])
    assert np.allclose(base.get_ydata(), 0.25) and np.allclose(guaranteed.get_ydata(), 0.2)
    assert [tuple(one.get_xydata()[0]) for one in chosen] == ([] if point is None else [pytest.approx(point)])
    assert axis.get_xlim() == (0, 1) and axis.get_ylim() == pytest.approx((0, 0.5))
    assert len(risk_coverage_plot(ANSWERS, None).axes[0].lines) == 2
    others: tuple[tuple[Guarantee, float], ...] = (("joint_risk", 1.0), ("miss_rate", 0.25))
    for guarantee, of in others:  # accepted and wrong ones of all, and of the wrong ones
        other = replace(threshold, guarantee=guarantee, min_log_score=None)
        coverage, risk = risk_coverage_plot(ANSWERS, other).axes[0].lines[2].get_data()
        assert np.allclose(risk, np.minimum(1, 0.2 * of / np.asarray(coverage)))
    [right] = risk_coverage_plot(labeled([-0.1, -0.2], [1, 1]), None).axes
    assert right.get_ylim() == pytest.approx((0, 0.05))
    [some] = risk_coverage_plot(labeled(-np.arange(1, 26) / 10, [1] * 24 + [0]), None).axes
    assert some.get_ylim() == pytest.approx((0, 0.05))
    [more] = risk_coverage_plot(labeled(-np.arange(1, 20) / 10, [1] * 18 + [0]), None).axes
    assert more.get_ylim() == pytest.approx((0, 0.1))


@pytest.mark.parametrize("cross_validated", [True, False])
def test_the_page_says_the_figures(cross_validated: bool, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    scores = -generator.exponential(1, 60)
    group = Fingerprint(task=Group("kind", "a&b"))
    calibrator = st.Calibrator.fit(scores, np.repeat([1, 0], [45, 15]), fingerprint=group)
    place = tmp_path / "report.html"
    write_report(place, calibrator, replace(REPORT, cross_validated=cross_validated), ANSWERS, "<more> labels")
    page = place.read_text()
    assert "60 labels (45 right, 15 wrong)" in page and "45.7%" in page and "&lt;more&gt; labels" in page
    assert "0.200 [0.100, 0.300]" in page and "-0.050 [-0.100, +0.010]" in page and "-0.070 [-0.200, +0.020]" in page
    assert "0.062" in page and "No guarantee was asked for." in page
    assert ("ten-fold cross-validation" in page) == cross_validated
    assert "<h1>Calibration report: kind a&amp;b</h1>" in page and page.count("kind a&amp;b") == 3
    assert page.count("<svg") == 2
