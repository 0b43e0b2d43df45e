"""From the uncertainties of a run to figures: AUROC and PRR with intervals, paired tests, overheads.

One rule says what a difference shows, in all sentences, tables and files (`TestedDifference.verdict`): whether its 95 %
interval lies above 0, below it, or holds it. There is no verdict where fewer than `FEWEST` answers are right, or wrong.

A report is about one method, its reference: the headline where the run has it, else STC, or any other that is asked
for. Compared are the other methods with the reference and with STC, all methods with the best, the ablations with STC,
the clusterings of the sensitivity study with the one that the methods use, and the controls with STC and with sequence
probability, always as "this minus STC". The files also hold p-values of
`semtoken.metrics.permutation_test`, corrected by Holm's procedure within each of these families; no verdict reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from semtoken.bench.controls import CONTROLS, PREFIX, Control
from semtoken.bench.judges import Agreement, Tally, agreement, tally
from semtoken.bench.plan import MAIN, OfCell
from semtoken.bench.results import Cell, ClusteringRecord, RunResults
from semtoken.calibration.labels import HEADLINE
from semtoken.errors import InvalidInput
from semtoken.methods import METHODS
from semtoken.metrics import Difference, Estimate, ResampledMetric, holm, permutation_test, resample
from semtoken.statistics import SHARED_PREFIX
from semtoken.support.arrays import FloatArray
from semtoken.support.text import did_you_mean

ABLATIONS = ("stc_no_clustering", "stc_no_prefix")
"""What STC is without its parts; not among the methods that it is compared with."""
METRICS = ("auroc", "prr")
SEED = 0
"""The seed of the bootstrap, so that the same run gives the same intervals."""
NOT_SHOWN = "not shown"
"""The verdict on a difference whose interval holds 0."""
STC, BASELINE = "stc", "sequence_probability"
FEWEST, FEW = 20, 30
"""With fewer right (or wrong) answers than the first there is no verdict; with fewer than the second, a warning."""

Progress = Callable[[int, int], None]
"""Called with (uncertainties measured, of how many): those of methods, of other clusterings and of controls."""


@dataclass(frozen=True)
class TestedDifference:
    """The difference of two methods on the same answers, with its interval, p-value and verdict."""

    difference: Difference
    p_adjusted: float
    """The p-value adjusted by Holm's procedure for the comparisons of its family; NaN without a value."""
    enough: bool = True
    """Whether there are enough answers of either kind for a verdict."""

    @property
    def verdict(self) -> Literal["higher", "lower", "not shown", "too few answers"]:
        """Where the interval of the difference lies: above 0, below it, or around it."""
        if not self.enough:
            return "too few answers"
        if self.difference.low > 0:
            return "higher"
        return "lower" if self.difference.high < 0 else "not shown"


@dataclass(frozen=True)
class Quality:
    """The value of one metric for one method on one data set, with its interval."""

    estimate: Estimate
    to_stc: TestedDifference | None = None
    """This minus STC; None for STC itself and in a run without it."""
    to_best: TestedDifference | None = None
    """This minus the best of the compared methods; None for the best itself and for ablations."""
    to_reference: TestedDifference | None = None
    """This minus the reference of the report; None for that method, for ablations, and in a cell without it."""


@dataclass(frozen=True)
class MethodFigures:
    """All figures of one method on one model and data set."""

    name: str
    quality: Mapping[str, Quality]
    """Name of a metric -> figures."""
    undefined: int
    """Answers whose uncertainty was NaN or +inf; they shared the worst rank."""
    seconds: float
    """Seconds beyond the greedy generation; NaN if not measured."""
    percent: float
    """The seconds in percent of the greedy generation. NaN if either was not measured, or if the beginning that all
    prompts share was read apart: the greedy seconds are then without it."""

    @property
    def title(self) -> str:
        """The name of the method as tables print it."""
        return title_of(self.name)


@dataclass(frozen=True)
class ControlFigures:
    """The AUROC of STC with the clusters of a control, beside STC and sequence probability."""

    control: Control
    estimate: Estimate
    """Mean over the repetitions of a control with random clusters."""
    repeats: int
    to_stc: TestedDifference
    """The control minus STC. Of several repetitions, p is that of the one with the median AUROC."""
    minus_baseline: TestedDifference
    """The control minus sequence probability, in the same way."""


