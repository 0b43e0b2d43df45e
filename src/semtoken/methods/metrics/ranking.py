"""Metrics that look at the order of the uncertainties only: AUROC, PRR and the risk-coverage curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.methods.metrics.inputs import (
    JudgedAnswers,
    PreparedMetric,
    evaluate,
    judged_answers,
    require_binary,
)
from semtoken.support.arrays import FloatArray
from semtoken.support.inputs import one_of, real

NO_ANSWER = "there is no judged answer"
_SAME_QUALITY = "all answers have the same quality"


@dataclass(frozen=True)
class RejectionAreas:
    """The three areas under rejection curves that PRR compares, in the unit of the rescaled quality."""

    area: float
    """Area under the rejection curve of the order that the uncertainty gives."""
    oracle: float
    """The area for the best possible order."""
    random: float
    """The area that is expected of an uncertainty that knows nothing."""


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Selective risk at every coverage: answer the n most certain, refuse the others."""

    coverage: FloatArray
    """[n] the share of answers that are given, 1/n to 1."""
    risk: FloatArray
    """[n] the share of these that are wrong; inside a tie, its expectation over the orders of the tie."""


def auroc(uncertainty: npt.ArrayLike, correct: npt.ArrayLike, *, non_finite: str = "worst") -> float:
    """Probability that a wrong answer is more uncertain than a right one, a tie counting one half.

    Parameters
    ----------
    uncertainty : array of shape (n,)
        Higher is riskier. NaN and +inf share the worst rank.
    correct : array of shape (n,)
        1 right, 0 wrong, NaN not judged (left out).
    non_finite : {"worst", "lm_polygraph"}
        What NaN and infinities become; "lm_polygraph" ranks NaN as most certain, for parity only.

    Returns
    -------
    float in [0, 1]
        0.5 for a constant uncertainty; NaN with a warning if only one class is present.

    References
    ----------
    Hanley and McNeil 1982, "The meaning and use of the area under a ROC curve": the rank formula.

    Examples
    --------
    >>> round(auroc([0.1, 0.4, 0.35, 0.8, 0.7, 0.2], [1, 1, 0, 0, 0, 1]), 4)
    0.8889
    """
    return evaluate(prepare_auroc(uncertainty, correct, non_finite=non_finite), "AUROC")


def prr(
    uncertainty: npt.ArrayLike,
    quality: npt.ArrayLike,
    max_rejection: float = 1.0,
    *,
    ties: str = "average",
    random: str = "expected",
    non_finite: str = "worst",
) -> float:
    """Prediction rejection ratio: how much of the best possible gain from rejecting is reached.

    With A_n the mean quality of the n most certain answers, the area is the mean of A_n over
    n = N-k+1..N, k = floor(max_rejection N). PRR = (area - random) / (oracle - random).

    Parameters
    ----------
    uncertainty : array of shape (n,)
        Higher is riskier. NaN and +inf share the worst rank.
    quality : array of shape (n,)
        Larger is better, 1 and 0 for right and wrong. NaN: not judged, left out.
    max_rejection : float in (0, 1]
        How much of the curve counts; 1.0 is the whole.
    ties : {"average", "stable"}
        "average" replaces the quality inside a tie by its mean, so the order of the input cannot matter.
        "stable" keeps the order of the input, as a stable sort in LM-Polygraph does.
    random : {"expected", "monte_carlo"}
        "expected" is the exact expectation, the mean quality. "monte_carlo" reproduces LM-Polygraph's
        mean over 1,000 seeded shuffles (slow, for parity only).
    non_finite : {"worst", "lm_polygraph"}
        As in `auroc`.

    Returns
    -------
    float, at most 1
        1 best order, 0 as good as chance, negative worse. NaN with a warning if all qualities are equal, or
        if max_rejection leaves no answer to reject.

    References
    ----------
    Malinin and Gales 2021, "Uncertainty estimation in autoregressive structured prediction";
    Vashurin et al. 2025, "Benchmarking uncertainty quantification methods for large language models
    with LM-Polygraph". Differs from the latter's code in ties, the random area and the constant case.

    Examples
    --------
    >>> round(prr([0.1, 0.4, 0.35, 0.8, 0.7, 0.2], [1, 1, 0, 0, 0, 1]), 4)
    0.8198
    """
    prepared = prepare_prr(
        uncertainty, quality, max_rejection=max_rejection, ties=ties, random=random, non_finite=non_finite
    )
    return evaluate(prepared, "PRR")


