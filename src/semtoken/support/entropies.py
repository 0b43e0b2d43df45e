"""Entropy of next-token distributions: from whole rows of logits, or between two bounds from the best tokens."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from semtoken.support.arrays import FloatArray, Rows, is_tensor, widened

LARGEST_VOCABULARY = 2**20
"""Tokens; what is assumed of a vocabulary of unknown size. No model in use has as many."""
_LEAST = -1e4
"""Stands for the logarithm of 0 in sums: its probability is 0 in every precision, and it is finite."""


def row_entropies(rows: Rows, normalizers: FloatArray, size: int) -> FloatArray:
    """Entropy of every row, H = -sum_v p(v) ln p(v), in nats, from 0 to ln(size).

    Parameters
    ----------
    rows
        [n, columns] logits, a NumPy array or a tensor.
    normalizers
        [n] their log-sum-exp over the first `size` columns.
    size
        Tokens; further columns are padding.
    """
    part = widened(rows[:, :size])
    if is_tensor(part):
        import torch

        offsets = torch.from_numpy(normalizers).to(part.device, part.dtype)
        logs = (part - offsets[:, None]).clamp_(min=_LEAST)
        sums = (logs.exp() * logs).sum(dim=1, dtype=torch.float64).cpu().numpy()
    else:
        with np.errstate(invalid="ignore"):  # a row without a distribution: its entropy is NaN
            logs = np.maximum(part - normalizers[:, None].astype(part.dtype), _LEAST)
        sums = (np.exp(logs) * logs).sum(axis=1, dtype=np.float64)
    found: FloatArray = np.maximum(-sums, 0.0)
    return found


def row_divergences(rows: Rows, normalizers: FloatArray, size: int) -> FloatArray:
    """Divergence of the uniform distribution from every row, KL(U || p) = -mean_v ln p(v) - ln V, in nats, at least 0.

    Tokens of probability 0 (masked ones) are left out of the mean and of V, as lm-polygraph does.

    Parameters
    ----------
    rows, normalizers, size
        As in `row_entropies`.
    """
    part = widened(rows[:, :size])
    if is_tensor(part):
        known = part.isfinite()
        counts = known.sum(dim=1).double().cpu().numpy()
        means = part.double().masked_fill(~known, 0.0).sum(dim=1).cpu().numpy() / counts
    else:
        known = np.isfinite(part)
        counts = known.sum(axis=1).astype(np.float64)
        means = part.sum(axis=1, dtype=np.float64, where=known) / counts
    found: FloatArray = np.maximum(normalizers - means - np.log(counts), 0.0)
    return found


def entropy_bounds(
    log_probs: npt.ArrayLike, size: int | None = None, *, best: int | None = None
) -> tuple[float, float]:
    """The least and the greatest entropy of a distribution of which the best tokens are known, in nats.

    What is left of the mass lies on tokens none of which is likelier than the least likely of the best. The entropy is
    least if it lies on as few tokens as that allows, greatest if it is spread evenly over all unlisted ones.

    Parameters
    ----------
    log_probs
        [k] log-probabilities of different tokens: the best ones, best first, then perhaps the chosen one.
    size
        V, the number of tokens; None if it is not known, which makes the upper bound wider.
    best
        How many of them are the best ones; by default all.
    """
    logs = np.asarray(log_probs, dtype=np.float64)
    listed = logs[np.isfinite(logs)]
    known = -float(np.sum(np.exp(listed) * listed))
    rest = max(1.0 - math.fsum(np.exp(listed).tolist()), 0.0)
    unlisted = max((size or LARGEST_VOCABULARY) - len(logs), 0)
    if rest == 0.0 or unlisted == 0:
        return max(known, 0.0), max(known, 0.0)
    most = min(float(np.exp(logs[: len(logs) if best is None else best].min())), 1.0)
    spread = rest * (math.log(unlisted) - math.log(rest))
    return max(known + min(_packed(rest, most), spread), 0.0), max(known + spread, 0.0)


def _packed(rest: float, most: float) -> float:
    """Part of the entropy of a mass that lies on as few tokens as can be, none of which has more than `most`."""
    if most <= 0.0:
        return math.inf
    whole = math.floor(rest / most)
    last = rest - whole * most
    return -whole * most * math.log(most) - (last * math.log(last) if last > 0 else 0.0)
