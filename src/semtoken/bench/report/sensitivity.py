"""Tables of the clusterings: STC with other settings, examples of clusters, the time that clustering took."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from semtoken.bench.report.cell_figures import MAIN, STC, CellFigures, Quality, is_main, settings_of
from semtoken.bench.report.comparison import (
    MARKS,
    NOT_RUN,
    VERDICT_RULE,
    datasets_of,
    estimate_entry,
    models_of,
    tested_entries,
)
from semtoken.bench.report.table import MISSING, Entry, Group, Table, amount, marked_rows, texts
from semtoken.bench.results import ClusteringRecord
from semtoken.support.text import one_line

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

    Every setting that was varied has the main clustering among its points, at the value that it was made with.
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


def sorted_points(found: Iterable[Point]) -> list[Point]:
    """The points in order of their values: numbers ascending, words by the alphabet."""
    return sorted(found, key=lambda p: (float(p.value), "") if p.value.isdigit() else (math.inf, p.value))


def sensitivity(cells: Sequence[CellFigures], clusterings: Sequence[ClusteringRecord]) -> Table | None:
    """A table of the AUROC of STC with other clusterings; None without a study."""
    found = {(c.dataset, c.model): {(p.setting, p.value): p for p in points(c, clusterings)} for c in cells}
    models = models_of(cells)
    groups = []
    for dataset in datasets_of(cells):
        for setting, name in STUDIES.items():
            columns = [
                {key[1]: p for key, p in found.get((dataset, model), {}).items() if key[0] == setting}
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
        Group(one.model, tuple(texts(", ".join(map(token_text, cluster))) for cluster in one.examples))
        for one in clusterings
        if one.examples
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
            *texts(one.model, "used by the methods" if one.variant == MAIN else _variant_title(one.variant)),
            *texts(
                ", ".join(str(one.settings[name]) for name in STUDIES if name in one.settings and name != "n_clusters")
            ),
            *texts(f"{one.n_tokens:,}", f"{n:,}" if isinstance(n := one.settings.get("n_clusters"), int) else MISSING),
            Entry(MISSING, "not told") if one.seconds is None else Entry(amount(one.seconds), value=one.seconds),
        )
        for one in clusterings
        if not is_main(one.variant, one.model, clusterings)
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
