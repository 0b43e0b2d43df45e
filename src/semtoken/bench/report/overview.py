"""The opening of a report: its run and judges, the main result, and notes on what limits the figures."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from semtoken.bench.report.comparison import VERDICT_RULE, estimate_text
from semtoken.bench.report.measure import (
    ABLATIONS,
    BASELINE,
    PERCENT,
    STC,
    Measured,
    MeasuredCell,
    cell_titles,
    select,
    spoken,
    title_of,
)
from semtoken.bench.report.numbers import MISSING, NOT_RUN, amount, metric, share, signed, signed_interval
from semtoken.bench.report.paired import FEW, FEWEST, SEED
from semtoken.bench.report.table import Table, frame
from semtoken.bench.results import RunResults
from semtoken.guarantees.labels import CONFIDENCE
from semtoken.methods import METHODS

if TYPE_CHECKING:
    from pandas import DataFrame

CONFIDENCE_SAID = (
    "The confidence is the number on top of every answer: STC under the preset default for short answers, the new "
    "phrases for sentences."
)


def overview(made: Measured, judge: str) -> Table:
    """A table with a row for each model and data set: size, accuracy, and the best method, the reference and STC."""
    about = made.reference
    named = [about] if about == STC or not any(STC in cell.seconds for cell in made.cells) else [about, STC]
    header = (
        *("Model", "Data set", "Questions", "Right", "No verdict", "Accuracy", "Greedy, s"),
        *("Best AUROC", *(f"AUROC of {spoken(name)}" for name in named), "Place", "Overhead, %"),
    )
    return Table(
        name="overview",
        title="What was measured",
        frame=frame([_overview_row(made, cell, named) for cell in made.cells], header),
        note=f"Right is what the judge '{judge}' calls correct. Questions without a verdict are in no other figure. "
        f"Greedy: seconds of the greedy generation. Overhead: of {spoken(about)}, in percent of that. Place: of "
        f"{spoken(about)} by AUROC.{f' {CONFIDENCE_SAID}' if about == CONFIDENCE else ''}",
        left=2,
    )


def _overview_row(made: Measured, cell: MeasuredCell, named: list[str]) -> list[str]:
    ranked, title = made.ranked(cell), title_of(made.reference)
    best = f"{ranked.setting.iloc[0]} {metric(ranked.value.iloc[0])}" if len(ranked) else MISSING
    areas = [_of(made.of(cell, table="comparison", metric="AUROC"), name) for name in named]
    place = list(ranked.setting).index(title) + 1 if title in set(ranked.setting) else None
    overhead = _of(made.of(cell, table="comparison", metric=PERCENT), made.reference)
    return [
        *(cell.model, cell.dataset, f"{cell.n:,}", f"{cell.counts.correct:,}", f"{cell.counts.missing:,}"),
        *(share(cell.counts.accuracy), amount(cell.greedy_seconds), best),
        *(NOT_RUN if row is None else estimate_text(row) for row in areas),
        f"{place} of {len(ranked)}" if place else MISSING,
        NOT_RUN if overhead is None else amount(overhead.value),
    ]


def _of(figures: DataFrame, name: str) -> Any:
    """The row of a method; None if there is none."""
    return next(select(figures, setting=title_of(name)).itertuples(), None)


def properties(made: Measured) -> Table:
    """The paper's Table 1 for the methods of the run: the properties and overhead of each."""
    used = {name for cell in made.cells for name in cell.seconds}
    rows = [
        [
            method.title,
            *("yes" if holds else "no" for holds in (method.semantic_aware, method.single_sample)),
            "yes" if method.external_model_free else "no",
            method.overhead,
        ]
        for name, method in METHODS.items()
        if name in used and name not in ABLATIONS
    ]
    return Table(
        name="properties",
        title="Properties of the methods",
        frame=frame(rows, ("Method", "Semantic-aware", "One answer", "No other model", "Overhead")),
        note="As in Table 1 of the paper, which has no row for sequence probability. Overhead "
        "is the paper's class of it; measured seconds are further down.",
    )


