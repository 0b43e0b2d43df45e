"""A run read back: every number that tables and figures are made of, and the one small file that keeps them."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from semtoken.bench.plan import OfCell
from semtoken.errors import InvalidInputError
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require
from semtoken.support.files.strict_json import finite


@dataclass(frozen=True, eq=False)
class Cell(OfCell):
    """The answers, verdicts and uncertainties of one model on the N questions of one data set."""

    question_ids: tuple[str, ...]
    uncertainty: Mapping[str, FloatArray]
    """Name of a method (key of `METHODS`, ablations of STC included) -> [N], higher is riskier, NaN undefined."""
    judgments: Mapping[str, FloatArray]
    """Name of a judge -> [N]: 1 correct, 0 incorrect, NaN where the judge gave no usable verdict."""
    variants: Mapping[str, FloatArray]
    """Name of a clustering of the sensitivity study -> [N] uncertainty of STC with it. Empty without a study."""
    greedy_seconds: float
    """Seconds of the greedy generation, which every method is given."""
    seconds: Mapping[str, float]
    """Name of a method -> seconds beyond the greedy generation, shared steps charged to each that needs them."""
    steps: Mapping[str, float]
    """Seconds of every recording step."""
    controls: Mapping[str, FloatArray] = field(default_factory=dict)
    """Name of a control of `semtoken.bench.controls` -> [R, N] its uncertainty, R repetitions."""
    texts: tuple[tuple[str, str], ...] = ()
    """[N] question and greedy answer; empty where the texts are not kept."""
    log_confidence: FloatArray | None = None
    """[N] log score of STC, which keeps the digits that its uncertainty lacks on long answers; None where unknown."""
    signature: str | None = None
    """Clusters and rules of STC, as `ScoredAnswer.signature` has them; None where unknown."""


@dataclass(frozen=True)
class ClusteringRecord:
    """The settings and figures of one clustering that a run used."""

    model: str
    variant: str
    """Name in `Cell.variants`; "main" for the one that methods use."""
    settings: Mapping[str, Any]
    """The settings of the clustering: algorithm, linkage, metric, embedding, n_clusters."""
    seconds: float | None
    """Time that making it took; None where the clusters were given and do not say."""
    n_tokens: int
    examples: tuple[tuple[str, ...], ...] = ()
    """Clusters of some frequent words, each as the texts of its tokens."""


@dataclass(frozen=True, eq=False, repr=False)
class RunResults:
    """All complete results of a run, as reports read them."""

    path: Path
    settings: Mapping[str, Any]
    """The run's settings as resolved, defaults filled in."""
    manifest: Mapping[str, Any]
    """Versions, seeds, hardware, git state, times."""
    primary_judge: str
    """The judge whose verdicts the main tables use."""
    cells: tuple[Cell, ...]
    clusterings: tuple[ClusteringRecord, ...]
    notes: tuple[str, ...] = field(default=())
    """Notes for readers of the tables: missing verdicts, incomplete cells."""

    def __repr__(self) -> str:
        cells = ", ".join(cell.title for cell in self.cells)
        return f"RunResults({str(self.path)!r}: {cells or 'no complete cell'})"


FILE = "answers.parquet"
METADATA_KEY = b"semtoken.answers"
VERSION = 2
"""The version of the file's form."""
FACTS = ("model", "dataset", "greedy_seconds", "seconds", "steps", "signature")
"""Fields of a cell that are no columns."""
LOG_SCORE = "stc_log_score"


def answers_table(results: RunResults, *, texts: bool = True) -> bytes:
    """The content of the Parquet file that holds every answer with its scores and verdicts; texts only if wanted."""
    pyarrow = require("pyarrow", extra="bench")
    parquet = require("pyarrow.parquet", extra="bench")
    kept = texts and all(cell.texts for cell in results.cells)
    # In one piece, so that its bytes do not depend on how many cells there are.
    table = pyarrow.concat_tables(
        [pyarrow.table(dict(_columns(cell, texts=kept))) for cell in results.cells], promote_options="default"
    ).combine_chunks()
    facts = {
        "version": VERSION,
        "run": results.path.resolve().name,
        "settings": results.settings,
        "manifest": results.manifest,
        "primary_judge": results.primary_judge,
        "notes": results.notes,
        "clusterings": [asdict(clustering) for clustering in results.clusterings],
        "cells": [{name: getattr(cell, name) for name in FACTS} for cell in results.cells],
    }
    # seconds that are not known are null: JSON has no NaN
    metadata = {METADATA_KEY: json.dumps(finite(facts), allow_nan=False).encode()}
    file = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata(metadata), file, compression="zstd")
    return file.getvalue()


