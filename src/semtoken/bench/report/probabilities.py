"""From uncertainties to decisions: for every method how wrong answers thin out if fewer are given, and what chances of
being right its order yields.

Methods have units of their own, so they are compared by what their order is worth. The probabilities of a method come
from beta calibration of its ranks, cross-fitted: the answers are dealt into ten folds, and each gets its probability
from a calibrator that was fitted on the other nine. The ranks are those among all answers; labels play no part in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from semtoken.bench.plan import OfCell
from semtoken.bench.report.comparison import VERDICT_RULE, tested_texts
from semtoken.bench.report.measure import (
    ABLATIONS,
    STC,
    in_order,
    spoken,
    title_of,
)
from semtoken.bench.report.paired import SEED, PairedTest, PairedTests
from semtoken.bench.report.table import (
    Table,
    best_marks,
    difference,
    estimate,
    frame,
    metric,
    share,
)
from semtoken.bench.results import Cell
from semtoken.guarantees.cross_validation import cross_validated
from semtoken.guarantees.labels import FEWEST_LABELS, FEWEST_OF_EITHER, LabeledScores
from semtoken.guarantees.measures import Interval, Report, calibration_error, reliability, report
from semtoken.methods.metrics import (
    Estimate,
    ResampledMetric,
    SelectiveRisk,
    resample,
    risk_coverage,
)
from semtoken.methods.metrics.significance import mean_ranks
from semtoken.support.arrays import FloatArray

SHARES = (0.2, 0.5, 0.8)
"""Coverages at which tables give the share of wrong answers."""

STATED: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "stc": lambda uncertainty: 1 - uncertainty,
    "sequence_probability": lambda uncertainty: 1 - uncertainty,
    "p_true": lambda uncertainty: np.asarray(np.exp(-uncertainty)),
    "ccp": lambda uncertainty: -uncertainty,
}
"""Methods whose uncertainty is made of a probability -> that probability."""


@dataclass(frozen=True, eq=False)
class MethodChances:
    """The risk of answering by one method on one model and data set, and the probabilities of being right that it
    gives.
    """

    name: str
    curve: SelectiveRisk
    aurc: Estimate
    """Area under the curve; lower is better."""
    minus_reference: PairedTest | None
    """The method's area minus that of the reference. None for the reference itself, and in a cell that lacks it."""
    probabilities: FloatArray | None
    """[N] cross-fitted probability of being right, NaN where there is no verdict; None with too few labels."""
    report: Report | None
    stated_error: float
    """Calibration error (ECE) of the method's own probability, taken as a probability as it stands; NaN if it has
    none."""

    @property
    def title(self) -> str:
        """The title of the method in tables."""
        return title_of(self.name)

    def risk_at(self, coverage: float) -> float:
        """The share of wrong answers if this share of the surest is given, including ties with the last of them."""
        # Coverages are sums of shares, so the wanted one may be missed by a last digit.
        return float(self.curve.risk[np.searchsorted(self.curve.coverage, coverage - 1e-12)])


@dataclass(frozen=True, eq=False)
class CellProbabilities(OfCell):
    """The risks and probabilities of all methods on one model and data set."""

    n: int
    n_correct: int
    methods: Mapping[str, MethodChances]
    """Compared methods, in the order of the cell."""
    reference: str = STC

    @property
    def reason(self) -> str:
        """Why no probabilities could be fitted here; empty if they could."""
        if self.n < FEWEST_LABELS:
            return f"{self.n} judged answers are too few, {FEWEST_LABELS} are needed"
        kinds = (("right", self.n_correct), ("wrong", self.n - self.n_correct))
        few = [f"{count} {kind}" for kind, count in kinds if count < FEWEST_OF_EITHER]
        return f"{few[0]} answers are too few, {FEWEST_OF_EITHER} are needed" if few else ""

    @property
    def ranked(self) -> list[MethodChances]:
        """The methods by the area under their risk-coverage curve, smallest first; the reference first among equals."""
        return sorted(self.methods.values(), key=lambda m: (m.aurc.value, m.name != self.reference))


def cell_probabilities(
    cells: Sequence[Cell], judge: str, n_resamples: int = 1000, reference: str = STC
) -> tuple[CellProbabilities, ...]:
    """Compute risks and probabilities for every cell that has verdicts of the judge, beside those of the reference."""
    probabilities = [
        _cell(cell, judge, n_resamples, reference) for cell in cells if judge in cell.judgements and cell.uncertainty
    ]
    return tuple(cell for cell in probabilities if cell.n)


def _cell(cell: Cell, judge: str, n_resamples: int, reference: str) -> CellProbabilities:
    correct = cell.judgements[judge]
    judged = correct[~np.isnan(correct)]
    names = [name for name in in_order(cell.uncertainty) if name not in ABLATIONS]
    whole = CellProbabilities(cell.model, cell.dataset, judged.size, int(judged.sum()), {}, reference)
    if not judged.size:
        return whole
    drawn = {
        name: resample("aurc", cell.uncertainty[name], correct, n_resamples=n_resamples, seed=SEED) for name in names
    }
    tested = PairedTests(cell.uncertainty, correct, n_resamples).against("aurc", drawn, names, reference)
    methods = {
        name: _method(name, cell.uncertainty[name], correct, drawn[name], tested.get(name), not whole.reason)
        for name in names
    }
    return replace(whole, methods=methods)