def judges(made: Measured) -> tuple[Table, ...]:
    """A table of the verdicts of every judge and, if there are several judges, one of their agreement."""
    rows = [
        [
            *(cell.model, cell.dataset, name),
            *(f"{n:,}" for n in (count.correct, count.incorrect, count.missing)),
            share(count.accuracy),
        ]
        for cell in made.cells
        for name, count in cell.verdicts.items()
    ]
    verdicts = Table(
        name="verdicts",
        title="Verdicts of the judges",
        frame=frame(rows, ("Model", "Data set", "Judge", "Correct", "Incorrect", "No verdict", "Accuracy")),
        note="An answer without a usable verdict counts as neither.",
        left=3,
    )
    pairs = [
        [cell.model, cell.dataset, f"{a.first}, {a.second}"]
        + [f"{n:,}" for n in (a.both_correct, a.only_first, a.only_second, a.both_incorrect)]
        + [share(a.agreement), metric(a.kappa)]
        for cell in made.cells
        for a in cell.agreements
    ]
    if not pairs:
        return (verdicts,)
    header = ("Both correct", "Only first", "Only second", "Both incorrect", "Agree", "Cohen's kappa")
    agreement = Table(
        name="agreement",
        title="Agreement of the judges",
        frame=frame(pairs, ("Model", "Data set", "Judges", *header)),
        note="Answers on which both gave a verdict. Kappa: 1 is full agreement, 0 is chance level.",
        left=3,
    )
    return verdicts, agreement


def opening(made: Measured) -> str:
    """The first sentence of the report, for a reader who has never seen one."""
    cells = made.cells
    asked = sum(cell.n for cell in cells)
    right = sum(cell.counts.correct for cell in cells)
    judged = sum(cell.counts.correct + cell.counts.incorrect for cell in cells)
    models = len({cell.model for cell in cells})
    who = "A model" if models == 1 else f"{models} models"
    correctly = f", {100 * right / judged:.0f}% of them correctly" if judged else ""
    said = f"{who} answered {asked:,} questions{correctly}"
    about = spoken(made.reference)
    areas = select(made.figures, table="comparison", metric="AUROC", setting=title_of(made.reference)).value.dropna()
    if not judged or areas.empty:
        return f"{said}; how well {about} tells wrong answers from right ones is not known."
    average = "" if len(areas) == 1 else ", on average,"
    return (
        f"{said}; of a wrong and a right answer, taken at random, {about}{average} calls the wrong one more uncertain "
        f"in {round(100 * statistics.fmean(areas))} of 100 cases (AUROC; guessing gives 50)."
    )


def main_result(made: Measured) -> Iterator[str]:
    """Sentences on the main result: how well the reference tells wrong answers from right ones."""
    about, title = spoken(made.reference), title_of(made.reference)
    for cell in made.cells:
        if cell.reason:
            yield f"{cell.title}: AUROC and PRR are undefined, {cell.reason}."
    ranked = {cell: made.ranked(cell) for cell in made.cells}
    held = {cell: rows for cell, rows in ranked.items() if title in set(rows.setting)}
    if not held:
        yield f"There is no AUROC of {about} to compare the other methods with."
        return
    if all(cell.fewest < FEWEST for cell in held):
        yield (
            f"These answers cannot carry a conclusion about the methods: that takes at least {FEWEST} right and "
            f"{FEWEST} wrong answers."
        )
        yield from _few(made)
        return
    first = sum(rows.setting.iloc[0] == title for rows in held.values())
    of = f"of {len(held)} {'pairs' if len(held) > 1 else 'pair'} of a model and a data set"
    yield f"{_capital(about)} has the highest AUROC on {first} {of}."
    if made.reference == CONFIDENCE:
        same = sum(STC in cell.seconds and _is_reference(made, cell, title_of(STC)) for cell in held)
        yield f"{CONFIDENCE_SAID}{f' On {same} of {len(held)} it ranks as STC does.' if same else ''}"
    yield from _verdicts(made, list(held))
    yield from _best_rival(made, held)
    for cell in held:
        if (tested := made.test(cell, title_of(BASELINE), title)) is not None and not math.isnan(tested.difference):
            yield f"{cell.title}: sequence probability minus {about} is {_difference_text(tested)}."
    yield from _few(made)
    costs = [row for cell in held for row in made.of(cell, table="comparison", setting=title, metric=PERCENT).value]
    if known := [value for value in costs if not math.isnan(value)]:
        yield (
            f"{_capital(about)} adds {amount(statistics.median(known))}% to the time of the "
            f"greedy generation{' (median)' if len(known) > 1 else ''}."
        )


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _is_reference(made: Measured, cell: MeasuredCell, setting: str) -> bool:
    """Return True if a method ranks exactly as the reference does, on every resample."""
    place = {"model": cell.model, "dataset": cell.dataset, "against": title_of(made.reference)}
    tests = select(made.tests, table="comparison", setting=setting, **place)
    return len(tests) > 0 and bool(((tests.low == 0) & (tests.high == 0)).all())