@dataclass(frozen=True)
class CellFigures(OfCell):
    """All figures of one model on one data set."""

    n: int
    counts: Tally
    greedy_seconds: float
    methods: Mapping[str, MethodFigures]
    """The methods in the order of `METHODS`, ablations included."""
    variants: Mapping[str, Quality]
    """AUROC of STC with other clusterings than the one that methods use, to which `to_stc` is the difference."""
    agreements: tuple[Agreement, ...]
    verdicts: Mapping[str, Tally]
    reference: str = STC
    """Name of the method that the report is about."""
    controls: Mapping[str, ControlFigures] = field(default_factory=dict)
    """The controls by name, in the order of `CONTROLS`; empty in a run without them."""

    @property
    def fewest(self) -> int:
        """The number of right answers or of wrong answers, whichever is smaller."""
        return min(self.counts.correct, self.counts.incorrect)

    @property
    def compared(self) -> tuple[MethodFigures, ...]:
        """All methods but the ablations of STC."""
        return tuple(method for name, method in self.methods.items() if name not in ABLATIONS)

    def ranked(self, metric: str) -> list[MethodFigures]:
        """Compared methods that have a value, the best first; of equals, the reference."""
        defined = [m for m in self.compared if not math.isnan(m.quality[metric].estimate.value)]
        return sorted(defined, key=lambda m: (-m.quality[metric].estimate.value, m.name != self.reference))


def spoken(name: str) -> str:
    """The name of a method as it reads inside a sentence."""
    return f"the {title_of(name).lower()}" if name == HEADLINE else title_of(name)


def title_of(name: str) -> str:
    """The title of a method in tables; the name itself if it is not in `METHODS`."""
    return METHODS[name].title if name in METHODS else name


def in_order(names: Collection[str]) -> list[str]:
    """The names of methods, those of `METHODS` first and in its order."""
    return [name for name in METHODS if name in names] + [name for name in names if name not in METHODS]


def settings_of(model: str, clusterings: Sequence[ClusteringRecord]) -> Mapping[str, Any]:
    """The settings of the clustering that the methods use, as far as they are known."""
    return next(
        (clustering.settings for clustering in clusterings if clustering.model == model and clustering.variant == MAIN),
        {},
    )


def is_main(variant: str, model: str, clusterings: Sequence[ClusteringRecord]) -> bool:
    """Whether a variant such as "linkage=complete" is the clustering that the methods use, under another name."""
    return variant in {f"{name}={value}" for name, value in settings_of(model, clusterings).items()}


def chosen_judge(results: RunResults, judge: str | None) -> str:
    """The judge whose verdicts the figures use: the one asked for, or the run's; `InvalidInput` if it gave none."""
    names = list(dict.fromkeys(name for cell in results.cells for name in cell.judgements))
    wanted = judge or results.primary_judge
    if not names:
        raise _incomplete(results)
    if wanted not in names:
        raise InvalidInput(
            f"{results.path} holds no complete verdicts of the judge {wanted!r}; there are those of "
            f"{', '.join(names)}: choose one with --judge. Or resume the run, which makes what is missing."
        )
    return wanted


def measure(
    results: RunResults,
    judge: str,
    *,
    n_resamples: int = 1000,
    reference: str | None = None,
    progress: Progress | None = None,
) -> tuple[CellFigures, ...]:
    """Compute the figures of every cell that has verdicts of the judge and at least one method.

    All methods of a cell are resampled with the same draws and tested against the reference, besides STC and the best.
    `progress` is called after every uncertainty. `InvalidInput` if no cell is complete enough for a figure, or none has
    scores of the reference.
    """
    cells = [
        replace(
            cell, variants={k: v for k, v in cell.variants.items() if not is_main(k, cell.model, results.clusterings)}
        )
        for cell in results.cells
        if judge in cell.judgements and cell.uncertainty
    ]
    if not cells:
        raise _incomplete(results)
    if reference is not None and not any(reference in cell.uncertainty for cell in cells):
        known = dict.fromkeys(name for cell in cells for name in cell.uncertainty)
        hint = did_you_mean(reference, known)
        raise InvalidInput(
            f"{results.path} holds no scores of {reference!r}{hint}; there are those of {', '.join(known)}."
        )
    reference = reference or chosen_reference(results, judge)
    total = sum(len(cell.uncertainty) + len(cell.variants) + len(cell.controls) for cell in cells)
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    return tuple(_cell(cell, judge, n_resamples, reference, count) for cell in cells)