def _method(
    name: str,
    uncertainty: FloatArray,
    correct: FloatArray,
    drawn: ResampledMetric,
    minus_reference: PairedTest | None,
    enough: bool,
) -> MethodChances:
    probabilities, measured = None, None
    if enough:
        judged = ~np.isnan(correct)
        answers = LabeledScores(np.log(ranks(uncertainty)[judged]), correct[judged], 0)
        judged_probabilities, base = cross_validated(answers, "beta", seed=SEED)
        measured = report(
            judged_probabilities, base, answers.correct, cross_validated=True, seed=SEED, n_resamples=drawn.n_resamples
        )
        probabilities = np.full(correct.size, np.nan)
        probabilities[judged] = judged_probabilities
    return MethodChances(
        name=name,
        curve=risk_coverage(uncertainty, correct),
        aurc=drawn.estimate(),
        minus_reference=minus_reference,
        probabilities=probabilities,
        report=measured,
        stated_error=_stated_error(name, uncertainty, correct),
    )


def ranks(uncertainty: FloatArray) -> FloatArray:
    """The share of answers that are less sure, in (0, 1), [n]; ties get their mean, undefined values the worst rank."""
    # Half a rank inwards: beta calibration takes the logarithms of this share and of what is left to 1.
    return (uncertainty.size - mean_ranks(uncertainty) + 0.5) / uncertainty.size


def _stated_error(name: str, uncertainty: FloatArray, correct: FloatArray) -> float:
    if name not in STATED:
        return float("nan")
    judged = ~np.isnan(correct)
    said = np.clip(np.nan_to_num(STATED[name](uncertainty[judged]), nan=0.0), 0, 1)
    return calibration_error(reliability(said, correct[judged]))


CURVE_POINTS = 100
"""Coverages of a curve in a file."""
CROSS_FITTED = (
    "Cross-fitted: the answers are dealt into ten parts, and each gets its probability from a calibrator that was "
    "fitted on "
    "the other nine. So every method can be compared, whatever the unit of its uncertainty: the calibrator (beta "
    "calibration) reads ranks only."
)


def risk_table(cells: Sequence[CellProbabilities]) -> Table:
    """A table of the share of wrong answers when only the surest answers are given."""
    about = spoken(cells[0].reference)
    rows = [(cell.title, method) for cell in cells for method in cell.ranked]
    header = ("Method", "AURC", f"minus {about}", "", *(f"at {percent(coverage)} coverage" for coverage in SHARES))
    risks = [[method.risk_at(coverage) for coverage in SHARES] for _, method in rows]
    texts = [
        [
            method.title,
            estimate(method.aurc.value, method.aurc.low, method.aurc.high),
            *tested_texts(method.minus_reference),
            *map(share, own),
        ]
        for (_, method), own in zip(rows, risks, strict=True)
    ]
    values = [[math.nan, m.aurc.value, math.nan, math.nan, *own] for (_, m), own in zip(rows, risks, strict=True)]
    return _marked(
        texts,
        values,
        header,
        [title for title, _ in rows],
        name="risk_coverage",
        title="Wrong answers among those that are given",
        note="Coverage: the share of questions that are answered, the surest first; risk: the share of wrong answers "
        "among these. AURC: the area under the curve of risk against coverage. Lower is better in all columns. "
        f"{VERDICT_RULE} No threshold with a guarantee is read off these curves: `semtoken calibrate` makes one.",
    )


def _marked(
    texts: Sequence[Sequence[str]],
    values: Sequence[Sequence[float]],
    header: Sequence[str],
    groups: Sequence[str],
    **rest: Any,
) -> Table:
    """A table whose smallest values are marked in every group."""
    columns = [str(i) for i in range(len(header))]  # some have no name
    made, numbers = frame(texts, columns, groups), frame(values, columns, groups)
    marks = best_marks(numbers, made, smallest=True)
    return Table(frame=made.set_axis(list(header), axis=1), marks=marks, **rest)


def probability_table(cells: Sequence[CellProbabilities]) -> Table | None:
    """A table of how good the probabilities from each method's ranking are; None where there are too few labels."""
    rows = [
        (cell.title, method, method.report)
        for cell in cells
        for method in sorted(cell.methods.values(), key=lambda m: m.report.log_loss.value if m.report else math.inf)
        if method.report is not None
    ]
    if not rows:
        return None
    texts = [
        [
            method.title,
            *(f(x.value, x.low, x.high) for f, x in zip(4 * [estimate, difference], _losses(measured), strict=False)),
            metric(measured.calibration_error),
            metric(method.stated_error),
        ]
        for _, method, measured in rows
    ]
    nan = math.nan
    values = [[nan, measured.log_loss.value, nan, measured.brier.value, nan, nan, nan] for _, _, measured in rows]
    return _marked(
        texts,
        values,
        ("Method", "Log loss", "minus base rate", "Brier score", "minus base rate", "ECE", "ECE as it stands"),
        [title for title, _, _ in rows],
        name="probabilities",
        title="Probabilities of being right",
        note=f"{CROSS_FITTED} Base rate: always giving the share of right answers of the other parts. A loss below "
        "it is one that the order of the method earns; an interval (bootstrap) below 0 shows it. ECE: mean distance "
        "between probability and share of right answers in groups of equal size. As it stands: the same for the "
        "probability that a method is made of, where it is one, taken as a probability without any labels.",
    )


