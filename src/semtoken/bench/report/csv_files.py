"""The figures, tests and counts of a run as CSV texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from semtoken.bench.judges import Agreement
from semtoken.bench.report.measure import Measured
from semtoken.bench.report.probabilities import TESTED, Probabilities, curve_points
from semtoken.bench.results import ClusteringRecord
from semtoken.support.extras import require
from semtoken.support.files.record_files import no_formula

if TYPE_CHECKING:
    from pandas import DataFrame


def csv_files(
    made: Measured,
    clusterings: Sequence[ClusteringRecord],
    probabilities: Probabilities,
    extremes: DataFrame,
) -> Iterator[tuple[str, str]]:
    """The figures, tests and counts of a run as CSV texts, each with the name of its file without the ending."""
    pandas = require("pandas", extra="bench")
    yield "figures", csv_text(made.figures)
    yield "tests", csv_text(made.tests)
    counted = [
        {
            "model": cell.model,
            "dataset": cell.dataset,
            "questions": cell.n,
            "correct": cell.counts.correct,
            "incorrect": cell.counts.incorrect,
            "no_verdict": cell.counts.missing,
            "greedy_seconds": cell.greedy_seconds,
            "method": name,
            "undefined": undefined,
        }
        for cell in made.cells
        for name, undefined in cell.undefined.items()
    ]
    yield "cells", csv_text(counted)
    pairs = [
        {"model": cell.model, "dataset": cell.dataset, **asdict(pair)}
        for cell in made.cells
        for pair in cell.agreements
    ]
    yield "judges", csv_text(pairs, ["model", "dataset", *(field.name for field in fields(Agreement))])
    settings = ("algorithm", "linkage", "metric", "embedding", "n_clusters")
    further: dict[str, Iterable[Mapping[str, Any]]] = {
        "clusterings": (
            {"model": own.model, "clustering": own.variant, "tokens": own.n_tokens, "seconds": own.seconds}
            | {name: own.settings.get(name) for name in settings}
            for own in clusterings
        ),
        "clusters": (
            {"model": own.model, "cluster": number, "token": token}
            for own in clusterings
            for number, cluster in enumerate(own.examples, start=1)  # one token of an example a row
            for token in cluster
        ),
        "risk_coverage": curve_points(probabilities),
    }
    tables = {
        **{name: pandas.DataFrame(rows, dtype=object) for name, rows in further.items()},
        "probabilities": probabilities.methods.drop(columns=TESTED),
        "reliability": probabilities.groups,
        "extreme_answers": extremes,
    }
    for name, table in tables.items():
        if len(table):
            yield name, csv_text(table)


def csv_text(rows: DataFrame | Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Write rows as CSV: numbers in full precision, missing values empty, and no cell that is a formula."""
    pandas = require("pandas", extra="bench")
    # As objects: a column of whole numbers with a gap would become floats, and 3 be written as 3.0.
    made = pandas.DataFrame(rows, columns=columns, dtype=object)
    text: str = made.map(_value).to_csv(index=False, lineterminator="\n")
    return text


def _value(value: Any) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return no_formula(value) if isinstance(value, str) else value  # names and tokens are other people's text
