"""Sets of options that hold the right one in all but alpha of the answers: split conformal prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semtoken.calibration.promises import check_level, percent
from semtoken.errors import InvalidInput
from semtoken.support.arrays import FloatArray


@dataclass(frozen=True)
class PredictionSets:
    """Which options of a question belong to the set of an answer: those that are probable enough, and the best one.

    An option k belongs to the set if its probability is at least t_k, the floor(alpha (n_k + 1))-th smallest one that
    the right option had in the n_k labelled answers where k was right. Options with too few labels for that share
    one threshold, from all their labels together. If labelled and new answers are exchangeable, the right option is in
    the set with probability at least 1 - alpha, over all answers, and for each option that has a threshold of its own.

    Raises
    ------
    InvalidInput
        A threshold outside [0, 1].

    References
    ----------
    Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005; conditional on the label: Vovk, 2012.
    """

    alpha: float
    thresholds: tuple[float, ...]
    """The least probability of each option that is in the set, in [0, 1]; 0: it always is."""
    labels: tuple[int, ...]
    """How many labels each threshold of its own rests on; 0 for the options that share one."""
    shared: int
    """How many labels the shared threshold rests on."""

    def __post_init__(self) -> None:
        if not all(0 <= threshold <= 1 for threshold in self.thresholds):
            raise InvalidInput("The threshold of a set of options lies outside [0, 1].")

    def __call__(self, probabilities: Sequence[float]) -> tuple[int, ...]:
        """The places of the options in the set, of one answer."""
        best = int(np.argmax(probabilities))
        pairs = zip(probabilities, self.thresholds, strict=True)
        return tuple(k for k, (p, least) in enumerate(pairs) if p >= least or k == best)

    @property
    def statement(self) -> str:
        """What the sets promise, as a sentence."""
        n = self.shared + sum(self.labels)
        own = sum(count > 0 for count in self.labels)
        each = {0: "", len(self.labels): ", for each option alone, too"}.get(
            own, f", for each of {own} options alone, too; the others have too few labels for that"
        )
        return (
            f"the set holds the right option in at least {percent(1 - self.alpha)} of the answers ({n:,} labels){each}"
        )

    @classmethod
    def fit(cls, probabilities: Sequence[Sequence[float]], labels: Sequence[int], alpha: float = 0.1) -> PredictionSets:
        """Fit the thresholds.

        Parameters
        ----------
        probabilities
            [n, options] as they were read; not after a scale that was fitted on the same labels.
        labels
            [n] places of the right options.
        alpha
            The share of answers whose set may lack the right option, in (0, 1).

        Raises
        ------
        InvalidInput
            Alpha is no such share, or there are no labels.
        """
        check_level(alpha, "alpha")
        p, right = np.asarray(probabilities, dtype=np.float64), np.asarray(labels, dtype=np.int64)
        if p.ndim != 2 or len(p) != len(right) or not len(right):
            raise InvalidInput("Sets of options need the probabilities of all options, and a label, of each answer.")
        of_right = p[np.arange(len(right)), right]
        own = [right == k for k in range(p.shape[1])]
        enough = [_rank(int(one.sum()), alpha) > 0 for one in own]
        others = ~np.isin(right, np.flatnonzero(enough))
        thresholds = [
            _threshold(of_right[one if is_enough else others], alpha)
            for one, is_enough in zip(own, enough, strict=True)
        ]
        counts = tuple(int(one.sum()) if is_enough else 0 for one, is_enough in zip(own, enough, strict=True))
        return cls(float(alpha), tuple(thresholds), counts, int(others.sum()))


def _rank(n: int, alpha: float) -> int:
    return int(np.floor(alpha * (n + 1) + 1e-9))


def _threshold(of_right: FloatArray, alpha: float) -> float:
    rank = _rank(len(of_right), alpha)
    return float(np.sort(of_right)[rank - 1]) if rank else 0.0


def least_to_a_person(wrong: int, n: int, alpha: float) -> float:
    """The least share of all answers that has to go to a person, whatever orders them, so that at most alpha of the
    others are wrong: (x - alpha) / (1 - alpha) where x is the share of wrong ones, and 0 where x is at most alpha.

    >>> least_to_a_person(28, 100, 0.1)
    0.2
    """
    return max(0.0, (wrong / n - alpha) / (1 - alpha))