def chosen_reference(results: RunResults, judge: str) -> str:
    """The default reference: the headline, or STC where a cell lacks that; in a run without STC the first method."""
    cells = [cell for cell in results.cells if judge in cell.judgements and cell.uncertainty]
    if cells and all(HEADLINE in cell.uncertainty for cell in cells):
        return HEADLINE
    there = dict.fromkeys(name for cell in cells for name in cell.uncertainty)
    return STC if STC in there else next(iter(there), STC)


def _incomplete(results: RunResults) -> InvalidInput:
    return InvalidInput(
        f"{results.path} holds nothing complete to report on: no model has answered, been scored and been judged on a "
        "whole data set. Run it again: `semtoken bench run` takes up where it was."
    )


def _cell(cell: Cell, judge: str, n_resamples: int, reference: str, count: Callable[[], None]) -> CellFigures:
    correct = cell.judgements[judge]
    names = in_order(cell.uncertainty)
    tests = PairedTests(correct, n_resamples)
    drawn: dict[str, dict[str, ResampledMetric]] = {metric: {} for metric in METRICS}
    for name in names:
        for metric in METRICS:
            drawn[metric][name] = resample(metric, cell.uncertainty[name], correct, n_resamples=n_resamples, seed=SEED)
        count()
    quality = {
        metric: _qualities(by_method, metric, tests, cell.uncertainty, reference) for metric, by_method in drawn.items()
    }
    methods = {name: _method(cell, name, {metric: quality[metric][name] for metric in METRICS}) for name in names}
    variants = {}
    for name, values in cell.variants.items():
        variants[name] = resample("auroc", values, correct, n_resamples=n_resamples, seed=SEED)
        count()
    return CellFigures(
        model=cell.model,
        dataset=cell.dataset,
        n=len(cell.question_ids),
        counts=tally(correct),
        greedy_seconds=cell.greedy_seconds,
        methods=methods,
        variants=_variant_qualities(variants, drawn["auroc"].get(STC), tests, cell),
        agreements=tuple(agreement(cell.judgements)),
        verdicts={name: tally(values) for name, values in cell.judgements.items()},
        reference=reference,
        controls=_controls(cell, drawn["auroc"], tests, count),
    )


def _method(cell: Cell, name: str, quality: Mapping[str, Quality]) -> MethodFigures:
    seconds, uncertainty = cell.seconds.get(name, math.nan), cell.uncertainty[name]
    comparable = cell.greedy_seconds > 0 and SHARED_PREFIX not in cell.steps
    return MethodFigures(
        name=name,
        quality=quality,
        undefined=int((np.isnan(uncertainty) | (uncertainty == np.inf)).sum()),
        seconds=seconds,
        percent=100 * seconds / cell.greedy_seconds if comparable else math.nan,
    )


class PairedTests:
    """Paired tests on the answers of one cell, each made once."""

    def __init__(self, correct: FloatArray, n_permutations: int) -> None:
        self.correct = correct
        self._n = n_permutations
        self._known: dict[tuple[str, ...], float] = {}
        counts = tally(correct)
        self._enough = min(counts.correct, counts.incorrect) >= FEWEST

    def p(self, metric: str, first: str, second: str, values: Mapping[str, FloatArray]) -> float:
        """P-value of the difference between two uncertainties, given by their names, whichever comes first."""
        place = (metric, *sorted((first, second)))
        if place not in self._known:
            self._known[place] = permutation_test(
                metric, values[first], values[second], self.correct, n_permutations=self._n, seed=SEED
            )
        return self._known[place]

    def family(self, differences: Mapping[str, Difference]) -> dict[str, TestedDifference]:
        """Differences whose p-values are corrected for their number."""
        adjusted = holm([difference.p_value for difference in differences.values()])
        return {
            name: TestedDifference(difference, p, self._enough)
            for (name, difference), p in zip(differences.items(), adjusted, strict=True)
        }

    def against(
        self,
        metric: str,
        drawn: Mapping[str, ResampledMetric],
        values: Mapping[str, FloatArray],
        family: Sequence[str],
        reference: str | None,
    ) -> dict[str, TestedDifference]:
        """The others of a family against one method."""
        if reference is None or reference not in drawn:
            return {}
        return self.family(
            {
                name: drawn[name].minus(drawn[reference], p_value=self.p(metric, name, reference, values))
                for name in family
                if name != reference
            }
        )