def _losses(measured: Report) -> tuple[Interval, ...]:
    return measured.log_loss, measured.log_loss_gain, measured.brier, measured.brier_gain


def risk_in_words(cells: Sequence[CellProbabilities]) -> Iterator[str]:
    """Sentences on what is gained by giving only the half of the answers that the reference is surest of."""
    for cell in cells:
        own = cell.methods.get(cell.reference)
        if own is None:
            continue
        best = cell.ranked[0]
        others = (
            "" if best.name == cell.reference else f"; by {best.title}, the lowest curve, {share(best.risk_at(0.5))}"
        )
        yield (
            f"{cell.title}: of all answers {share(1 - cell.n_correct / cell.n)} are wrong, of the surest half by "
            f"{spoken(cell.reference)} {share(own.risk_at(0.5))}{others}."
        )


def probabilities_in_words(cells: Sequence[CellProbabilities]) -> Iterator[str]:
    """Sentences on how many methods' probabilities beat the base rate, and on how far STC is from a probability as it
    stands.
    """
    for cell in cells:
        if cell.reason:
            yield f"{cell.title}: no probabilities, {cell.reason}."
            continue
        reports = {method.title: method.report for method in cell.methods.values() if method.report is not None}
        beaten = sum(measured.log_loss_gain.high < 0 for measured in reports.values())
        worse = sum(measured.log_loss_gain.low > 0 for measured in reports.values())
        said = (
            f"{cell.title}: probabilities from the order of {beaten} of {len(reports)} methods are better than the "
            "base rate"
        )
        said += f", those of {worse} are worse." if worse else "."
        stc = cell.methods.get(STC)
        if stc is not None and stc.report is not None:
            said += (
                f" 1 - the uncertainty of STC, taken as a probability, is off by {metric(stc.stated_error)} on average "
                f"(ECE), a calibrated probability by {metric(stc.report.calibration_error)}."
            )
        yield said


def percent(value: float) -> str:
    """A share in [0, 1] as whole per cent: `50%`."""
    return f"{100 * value:.0f}%"


# --- CSV -------------------------------------------------------------------------------------------------------------


def probability_rows(cells: Sequence[CellProbabilities]) -> Iterator[dict[str, Any]]:
    """The rows of `probabilities.csv`: one for each method on each model and data set."""
    for cell in cells:
        for method in cell.methods.values():
            row: dict[str, Any] = _place(cell, method) | {"answers": cell.n, "correct": cell.n_correct}
            row |= {"aurc": method.aurc.value, "aurc_low": method.aurc.low, "aurc_high": method.aurc.high}
            row |= {f"risk_at_{round(100 * coverage)}": method.risk_at(coverage) for coverage in SHARES}
            for name in ("log_loss", "log_loss_gain", "brier", "brier_gain"):
                measured = Interval(*3 * (math.nan,)) if method.report is None else getattr(method.report, name)
                row |= {name: measured.value, f"{name}_low": measured.low, f"{name}_high": measured.high}
            row["ece"] = math.nan if method.report is None else method.report.calibration_error
            yield row | {"ece_as_it_stands": method.stated_error}


def reliability_rows(cells: Sequence[CellProbabilities]) -> Iterator[dict[str, Any]]:
    """The rows of `reliability.csv`: one for each group of answers with similar probabilities of being right."""
    for cell in cells:
        for method in cell.methods.values():
            for group in () if method.report is None else method.report.bins:
                yield _place(cell, method) | asdict(group)


def curve_rows(cells: Sequence[CellProbabilities]) -> Iterator[dict[str, Any]]:
    """The rows of `risk_coverage.csv`: points of risk-coverage curves, at most one for each hundredth of coverage."""
    for cell in cells:
        for method in cell.methods.values():
            wanted = np.arange(1, CURVE_POINTS + 1) / CURVE_POINTS - 1e-12
            for i in dict.fromkeys(np.searchsorted(method.curve.coverage, wanted).tolist()):
                yield _place(cell, method) | {
                    "coverage": float(method.curve.coverage[i]),
                    "risk": float(method.curve.risk[i]),
                    "uncertainty": float(method.curve.threshold[i]),
                }


def _place(cell: CellProbabilities, method: MethodChances) -> dict[str, Any]:
    return {"model": cell.model, "dataset": cell.dataset, "method": method.name}
