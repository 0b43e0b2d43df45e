"""Intervals and paired tests by resampling the answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.methods.metrics.calibration import expected_calibration_error, prepare_calibration_error
from semtoken.methods.metrics.inputs import MOST_DRAWS, PreparedMetric, all_options, name_of, vector
from semtoken.methods.metrics.ranking import aurc, auroc, prepare_aurc, prepare_auroc, prepare_prr, prr
from semtoken.methods.metrics.significance import ORDER_METRICS, permutation_test
from semtoken.support.arrays import FloatArray
from semtoken.support.inputs import instance, listed, real, whole

# Numbers in an array at a time: 8 MB each, however many answers and resamples there are.
_CELLS_PER_BLOCK = 1_000_000
_PREPARE: Mapping[Callable[..., float], Callable[..., PreparedMetric]] = {
    auroc: prepare_auroc,
    prr: prepare_prr,
    aurc: prepare_aurc,
    expected_calibration_error: prepare_calibration_error,
}
_FUNCTIONS = {function.__name__: function for function in _PREPARE}


@dataclass(frozen=True)
class Estimate:
    """A metric with its interval."""

    value: float
    """The metric on the answers as given; NaN if undefined."""
    low: float
    """Lower end of the percentile interval."""
    high: float
    """Upper end of the percentile interval."""
    n: int
    """The number of answers that counted."""
    n_left_out: int
    """The number of answers that were not judged."""
    n_non_finite: int
    """The number of uncertainties that are NaN or +inf; they shared the worst rank."""
    n_resamples: int
    """The number of resamples that were drawn."""
    n_undefined: int
    """The number of resamples without a value (only right or only wrong answers, say); they are not in the interval."""
    confidence_level: float
    """The share of the resampled values that lies inside the interval, in (0, 1)."""
    reason: str
    """Why there is no value; empty if there is one."""


@dataclass(frozen=True)
class Difference(Estimate):
    """The metric of a minus the metric of b, on the same answers.

    A positive value: a has the larger metric. NaN: one of the two is undefined. `n_non_finite` counts both.
    """

    p_value: float
    """Two-sided, for "no difference"; never below 1 / (n_resamples + 1)."""


@dataclass(frozen=True, eq=False)
class ResampledMetric:
    """A metric on the answers as given and on resamples of them; see `resample`."""

    value: float
    """The metric on the answers as given; NaN if undefined."""
    values: FloatArray
    """The metric on every resample, [n_resamples], NaN where undefined; empty if `value` is undefined."""
    n: int
    """The number of answers that counted."""
    n_left_out: int
    """The number of answers that were not judged."""
    n_non_finite: int
    """The number of uncertainties that are NaN or +inf; they shared the worst rank."""
    n_resamples: int
    """The number of resamples that were asked for."""
    reason: str
    """Why there is no value; empty if there is one."""
    drawn: str = ""
    """A hash of the metric, the judgments and the seed: only values of one metric on equal draws can be subtracted."""

    def estimate(self, confidence_level: float = 0.95) -> Estimate:
        """The value with its percentile interval, which holds `confidence_level`, in (0, 1), of the resamples."""
        low, high = _interval(self.values, confidence_level)
        return Estimate(
            value=self.value,
            low=low,
            high=high,
            n=self.n,
            n_left_out=self.n_left_out,
            n_non_finite=self.n_non_finite,
            n_resamples=self.n_resamples,
            n_undefined=int(np.isnan(self.values).sum()),
            confidence_level=confidence_level,
            reason=self.reason,
        )

    def minus(
        self, other: ResampledMetric, confidence_level: float = 0.95, *, p_value: float | None = None
    ) -> Difference:
        """The difference to another uncertainty of the same answers, by the same metric, resampled with the same seed.

        `p_value` is that of a test that was made elsewhere; by default it comes from the resamples. `InvalidInputError`
        if the other one is of another metric, of other answers, or of other resamples.
        """
        instance(other, ResampledMetric, "other")
        if (self.n, self.n_resamples, self.drawn) != (other.n, other.n_resamples, other.drawn):
            raise InvalidInputError(
                "These are not of the same answers by the same metric, resampled with the same seed and number: there "
                "is no difference between them."
            )
        reason = self.reason or other.reason
        # Pair by pair: both metrics saw the same draws, so what the draw did to both cancels.
        values = np.empty(0) if reason else self.values - other.values
        estimate = replace(
            self,
            value=self.value - other.value,
            values=values,
            n_non_finite=self.n_non_finite + other.n_non_finite,
            reason=reason,
        ).estimate(confidence_level)
        return Difference(**vars(estimate), p_value=_two_sided(values) if p_value is None else p_value)


def bootstrap(
    metric: str | Callable[..., float],
    uncertainty: npt.ArrayLike,
    correct: npt.ArrayLike,
    *,
    n_resamples: int = 1000,
    confidence_level: float = 0.95,
    seed: int = 0,
    questions: Sequence[Any] | None = None,
    **options: Any,
) -> Estimate:
    """A metric and its percentile bootstrap interval over answers.

    Parameters
    ----------
    metric : {"auroc", "prr", "aurc", "expected_calibration_error"} or that function
        Which metric of this package.
    uncertainty, correct
        The metric's two arrays (for the calibration error the first is a confidence, for PRR the second
        may be a graded quality).
    n_resamples : int
        Draws of n answers with replacement. The same `seed` and n draw the same answers, so that
        intervals of several methods on the same questions are comparable.
    confidence_level : float in (0, 1)
        Share of the resampled values inside the interval.
    seed : int
        The seed of the random generator.
    questions : [n], optional
        The question that each answer is to, where several are to one: questions are then drawn, each with all its
        answers. Without it five answers to each question make the interval about half as wide as it must be.
    **options
        Passed to the metric, `max_rejection=0.5` for example.

    Returns
    -------
    Estimate
        With NaN ends where the metric itself, or every resample of it, is undefined.

    References
    ----------
    Efron and Tibshirani 1993, "An introduction to the bootstrap", chapter 13. Davison and Hinkley 1997, "Bootstrap
    methods and their application", section 3.8 (whole groups are drawn).
    """
    return resample(
        metric, uncertainty, correct, n_resamples=n_resamples, seed=seed, questions=questions, **options
    ).estimate(confidence_level)


def paired_difference(
    metric: str | Callable[..., float],
    uncertainty_a: npt.ArrayLike,
    uncertainty_b: npt.ArrayLike,
    correct: npt.ArrayLike,
    *,
    n_resamples: int = 1000,
    confidence_level: float = 0.95,
    seed: int = 0,
    questions: Sequence[Any] | None = None,
    **options: Any,
) -> Difference:
    """Compare two uncertainties of the same answers; every resample draws the same answers for both.

    Parameters
    ----------
    metric, correct, n_resamples, confidence_level, seed, questions, **options
        As in `bootstrap`.
    uncertainty_a, uncertainty_b : arrays of shape (n,)
        Two methods on the same answers, in the same order.

    Returns
    -------
    Difference
        metric(a) - metric(b) with a bootstrap interval. The p-value is that of `permutation_test`, with as many
        exchanges as resamples; for the calibration error, which does not look at the order alone, and with
        `questions`, it is twice the smaller share of resampled differences on either side of zero.
        Exchanging a and b changes the sign only.

    References
    ----------
    Efron and Tibshirani 1993, "An introduction to the bootstrap", chapters 13 and 15.
    """
    asked = None if questions is None else listed(questions, "questions")  # both metrics read them
    shared: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed, "questions": asked, **options}
    a = resample(metric, uncertainty_a, correct, **shared)
    b = resample(metric, uncertainty_b, correct, **shared)
    p_value = None
    if questions is None and name_of(metric, _FUNCTIONS) in ORDER_METRICS:
        options |= {"n_permutations": n_resamples, "seed": seed}
        p_value = permutation_test(metric, uncertainty_a, uncertainty_b, correct, **options)
    return a.minus(b, confidence_level, p_value=p_value)


def resample(
    metric: str | Callable[..., float],
    uncertainty: npt.ArrayLike,
    correct: npt.ArrayLike,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
    questions: Sequence[Any] | None = None,
    **options: Any,
) -> ResampledMetric:
    """A metric on resamples of the answers, to be made into intervals and differences.

    Many methods on the same answers are compared with one another at the cost of one resampling each. The arguments and
    errors are those of `bootstrap`.

    Returns
    -------
    ResampledMetric
        The value and those of all resamples. `estimate` gives the interval; `minus`, the difference to another method's
        on the same answers, resampled with the same seed.
    """
    name = name_of(metric, _FUNCTIONS)
    n_resamples = whole(n_resamples, "n_resamples", low=1, high=MOST_DRAWS)
    options = all_options(_FUNCTIONS[name], options)
    whole(seed, "seed", low=0)
    prepared = _PREPARE[_FUNCTIONS[name]](uncertainty, correct, **options)
    values, n = np.empty(0), prepared.answers.target.size
    groups = np.arange(n) if questions is None else _groups(questions, correct)
    if not prepared.undefined:
        blocks = multiplicities(groups, n_resamples, seed)
        values = np.concatenate([prepared.weighted(block) for block in blocks])
    # Equal hashes mean that one metric was resampled twice with the same draws of the same judgments.
    measured = f"{name} {sorted(options.items())} {seed} "
    drawn = hashlib.sha256(measured.encode() + prepared.answers.target.tobytes() + groups.tobytes())
    return ResampledMetric(
        value=prepared.value(),
        values=values,
        n=n,
        n_left_out=prepared.answers.n_left_out,
        n_non_finite=prepared.answers.n_non_finite,
        n_resamples=n_resamples,
        reason=prepared.undefined,
        drawn=drawn.hexdigest()[:16],
    )


def _groups(questions: Sequence[Any], correct: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """The number of each judged answer's question, in the order in which questions first come."""
    judged, asked = ~np.isnan(vector(correct, "correct")), listed(questions, "questions")
    if len(asked) != judged.size:
        raise InvalidInputError(
            f"There are {judged.size} answers and {len(asked)} questions; every answer needs its own."
        )
    return numbered([question for question, is_judged in zip(asked, judged, strict=True) if is_judged])


