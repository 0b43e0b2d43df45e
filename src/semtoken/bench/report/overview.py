"""What a report opens with: what the run is of, its judges, what came out, and what must be known of its figures."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from semtoken.bench.report.cell_figures import (
    ABLATIONS,
    BASELINE,
    FEW,
    FEWEST,
    SEED,
    STC,
    CellFigures,
    MethodFigures,
    TestedDifference,
    spoken,
)
from semtoken.bench.report.comparison import NOT_RUN, VERDICT_RULE, estimate_entry
from semtoken.bench.report.table import (
    MISSING,
    Entry,
    Group,
    Table,
    amount,
    metric,
    share,
    signed,
    signed_interval,
    texts,
)
from semtoken.bench.results import RunResults
from semtoken.calibration.labels import HEADLINE
from semtoken.methods import METHODS

HEADLINE_SAID = (
    "The headline is the number on top of every answer: STC under the preset default for short answers, the new "
    "phrases for sentences."
)


def overview(cells: Sequence[CellFigures], judge: str) -> Table:
    """A table with a row for each model and data set: size, accuracy, and the best method, the reference and STC."""
    rows = []
    about = cells[0].reference
    named = [about] if about == STC or not any(STC in cell.methods for cell in cells) else [about, STC]
    for cell in cells:
        ranked = cell.ranked("auroc")
        own = cell.methods.get(about)
        place = next((i for i, method in enumerate(ranked, start=1) if method.name == about), None)
        rows.append(
            (
                *texts(cell.model, cell.dataset, f"{cell.n:,}", f"{cell.counts.missing:,}"),
                Entry(share(cell.counts.accuracy), f"{cell.counts.correct:,} right"),
                *texts(amount(cell.greedy_seconds)),
                Entry(ranked[0].title, metric(ranked[0].quality["auroc"].estimate.value)) if ranked else Entry(MISSING),
                *(
                    estimate_entry(cell.methods[name].quality["auroc"].estimate) if name in cell.methods else NOT_RUN
                    for name in named
                ),
                Entry(f"{place} of {len(ranked)}" if place else MISSING),
                Entry(amount(own.percent)) if own else NOT_RUN,
            )
        )
    return Table(
        name="overview",
        title="What was measured",
        header=(
            *("Model", "Data set", "Questions", "No verdict", "Accuracy", "Greedy, s"),
            *("Best AUROC", *(f"AUROC of {spoken(name)}" for name in named), "Place", "Overhead, %"),
        ),
        groups=(Group("", tuple(rows)),),
        note=f"Correct is what the judge '{judge}' calls correct. Questions without a verdict are in no other figure. "
        f"Greedy: seconds of the greedy generation. Overhead: of {spoken(about)}, in percent of that. Place: of "
        f"{spoken(about)} by AUROC.{f' {HEADLINE_SAID}' if about == HEADLINE else ''}",
        left=2,
    )


def properties(cells: Sequence[CellFigures]) -> Table:
    """The paper's Table 1 for the methods of the run: the properties and overhead of each."""
    used = dict.fromkeys(name for cell in cells for name in cell.methods)
    rows = [
        texts(method.title, *("yes" if holds else "no" for holds in (method.semantic_aware, method.single_sample)))
        + texts("yes" if method.external_model_free else "no", method.overhead)
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
    """A table of the verdicts of every judge and, if there are several judges, one of their agreement."""
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


def opening(cells: Sequence[CellFigures]) -> str:
    """The first sentence of the report, for a reader who has never seen one."""
    asked = sum(cell.n for cell in cells)
    right = sum(cell.counts.correct for cell in cells)
    judged = sum(cell.counts.correct + cell.counts.incorrect for cell in cells)
    models = len({cell.model for cell in cells})
    who = "A model" if models == 1 else f"{models} models"
    told = f"{who} answered {asked:,} questions, {100 * right / judged:.0f} % of them correctly" if judged else ""
    about = spoken(cells[0].reference)
    areas = [
        estimate.value
        for cell in cells
        if (own := cell.methods.get(cell.reference)) is not None
        and not (estimate := own.quality["auroc"].estimate).reason
        and math.isfinite(estimate.value)
    ]
    if not told or not areas:
        told = told or f"{who} answered {asked:,} questions"
        return f"{told}; how well {about} tells wrong answers from right ones is not known."
    average = "" if len(areas) == 1 else ", on average,"
    return (
        f"{told}; of a wrong and a right answer, taken at random, {about}{average} calls the wrong one more uncertain "
        f"in {round(100 * statistics.fmean(areas))} of 100 cases (AUROC; guessing gives 50)."
    )


def headline(cells: Sequence[CellFigures]) -> Iterator[str]:
    """Sentences on the main result: how well the reference tells wrong answers from right ones."""
    about = spoken(cells[0].reference)
    for cell in cells:
        if reason := next((m.quality["auroc"].estimate.reason for m in cell.methods.values()), ""):
            yield f"{cell.title}: AUROC and PRR are undefined, {reason}."
    held = [cell for cell in cells if any(m.name == cell.reference for m in cell.ranked("auroc"))]
    if not held:
        yield f"There is no AUROC of {about} to compare the other methods with."
        return
    if all(cell.fewest < FEWEST for cell in held):
        yield (
            f"These answers cannot carry a conclusion about the methods: that takes at least {FEWEST} right and "
            f"{FEWEST} wrong answers."
        )
        yield from _few(cells)
        return
    first = sum(cell.ranked("auroc")[0].name == cell.reference for cell in held)
    of = f"of {len(held)} {'pairs' if len(held) > 1 else 'pair'} of a model and a data set"
    yield f"{_capital(about)} has the highest AUROC on {first} {of}."
    if held[0].reference == HEADLINE:
        yield from _which_number(held)
    others = [m for cell in held for m in cell.compared if m.quality["auroc"].to_reference is not None]
    if others:
        verdicts = Counter(tested.verdict for m in others if (tested := m.quality["auroc"].to_reference) is not None)
        few = f", {verdicts['too few answers']} of too few answers" * bool(verdicts["too few answers"])
        yield (
            f"Of {len(others)} {'difference' if len(others) == 1 else 'differences'} to {about}, {verdicts['lower']} "
            f"{'is' if verdicts['lower'] == 1 else 'are'} lower, {verdicts['higher']} higher and "
            f"{verdicts['not shown']} not shown{few} (95 % intervals against 0, not corrected for their number)."
        )
    yield from _best_rival(held)
    yield from _baseline(held)
    yield from _few(cells)
    yield from _cost(held)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _is_reference(method: MethodFigures) -> bool:
    """Whether a method ranks exactly as the reference does, on every resample."""
    tested = [quality.to_reference for quality in method.quality.values()]
    return all(test is not None and test.difference.low == test.difference.high == 0 for test in tested)


def _which_number(held: Sequence[CellFigures]) -> Iterator[str]:
    """What the headline is, and where it is STC."""
    same = sum(STC in cell.methods and _is_reference(cell.methods[STC]) for cell in held)
    where = "" if not same else f" On {same} of {len(held)} it ranks as STC does."
    yield f"{HEADLINE_SAID}{where}"


def _best_rival(held: Sequence[CellFigures]) -> Iterator[str]:
    """The nearest method in full, where there is one pair; the mean AUROC over all, where there are several."""
    about = held[0].reference
    common = set.intersection(*({m.name for m in cell.ranked("auroc")} for cell in held))
    means = {
        name: statistics.fmean(cell.methods[name].quality["auroc"].estimate.value for cell in held) for name in common
    }
    others = [name for name in sorted(common - {about}) if not all(_is_reference(cell.methods[name]) for cell in held)]
    rival = max(others, key=lambda name: means[name], default=None)
    if rival is None:
        return
    title = held[0].methods[rival].title
    mean = "AUROC" if len(held) == 1 else f"Mean AUROC over the {len(held)} pairs"
    sentence = f"{mean}: {spoken(about)} {metric(means[about])}, the best other method, {title}, {metric(means[rival])}"
    tested = held[0].methods[rival].quality["auroc"].to_reference
    if len(held) == 1 and tested is not None:
        sentence += f" (minus {spoken(about)}: {_difference_text(tested)})"
    yield f"{sentence}."


def _baseline(held: Sequence[CellFigures]) -> Iterator[str]:
    """The reference beside sequence probability, which costs nothing, wherever both are."""
    for cell in held:
        tested = cell.methods[BASELINE].quality["auroc"].to_reference if BASELINE in cell.methods else None
        if tested is not None and not math.isnan(tested.difference.value):
            yield f"{cell.title}: sequence probability minus {spoken(cell.reference)} is {_difference_text(tested)}."


def _difference_text(tested: TestedDifference) -> str:
    """A difference with its interval and what it shows."""
    difference = tested.difference
    ends = signed_interval(difference.low, difference.high) or "with no interval"
    return f"{signed(difference.value)} {ends}, {tested.verdict}"


def _few(cells: Sequence[CellFigures]) -> Iterator[str]:
    """A warning where few answers are right, or wrong."""
    for cell in cells:
        if cell.fewest < FEW:
            kind = "right" if cell.counts.correct <= cell.counts.incorrect else "wrong"
            verdict = f"; with fewer than {FEWEST} there is no verdict on any difference" * (cell.fewest < FEWEST)
            yield (
                f"Beware: only {cell.fewest:,} of {cell.n:,} answers are {kind} ({cell.title}), too few for reliable "
                f"figures{verdict}."
            )


def _cost(held: Sequence[CellFigures]) -> Iterator[str]:
    """What the reference adds to the greedy generation."""
    percents = [cell.methods[cell.reference].percent for cell in held]
    known = [value for value in percents if not math.isnan(value)]
    if known:
        yield (
            f"{_capital(spoken(held[0].reference))} adds {amount(statistics.median(known))} % to the time of the "
            f"greedy generation{' (median)' if len(known) > 1 else ''}."
        )


def notes(results: RunResults, cells: Sequence[CellFigures], judge: str, n_resamples: int) -> Iterator[str]:
    """Sentences on what limits the figures, and on what is missing in them."""
    yield from results.notes
    yield from _missing(results, cells, judge)
    if limit := results.settings.get("limit"):
        yield f"Of each data set a random part was asked, {limit:,} questions at most."
    yield (
        f"Intervals are percentile bootstrap intervals over questions, {n_resamples:,} resamples, seed {SEED}; the "
        "same resamples serve all methods. They do not cover the chance in sampled answers or in the judge."
    )
    yield (
        f"{VERDICT_RULE} tests.csv also holds p-values of {n_resamples:,} random exchanges, corrected by Holm's "
        "procedure within each family of comparisons; no verdict reads them."
    )
    if judge != results.primary_judge:
        yield f"Figures use the verdicts of {judge}; the run's primary judge is {results.primary_judge}."


def _missing(results: RunResults, cells: Sequence[CellFigures], judge: str) -> Iterator[str]:
    """Cells and methods that others have."""
    measured = {(cell.model, cell.dataset) for cell in cells}
    for cell in results.cells:
        if (cell.model, cell.dataset) not in measured:
            reason = f"no verdicts of {judge}" if judge not in cell.judgements else "no method is complete"
            yield f"{cell.title} is left out: {reason}."
    everything = dict.fromkeys(name for cell in cells for name in cell.methods)
    wanted = [*dict.fromkeys([*results.settings.get("methods", ()), *everything])]
    for figures in cells:
        if lacking := [name for name in wanted if name not in figures.methods]:
            yield f"{figures.title}: not there are {', '.join(lacking)}."