def rejection_areas(
    uncertainty: npt.ArrayLike,
    quality: npt.ArrayLike,
    max_rejection: float = 1.0,
    *,
    ties: str = "average",
    random: str = "expected",
    non_finite: str = "worst",
) -> RejectionAreas:
    """The areas that `prr` is made of, quality rescaled to [0, 1] by its smallest and largest value.

    The arguments are those of `prr`.

    Returns
    -------
    RejectionAreas
        Three numbers in [0, 1]; all NaN when there is no answer or all have the same quality.
    """
    max_rejection = _checked_options(max_rejection, ties, random)
    answers = _rescaled(judged_answers(uncertainty, quality, target_name="quality", non_finite=non_finite))
    if answers is None:
        return RejectionAreas(float("nan"), float("nan"), float("nan"))
    area, oracle, chance = _areas(answers, max_rejection, ties, random, np.ones((1, answers.target.size)))
    return RejectionAreas(float(area[0]), float(oracle[0]), float(chance[0]))


def risk_coverage_curve(
    uncertainty: npt.ArrayLike, correct: npt.ArrayLike, *, non_finite: str = "worst"
) -> RiskCoverage:
    """Share of wrong answers among the n most certain, for every n.

    The arguments are those of `auroc`; `correct` may also be a graded quality in [0, 1], else `InvalidInputError`.

    Returns
    -------
    RiskCoverage
        Two arrays of shape (n,), for n judged answers: coverage in (0, 1], ascending, and risk in [0, 1].

    References
    ----------
    El-Yaniv and Wiener 2010, "On the foundations of noise-free selective classification".
    """
    answers = _graded(uncertainty, correct, non_finite)
    n = answers.target.size
    order, starts = tied_groups(answers.score)
    wrong = (1.0 - answers.target)[order]
    sizes = np.diff(np.append(starts, n))
    expected = np.repeat(np.add.reduceat(wrong, starts) / sizes, sizes)
    count = np.arange(1, n + 1)
    return RiskCoverage(count / n, np.cumsum(expected) / count)


def aurc(uncertainty: npt.ArrayLike, correct: npt.ArrayLike, *, non_finite: str = "worst") -> float:
    """Area under the risk-coverage curve: its mean over the n coverages. Lower is better.

    The arguments are those of `risk_coverage_curve`.

    Returns
    -------
    float in [0, 1]
        Defined for a single class too (0 if all are right). NaN with a warning if there is no answer.

    References
    ----------
    Geifman, Uziel and El-Yaniv 2019, "Bias-reduced uncertainty estimation for deep neural classifiers".
    """
    return evaluate(prepare_aurc(uncertainty, correct, non_finite=non_finite), "AURC")


def prepare_auroc(uncertainty: npt.ArrayLike, correct: npt.ArrayLike, *, non_finite: str = "worst") -> PreparedMetric:
    """`auroc` as a function of how often each answer counts, for resampling."""
    answers = judged_answers(uncertainty, correct, target_name="correct", non_finite=non_finite)
    require_binary(answers.target, "correct")
    order, starts = tied_groups(answers.score)
    right = answers.target[order]

    def weighted(weights: FloatArray) -> FloatArray:
        weights = weights[:, order]
        right_mass = np.add.reduceat(weights * right, starts, axis=1)  # [b, groups]
        wrong_mass = np.add.reduceat(weights * (1.0 - right), starts, axis=1)
        # A wrong answer wins against the right ones of all groups before its own, and half of those inside it.
        right_below = np.cumsum(right_mass, axis=1) - right_mass
        won = np.sum(wrong_mass * (right_below + 0.5 * right_mass), axis=1)
        return _ratio(won, wrong_mass.sum(axis=1) * right_mass.sum(axis=1))

    return PreparedMetric(answers, weighted, _why_auroc_is_undefined(answers))


