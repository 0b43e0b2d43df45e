"""The uncertainty of every answer by every method, from what was recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from semtoken.bench.stages.parts import Context, Recorder, ShardInputs, StepRecords, UnrecordedStep
from semtoken.errors import SemtokenError
from semtoken.methods import score
from semtoken.results.generation import Generation
from semtoken.support.extras import require

FloatArray = npt.NDArray[np.float64]
UNCERTAINTY = "uncertainty"


def uncertainties(method: str, generations: Sequence[Generation]) -> tuple[FloatArray, float]:
    """The method's value of every answer, and the seconds that took."""
    start = time.perf_counter()
    values = np.array([score(method, generation) for generation in generations], dtype=np.float64)
    return values, time.perf_counter() - start


def recorder(context: Context) -> Recorder:
    """One column of uncertainties for each method; a method that fails does not keep the others from theirs."""

    def record(part: ShardInputs) -> Iterator[StepRecords | UnrecordedStep]:
        pyarrow = require("pyarrow", extra="bench")
        generations = part.generations
        for step in part.missing:
            try:
                values, seconds = uncertainties(step.subject, generations)
            except SemtokenError as error:
                yield UnrecordedStep(step, str(error))
                continue
            table = pyarrow.table({"id": part.ids, UNCERTAINTY: pyarrow.array(values, from_pandas=False)})
            yield StepRecords(step, table, {step.name: seconds})

    return record
