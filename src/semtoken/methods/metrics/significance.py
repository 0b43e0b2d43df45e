"""Tests of differences against chance: a permutation test of pairs, and p-values adjusted for their number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.methods.metrics.inputs import MOST_DRAWS, PreparedMetric, all_options, name_of, same_length, vector
from semtoken.methods.metrics.ranking import aurc, auroc, prepare_aurc, prepare_auroc, prepare_prr, prr
from semtoken.support.arrays import FloatArray, real_numbers
from semtoken.support.inputs import whole

_CELLS_PER_BLOCK = 2_000_000
_ROUNDING = 1e-9
Differences: TypeAlias = Callable[[npt.NDArray[np.bool_]], FloatArray]
"""The answers that are exchanged, bool [b, n] -> metric of the first column minus that of the second, [b]."""
Prepare: TypeAlias = Callable[..., tuple[Differences, str]]
"""Two columns of ranks and the judgments -> differences, and why there are none."""
_FUNCTIONS: Mapping[str, Callable[..., float]] = {"auroc": auroc, "prr": prr, "aurc": aurc}


def permutation_test(
    metric: str | Callable[..., float],
    uncertainty_a: npt.ArrayLike,
    uncertainty_b: npt.ArrayLike,
    correct: npt.ArrayLike,
    *,
    n_permutations: int = 1000,
    seed: int = 0,
    **options: Any,
) -> float:
    """P-value for "neither uncertainty is better", from exchanging the two within answers at random.

    Both uncertainties become ranks, so that they are in one unit; the two ranks of an answer are exchanged or not, and
    the difference of the metric is computed again. Where few answers differ in rank, all exchanges are tried. Unlike a
    bootstrap it holds its level when few answers are right (or few are wrong).

    Parameters
    ----------
    metric : {"auroc", "prr", "aurc"} or that function
        A metric that looks at the order of the uncertainties only.
    uncertainty_a, uncertainty_b : arrays of shape (n,)
        Two methods on the same answers, in the same order. NaN and +inf share the worst rank.
    correct : array of shape (n,)
        As the metric takes it; NaN: not judged, left out.
    n_permutations : int
        Random exchanges; fewer if there are fewer different ones.
    seed : int
        The seed of the exchanges.
    **options
        Passed to the metric.

    Returns
    -------
    float in (0, 1]
        Two-sided. Of B random exchanges at least 1 / (B + 1); NaN where the metric is undefined.

    References
    ----------
    Bandos, Rockette and Gur 2005, "A permutation test sensitive to differences in areas for comparing ROC curves from a
    paired design", Statistics in Medicine 24. Phipson and Smyth 2010, "Permutation p-values should never be zero".
    """
    name = name_of(metric, _FUNCTIONS)
    options = all_options(_FUNCTIONS[name], options)
    whole(n_permutations, "n_permutations", low=1, high=MOST_DRAWS)
    whole(seed, "seed", low=0)
    target = vector(correct, "correct")
    ranks = []
    for argument, values in (("uncertainty_a", uncertainty_a), ("uncertainty_b", uncertainty_b)):
        scores = vector(values, argument)
        same_length(scores, target, argument, "correct")
        ranks.append(mean_ranks(scores[~np.isnan(target)]))
    target = target[~np.isnan(target)]
    difference_of, undefined = _PREPARE[name](*ranks, target, **options)
    if undefined:
        return float("nan")
    differing = np.flatnonzero(ranks[0] != ranks[1])
    # The exchanges are the bits of an int64. Exchanging equal ranks changes nothing, so only the others count.
    exact = differing.size < 63 and 2**differing.size <= n_permutations
    count = 2**differing.size if exact else n_permutations
    observed = abs(difference_of(np.zeros((1, target.size), dtype=bool))[0])
    rng = np.random.default_rng(seed)
    extreme, rows = 0, max(1, _CELLS_PER_BLOCK // max(target.size, 1))
    for start in range(0, count, rows):
        number = min(rows, count - start)
        swapped = np.zeros((number, target.size), dtype=bool)
        if exact:
            bits = np.arange(start, start + number)[:, None] >> np.arange(differing.size)
            swapped[:, differing] = bits & 1
        else:
            swapped[:, differing] = rng.integers(0, 2, size=(number, differing.size), dtype=np.uint8)
        # Sums in another order differ in their last digits, and an exchange that changes nothing must count.
        extreme += int((np.abs(difference_of(swapped)) >= observed - _ROUNDING).sum())
    # Among all exchanges, the data as given are one; among random ones they have to be added.
    return extreme / count if exact else (extreme + 1) / (count + 1)


def _auroc(first: FloatArray, second: FloatArray, correct: FloatArray, **options: Any) -> tuple[Differences, str]:
    """Differences of the AUROC: linear in who is exchanged, so that each answer has one weight.

    With w_i = 1, or -1 where answer i is exchanged, the difference is sum_i w_i (c(a_i) - c(b_i)), c being the mean
    share of the other class, in both columns, on the right side of a rank.
    """
    undefined = prepare_auroc(first, correct, **options).undefined
    weight = np.zeros(correct.size)
    for own, side in ((correct == 1, 1.0), (correct == 0, -1.0)):
        others = np.sort(np.concatenate([first[~own], second[~own]]))
        for ranks, sign in ((first, 1.0), (second, -1.0)):
            below = np.searchsorted(others, ranks[own], "left") + np.searchsorted(others, ranks[own], "right")
            weight[own] -= side * sign * below / 4.0
    weight /= max(1.0, float((correct == 1).sum()) * float((correct == 0).sum()))
    return lambda swapped: np.asarray(np.where(swapped, -1.0, 1.0) @ weight), undefined


def _by_order(prepare: Callable[..., PreparedMetric]) -> Prepare:
    """Differences of any metric that looks at the order only."""

    def prepared(first: FloatArray, second: FloatArray, target: FloatArray, **options: Any) -> tuple[Differences, str]:
        # Every answer stands here twice, with either rank; weights choose which of the two a column has.
        both = prepare(np.concatenate([first, second]), np.concatenate([target, target]), **options)
        # Of twice the answers, some may be rejected where of the answers themselves none is.
        undefined = prepare(first, target, **options).undefined

        def difference_of(swapped: npt.NDArray[np.bool_]) -> FloatArray:
            column = np.concatenate([~swapped, swapped], axis=1).astype(np.float64)
            return both.weighted(column) - both.weighted(1.0 - column)

        return difference_of, undefined

    return prepared


_PREPARE: dict[str, Prepare] = {"auroc": _auroc, "prr": _by_order(prepare_prr), "aurc": _by_order(prepare_aurc)}
ORDER_METRICS = frozenset(_PREPARE)
"""Names of the metrics that can be tested."""


def mean_ranks(scores: FloatArray) -> FloatArray:
    """Mean rank of each score, ties sharing theirs; NaN and +inf last."""
    scores = np.where(np.isnan(scores), np.inf, scores)
    _, place, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    return np.asarray((ends - (sizes - 1) / 2.0)[place], dtype=np.float64)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted so that one false finding in the whole family is as rare as they say.

    Parameters
    ----------
    p_values : sequence of float in [0, 1], length m
        Of one family of comparisons. NaN: a comparison without a value; it stays NaN and does not count.

    Returns
    -------
    list of float
        In the same order. The k-th smallest becomes the largest of (m - i + 1) p_i over i <= k, at most 1.

    Raises
    ------
    InvalidInputError
        A value outside [0, 1].

    References
    ----------
    Holm 1979, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6.
    """
    adjusted = real_numbers(p_values, "p_values").astype(np.float64)
    if adjusted.ndim != 1:
        raise InvalidInputError(f"'p_values' must have one dimension, got the shape {adjusted.shape}.")
    outside = adjusted[(adjusted < 0) | (adjusted > 1)]
    if outside.size:
        raise InvalidInputError(f"'p_values' must lie in [0, 1], got {outside[0]:g}.")
    defined = np.flatnonzero(~np.isnan(adjusted))
    order = defined[np.argsort(adjusted[defined], kind="stable")]
    scaled = adjusted[order] * np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in adjusted]
