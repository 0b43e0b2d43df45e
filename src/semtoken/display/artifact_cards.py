"""Cards of what is kept in files: clusters, calibrators, thresholds, and reports on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semtoken.display.elements import Html, card, element, folded, joined, note, table
from semtoken.display.shading import number

if TYPE_CHECKING:
    from semtoken.bench.report.content import BenchReport
    from semtoken.bench.report.table import Entry, Table
    from semtoken.calibration.calibrator import Calibrator
    from semtoken.calibration.measures import Interval
    from semtoken.calibration.measures import Report as CalibrationReport
    from semtoken.calibration.threshold import Threshold
    from semtoken.clusters import TokenClusters

LARGEST = 10
"""Clusters whose tokens are shown."""
MEMBERS = 12
"""Tokens shown of each."""


def clusters_card(clusters: TokenClusters) -> Html:
    """How many clusters of how many tokens, how they were made, and the largest of them."""
    largest = np.argsort(-clusters.sizes, kind="stable")[:LARGEST]
    firsts = [int(np.flatnonzero(clusters.labels == label)[0]) for label in np.unique(clusters.labels)[largest]]
    rows = [_cluster(clusters, token) for token in firsts]
    alone = float(np.mean(clusters.sizes == 1))
    return card(
        _heading(f"{clusters.n_clusters:,} clusters of {clusters.vocabulary.size:,} tokens"),
        note(f"Made for {clusters.provenance.get('model', 'a model that was not recorded')}."),
        note(f"{alone:.1%} of the clusters hold one token; the largest holds {int(clusters.sizes.max()):,}."),
        folded(f"The {len(rows)} largest", table(["tokens", "some of them"], rows, numbers=[0])),
        note(f"Signature: {clusters.signature}"),
    )


def calibrator_card(calibrator: Calibrator) -> Html:
    """What a calibrator was fitted on, and the promise of its threshold."""
    promise = "It holds no threshold yet." if calibrator.threshold is None else calibrator.threshold.statement
    return card(
        _heading("From a score to the chance that an answer is right"),
        note(f"Fitted on {calibrator.n:,} labelled answers, {calibrator.n_correct:,} of them right."),
        note(promise),
        note(f"Method: {calibrator.method}."),
    )


def threshold_card(threshold: Threshold) -> Html:
    """The promise of a threshold, and where it lies."""
    place = (
        "No answer is accepted."
        if threshold.uncertainty is None
        else f"Accepted {'below' if threshold.strict else 'up to'} {threshold.uncertainty:.4g} of -log_score."
    )
    return card(
        _heading(threshold.statement),
        note(place),
        note(f"From {threshold.n:,} labelled answers, {threshold.n_wrong:,} of them wrong."),
    )


def calibration_report_card(report: CalibrationReport) -> Html:
    """How good chances are, with the answers in bins of similar chance."""
    held_out = "that the calibrator did not see (cross-validation)" if report.cross_validated else "given"
    losses = [
        ("Brier score", _interval(report.brier), _interval(report.brier_gain)),
        ("log loss", _interval(report.log_loss), _interval(report.log_loss_gain)),
    ]
    bins = [
        (f"{b.n:,}", number(b.chance), f"{number(b.right)} ({number(b.low)} to {number(b.high)})") for b in report.bins
    ]
    return card(
        _heading(f"How good the chances are on {report.n:,} answers {held_out}"),
        note(
            f"{number(report.base_rate)} of them are right; chance and share of right answers are "
            f"{number(report.calibration_error)} apart on average. Lower losses are better; a difference below 0 is "
            "better than the base rate."
        ),
        table(["loss", "value (95 % interval)", "minus that of the base rate"], losses, numbers=[1, 2]),
        folded(
            f"Reliability in {len(bins)} bins",
            table(["answers", "mean chance", "share right (95 % interval)"], bins, numbers=[0, 1, 2]),
        ),
    )


def bench_report_card(report: BenchReport) -> Html:
    """The headline of a benchmark, with its first table; the others open on a click."""
    opening, *others = [section for section in report.sections if section.lines or section.tables]
    return card(
        _heading(report.title),
        note(report.subtitle),
        *map(note, opening.lines),
        *map(_bench_table, opening.tables),
        *(folded(one.title, *map(note, one.lines), *map(_bench_table, one.tables)) for one in others),
    )


def _heading(text: str) -> Html:
    return element("p", element("b", text), style="margin:.2em 0")


def _cluster(clusters: TokenClusters, token: int) -> tuple[str, str]:
    members = clusters.members(token)
    texts = list(dict.fromkeys(stripped for text in members if (stripped := text.strip())))
    shown = " · ".join(texts[:MEMBERS]) or "(blank)"
    return f"{len(members):,}", f"{shown} · …" if len(texts) > MEMBERS else shown


def _interval(found: Interval) -> str:
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


def _bench_table(made: Table) -> Html:
    rows = [[_entry(entry) for entry in row] for group in made.groups for row in group.rows]
    return table(made.header, rows, numbers=range(made.left, len(made.header)), title=made.title)


def _entry(entry: Entry) -> Html:
    text = element("b", entry.text) if entry.mark == "best" else entry.text
    return joined([text, entry.sign, f" {entry.detail}" if entry.detail else ""])
