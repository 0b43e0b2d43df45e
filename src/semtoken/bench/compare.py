"""All methods on the same answers: how well each tells wrong from right, and what it costs beyond the greedy answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from semtoken.almanac import Question
from semtoken.bench.judges import Judged, correctness
from semtoken.bench.judges.texts import ExactJudge
from semtoken.bench.stages.scores import uncertainties
from semtoken.errors import InvalidInput
from semtoken.generation import Generation
from semtoken.methods import METHODS, Method
from semtoken.metrics import Difference, Estimate, bootstrap, paired_difference
from semtoken.statistics import Decoding, EntailmentModel, SimilarityModel, Timings, record
from semtoken.statistics.entailment import DEFAULT_NLI
from semtoken.statistics.generations import Progress
from semtoken.statistics.similarity import DEFAULT_SIMILARITY
from semtoken.statistics.steps import seconds_for

if TYPE_CHECKING:
    from semtoken.backends.prompts import Prompt
    from semtoken.backends.transformers import STC

FloatArray = npt.NDArray[np.float64]
REFERENCE = "stc"


@dataclass(frozen=True)
class MethodResult:
    """One line of the comparison."""

    method: Method
    auroc: Estimate
    prr: Estimate
    auroc_difference: Difference | None
    """AUROC of the method minus that of STC on the same answers; None for STC itself."""
    prr_difference: Difference | None
    """The same for PRR."""
    undefined: int
    """Answers whose uncertainty was NaN or +inf. They shared the worst rank."""
    seconds: float
    """Beyond the greedy generation: every recording step that the method needs, shared ones counted in full."""


@dataclass(frozen=True)
class Comparison:
    """All methods on the same answers."""

    results: tuple[MethodResult, ...]
    n: int
    """Questions."""
    n_correct: int
    """Right greedy answers."""
    greedy_seconds: float
    """The greedy generation itself, which every method is given."""
    steps: Mapping[str, float]
    """Seconds of every recording step."""
    settings: Mapping[str, Any]
    """What was compared: model, seed, samples and so on."""

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.n_correct / self.n


def selected_methods(names: Iterable[str] = ()) -> list[Method]:
    """Methods in the order of `METHODS`; all of them without names. STC is always among them.

    Raises
    ------
    InvalidInput
        There is no method of one of these names.
    """
    wanted = set(names)
    unknown = wanted - METHODS.keys()
    if unknown:
        raise InvalidInput(f"There is no method {', '.join(sorted(unknown))}; there are {', '.join(METHODS)}.")
    return [method for name, method in METHODS.items() if not wanted or name in wanted or name == REFERENCE]


def needed_fields(methods: Iterable[Method]) -> frozenset[str]:
    """Fields of `Generation` that some of the methods need."""
    return frozenset(field for method in methods for field in method.needs)


def run_comparison(
    stc: STC,
    questions: Sequence[Question],
    prompts: Sequence[Prompt],
    methods: Sequence[Method],
    *,
    decoding: Decoding,
    nli: str | EntailmentModel = DEFAULT_NLI,
    similarity: str | SimilarityModel = DEFAULT_SIMILARITY,
    n_resamples: int = 1000,
    progress: Progress | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Comparison:
    """Answer the questions, record what the methods need, and compare them.

    Parameters
    ----------
    stc
        Model, tokenizer, clusters and rules.
    questions, prompts
        One prompt for each question.
    methods
        From `selected_methods`.
    decoding
        How answers are generated; its seed is also that of the bootstrap.
    nli, similarity
        As in `semtoken.statistics.record`.
    n_resamples
        Of the bootstrap.
    progress
        Called with (step, done, of how many).
    settings
        Kept beside the results.
    """
    timings = Timings()
    generations = record(
        stc,
        [question.question for question in questions],
        prompts=prompts,
        needs=needed_fields(methods),
        decoding=decoding,
        nli=nli,
        similarity=similarity,
        timings=timings,
        progress=progress,
    )
    answers = [Judged(question, answer.text) for question, answer in zip(questions, generations, strict=True)]
    helpers = {name: model for name, model in (("nli", nli), ("similarity", similarity)) if isinstance(model, str)}
    return compare_methods(
        generations,
        correctness(ExactJudge().judge(answers)).tolist(),
        methods,
        timings,
        seed=decoding.seed,
        n_resamples=n_resamples,
        settings={**(settings or {}), **helpers, **asdict(decoding), "n_resamples": n_resamples},
    )


def compare_methods(
    generations: Sequence[Generation],
    correct: Sequence[float],
    methods: Sequence[Method],
    timings: Timings,
    *,
    seed: int = 0,
    n_resamples: int = 1000,
    settings: Mapping[str, Any] | None = None,
) -> Comparison:
    """Score recorded answers by every method and measure how well the scores tell wrong answers from right ones.

    Parameters
    ----------
    generations
        With the fields that the methods need.
    correct
        1 right, 0 wrong, one for each generation.
    methods
        From `selected_methods`.
    timings
        Of the recording.
    seed, n_resamples
        Of the bootstrap. Every method is resampled with the same draws.
    settings
        Kept beside the results.

    Raises
    ------
    InvalidInput
        Numbers of generations and judgements differ, or there are none.
    """
    if not generations or len(generations) != len(correct):
        raise InvalidInput(f"There are {len(generations)} answers and {len(correct)} judgements; give one for each.")
    judged = np.asarray(correct, dtype=np.float64)
    scored = {method.name: uncertainties(method.name, generations) for method in methods}
    reference = scored.get(REFERENCE, (None, 0.0))[0]
    results = []
    for method in methods:
        uncertainty, seconds = scored[method.name]
        other = None if method.name == REFERENCE else reference
        results.append(
            _result(
                method,
                uncertainty,
                other,
                judged,
                seconds + seconds_for(method.needs, timings.seconds),
                seed,
                n_resamples,
            )
        )
    steps = timings.seconds
    return Comparison(
        results=tuple(results),
        n=len(judged),
        n_correct=int(np.nansum(judged)),
        greedy_seconds=steps.get("greedy", 0.0),
        steps=steps,
        settings=dict(settings or {}),
    )


def _result(
    method: Method,
    uncertainty: FloatArray,
    reference: FloatArray | None,
    correct: FloatArray,
    seconds: float,
    seed: int,
    n_resamples: int,
) -> MethodResult:
    options: dict[str, Any] = {"seed": seed, "n_resamples": n_resamples}
    differences: list[Difference | None] = [None, None]
    if reference is not None:
        differences = [
            paired_difference(metric, uncertainty, reference, correct, **options) for metric in ("auroc", "prr")
        ]
    return MethodResult(
        method=method,
        auroc=bootstrap("auroc", uncertainty, correct, **options),
        prr=bootstrap("prr", uncertainty, correct, **options),
        auroc_difference=differences[0],
        prr_difference=differences[1],
        undefined=sum(math.isnan(value) or value == math.inf for value in uncertainty.tolist()),
        seconds=seconds,
    )