def prepare_prr(
    uncertainty: npt.ArrayLike,
    quality: npt.ArrayLike,
    *,
    max_rejection: float = 1.0,
    ties: str = "average",
    random: str = "expected",
    non_finite: str = "worst",
) -> PreparedMetric:
    """`prr` as a function of how often each answer counts, for resampling."""
    max_rejection = _checked_options(max_rejection, ties, random)
    answers = judged_answers(uncertainty, quality, target_name="quality", non_finite=non_finite)
    rescaled = _rescaled(answers)
    if rescaled is None:
        return PreparedMetric(answers, _never, _SAME_QUALITY if answers.target.size else NO_ANSWER)
    if int(max_rejection * answers.target.size) < 2:  # the curve would be its first point, where all orders meet
        return PreparedMetric(answers, _never, f"max_rejection={max_rejection} rejects none of {answers.target.size}")

    def weighted(weights: FloatArray) -> FloatArray:
        area, oracle, chance = _areas(rescaled, max_rejection, ties, random, weights)
        # Rescaled qualities that are nearly equal leave rounding alone between the two areas, which is no gain.
        gain = oracle - chance
        ratio = _ratio(area - chance, np.where(np.abs(gain) < 1e-12, 0.0, gain))
        return np.minimum(ratio, 1.0)  # the best order reaches 1 up to rounding

    return PreparedMetric(answers, weighted, "")


def prepare_aurc(uncertainty: npt.ArrayLike, correct: npt.ArrayLike, *, non_finite: str = "worst") -> PreparedMetric:
    """`aurc` as a function of how often each answer counts, for resampling."""
    answers = _graded(uncertainty, correct, non_finite)
    order, starts = tied_groups(answers.score)

    def weighted(weights: FloatArray) -> FloatArray:
        return 1.0 - _mean_prefix_mean(weights, answers.target, order, starts, 1.0)

    return PreparedMetric(answers, weighted, "" if answers.target.size else NO_ANSWER)


def tied_groups(values: FloatArray) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Ascending stable order, and where in it each group of equal values starts."""
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    starts = np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1])[: values.size])
    return order, starts


def _areas(
    answers: JudgedAnswers, max_rejection: float, ties: str, random: str, weights: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Area, oracle area and random area for every row of multiplicities."""
    quality = answers.target
    order, starts = tied_groups(answers.score)
    if ties == "stable":
        # Each answer is a group of its own, in the order in which the stable sort left it.
        starts = np.arange(order.size)
    best_order, best_starts = tied_groups(-quality)
    area = _mean_prefix_mean(weights, quality, order, starts, max_rejection)
    oracle = _mean_prefix_mean(weights, quality, best_order, best_starts, max_rejection)
    if random == "monte_carlo":
        chance = np.array([_shuffled_area(np.repeat(quality, row.astype(int)), max_rejection) for row in weights])
    else:
        # In a random order, the first n have the mean quality for every n: so the expected area is that mean.
        chance = weights @ quality / weights.sum(axis=1)
    return area, oracle, chance


def _mean_prefix_mean(
    weights: FloatArray,
    quality: FloatArray,
    order: npt.NDArray[np.intp],
    starts: npt.NDArray[np.intp],
    max_rejection: float,
) -> FloatArray:
    """Mean over n = N-k+1..N of A_n, the mean quality of the first n, ties at their mean.

    In a group of mean t that begins after a answers of total quality s, A_n = (s + (n - a) t) / n =
    t + (s - a t) / n, so the group's share of the sum needs only differences of harmonic numbers.
    """
    weights = weights[:, order]
    size = np.add.reduceat(weights, starts, axis=1)  # [b, groups]
    total = np.add.reduceat(weights * quality[order], starts, axis=1)
    end = np.cumsum(size, axis=1)
    begin = end - size
    # A resample may draw nobody of a group; its total is 0 then, too.
    mean = total / np.maximum(size, 1.0)
    before = np.cumsum(total, axis=1) - total
    n = end[:, -1:]
    kept = np.floor(max_rejection * n)
    # The curve may begin inside of a group, of which only the part behind that point counts.
    first = np.clip(n - kept, begin, end).astype(np.intp)
    harmonic = np.append(0.0, np.cumsum(1.0 / np.arange(1, int(n.max()) + 1)))
    heights = mean * (end - first) + (before - begin * mean) * (harmonic[end.astype(np.intp)] - harmonic[first])
    return _ratio(heights.sum(axis=1), kept[:, 0])


