"""From uncertainties to decisions: for every method how wrong answers thin out if fewer are given, and what chances of
being right its order yields.

Methods have units of their own, so they are compared by what their order is worth. The probabilities of a method come
from beta calibration of its ranks, cross-fitted: the answers are dealt into ten folds, and each gets its probability
from a calibrator that was fitted on the other nine. The ranks are those among all answers; labels play no part in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.bench.plan import OfCell
from semtoken.bench.report.comparison import VERDICT_RULE, tested_texts
from semtoken.bench.report.measure import ABLATIONS, STC, cell_titles, in_order, spoken, title_of
from semtoken.bench.report.numbers import difference, estimate, metric, share
from semtoken.bench.report.paired import SEED, PairedTests
from semtoken.bench.report.table import Table, best_marks, frame
from semtoken.bench.results import Cell
from semtoken.guarantees.cross_validation import cross_validated
from semtoken.guarantees.labels import FEWEST_LABELS, FEWEST_OF_EITHER, LabeledScores
from semtoken.guarantees.measures import Bin, Interval, Report, calibration_error, reliability, report
from semtoken.methods.metrics import Estimate, SelectiveRisk, resample, risk_coverage
from semtoken.methods.metrics.significance import mean_ranks
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require

if TYPE_CHECKING:
    from pandas import DataFrame

STATED: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "stc": lambda uncertainty: 1 - uncertainty,
    "sequence_probability": lambda uncertainty: 1 - uncertainty,
    "p_true": lambda uncertainty: np.asarray(np.exp(-uncertainty)),
    "ccp": lambda uncertainty: -uncertainty,
}
"""Methods whose uncertainty is made of a probability -> that probability."""
SHARES = (0.2, 0.5, 0.8)
"""Coverages at which tables give the share of wrong answers."""
RISKS = tuple(f"risk_at_{round(100 * coverage)}" for coverage in SHARES)
"""The columns of these shares."""
LOSSES = ("log_loss", "log_loss_gain", "brier", "brier_gain")
"""The losses of `Report`, and the columns of their values; those of an interval end in `_low` and `_high`."""
CELL = ["model", "dataset"]
KEY = [*CELL, "method"]
MethodKey: TypeAlias = tuple[str, str, str]
"""Model, data set and method."""
WITH_ENDS = ("", "_low", "_high")
FIGURES = [
    *(f"aurc{end}" for end in WITH_ENDS),
    *RISKS,
    *(f"{name}{end}" for name in LOSSES for end in WITH_ENDS),
    *("ece", "ece_as_it_stands"),
]
TESTED = ["difference", "low", "high", "verdict"]
"""The columns of the difference to the reference, which no file has."""


@dataclass(frozen=True, eq=False)
class Probabilities:
    """The risk of answering by each compared method, and the probabilities of being right that it gives.

    Tables begin with the columns model, dataset and method; rows are in the order of the cells.
    """

    methods: DataFrame
    """A row a method on a model and data set: answers (with a verdict), correct (the right ones among them), aurc (area
    under the risk-coverage curve; lower is better), the shares of wrong answers `RISKS`, the losses and ece, which are
    NaN with too few labels, and ece_as_it_stands (calibration error of the method's own probability, taken as a
    probability as it stands; NaN if it has none). `TESTED` is the area minus that of the reference; the verdict is
    empty for the reference itself, and in a cell that lacks it."""
    groups: DataFrame
    """A row a group of answers with similar probabilities: the fields of `Bin`."""
    curves: Mapping[MethodKey, SelectiveRisk]
    given: Mapping[MethodKey, FloatArray]
    """[N] cross-fitted probability of being right, NaN where there is no verdict; not there with too few labels."""
    reference: str

    @property
    def ranked(self) -> DataFrame:
        """The methods by the area under their curve, smallest first in each cell; the reference first among equals."""
        return _sorted(self.methods.assign(other=self.methods.method != self.reference), "aurc", "other")


def _sorted(rows: DataFrame, *columns: str) -> DataFrame:
    """The rows of each cell sorted by these columns."""
    number = rows.groupby(CELL, sort=False).ngroup()
    return rows.assign(cell=number).sort_values(["cell", *columns], kind="stable")


def by_cell(rows: DataFrame) -> Iterator[tuple[OfCell, DataFrame]]:
    """Each model and data set with its rows, in the order of the rows."""
    for (model, dataset), own in rows.groupby(CELL, sort=False):
        yield OfCell(model, dataset), own


def too_few(answers: int, correct: int) -> str:
    """The reason why judged answers, so many of them correct, give no probabilities; empty if they do."""
    if answers < FEWEST_LABELS:
        return f"{answers} judged answers are too few, {FEWEST_LABELS} are needed"
    kinds = (("right", correct), ("wrong", answers - correct))
    few = [f"{count} {kind}" for kind, count in kinds if count < FEWEST_OF_EITHER]
    return f"{few[0]} answers are too few, {FEWEST_OF_EITHER} are needed" if few else ""


def probabilities_of(cells: Sequence[Cell], judge: str, n_resamples: int = 1000, reference: str = STC) -> Probabilities:
    """Compute risks and probabilities on every cell that has verdicts of the judge, beside those of the reference."""
    table: Any = require("pandas", extra="bench").DataFrame
    methods: list[dict[str, Any]] = []
    groups: list[dict[str, Any]] = []
    curves: dict[MethodKey, SelectiveRisk] = {}
    given: dict[MethodKey, FloatArray] = {}
    for cell in cells:
        correct = cell.judgments.get(judge, np.empty(0))
        judged = correct[~np.isnan(correct)]
        if not judged.size:
            continue
        counts = {"answers": judged.size, "correct": int(judged.sum())}
        names = [name for name in in_order(cell.uncertainty) if name not in ABLATIONS]
        drawn = {
            name: resample("aurc", cell.uncertainty[name], correct, n_resamples=n_resamples, seed=SEED)
            for name in names
        }
        tested = PairedTests(cell.uncertainty, correct, n_resamples).against("aurc", drawn, names, reference)
        for name in names:
            key, uncertainty = (cell.model, cell.dataset, name), cell.uncertainty[name]
            curves[key] = curve = risk_coverage(uncertainty, correct)
            row = _columns(key) | counts | _with_ends("aurc", drawn[name].estimate())
            row |= zip(RISKS, curve.risk[_reached(curve, SHARES)], strict=True)
            row["ece_as_it_stands"] = _stated_error(name, uncertainty, correct)
            if not too_few(**counts):
                given[key], measured = _cross_fitted(uncertainty, correct, n_resamples)
                for loss in LOSSES:
                    row |= _with_ends(loss, getattr(measured, loss))
                row["ece"] = measured.calibration_error
                groups += [_columns(key) | asdict(group) for group in measured.bins]
            methods.append(row | (asdict(tested[name]) if name in tested else {"verdict": ""}))
    return Probabilities(
        methods=table(methods, columns=[*KEY, "answers", "correct", *FIGURES, *TESTED]),
        groups=table(groups, columns=[*KEY, *(field.name for field in fields(Bin))]),
        curves=curves,
        given=given,
        reference=reference,
    )


def _with_ends(name: str, value: Estimate | Interval) -> dict[str, float]:
    return {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}


def _columns(key: MethodKey) -> dict[str, Any]:
    return dict(zip(KEY, key, strict=True))


def _reached(curve: SelectiveRisk, coverages: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """The first points of a curve that reach these coverages: ties with the last answer are given, too."""
    # Coverages are sums of shares, so the wanted one may be missed by a last digit.
    return np.searchsorted(curve.coverage, np.asarray(coverages) - 1e-12)


def _cross_fitted(uncertainty: FloatArray, correct: FloatArray, n_resamples: int) -> tuple[FloatArray, Report]:
    """The probabilities by the ranks of a method, as in `Probabilities.given`, and how good they are."""
    judged = ~np.isnan(correct)
    answers = LabeledScores(np.log(ranks(uncertainty)[judged]), correct[judged], 0)
    found, base = cross_validated(answers, "beta", seed=SEED)
    probabilities = np.full(correct.size, np.nan)
    probabilities[judged] = found
    measured = report(found, base, answers.correct, cross_validated=True, seed=SEED, n_resamples=n_resamples)
    return probabilities, measured


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
    "fitted on the other nine. So every method can be compared, whatever the unit of its uncertainty: the calibrator "
    "(beta calibration) reads ranks only."
)


def risk_table(probabilities: Probabilities) -> Table:
    """A table of the share of wrong answers when only the surest answers are given."""
    about, rows = spoken(probabilities.reference), probabilities.ranked
    texts = [
        [
            title_of(row.method),
            estimate(row.aurc, row.aurc_low, row.aurc_high),
            *tested_texts(row if row.verdict else None),
            *(share(getattr(row, name)) for name in RISKS),
        ]
        for row in rows.itertuples()
    ]
    return _marked(
        rows,
        texts,
        (
            "Method",
            "AURC",
            f"minus {about}",
            "",
            *(f"at {percent(s)} coverage" for s in SHARES),
        ),
        ("", "aurc", "", "", *RISKS),
        name="risk_coverage",
        title="Wrong answers among those that are given",
        note="Coverage: the share of questions that are answered, the surest first; risk: the share of wrong answers "
        "among these. AURC: the area under the curve of risk against coverage. Lower is better in all columns. "
        f"{VERDICT_RULE} No threshold with a guarantee is read off these curves: `semtoken calibrate` makes one.",
    )


def _marked(
    rows: DataFrame, texts: Sequence[Sequence[str]], header: Sequence[str], marked: Sequence[str], **rest: Any
) -> Table:
    """A table with the smallest values marked in every group; `marked` names the column of `rows` behind each text."""
    groups = cell_titles(rows)
    columns = [str(i) for i in range(len(header))]  # some have no name
    made = frame(texts, columns, groups)
    values = rows.reindex(columns=marked).set_axis(columns, axis=1).set_axis(groups)
    marks = best_marks(values, made, smallest=True)
    return Table(frame=made.set_axis(list(header), axis=1), marks=marks, **rest)


def probability_table(probabilities: Probabilities) -> Table | None:
    """A table of how good the probabilities from each method's ranking are; None where there are too few labels."""
    rows = _sorted(probabilities.methods.dropna(subset="log_loss"), "log_loss")
    if rows.empty:
        return None
    texts = [
        [
            title_of(row.method),
            *(
                text(*(getattr(row, f"{loss}{end}") for end in WITH_ENDS))
                for loss, text in zip(LOSSES, 2 * (estimate, difference), strict=True)
            ),
            *map(metric, (row.ece, row.ece_as_it_stands)),
        ]
        for row in rows.itertuples()
    ]
    return _marked(
        rows,
        texts,
        ("Method", "Log loss", "minus base rate", "Brier score", "minus base rate", "ECE", "ECE as it stands"),
        ("", "log_loss", "", "brier", "", "", ""),
        name="probabilities",
        title="Probabilities of being right",
        note=f"{CROSS_FITTED} Base rate: always giving the share of right answers of the other parts. A loss below "
        "it is one that the order of the method earns; an interval (bootstrap) below 0 shows it. ECE: mean distance "
        "between probability and share of right answers in groups of equal size. As it stands: the same for the "
        "probability that a method is made of, where it is one, taken as a probability without any labels.",
    )


