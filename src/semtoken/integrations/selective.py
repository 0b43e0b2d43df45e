"""Flat figures, as evaluation tools list them, on how well an uncertainty separates wrong answers from right ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from semtoken import metrics
from semtoken.errors import InvalidInputError

COVERAGES = (0.5, 0.8)


def auroc_figures(uncertainty: npt.ArrayLike, quality: npt.ArrayLike) -> dict[str, float]:
    """AUROC with its 95% interval over answers. An answer counts as right if its quality is 1, the highest.

    `uncertainty`, [n]: higher is riskier; answers with NaN, which have none, are left out. `quality`, [n], in [0, 1];
    NaN where it was not judged.
    """
    scores, graded = _with_uncertainty(uncertainty, quality)
    right = np.where(np.isnan(graded), np.nan, graded == 1.0)
    return _with_interval("auroc", scores, right)


def prr_figures(uncertainty: npt.ArrayLike, quality: npt.ArrayLike) -> dict[str, float]:
    """Prediction rejection ratio with its 95% interval; parameters as in `auroc_figures`."""
    return _with_interval("prr", *_with_uncertainty(uncertainty, quality))


def risk_coverage_figures(
    uncertainty: npt.ArrayLike, quality: npt.ArrayLike, coverages: Sequence[float] = COVERAGES
) -> dict[str, float]:
    """The share of wrong answers among the surest ones: the area over all coverages, and the share at some and at 1.

    A coverage is a share of the questions that are answered, `InvalidInputError` if outside (0, 1]. The rest is as in
    `auroc_figures`.
    """
    if not all(0 < share <= 1 for share in coverages):
        raise InvalidInputError(
            f"A coverage is the share of questions that are answered, in (0, 1]. Got {list(coverages)}."
        )
    scores, graded = _with_uncertainty(uncertainty, quality)
    figures = _with_interval("aurc", scores, graded)
    if not np.isfinite(figures["aurc"]):
        return figures | {_at(share): float("nan") for share in (*coverages, 1.0)}
    curve = metrics.risk_coverage(scores, graded)
    for share in (*coverages, 1.0):
        # the first threshold that answers at least so many: answers of equal uncertainty are answered together
        first = int(np.searchsorted(curve.coverage, share - 1e-12))
        figures[_at(share)] = float(curve.risk[min(first, curve.risk.size - 1)])
    return figures


def selective_figures(uncertainty: npt.ArrayLike, quality: npt.ArrayLike) -> dict[str, float]:
    """All figures by name: AUROC, PRR, risk at coverages, and `n`, the answers with an uncertainty and a judgment."""
    scores, graded = _with_uncertainty(uncertainty, quality)
    return {
        "n": float(np.count_nonzero(~np.isnan(graded))),
        **auroc_figures(scores, graded),
        **prr_figures(scores, graded),
        **risk_coverage_figures(scores, graded),
    }


def _with_interval(metric: str, uncertainty: npt.ArrayLike, target: npt.ArrayLike) -> dict[str, float]:
    estimate = metrics.bootstrap(metric, uncertainty, target)
    return {metric: estimate.value, f"{metric}_low": estimate.low, f"{metric}_high": estimate.high}


def _with_uncertainty(
    uncertainty: npt.ArrayLike, quality: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Leave out the answers that have no uncertainty: they say nothing of how good it is."""
    scores, graded = np.asarray(uncertainty, dtype=np.float64), np.asarray(quality, dtype=np.float64)
    if scores.shape != graded.shape or scores.ndim != 1:
        raise InvalidInputError(
            f"An uncertainty and a judgment for every answer are needed, got {scores.shape}, {graded.shape}."
        )
    there = ~np.isnan(scores)
    return scores[there], graded[there]


def _at(share: float) -> str:
    return f"risk_at_{100 * share:.10g}"  # ten digits, in which 0.29 is 29%, and 99.5% is not all