def numbered(questions: Sequence[Any]) -> npt.NDArray[np.intp]:
    """The number of each question, [n], from 0 in the order in which different ones first come."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(str(question), len(first)) for question in questions], dtype=np.intp)


def multiplicities(groups: npt.NDArray[np.intp], n_resamples: int, seed: int) -> Iterator[FloatArray]:
    """The number of times that each answer is drawn with its group, [b, n] blocks that stay within bounded memory.

    `groups` [n] has the number of each answer's group, from 0 on; groups are drawn with replacement, as many as there
    are. Equal groups and seeds give equal draws. `InvalidInputError` if several answers are one group, so that all
    draws are the same.
    """
    generator = np.random.default_rng(seed)
    n = int(groups.max()) + 1
    if n == 1 < groups.size:
        raise InvalidInputError(
            f"All {groups.size:,} answers are to one question. Intervals come from drawing questions: give answers to "
            "several, or leave out the questions where each answer stands for itself."
        )
    rows = max(1, _CELLS_PER_BLOCK // groups.size)
    for start in range(0, n_resamples, rows):
        b = min(rows, n_resamples - start)
        # Each row has numbers of its own, so that one count serves all rows of the block.
        drawn = generator.integers(n, size=(b, n)) + n * np.arange(b)[:, None]
        yield np.bincount(drawn.ravel(), minlength=b * n).reshape(b, n)[:, groups].astype(np.float64)


def _interval(values: FloatArray, confidence_level: float) -> tuple[float, float]:
    if not 0 < real(confidence_level, "confidence_level") < 1:
        raise InvalidInputError(f"'confidence_level' must lie between 0 and 1, got {confidence_level}.")
    defined = values[~np.isnan(values)]
    if defined.size == 0:
        return float("nan"), float("nan")
    tail = 0.5 * (1.0 - confidence_level)
    low, high = np.quantile(defined, [tail, 1.0 - tail])
    return float(low), float(high)


def _two_sided(differences: FloatArray) -> float:
    defined = differences[~np.isnan(differences)]
    if defined.size == 0:
        return float("nan")
    # Differences of equal metrics differ from zero by rounding only.
    smaller = min((defined <= 1e-12).sum(), (defined >= -1e-12).sum())
    # One more in both, since the data as given count as a draw: a p-value is never 0 (Phipson and Smyth 2010).
    return float(min(1.0, 2.0 * (1 + smaller) / (defined.size + 1)))
