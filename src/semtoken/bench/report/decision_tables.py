"""Risk and coverage, and chances, of every method: as tables, as sentences and as rows of CSV files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from semtoken.bench.formatting import interval, metric, share, signed, signed_interval
from semtoken.bench.report.cell_figures import REFERENCE
from semtoken.bench.report.chances import SHARES, CellChances, MethodChances
from semtoken.bench.report.comparison import estimate_entry, tested_entries
from semtoken.bench.report.table import Entry, Group, Table, marked_rows
from semtoken.calibration.measures import Interval

CURVE_POINTS = 100
"""Coverages of a curve in a file."""
CROSS_FITTED = (
    "Cross-fitted: the answers are dealt into ten parts, and each gets its chance from a calibrator that was fitted on "
    "the other nine. So every method can be compared, whatever the unit of its uncertainty: the calibrator (beta "
    "calibration) reads ranks only."
)


def risk_table(cells: Sequence[CellChances]) -> Table:
    """How many of the given answers are wrong if only the surest are given."""
    return Table(
        name="risk_coverage",
        title="Wrong answers among those that are given",
        header=("Method", "AURC", "minus STC", "p", *(f"at {percent(one)} coverage" for one in SHARES)),
        groups=tuple(
            Group(cell.title, marked_rows([_risk_row(m) for m in cell.ranked], smallest=True, columns=(1, 4, 5, 6)))
            for cell in cells
        ),
        note="Coverage: the share of questions that are answered, the surest first; risk: the share of wrong answers "
        "among these. AURC: the area under the curve of risk against coverage. Lower is better in all columns. "
        "Intervals: paired bootstrap. p: paired permutation test, corrected by Holm's procedure for all methods of a "
        "model and data set. No threshold with a promise is read off these curves: `semtoken calibrate` makes one.",
    )


def _risk_row(method: MethodChances) -> tuple[Entry, ...]:
    risks = [method.risk_at(coverage) for coverage in SHARES]
    return (
        Entry(method.title),
        estimate_entry(method.aurc),
        *tested_entries(method.minus_stc),
        *(Entry(share(risk), value=risk) for risk in risks),
    )


def chance_table(cells: Sequence[CellChances]) -> Table | None:
    """How good the chances are that the order of each method yields; None where there are too few labels."""
    groups = [Group(cell.title, _chance_rows(cell)) for cell in cells if not cell.reason]
    if not groups:
        return None
    return Table(
        name="chances",
        title="Chances of being right",
        header=("Method", "Log loss", "minus base rate", "Brier score", "minus base rate", "ECE", "ECE as it stands"),
        groups=tuple(groups),
        note=f"{CROSS_FITTED} Base rate: always giving the share of right answers of the other parts. A loss below "
        "it is one that the order of the method earns; an interval (bootstrap) below 0 shows it. ECE: mean distance "
        "between chance and share of right answers in groups of equal size. As it stands: the same for the "
        "probability that a method is made of, where it is one, taken as a chance without any labels.",
    )


def _chance_rows(cell: CellChances) -> tuple[tuple[Entry, ...], ...]:
    rows = []
    for method in cell.methods.values():
        found = method.report
        if found is not None:
            rows.append(
                (
                    Entry(method.title),
                    _loss(found.log_loss),
                    _gain(found.log_loss_gain),
                    _loss(found.brier),
                    _gain(found.brier_gain),
                    Entry(metric(found.calibration_error)),
                    Entry(metric(method.stated_error)),
                )
            )
    rows.sort(key=lambda row: row[1].value)
    return marked_rows(rows, smallest=True, columns=(1, 3))


def _loss(found: Interval) -> Entry:
    return Entry(metric(found.value), interval(found.low, found.high), found.value)


def _gain(found: Interval) -> Entry:
    return Entry(signed(found.value), signed_interval(found.low, found.high))


def risk_in_words(cells: Sequence[CellChances]) -> Iterator[str]:
    """What giving the surest half of the answers by STC is worth."""
    for cell in cells:
        stc = cell.methods.get(REFERENCE)
        if stc is None:
            continue
        best = cell.ranked[0]
        others = "" if best.name == REFERENCE else f"; by {best.title}, the lowest curve, {share(best.risk_at(0.5))}"
        yield (
            f"{cell.title}: of all answers {share(1 - cell.n_correct / cell.n)} are wrong, of the surest half by STC "
            f"{share(stc.risk_at(0.5))}{others}."
        )


def chances_in_words(cells: Sequence[CellChances]) -> Iterator[str]:
    """Which methods' chances beat the base rate, and how far STC is from a chance as it stands."""
    for cell in cells:
        if cell.reason:
            yield f"{cell.title}: no chances, {cell.reason}."
            continue
        reports = {method.title: method.report for method in cell.methods.values() if method.report is not None}
        beaten = sum(one.log_loss_gain.high < 0 for one in reports.values())
        worse = sum(one.log_loss_gain.low > 0 for one in reports.values())
        said = (
            f"{cell.title}: chances from the order of {beaten} of {len(reports)} methods are better than the base rate"
        )
        said += f", those of {worse} are worse." if worse else "."
        stc = cell.methods.get(REFERENCE)
        if stc is not None and stc.report is not None:
            said += (
                f" 1 - the uncertainty of STC, taken as a chance, is off by {metric(stc.stated_error)} on average "
                f"(ECE), a calibrated chance by {metric(stc.report.calibration_error)}."
            )
        yield said


def percent(value: float) -> str:
    """`50 %`."""
    return f"{100 * value:.0f} %"


# --- CSV -------------------------------------------------------------------------------------------------------------


def chance_rows(cells: Sequence[CellChances]) -> Iterator[dict[str, Any]]:
    """One method on one model and data set a row."""
    for cell in cells:
        for method in cell.methods.values():
            row: dict[str, Any] = _place(cell, method) | {"answers": cell.n, "correct": cell.n_correct}
            row |= {"aurc": method.aurc.value, "aurc_low": method.aurc.low, "aurc_high": method.aurc.high}
            row |= {f"risk_at_{round(100 * one)}": method.risk_at(one) for one in SHARES}
            for name in ("log_loss", "log_loss_gain", "brier", "brier_gain"):
                found = Interval(*3 * (math.nan,)) if method.report is None else getattr(method.report, name)
                row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
            row["ece"] = math.nan if method.report is None else method.report.calibration_error
            yield row | {"ece_as_it_stands": method.stated_error}


def reliability_rows(cells: Sequence[CellChances]) -> Iterator[dict[str, Any]]:
    """One group of answers of similar chance a row."""
    for cell in cells:
        for method in cell.methods.values():
            for one in () if method.report is None else method.report.bins:
                yield _place(cell, method) | asdict(one)


def curve_rows(cells: Sequence[CellChances]) -> Iterator[dict[str, Any]]:
    """One point of a curve a row, every hundredth of coverage at most."""
    for cell in cells:
        for method in cell.methods.values():
            wanted = np.arange(1, CURVE_POINTS + 1) / CURVE_POINTS - 1e-12
            for i in dict.fromkeys(np.searchsorted(method.curve.coverage, wanted).tolist()):
                yield _place(cell, method) | {
                    "coverage": float(method.curve.coverage[i]),
                    "risk": float(method.curve.risk[i]),
                    "uncertainty": float(method.curve.threshold[i]),
                }


def _place(cell: CellChances, method: MethodChances) -> dict[str, Any]:
    return {"model": cell.model, "dataset": cell.dataset, "method": method.name}
