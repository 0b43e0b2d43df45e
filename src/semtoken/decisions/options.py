"""All options of a question, by labels: their calibrated probabilities, and sets of them that hold the right one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.guarantees.exact import check_level, percent
from semtoken.guarantees.labels import FEWEST_LABELS, FEWEST_OF_EITHER
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require
from semtoken.support.text import with_noun

LEAST_LOG = -50.0
"""Lower log-probabilities are raised to this, so that they stay finite."""
TEMPERATURES = (0.02, 50.0)


@dataclass(frozen=True)
class OptionScale:
    """Makes the probabilities of a question's K options calibrated, by n labels.

    p_k becomes proportional to exp(ln p_k / T + b_k), then (n p_k + 1) / (n + K), since n labels show no certainty.
    A probability of 0 is one that the server rounded: anything up to half of its last digit. It is read as the one
    number that fits the labels best. `InvalidInputError` if T is outside [0.02, 50], a bias is no number, or there are
    no labels.
    """

    temperature: float
    """T of the formula; above 1 the probabilities were too sure."""
    biases: tuple[float, ...]
    """b of the formula, one for each option; all 0 where labels were too few for them."""
    n: int
    """The number of labeled answers that it was fitted on."""
    missing: str = ""
    """The labels that biases would need, as a text for people; empty where biases were fitted."""
    zero: float = LEAST_LOG
    """The log-probability for which a probability of 0 counts, in [-50, 0]."""

    def __post_init__(self) -> None:
        low, high = TEMPERATURES
        if not (
            low <= self.temperature <= high
            and np.isfinite(self.biases).all()
            and self.n > 0
            and LEAST_LOG <= self.zero <= 0
        ):
            raise InvalidInputError("The scale of a question's options holds a number outside its range.")

    def __call__(self, probabilities: npt.ArrayLike) -> FloatArray:
        """The calibrated probabilities, of the same shape [..., options]."""
        z = _logs(probabilities, self.zero) / self.temperature + np.array(self.biases)
        return (self.n * np.exp(_log_softmax(z)) + 1) / (self.n + len(self.biases))

    @property
    def statement(self) -> str:
        """The scale as a sentence."""
        sentence = f"temperature {self.temperature:.3g}"
        if not self.missing and any(self.biases):
            sentence += ", biases " + " ".join(f"{bias:+.2f}" for bias in self.biases)
        return f"{sentence}, from {self.n:,} labels" + (f" ({self.missing})" if self.missing else "")

    @classmethod
    def fit(
        cls, probabilities: npt.ArrayLike, labels: npt.ArrayLike, names: Sequence[str] | None = None
    ) -> OptionScale:
        """Fit the scale by maximum likelihood; biases have a standard normal prior, so that they stay finite.

        `probabilities` [n, options] are as they were read, `labels` [n] the places of the right options. Biases need 5
        labels of each option. `InvalidInputError` if there are fewer than 30 labels; `names` are for that message.
        """
        p, right = np.asarray(probabilities, dtype=np.float64), np.asarray(labels, dtype=np.int64)
        n, size = p.shape
        if n < FEWEST_LABELS:
            raise InvalidInputError(
                f"A temperature needs {FEWEST_LABELS} labels. There are {n}: label {FEWEST_LABELS - n} more."
            )
        missing = _missing(np.bincount(right, minlength=size).tolist(), names or [str(k) for k in range(size)])
        # An option that is hardly ever right has no bias that labels could fix, so then none has one.
        free = 0 if missing or size == 1 else size
        logs, most = _logs(p, 0.0), max(float(np.log(p[p > 0].min() / 2)), LEAST_LOG)

        def loss(x: FloatArray) -> float:
            biases = x[2:] if free else np.zeros(size)
            # The temperature as its logarithm, so that the search is as fine below 1 as above.
            z = np.where(p > 0, logs, x[1]) / np.exp(x[0]) + biases
            return float(-_log_softmax(z)[np.arange(n), right].sum() + np.square(biases).sum() / 2)

        of_zero = (LEAST_LOG if (p == 0).any() else most, most)  # at most half of the smallest that the server writes
        bounds = [tuple(np.log(TEMPERATURES)), of_zero, *[(None, None)] * free]
        start = np.array([0.0, most, *[0.0] * free])
        minimize = require("scipy.optimize", extra="calibrate").minimize
        solution = minimize(loss, start, method="L-BFGS-B", bounds=bounds).x
        # exp(log(T)) can lie a hair outside of the limits, and the constructor refuses that.
        temperature, zero = float(np.clip(np.exp(solution[0]), *TEMPERATURES)), float(np.clip(solution[1], *of_zero))
        return cls(temperature, tuple(map(float, solution[2:])) if free else (0.0,) * size, n, missing, zero)


def _missing(counts: Sequence[int], names: Sequence[str]) -> str:
    few = [
        f"{name!r:.40} is right in {count}, {FEWEST_OF_EITHER - count} missing"
        for name, count in zip(names, counts, strict=True)
        if count < FEWEST_OF_EITHER
    ]
    shown = "; ".join(few[:3]) + (f"; and {len(few) - 3} further options" if len(few) > 3 else "")
    return f"biases need {FEWEST_OF_EITHER} labels of each option: {shown}" if few else ""


def agreeing(probabilities: FloatArray, chosen: int, probability_correct: float) -> FloatArray:
    """Probabilities [options] in which the chosen option has its probability of being right, and the others share the
    rest.

    >>> agreeing(np.array([0.5, 0.3, 0.2]), 0, 0.8).round(3).tolist()
    [0.8, 0.12, 0.08]
    """
    # There is nothing to share the rest, and the only option has all of it.
    if len(probabilities) == 1:
        return probabilities
    shares = np.delete(probabilities, chosen)
    return np.insert(shares / shares.sum() * (1 - probability_correct), chosen, probability_correct)


def _logs(probabilities: npt.ArrayLike, zero: float) -> FloatArray:
    p = np.asarray(probabilities, dtype=np.float64)
    logs: FloatArray = np.where(p > 0, np.maximum(np.log(np.where(p > 0, p, 1.0)), LEAST_LOG), zero)
    return logs


def _log_softmax(z: FloatArray) -> FloatArray:
    log_probabilities: FloatArray = z - np.logaddexp.reduce(z, axis=-1, keepdims=True)
    return log_probabilities


@dataclass(frozen=True)
class PredictionSets:
    """Sets of the options that are probable enough, and the best one, for the answers to a question.

    Option k belongs to it if its probability is at least t_k, the floor(alpha (n_k + 1))-th smallest that the right
    option had in the n_k labeled answers where k was right. Options with too few labels share one threshold from all
    their labels together. If labeled and new answers are exchangeable, the right option is in the set with probability
    at least 1 - alpha, over all answers, and for each option with a threshold of its own (Vovk, Gammerman and Shafer
    2005, Algorithmic Learning in a Random World; conditional on the label: Vovk 2012). `InvalidInputError` if a
    threshold is outside [0, 1].
    """

    alpha: float
    thresholds: tuple[float, ...]
    """The least probability of each option that is in the set, in [0, 1]; 0: it always is."""
    labels: tuple[int, ...]
    """The number of labels behind the threshold of each option; 0 for the options that share one."""
    shared: int
    """The number of labels behind the shared threshold."""

    def __post_init__(self) -> None:
        if not all(0 <= threshold <= 1 for threshold in self.thresholds):
            raise InvalidInputError("The threshold of a set of options lies outside [0, 1].")

    def __call__(self, probabilities: Sequence[float]) -> tuple[int, ...]:
        """The places of the options in the set, of one answer."""
        best = int(np.argmax(probabilities))
        pairs = zip(probabilities, self.thresholds, strict=True)
        return tuple(k for k, (p, least) in enumerate(pairs) if p >= least or k == best)

    @property
    def statement(self) -> str:
        """The guarantee of the sets, as a sentence."""
        n = self.shared + sum(self.labels)
        if not any(self.thresholds):
            few = f"{n:,} labels are too few for {percent(self.alpha)}, {labels_for_sets(self.alpha):,} are needed"
            return f"every set holds all options: {few}"
        own = sum(count > 0 for count in self.labels)
        each = {0: "", len(self.labels): ", for each option alone, too"}.get(
            own, f", for {with_noun(own, 'option')} alone, too; the others have too few labels for that"
        )
        return (
            f"the set holds the right option in at least {percent(1 - self.alpha)} of the answers ({n:,} labels){each}"
        )

    @classmethod
    def fit(cls, probabilities: npt.ArrayLike, labels: npt.ArrayLike, alpha: float = 0.1) -> PredictionSets:
        """Fit the thresholds; `InvalidInputError` if alpha is not in (0, 1), or there are no labels.

        `probabilities` [n, options] are as they were read, not after a scale that was fitted on the same labels;
        `labels` [n] are the places of the right options. At most a share `alpha` of the sets may lack the right option.
        """
        check_level(alpha, "alpha")
        p, right = np.asarray(probabilities, dtype=np.float64), np.asarray(labels, dtype=np.int64)
        if p.ndim != 2 or len(p) != len(right) or not len(right):
            raise InvalidInputError(
                "Sets of options need the probabilities of all options, and a label, of each answer."
            )
        of_right = p[np.arange(len(right)), right]
        own = [right == k for k in range(p.shape[1])]
        enough = [_rank(int(mask.sum()), alpha) > 0 for mask in own]
        others = ~np.isin(right, np.flatnonzero(enough))
        thresholds = []
        for mask, is_enough in zip(own, enough, strict=True):
            known = np.sort(of_right[mask if is_enough else others])
            rank = _rank(len(known), alpha)
            thresholds.append(float(known[rank - 1]) if rank else 0.0)
        counts = tuple(int(mask.sum()) if is_enough else 0 for mask, is_enough in zip(own, enough, strict=True))
        return cls(float(alpha), tuple(thresholds), counts, int(others.sum()))


def _rank(n: int, alpha: float) -> int:
    # 0.29 * 100 is 28.999999999999996 in floats: the margin takes it for 29.
    return int(np.floor(alpha * (n + 1) + 1e-9))


def labels_for_sets(alpha: float) -> int:
    """Labels below which every set would hold all options: 9 at alpha 0.1, 49 at 0.02."""
    return int(np.ceil(1 / alpha - 1e-9)) - 1


def least_to_a_person(wrong: int, n: int, alpha: float) -> float:
    """The least share of all answers that has to go to a person, whatever orders them, so that at most alpha of the
    others are wrong: (x - alpha) / (1 - alpha) where x is the share of wrong ones, and 0 where x is at most alpha.

    >>> least_to_a_person(28, 100, 0.1)
    0.2
    """
    return max(0.0, (wrong / n - alpha) / (1 - alpha))
