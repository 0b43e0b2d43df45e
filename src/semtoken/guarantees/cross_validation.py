"""Probabilities of answers by calibrators that did not see them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semtoken.choices import CurveName
from semtoken.errors import InvalidInputError
from semtoken.guarantees.curves import FITS, maps_of, mean_probability
from semtoken.guarantees.labels import LabeledScores
from semtoken.support.arrays import FloatArray


def cross_validated(
    answers: LabeledScores,
    method: CurveName,
    *,
    groups: npt.NDArray[np.intp] | None = None,
    folds: int = 10,
    seed: int = 0,
) -> tuple[FloatArray, FloatArray]:
    """Probabilities by calibrators that did not see the answers, and the base rates of the same folds.

    Parameters
    ----------
    answers : LabeledScores
        n labeled answers, none of them blank.
    method
        The kind of map, as for `Calibrator.fit`.
    groups : array of shape (n,), optional
        The numbers of the answers' questions, from 0. Answers of one group are in one fold. Default: each its own.
    folds, seed : int
        Into how many parts the groups are dealt, and the seed of that.

    Returns
    -------
    two arrays of shape (n,)
        The probability of being right in [1 / (m + 2), (m + 1) / (m + 2)], where m answers are in the other folds, and
        the share of right ones among these.

    Raises
    ------
    InvalidInputError
        So few groups that the others hold right or wrong answers alone.
    """
    group = np.arange(answers.n) if groups is None else groups
    # Whole groups are dealt: an answer to the same question would tell the calibrator about the one that is held out.
    order = np.random.default_rng(seed).permutation(int(group.max()) + 1)
    probabilities, base = np.empty(answers.n), np.empty(answers.n)
    for of_fold in np.array_split(order, folds):
        is_held = np.isin(group, of_fold)
        held, rest = np.flatnonzero(is_held), np.flatnonzero(~is_held)
        part = LabeledScores(answers.log_confidence[rest], answers.correct[rest], 0)
        if groups is not None and not 0 < part.n_correct < part.n:
            raise InvalidInputError(
                f"Too few different questions to cross-validate: {order.size}. Without a tenth of them no right or no "
                "wrong answer is left. Give answers to further questions."
            )
        maps = [FITS[name](part.log_confidence, part.correct) for name in maps_of(method)]
        probabilities[held] = mean_probability(maps, part.n, answers.log_confidence[held])
        base[held] = part.n_correct / part.n
    return probabilities, base