def risk_in_words(probabilities: Probabilities) -> Iterator[str]:
    """Sentences on what is gained by giving only the half of the answers that the reference is surest of."""
    reference = probabilities.reference
    for cell, ranked in by_cell(probabilities.ranked):
        best = ranked.iloc[0]
        for own in ranked[ranked.method == reference].itertuples():
            others = (
                ""
                if best.method == reference
                else f"; by {title_of(best.method)}, the lowest curve, {share(best.risk_at_50)}"
            )
            yield (
                f"{cell.title}: of all answers {share(1 - own.correct / own.answers)} are wrong, of the surest half by "
                f"{spoken(reference)} {share(own.risk_at_50)}{others}."
            )


def probabilities_in_words(probabilities: Probabilities) -> Iterator[str]:
    """Sentences on how many methods' probabilities beat the base rate, and on how far STC is from a probability as it
    stands.
    """
    for cell, methods in by_cell(probabilities.methods):
        if reason := too_few(*methods.iloc[0][["answers", "correct"]]):
            yield f"{cell.title}: no probabilities, {reason}."
            continue
        beaten, worse = (methods.log_loss_gain_high < 0).sum(), (methods.log_loss_gain_low > 0).sum()
        said = (
            f"{cell.title}: probabilities from the order of {beaten} of {len(methods)} methods are better than the "
            "base rate"
        )
        said += f", those of {worse} are worse." if worse else "."
        for stc in methods[methods.method == STC].itertuples():
            said += (
                f" 1 - the uncertainty of STC, taken as a probability, is off by {metric(stc.ece_as_it_stands)} on "
                f"average (ECE), a calibrated probability by {metric(stc.ece)}."
            )
        yield said


def percent(value: float) -> str:
    """A share in [0, 1] as whole per cent: `50%`."""
    return f"{100 * value:.0f}%"


def curve_points(probabilities: Probabilities) -> Iterator[dict[str, Any]]:
    """The rows of `risk_coverage.csv`: points of risk-coverage curves, at most one for each hundredth of coverage."""
    wanted = np.arange(1, CURVE_POINTS + 1) / CURVE_POINTS
    for key, curve in probabilities.curves.items():
        for i in dict.fromkeys(_reached(curve, wanted).tolist()):
            yield _columns(key) | {
                "coverage": float(curve.coverage[i]),
                "risk": float(curve.risk[i]),
                "uncertainty": float(curve.threshold[i]),
            }