def _qualities(
    drawn: Mapping[str, ResampledMetric],
    metric: str,
    tests: PairedTests,
    values: Mapping[str, FloatArray],
    reference: str,
) -> dict[str, Quality]:
    """Estimates of all methods of a cell by one metric, and the tests between them."""
    compared = [name for name in drawn if name not in ABLATIONS]
    ablated = [name for name in drawn if name in ABLATIONS]
    defined = [name for name in compared if not math.isnan(drawn[name].value)]
    best = max(defined, key=lambda name: (drawn[name].value, name == reference), default=None)
    to_stc: dict[str, TestedDifference] = {}
    for family in (compared, ablated):
        to_stc |= tests.against(metric, drawn, values, family, STC)
    to_best = tests.against(metric, drawn, values, compared, best)
    to_reference = tests.against(metric, drawn, values, compared, reference)
    return {
        name: Quality(resampled.estimate(), to_stc.get(name), to_best.get(name), to_reference.get(name))
        for name, resampled in drawn.items()
    }


def _variant_qualities(
    drawn: Mapping[str, ResampledMetric], main: ResampledMetric | None, tests: PairedTests, cell: Cell
) -> dict[str, Quality]:
    tested = {}
    if main is not None:
        values = {**cell.variants, STC: cell.uncertainty[STC]}
        tested = tests.against("auroc", {**drawn, STC: main}, values, list(drawn), STC)
    return {name: Quality(resampled.estimate(), tested.get(name)) for name, resampled in drawn.items()}


def _controls(
    cell: Cell, drawn: Mapping[str, ResampledMetric], tests: PairedTests, count: Callable[[], None]
) -> dict[str, ControlFigures]:
    """Every control beside STC and beside sequence probability."""
    if not {STC, BASELINE} <= drawn.keys():
        return {}
    names = [name for name in CONTROLS if name in cell.controls]
    means, from_stc, from_baseline = {}, {}, {}
    for name in names:
        n_resamples = drawn[STC].n_resamples
        repeats = [
            resample("auroc", repeat, tests.correct, n_resamples=n_resamples, seed=SEED)
            for repeat in cell.controls[name]
        ]
        own = f"{PREFIX}{name}"
        order = np.argsort([repeat.value for repeat in repeats], kind="stable")
        median = order[(len(repeats) - 1) // 2]  # the lower one
        values = {**cell.uncertainty, own: cell.controls[name][median]}
        means[name] = _mean(repeats)
        from_stc[name] = means[name].minus(drawn[STC], p_value=tests.p("auroc", own, STC, values))
        from_baseline[name] = means[name].minus(drawn[BASELINE], p_value=tests.p("auroc", own, BASELINE, values))
        count()
    to_stc, to_baseline = tests.family(from_stc), tests.family(from_baseline)
    return {
        name: ControlFigures(
            CONTROLS[name], means[name].estimate(), len(cell.controls[name]), to_stc[name], to_baseline[name]
        )
        for name in names
    }


def _mean(repeats: Sequence[ResampledMetric]) -> ResampledMetric:
    """The mean of a metric over repetitions on the same resamples."""
    first = repeats[0]
    if first.reason:
        return first
    return replace(
        first,
        value=float(np.mean([repeat.value for repeat in repeats])),
        values=np.mean([repeat.values for repeat in repeats], axis=0),
        n_non_finite=sum(repeat.n_non_finite for repeat in repeats),
    )