def _verdicts(made: Measured, held: list[MeasuredCell]) -> Iterator[str]:
    """A sentence that counts the differences to the reference: lower, higher and not shown."""
    titles = {cell.title for cell in held}
    tests = select(made.tests, table="comparison", metric="AUROC", against=title_of(made.reference))
    own = zip(cell_titles(tests), tests.verdict, strict=True)
    verdicts = Counter(verdict for title, verdict in own if title in titles)
    if n := verdicts.total():
        few = f", {verdicts['too few answers']} of too few answers" * bool(verdicts["too few answers"])
        yield (
            f"Of {n} {'difference' if n == 1 else 'differences'} to {spoken(made.reference)}, {verdicts['lower']} "
            f"{'is' if verdicts['lower'] == 1 else 'are'} lower, {verdicts['higher']} higher and "
            f"{verdicts['not shown']} not shown{few} (95% intervals against 0, not corrected for their number)."
        )


def _best_rival(made: Measured, held: dict[MeasuredCell, DataFrame]) -> Iterator[str]:
    """The nearest method in full, where there is one pair; the mean AUROC over all, where there are several."""
    about, title = spoken(made.reference), title_of(made.reference)
    areas = [rows.set_index("setting").value for rows in held.values()]
    common = set.intersection(*(set(own.index) for own in areas))
    means = {name: statistics.fmean(own[name] for own in areas) for name in common}
    others = [name for name in sorted(common - {title}) if not all(_is_reference(made, cell, name) for cell in held)]
    rival = max(others, key=lambda name: means[name], default=None)
    if rival is None:
        return
    mean = "AUROC" if len(held) == 1 else f"Mean AUROC over the {len(held)} pairs"
    sentence = f"{mean}: {about} {metric(means[title])}, the best other method, {rival}, {metric(means[rival])}"
    tested = made.test(next(iter(held)), rival, title)
    if len(held) == 1 and tested is not None:
        sentence += f" (minus {about}: {_difference_text(tested)})"
    yield f"{sentence}."


def _difference_text(tested: Any) -> str:
    """A difference with its interval and what it shows."""
    ends = signed_interval(tested.low, tested.high) or "with no interval"
    return f"{signed(tested.difference)} {ends}, {tested.verdict}"


def _few(made: Measured) -> Iterator[str]:
    """A warning where few answers are right, or wrong."""
    for cell in made.cells:
        if cell.fewest < FEW:
            kind = "right" if cell.counts.correct <= cell.counts.incorrect else "wrong"
            verdict = f"; with fewer than {FEWEST} there is no verdict on any difference" * (cell.fewest < FEWEST)
            yield (
                f"Beware: only {cell.fewest:,} of {cell.n:,} answers are {kind} ({cell.title}), too few for reliable "
                f"figures{verdict}."
            )


def notes(results: RunResults, made: Measured, judge: str, n_resamples: int) -> Iterator[str]:
    """Sentences on what limits the figures, and on what is missing in them."""
    yield from results.notes
    yield from _missing(results, made, judge)
    if limit := results.settings.get("limit"):
        yield f"Of each data set a random part was asked, {limit:,} questions at most."
    yield (
        f"Intervals are percentile bootstrap intervals over questions, {n_resamples:,} resamples, seed {SEED}; the "
        "same resamples serve all methods. They do not cover the randomness in sampled answers or in the judge."
    )
    yield (
        f"{VERDICT_RULE} tests.csv also holds p-values of {n_resamples:,} random exchanges, corrected by Holm's "
        "procedure within each family of comparisons; no verdict reads them."
    )
    if judge != results.primary_judge:
        yield f"Figures use the verdicts of {judge}; the run's primary judge is {results.primary_judge}."


def _missing(results: RunResults, made: Measured, judge: str) -> Iterator[str]:
    """Cells and methods that others have."""
    measured = {(cell.model, cell.dataset) for cell in made.cells}
    for cell in results.cells:
        if (cell.model, cell.dataset) not in measured:
            reason = f"no verdicts of {judge}" if judge not in cell.judgments else "no method is complete"
            yield f"{cell.title} is left out: {reason}."
    everything = dict.fromkeys(name for cell in made.cells for name in cell.seconds)
    wanted = [*dict.fromkeys([*results.settings.get("methods", ()), *everything])]
    for figures in made.cells:
        if lacking := [name for name in wanted if name not in figures.seconds]:
            yield f"{figures.title}: not there are {', '.join(lacking)}."
