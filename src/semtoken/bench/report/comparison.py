"""Tables of the methods and of STC without its parts, with the paired tests; tables of the clusterings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from semtoken.bench.plan import MAIN
from semtoken.bench.report.cell_figures import (
    ABLATIONS,
    BASELINE,
    FEW,
    FEWEST,
    METRICS,
    NOT_SHOWN,
    STC,
    CellFigures,
    ControlFigures,
    MethodFigures,
    Quality,
    TestedDifference,
    in_order,
    is_main,
    settings_of,
    spoken,
    title_of,
)
from semtoken.bench.report.table import (
    MISSING,
    Entry,
    Group,
    Sign,
    Table,
    amount,
    interval,
    marked_rows,
    metric,
    signed,
    signed_interval,
    texts,
)
from semtoken.bench.results import ClusteringRecord
from semtoken.metrics import Estimate
from semtoken.support.text import one_line

NAMES = {"auroc": "AUROC", "prr": "PRR"}
VERDICT_RULE = (
    "Intervals: 95 %, paired bootstrap, every resample draws the same questions for both. Higher, lower: the interval "
    "of the difference lies above or below 0; not shown: it holds 0. They are not corrected for their number: of "
    "twenty differences that are none, one is called so."
)
"""What the verdicts of all tables mean."""
UNDEFINED = "undefined"
UNDEFINED_SAID = "Undefined: answers for which the method has no value (NaN or infinite); they share the worst rank."
NO_INTERVAL = "no interval"
STC_AND_BEST = ("minus STC", "", "minus the best", "")
NOT_RUN = Entry(MISSING, "not in this run")
MARKS = (
    "Best of each column in bold, second best underlined; what reads the same is marked together. "
    "In brackets: 95 % bootstrap interval. "
)
LEVEL = "≈: not shown to be lower than the best (the 95 % interval of their difference holds 0). "


def comparison(cells: Sequence[CellFigures], name: str) -> Table:
    """A table of one metric of every compared method: rows are methods, columns models, groups data sets."""

    def entry(method: MethodFigures) -> Entry:
        quality = method.quality[name]
        level = quality.to_best is not None and quality.to_best.verdict == NOT_SHOWN
        return estimate_entry(quality.estimate, "≈" if level else "")

    return Table(
        name=f"comparison_{name}",
        title=f"{NAMES[name]} of the methods",
        header=("Method", *models_of(cells)),
        groups=_by_dataset(cells, [m for m in _methods(cells) if m not in ABLATIONS], entry),
        note=f"{MARKS}{LEVEL}Higher is better.{few_note(cells)}",
    )


def ablation(cells: Sequence[CellFigures], name: str) -> Table:
    """A table of one metric of STC, STC without clusters, STC without prefix sets, and sequence probability."""
    return Table(
        name=f"ablation_{name}",
        title=f"{NAMES[name]} of STC without its parts",
        header=("Setting", *models_of(cells)),
        groups=_by_dataset(cells, _ablated(cells), lambda method: estimate_entry(method.quality[name].estimate)),
        note=f"{MARKS}Sequence probability is STC without clusters, prefixes and function words.{few_note(cells)}",
    )


def overhead(cells: Sequence[CellFigures], *, relative: bool) -> Table:
    """A table of the time that methods take beyond the greedy generation, in seconds or in percent of it."""

    def entry(method: MethodFigures) -> Entry:
        value = method.percent if relative else method.seconds
        return Entry(MISSING, "not measured") if math.isnan(value) else Entry(amount(value), value=value)

    unit = "percent of the greedy generation" if relative else "seconds"
    return Table(
        name="overhead_percent" if relative else "overhead_seconds",
        title=f"Overhead in {unit}",
        header=("Method", *models_of(cells)),
        groups=_by_dataset(cells, [m for m in _methods(cells) if m not in ABLATIONS], entry, smallest=True),
        note="Time beyond the greedy generation of all questions. A step that several methods share (samples, "
        "entailment) is charged in full to each. Smallest in bold, second smallest underlined.",
    )


def method_tests(cells: Sequence[CellFigures], name: str, reference: str | None = None) -> Table:
    """A table of one metric of every method and its tested differences: to STC and to the best, or to a reference."""

    def row(method: MethodFigures) -> tuple[Entry, ...]:
        quality = method.quality[name]
        tested = (quality.to_stc, quality.to_best) if reference is None else (quality.to_reference,)
        entries = [entry for difference in tested for entry in tested_entries(difference)]
        return (Entry(method.title), estimate_entry(quality.estimate), *entries, Entry(f"{method.undefined:,}"))

    held = [cell for cell in cells if cell.ranked(name) and (reference is None or reference in cell.methods)]
    about = "" if reference is None else spoken(reference)
    picked = "" if about else " The best was picked on these same answers, which its intervals do not allow for."
    return Table(
        name=f"reference_{name}" if about else f"tests_{name}",
        title=f"{NAMES[name]} beside that of {about}" if about else f"Differences of {NAMES[name]} on the same answers",
        header=("Method", NAMES[name], *((f"minus {about}", "") if about else STC_AND_BEST), "undefined"),
        groups=tuple(Group(cell.title, tuple(map(row, cell.ranked(name)))) for cell in held),
        note=f"{VERDICT_RULE}{picked} {UNDEFINED_SAID}{few_note(cells)}",
    )


def ablation_tests(cells: Sequence[CellFigures]) -> Table:
    """A table of both metrics of STC, its ablations and sequence probability, with differences to STC and verdicts."""
    groups = []
    for cell in cells:
        rows = []
        for name in _ablated([cell]):
            method = cell.methods[name]
            pairs = [
                (
                    estimate_entry(method.quality[metric_name].estimate),
                    *tested_entries(method.quality[metric_name].to_stc),
                )
                for metric_name in METRICS
            ]
            rows.append((Entry(method.title), *(entry for pair in pairs for entry in pair)))
        groups.append(Group(cell.title, tuple(rows)))
    return Table(
        name="ablation_tests",
        title="STC without its parts beside STC",
        header=("Setting", "AUROC", "minus STC", "", "PRR", "minus STC", ""),
        groups=tuple(groups),
        note=f"{VERDICT_RULE}{few_note(cells)}",
    )


def models_of(cells: Sequence[CellFigures]) -> list[str]:
    """The labels of the models, each once, in the order of the run."""
    return list(dict.fromkeys(cell.model for cell in cells))


def datasets_of(cells: Sequence[CellFigures]) -> list[str]:
    """The labels of the data sets, each once, in the order of the run."""
    return list(dict.fromkeys(cell.dataset for cell in cells))


def tested_entries(tested: TestedDifference | None) -> tuple[Entry, Entry]:
    """Two entries of a table: a difference with its interval, and the verdict on it."""
    if tested is None:
        return Entry(""), Entry("")
    difference = tested.difference
    ends = "" if math.isnan(difference.value) else signed_interval(difference.low, difference.high) or NO_INTERVAL
    return Entry(signed(difference.value), ends), Entry(tested.verdict)


def few_note(cells: Sequence[CellFigures]) -> str:
    """A warning for the note below a table, where few answers are right or few are wrong; else empty."""
    few = [f"{cell.title} ({cell.fewest:,})" for cell in cells if cell.fewest < FEW]
    if not few:
        return ""
    return (
        f" Beware: fewer than {FEW} right or wrong answers in {', '.join(few)}: a few answers more or less could turn "
        f"these figures round. With fewer than {FEWEST} there is no verdict."
    )


def estimate_entry(estimate: Estimate, sign: Sign = "") -> Entry:
    """An entry of a table: a value with its interval; "undefined" for NaN."""
    if math.isnan(estimate.value):
        return Entry(UNDEFINED)
    if estimate.low == estimate.high:  # every resample gave the same: a handful of answers, or a perfect order
        return Entry(metric(estimate.value), NO_INTERVAL, estimate.value, sign=sign)
    return Entry(metric(estimate.value), interval(estimate.low, estimate.high), estimate.value, sign=sign)


def _by_dataset(
    cells: Sequence[CellFigures],
    names: Sequence[str],
    entry_of: Callable[[MethodFigures], Entry],
    *,
    smallest: bool = False,
) -> tuple[Group, ...]:
    """Rows for methods and columns for models, a group for each data set."""
    by_place = {(cell.dataset, cell.model): cell.methods for cell in cells}
    groups = []
    for dataset in datasets_of(cells):
        columns = [by_place.get((dataset, model), {}) for model in models_of(cells)]
        rows = [
            (Entry(title_of(name)), *(entry_of(methods[name]) if name in methods else NOT_RUN for methods in columns))
            for name in names
        ]
        groups.append(Group(dataset, marked_rows(rows, smallest=smallest)))
    return tuple(groups)


def _methods(cells: Sequence[CellFigures]) -> list[str]:
    """Names of all methods of a run, those of `METHODS` in its order first."""
    return in_order(dict.fromkeys(name for cell in cells for name in cell.methods))


def _ablated(cells: Sequence[CellFigures]) -> list[str]:
    return [name for name in (STC, *ABLATIONS, BASELINE) if any(name in cell.methods for cell in cells)]


PARTS = {"no_clusters": "clusters", "no_prefixes": "prefixes", "no_function_words": "function words"}
"""Control without a part -> the part."""
SHUFFLED = "shuffled_by_frequency"
"""The shuffle that is fair to clusters of frequent tokens."""


def controls(cells: Sequence[CellFigures]) -> Table | None:
    """A table of the AUROC of STC and of every control; None in a run without controls."""
    groups = [Group(cell.title, tuple(_rows(cell))) for cell in cells if cell.controls]
    if not groups:
        return None
    return Table(
        name="controls",
        title="STC beside its controls",
        header=("Score", "AUROC", "minus STC", "", "minus sequence probability", ""),
        groups=tuple(groups),
        note="Same answers, same model pass. Parts are taken away, or stand alone; other clusters replace those of "
        "the model and keep their sizes where they are shuffled. Bins of frequency go by token id unless counts were "
        "given. Shuffled clusters are drawn several times: the mean. Row "
        "means: every other member of a cluster has the mean probability of its step; compare it with clusters only. "
        f"{VERDICT_RULE}{few_note(cells)}",
    )


def _rows(cell: CellFigures) -> Iterator[tuple[Entry, ...]]:
    baseline = cell.methods[BASELINE].quality["auroc"]
    yield (Entry("STC"), estimate_entry(cell.methods[STC].quality["auroc"].estimate), *4 * (Entry(""),))
    yield (
        Entry("Sequence probability"),
        estimate_entry(baseline.estimate),
        *tested_entries(baseline.to_stc),
        *2 * (Entry(""),),
    )
    for figures in cell.controls.values():
        title = f"{figures.control.title}" + (f" (mean of {figures.repeats})" if figures.repeats > 1 else "")
        yield (
            Entry(title),
            estimate_entry(figures.estimate),
            *tested_entries(figures.to_stc),
            *tested_entries(figures.minus_baseline),
        )


def parts_in_words(cells: Sequence[CellFigures]) -> Iterator[str]:
    """Sentences on which part of STC improves the ranking on each model and data set."""
    for cell in cells:
        if not cell.controls:
            continue
        said = [_of_part(part, cell.controls[name]) for name, part in PARTS.items() if name in cell.controls]
        if SHUFFLED in cell.controls:
            said.append(_of_meaning(cell.controls[SHUFFLED]))
        yield f"{cell.title}: {' '.join(said)}"


def _of_part(part: str, without: ControlFigures) -> str:
    plural = part.capitalize()
    verdicts = {
        "lower": f"{plural} earn their place",
        "higher": f"{plural} do harm",
        "not shown": f"{plural} make no difference that these answers can show",
        "too few answers": f"Whether {part} help cannot be said from so few answers",
    }
    return f"{verdicts[without.to_stc.verdict]} (without them {_amount(without.to_stc)})."


def _of_meaning(shuffled: ControlFigures) -> str:
    verdicts = {
        "lower": "Which tokens share a cluster matters: STC beats clusters shuffled within bins of frequency",
        "higher": "The clusters are worse than shuffled ones (within bins of frequency)",
        "not shown": "The clusters cannot be told from shuffled ones (within bins of frequency), so nothing here "
        "shows that meaning helps",
        "too few answers": "Whether the clusters beat shuffled ones cannot be said from so few answers",
    }
    return f"{verdicts[shuffled.to_stc.verdict]} (shuffled {_amount(shuffled.to_stc)})."


def _amount(tested: TestedDifference) -> str:
    difference = tested.difference
    return f"{signed(difference.value)} {signed_interval(difference.low, difference.high)}".strip()


STUDIES: Mapping[str, str] = {
    "algorithm": "Algorithm",
    "metric": "Distance",
    "n_clusters": "Number of clusters",
    "embedding": "Embedding",
    "linkage": "Linkage",
}
"""Setting of a clustering -> its name in tables."""
BLANK = "␣"
"""Stands for a blank at the beginning of a token."""


@dataclass(frozen=True)
class Point:
    """The AUROC of STC on one model and data set for one value of one clustering setting."""

    setting: str
    """The setting that was varied, a key of `STUDIES`."""
    value: str
    quality: Quality
    main: bool
    """This is the clustering that the methods use."""


def points(cell: CellFigures, clusterings: Sequence[ClusteringRecord]) -> Iterator[Point]:
    """The points of the sensitivity study of a cell, settings in the order of `STUDIES`, values ascending.

    Every setting that was varied has the main clustering among its points.
    """
    main = settings_of(cell.model, clusterings)
    for setting in STUDIES:
        varied = {
            name.partition("=")[2]: Point(setting, name.partition("=")[2], quality, main=False)
            for name, quality in cell.variants.items()
            if name.partition("=")[0] == setting
        }
        if varied and setting in main and STC in cell.methods:
            value = str(main[setting])
            varied[value] = Point(setting, value, cell.methods[STC].quality["auroc"], main=True)
        yield from sorted_points(varied.values())


def sorted_points(given: Iterable[Point]) -> list[Point]:
    """The points in order of their values: numbers ascending, words by the alphabet."""
    return sorted(given, key=lambda p: (float(p.value), "") if p.value.isdigit() else (math.inf, p.value))


def sensitivity(cells: Sequence[CellFigures], clusterings: Sequence[ClusteringRecord]) -> Table | None:
    """A table of the AUROC of STC with other clusterings; None without a study."""
    points_by_place = {(c.dataset, c.model): {(p.setting, p.value): p for p in points(c, clusterings)} for c in cells}
    models = models_of(cells)
    groups = []
    for dataset in datasets_of(cells):
        for setting, name in STUDIES.items():
            columns = [
                {key[1]: p for key, p in points_by_place.get((dataset, model), {}).items() if key[0] == setting}
                for model in models
            ]
            values = dict.fromkeys(p.value for p in sorted_points(p for c in columns for p in c.values()))
            rows = [(Entry(shown(value)), *(_point_entry(c.get(value)) for c in columns)) for value in values]
            if rows:
                groups.append(Group(f"{dataset}: {name.lower()}", marked_rows(rows)))
    if not groups:
        return None
    return Table(
        name="sensitivity",
        title="AUROC of STC by clustering",
        header=("Value", *models),
        groups=tuple(groups),
        note=f"{MARKS}One setting is changed at a time. *: the clustering that the methods use.",
    )


def sensitivity_tests(cells: Sequence[CellFigures]) -> Table | None:
    """A table of tests of every clustering of the study against the main one; None without a study."""
    groups = [
        Group(
            cell.title,
            tuple(
                (
                    Entry(_variant_title(name)),
                    estimate_entry(quality.estimate),
                    *tested_entries(quality.to_stc),
                )
                for name, quality in cell.variants.items()
            ),
        )
        for cell in cells
        if cell.variants
    ]
    if not groups:
        return None
    return Table(
        name="sensitivity_tests",
        title="Other clusterings beside the one that the methods use",
        header=("Clustering", "AUROC", "minus STC", ""),
        groups=tuple(groups),
        note=VERDICT_RULE,
    )


def examples(clusterings: Sequence[ClusteringRecord]) -> Table | None:
    """A table of the clusters of some frequent words; None if the run holds no such examples."""
    groups = [
        Group(clustering.model, tuple(texts(", ".join(map(token_text, cluster))) for cluster in clustering.examples))
        for clustering in clusterings
        if clustering.examples
    ]
    if not groups:
        return None
    return Table(
        name="clusters",
        title="Examples of clusters",
        header=("Tokens of one cluster",),
        groups=tuple(groups),
        note=f"{BLANK} is a blank.",
    )


def precomputation(clusterings: Sequence[ClusteringRecord]) -> Table | None:
    """A table of the time that each clustering took; None in a run without clusterings."""
    if not clusterings:
        return None
    rows = [
        (
            *texts(
                clustering.model,
                "used by the methods" if clustering.variant == MAIN else _variant_title(clustering.variant),
            ),
            *texts(
                ", ".join(
                    str(clustering.settings[name])
                    for name in STUDIES
                    if name in clustering.settings and name != "n_clusters"
                )
            ),
            *texts(
                f"{clustering.n_tokens:,}",
                f"{n:,}" if isinstance(n := clustering.settings.get("n_clusters"), int) else MISSING,
            ),
            Entry(MISSING, "not told")
            if clustering.seconds is None
            else Entry(amount(clustering.seconds), value=clustering.seconds),
        )
        for clustering in clusterings
        if not is_main(clustering.variant, clustering.model, clusterings)
    ]
    return Table(
        name="precomputation",
        title="Time of clustering",
        header=("Model", "Clustering", "Settings", "Tokens", "Clusters", "Seconds"),
        groups=(Group("", tuple(rows)),),
        note="Once for each model, before any question. Clusters that were given may not tell how long they took.",
        left=3,
    )


def shown(value: str) -> str:
    """The value of a setting as text: 16,000 rather than 16000."""
    return f"{int(value):,}" if value.isdigit() else value


def _variant_title(name: str) -> str:
    """What a variant is called in tables: "Distance: euclidean" for "metric=euclidean"."""
    setting, _, value = name.partition("=")
    return f"{STUDIES.get(setting, setting)}: {shown(value)}"


def token_text(text: str) -> str:
    """The text of a token with blanks made visible."""
    return one_line(text).replace(" ", BLANK)


def _point_entry(point: Point | None) -> Entry:
    if point is None:
        return NOT_RUN
    return estimate_entry(point.quality.estimate, "*" if point.main else "")