def _shuffled_area(quality: FloatArray, max_rejection: float) -> float:
    """LM-Polygraph's random area: 1,000 shuffles, each of the one before, legacy generator seeded 42."""
    n = quality.size
    kept = int(max_rejection * n)
    generator = np.random.RandomState(42)
    scores = np.arange(n)
    count = np.arange(1, n + 1)
    areas = []
    for _ in range(1000):
        generator.shuffle(scores)
        heights = np.cumsum(quality[np.argsort(scores)]) / count
        areas.append(heights[n - kept :].mean())
    return float(np.mean(areas))


def _graded(uncertainty: npt.ArrayLike, correct: npt.ArrayLike, non_finite: str) -> JudgedAnswers:
    answers = judged_answers(uncertainty, correct, target_name="correct", non_finite=non_finite)
    outside = (answers.target < 0) | (answers.target > 1)
    if outside.any():
        raise InvalidInputError(f"'correct' must lie in [0, 1], got {answers.target[outside][0]:g}.")
    return answers


def _rescaled(answers: JudgedAnswers) -> JudgedAnswers | None:
    """Quality moved to [0, 1]; None when there is nothing to tell apart."""
    quality = answers.target
    if quality.size == 0 or quality.min() == quality.max():
        return None
    unit = (quality - quality.min()) / (quality.max() - quality.min())
    return JudgedAnswers(answers.score, unit, answers.n_left_out, answers.n_non_finite)


def _why_auroc_is_undefined(answers: JudgedAnswers) -> str:
    if answers.target.size == 0:
        return NO_ANSWER
    if answers.target.all():
        return "no answer is wrong"
    if not answers.target.any():
        return "no answer is right"
    return ""


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Quotient, NaN where the denominator is zero."""
    defined = denominator != 0
    return np.where(defined, numerator / np.where(defined, denominator, 1.0), np.nan)


def _never(weights: FloatArray) -> FloatArray:
    return np.full(len(weights), np.nan)


def _checked_options(max_rejection: float, ties: str, random: str) -> float:
    """The largest share that is rejected; `InvalidInputError` unless all three are what they may be."""
    share = real(max_rejection, "max_rejection")
    if not 0 < share <= 1:
        raise InvalidInputError(f"'max_rejection' must lie in (0, 1], got {max_rejection!r}.")
    one_of("ties", ties, ("average", "stable"))
    one_of("random", random, ("expected", "monte_carlo"))
    return share


@dataclass(frozen=True, eq=False)
class SelectiveRisk:
    """One point for each distinct uncertainty: answer everything up to it, abstain from the rest."""

    threshold: FloatArray
    """[m] the distinct uncertainties, ascending."""
    coverage: FloatArray
    """[m] share of questions that are answered; the last is 1."""
    risk: FloatArray
    """[m] share of wrong answers among these."""
    aurc: float
    """Mean over answers of the risk at their own threshold, in [0, 1]; lower is better."""


def risk_coverage(uncertainty: npt.ArrayLike, correct: npt.ArrayLike, *, non_finite: str = "worst") -> SelectiveRisk:
    """Coverage and risk of every threshold that accepts answers of equal uncertainty together.

    `risk_coverage_curve`, which has the same arguments, has a point for every answer instead, with the expected risk
    inside a tie. Without ties the two agree.

    Returns
    -------
    SelectiveRisk
        An entry for each of the m different uncertainties, ascending: the threshold, coverage in (0, 1] and risk in
        [0, 1], arrays of shape (m,); and the `aurc`, lower is better.

    Raises
    ------
    InvalidInputError
        There is no judged answer, or `correct` is not in [0, 1].

    Examples
    --------
    >>> curve = risk_coverage([0.2, 0.1, 0.2, 0.9], [0, 1, 1, 0])
    >>> curve.coverage.tolist(), round(curve.aurc, 4)
    ([0.25, 0.75, 1.0], 0.2917)
    """
    answers = _graded(uncertainty, correct, non_finite)
    n = answers.target.size
    if n == 0:
        raise InvalidInputError(f"A risk-coverage curve needs answers: {NO_ANSWER}.")
    order, starts = tied_groups(answers.score)
    sizes = np.diff(np.append(starts, n))
    accepted = np.cumsum(sizes)
    risk = np.cumsum(np.add.reduceat((1.0 - answers.target)[order], starts)) / accepted
    return SelectiveRisk(answers.score[order][starts], accepted / n, risk, float((risk * sizes).sum() / n))
