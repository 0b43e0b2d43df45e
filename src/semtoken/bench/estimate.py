"""The time and space that a run will take, from a trial on a few questions of every data set."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from semtoken.bench.read_results import collect
from semtoken.bench.run import require_all_done, run_benchmark
from semtoken.bench.settings import RunSettings

TRIAL = 8
"""The number of questions of every data set that the trial asks."""


@dataclass(frozen=True)
class RunEstimate:
    """The estimated duration of a whole run, and the space on disk that it takes."""

    questions: int
    """The number of questions that are answered, over all models and data sets."""
    seconds: float
    """Time for answering, recording and scoring; loading models and clustering are `setup_seconds`."""
    setup_seconds: float
    n_bytes: int


def estimate(settings: RunSettings, counts: dict[str, int]) -> RunEstimate:
    """Estimate the time and space of a run by answering a few questions in a temporary folder.

    `counts` has the number of questions by label of a data set. `InvalidInputError` names the step of the trial that
    failed.
    """
    with TemporaryDirectory(prefix="semtoken-") as folder:
        run = Path(folder) / "trial"
        start = time.perf_counter()
        failures = run_benchmark(settings.model_copy(update={"limit": min(TRIAL, settings.limit or TRIAL)}), run)
        elapsed = time.perf_counter() - start
        require_all_done(failures)
        cells = collect(run).cells
        once = sum(path.stat().st_size for path in (run / "clusterings").rglob("*") if path.is_file())
        whole = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    tried = sum(len(cell.question_ids) for cell in cells)
    questions = sum(counts[cell.dataset] for cell in cells)
    recording = sum(sum(cell.steps.values()) for cell in cells)
    scale = questions / max(tried, 1)
    return RunEstimate(questions, recording * scale, max(elapsed - recording, 0.0), int(once + (whole - once) * scale))
