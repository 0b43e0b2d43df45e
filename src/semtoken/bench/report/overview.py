"""Tables of what a run is of: its models and data sets, the paper's Table 1, the verdicts of the judges."""

from __future__ import annotations

from collections.abc import Sequence

from semtoken.bench.formatting import MISSING, amount, metric, share
from semtoken.bench.report.cell_figures import ABLATIONS, REFERENCE, CellFigures
from semtoken.bench.report.comparison import NOT_RUN, estimate_entry
from semtoken.bench.report.table import Entry, Group, Table, texts
from semtoken.methods import METHODS


def overview(cells: Sequence[CellFigures], judge: str) -> Table:
    """One row a model and data set: size, accuracy, the best method, where STC stands."""
    rows = []
    for cell in cells:
        ranked = cell.ranked("auroc")
        stc = cell.methods.get(REFERENCE)
        place = next((i for i, one in enumerate(ranked, start=1) if one.name == REFERENCE), None)
        rows.append(
            (
                *texts(cell.model, cell.dataset, f"{cell.n:,}", f"{cell.counts.missing:,}"),
                Entry(share(cell.counts.accuracy), f"{cell.counts.correct:,} right"),
                *texts(amount(cell.greedy_seconds)),
                Entry(ranked[0].title, metric(ranked[0].quality["auroc"].estimate.value)) if ranked else Entry(MISSING),
                estimate_entry(stc.quality["auroc"].estimate) if stc else NOT_RUN,
                Entry(f"{place} of {len(ranked)}" if place else MISSING),
                Entry(amount(stc.percent)) if stc else NOT_RUN,
            )
        )
    return Table(
        name="overview",
        title="What was measured",
        header=(
            *("Model", "Data set", "Questions", "No verdict", "Accuracy", "Greedy, s"),
            *("Best AUROC", "AUROC of STC", "Place", "Overhead, %"),
        ),
        groups=(Group("", tuple(rows)),),
        note=f"Correct is what the judge '{judge}' calls correct. Questions without a verdict are in no other figure. "
        "Greedy: seconds of the greedy generation. Overhead: of STC, in percent of that. Place: of STC by AUROC.",
        left=2,
    )


def properties(cells: Sequence[CellFigures]) -> Table:
    """The paper's Table 1, for the methods of the run."""
    used = dict.fromkeys(name for cell in cells for name in cell.methods)
    rows = [
        texts(method.title, *map(_yes, (method.semantic_aware, method.single_sample, method.external_model_free)))
        + texts(method.overhead)
        for name, method in METHODS.items()
        if name in used and name not in ABLATIONS
    ]
    return Table(
        name="properties",
        title="Properties of the methods",
        header=("Method", "Semantic-aware", "One answer", "No other model", "Overhead"),
        groups=(Group("", tuple(rows)),),
        note="As in Table 1 of the paper, which has no row for sequence probability. Overhead "
        "is the paper's class of it; measured seconds are further down.",
    )


def judges(cells: Sequence[CellFigures]) -> tuple[Table, ...]:
    """Verdicts of every judge; how far they agree, where there are several."""
    rows = [
        texts(cell.model, cell.dataset, name, f"{count.correct:,}", f"{count.incorrect:,}", f"{count.missing:,}")
        + texts(share(count.accuracy))
        for cell in cells
        for name, count in cell.verdicts.items()
    ]
    verdicts = Table(
        name="verdicts",
        title="Verdicts of the judges",
        header=("Model", "Data set", "Judge", "Correct", "Incorrect", "No verdict", "Accuracy"),
        groups=(Group("", tuple(rows)),),
        note="An answer without a usable verdict counts as neither.",
        left=3,
    )
    pairs = [
        texts(cell.model, cell.dataset, f"{a.first}, {a.second}", f"{a.both_correct:,}", f"{a.only_first:,}")
        + texts(f"{a.only_second:,}", f"{a.both_incorrect:,}", share(a.agreement), metric(a.kappa))
        for cell in cells
        for a in cell.agreements
    ]
    if not pairs:
        return (verdicts,)
    header = ("Both correct", "Only first", "Only second", "Both incorrect", "Agree", "Cohen's kappa")
    agreement = Table(
        name="agreement",
        title="Agreement of the judges",
        header=("Model", "Data set", "Judges", *header),
        groups=(Group("", tuple(pairs)),),
        note="Answers on which both gave a verdict. Kappa: 1 is full agreement, 0 what chance would give.",
        left=3,
    )
    return verdicts, agreement


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