def _columns(cell: Cell, *, texts: bool) -> Iterator[tuple[str, Any]]:
    """The columns of a cell in the file; `cell_of` reads them back."""
    pyarrow = require("pyarrow", extra="bench")
    yield "model", [cell.model] * len(cell.question_ids)
    yield "dataset", [cell.dataset] * len(cell.question_ids)
    yield "id", cell.question_ids
    if texts:
        yield "question", [question for question, _ in cell.texts]
        yield "answer", [answer for _, answer in cell.texts]
    numbers = {f"judge:{name}": values for name, values in cell.judgments.items()}
    numbers |= {f"method:{name}": values for name, values in cell.uncertainty.items()}
    numbers |= {f"variant:{name}": values for name, values in cell.variants.items()}
    for name, repeats in cell.controls.items():
        numbers |= {f"control:{name}.{number}": values for number, values in enumerate(repeats)}
    if cell.log_confidence is not None:
        numbers[LOG_SCORE] = cell.log_confidence
    for name, values in numbers.items():
        # NaN is undefined, and null is what this cell does not have.
        yield name, pyarrow.array(values, type=pyarrow.float64(), from_pandas=False)


def read_answers(path: str | Path) -> RunResults:
    """The results of a run from the file that its report kept; `InvalidInputError` if it cannot be read or is
    another.
    """
    pyarrow = require("pyarrow", extra="bench")
    parquet = require("pyarrow.parquet", extra="bench")
    file = Path(path)
    try:
        table = parquet.read_table(file)
        facts = json.loads((table.schema.metadata or {})[METADATA_KEY])
        version = facts["version"]
    except (OSError, KeyError, TypeError, ValueError, pyarrow.ArrowException) as error:
        raise InvalidInputError(
            f"{file} holds no answers of a benchmark run; name a run or the {FILE} of a report."
        ) from error
    if version != VERSION:
        raise InvalidInputError(f"{file} is of another release of semtoken (version {version} of its format).")
    try:
        return _results(file, facts, table)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"{file} was changed after a report kept it, and cannot be read: {error!r}.") from error


def _results(file: Path, facts: Mapping[str, Any], table: Any) -> RunResults:
    """The results that a file holds: its facts about the run, and the table of all answers."""
    return RunResults(
        path=file.parent / str(facts["run"]),
        settings=facts["settings"],
        manifest=facts["manifest"],
        primary_judge=facts["primary_judge"],
        cells=tuple(cell_of(_facts_of(cell), _columns_of(table, cell)) for cell in facts["cells"]),
        clusterings=tuple(
            ClusteringRecord(**{**clustering, "examples": tuple(map(tuple, clustering["examples"]))})
            for clustering in facts["clusterings"]
        ),
        notes=tuple(facts["notes"]),
    )


def _columns_of(table: Any, facts: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The columns that a cell has, of a table of all cells."""
    field = require("pyarrow.compute", extra="bench").field
    own = table.filter((field("model") == facts["model"]) & (field("dataset") == facts["dataset"])).to_pydict()
    return {name: values for name, values in own.items() if None not in values}


def _facts_of(saved: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a cell as its file holds them, with NaN in place of the seconds that are null there."""

    def seconds(value: float | None) -> float:
        return math.nan if value is None else value

    by_name = {key: {name: seconds(value) for name, value in saved[key].items()} for key in ("seconds", "steps")}
    return {**saved, **by_name, "greedy_seconds": seconds(saved["greedy_seconds"])}


def cell_of(facts: Mapping[str, Any], columns: Mapping[str, Sequence[Any]]) -> Cell:
    """The cell with these facts (see `FACTS`) and columns.

    The columns are `id`, `question` and `answer`, `judge:NAME`, `method:NAME`, `variant:NAME`, `control:NAME` (with a
    number behind a full stop where it is repeated), and `LOG_SCORE`; all but `id` may be missing.
    """
    by_kind: dict[str, dict[str, FloatArray]] = {"judge": {}, "method": {}, "variant": {}, "control": {}}
    for column, values in columns.items():
        kind, colon, name = column.partition(":")
        if colon:
            by_kind[kind][name] = np.array(values, dtype=np.float64)
    repeats: dict[str, list[FloatArray]] = {}
    for name, uncertainty in by_kind["control"].items():
        repeats.setdefault(name.partition(".")[0], []).append(uncertainty)
    logs = columns.get(LOG_SCORE)
    return Cell(
        **facts,
        question_ids=tuple(columns["id"]),
        uncertainty=by_kind["method"],
        judgments=by_kind["judge"],
        variants=by_kind["variant"],
        controls={name: np.stack(values) for name, values in repeats.items()},
        texts=tuple(zip(columns.get("question", ()), columns.get("answer", ()), strict=True)),
        log_confidence=None if logs is None else np.array(logs, dtype=np.float64),
    )
