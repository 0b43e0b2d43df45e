"""Probabilities of all options, calibrated by labels: one temperature, and a bias for each option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semtoken.calibration.labels import FEWEST_LABELS, FEWEST_OF_EITHER
from semtoken.errors import InvalidInput
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require

LEAST_LOG = -50.0
"""Lower log-probabilities are raised to this, so that they stay finite."""
TEMPERATURES = (0.02, 50.0)


@dataclass(frozen=True)
class OptionScale:
    """Makes the probabilities of a question's K options calibrated, by n labels.

    p_k becomes proportional to exp(ln p_k / T + b_k), then (n p_k + 1) / (n + K), since n labels show no certainty.

    Raises
    ------
    InvalidInput
        A temperature outside [0.02, 50], a bias that is no number, or no labels.
    """

    temperature: float
    """T of the formula; above 1 the probabilities were too sure."""
    biases: tuple[float, ...]
    """b of the formula, one for each option; all 0 where labels were too few for them."""
    n: int
    """How many labelled answers it was fitted on."""
    missing: str = ""
    """What biases would need, for people; empty where they were fitted."""

    def __post_init__(self) -> None:
        low, high = TEMPERATURES
        if not (low <= self.temperature <= high and np.isfinite(self.biases).all() and self.n > 0):
            raise InvalidInput("The scale of a question's options holds a number outside its range.")

    def __call__(self, probabilities: Sequence[float] | FloatArray) -> FloatArray:
        """The calibrated probabilities, of the same shape [..., options]."""
        z = _logs(probabilities) / self.temperature + np.array(self.biases)
        return (self.n * np.exp(_log_softmax(z)) + 1) / (self.n + len(self.biases))

    @property
    def statement(self) -> str:
        """The scale as a sentence."""
        told = f"temperature {self.temperature:.3g}"
        if not self.missing and any(self.biases):
            told += ", biases " + " ".join(f"{bias:+.2f}" for bias in self.biases)
        return f"{told}, from {self.n:,} labels" + (f" ({self.missing})" if self.missing else "")

    @classmethod
    def fit(
        cls, probabilities: Sequence[Sequence[float]], labels: Sequence[int], names: Sequence[str] | None = None
    ) -> OptionScale:
        """Fit the scale by maximum likelihood; biases have a standard normal prior, so that they stay finite.

        Parameters
        ----------
        probabilities
            [n, options] as they were read.
        labels
            [n] places of the right options.
        names
            Names of the options, for the message about missing labels. Biases need 5 labels of each option.

        Raises
        ------
        InvalidInput
            Fewer than 30 labels; the message says how many are missing.
        """
        logs, right = _logs(probabilities), np.asarray(labels, dtype=np.int64)
        n, size = logs.shape
        if n < FEWEST_LABELS:
            raise InvalidInput(
                f"A temperature needs {FEWEST_LABELS} labels. There are {n}: label {FEWEST_LABELS - n} more."
            )
        missing = _missing(np.bincount(right, minlength=size).tolist(), names or [str(k) for k in range(size)])
        free = 0 if missing or size == 1 else size

        def loss(x: FloatArray) -> float:
            biases = x[1:] if free else np.zeros(size)
            z = logs / np.exp(x[0]) + biases
            return float(-_log_softmax(z)[np.arange(n), right].sum() + np.square(biases).sum() / 2)

        bounds = [tuple(np.log(TEMPERATURES)), *[(None, None)] * free]
        minimize = require("scipy.optimize", extra="calibrate").minimize
        found = minimize(loss, np.zeros(1 + free), method="L-BFGS-B", bounds=bounds).x
        temperature = float(np.clip(np.exp(found[0]), *TEMPERATURES))
        return cls(temperature, tuple(map(float, found[1:])) if free else (0.0,) * size, n, missing)


def _missing(counts: Sequence[int], names: Sequence[str]) -> str:
    few = [
        f"{name!r:.40} is right in {count}, {FEWEST_OF_EITHER - count} missing"
        for name, count in zip(names, counts, strict=True)
        if count < FEWEST_OF_EITHER
    ]
    shown = "; ".join(few[:3]) + (f"; and {len(few) - 3} further options" if len(few) > 3 else "")
    return f"biases need {FEWEST_OF_EITHER} labels of each option: {shown}" if few else ""


def _logs(probabilities: Sequence[float] | Sequence[Sequence[float]] | FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        found: FloatArray = np.maximum(np.log(np.asarray(probabilities, dtype=np.float64)), LEAST_LOG)
    return found


def _log_softmax(z: FloatArray) -> FloatArray:
    found: FloatArray = z - np.logaddexp.reduce(z, axis=-1, keepdims=True)
    return found
