"""A benchmark run read back: every number that tables and figures are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cell:
    """One model on one data set: N questions."""

    model: str
    """Its label in tables, "Qwen2.5-7B" for example."""
    dataset: str
    """Label of the data set: "NQ", "TQA", "WQ", "almanac" or the name of a file."""
    question_ids: tuple[str, ...]
    uncertainty: Mapping[str, FloatArray]
    """Name of a method (key of `METHODS`, ablations of STC included) -> [N], higher is riskier, NaN undefined."""
    judgements: Mapping[str, FloatArray]
    """Name of a judge -> [N]: 1 correct, 0 incorrect, NaN where the judge gave no usable verdict."""
    variants: Mapping[str, FloatArray]
    """Name of a clustering of the sensitivity study -> [N] uncertainty of STC with it. Empty without a study."""
    greedy_seconds: float
    """The greedy generation, which every method is given."""
    seconds: Mapping[str, float]
    """Name of a method -> seconds beyond the greedy generation, shared steps charged to each that needs them."""
    steps: Mapping[str, float]
    """Seconds of every recording step."""
    controls: Mapping[str, FloatArray] = field(default_factory=dict)
    """Name of a control of `semtoken.bench.controls` -> [R, N] its uncertainty, R repetitions."""
    texts: tuple[tuple[str, str], ...] = ()
    """[N] question and greedy answer; empty where the texts are not kept."""
    log_score: FloatArray | None = None
    """[N] log score of STC, which keeps the digits that its uncertainty lacks on long answers; None where unknown."""
    states: FloatArray | None = None
    """[N, H] hidden state at the end of every greedy answer, NaN for one without tokens; None where none are kept."""
    signature: str | None = None
    """Clusters and rules of STC, as `ScoredResponse.signature` has them; None where unknown."""


@dataclass(frozen=True)
class ClusteringRecord:
    """One clustering of a model's vocabulary."""

    model: str
    variant: str
    """Name in `Cell.variants`; "main" for the one that methods use."""
    settings: Mapping[str, Any]
    """algorithm, linkage, metric, embedding, n_clusters."""
    seconds: float | None
    """Time that making it took; None where the clusters were given and do not say."""
    n_tokens: int
    examples: tuple[tuple[str, ...], ...] = ()
    """Clusters of some frequent words, each as the texts of its tokens."""


@dataclass(frozen=True, eq=False, repr=False)
class RunResults:
    """Everything in a run that is complete."""

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
    """What a reader of the tables must know: missing verdicts, incomplete cells."""

    def __repr__(self) -> str:
        cells = ", ".join(f"{cell.model} on {cell.dataset}" for cell in self.cells)
        return f"RunResults({str(self.path)!r}: {cells or 'no complete cell'})"
