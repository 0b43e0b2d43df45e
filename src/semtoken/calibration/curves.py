"""Maps from `log_score` to a chance of being right, with parameters only: applying one needs numpy alone.

l is the log score clipped to [-50, -1e-6], c = exp(l). No map ever falls with l: a calibrator cannot turn a ranking
round. `fitting` finds the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.errors import ArtifactError

FloatArray = npt.NDArray[np.float64]

LOWEST, HIGHEST = -50.0, -1e-6
"""Log scores are clipped to this range."""


def clipped(log_score: npt.ArrayLike) -> FloatArray:
    """Log scores within the range that calibrators use."""
    return np.clip(np.asarray(log_score, dtype=np.float64), LOWEST, HIGHEST)


def log_complement(logs: FloatArray) -> FloatArray:
    """ln(1 - exp(logs)), [n]."""
    return np.asarray(np.log(-np.expm1(logs)))


@dataclass(frozen=True)
class Temperature:
    """P = exp(logs / temperature)."""

    temperature: float

    def __call__(self, log_score: npt.ArrayLike) -> FloatArray:
        """Chances, [n]."""
        return np.exp(clipped(log_score) / self.temperature)

    def problem(self) -> str | None:
        """What is wrong with the parameters."""
        return None if 0.02 <= self.temperature <= 50 else f"temperature {self.temperature} is outside [0.02, 50]"


@dataclass(frozen=True)
class Sigmoid:
    """P = sigmoid(a ln c - b ln(1 - c) + m) with a, b >= 0: beta calibration; Platt on the logit where a = b.

    Kull, Silva Filho and Flach 2017, "Beta calibration".
    """

    a: float
    b: float
    m: float

    def __call__(self, log_score: npt.ArrayLike) -> FloatArray:
        """Chances, [n]."""
        logs = clipped(log_score)
        z = self.a * logs - self.b * log_complement(logs) + self.m
        return np.asarray(np.exp(-np.logaddexp(0.0, -z)))

    def problem(self) -> str | None:
        """What is wrong with the parameters."""
        if not np.isfinite([self.a, self.b, self.m]).all():
            return "a parameter is not finite"
        return None if self.a >= 0 and self.b >= 0 else f"the slopes {self.a} and {self.b} must not be negative"


@dataclass(frozen=True)
class Steps:
    """A step function: `values[i]` from `edges[i - 1]` on."""

    edges: tuple[float, ...]
    """Ascending log scores, [k]."""
    values: tuple[float, ...]
    """Chances, [k + 1]."""

    def __call__(self, log_score: npt.ArrayLike) -> FloatArray:
        """Chances, [n]."""
        return np.asarray(self.values)[np.searchsorted(self.edges, clipped(log_score), side="right")]

    def problem(self) -> str | None:
        """What is wrong with the parameters."""
        return _problem_of_steps(self.edges, self.values, "values", rising=False)


@dataclass(frozen=True)
class VennAbers:
    """Two isotonic fits: the new answer taken as wrong (p0) and as right (p1); P = p1 / (1 - p0 + p1).

    Vovk and Petej 2014, "Venn-Abers predictors". p0 steps at a labelled score, p1 just above one.
    """

    p0_edges: tuple[float, ...]
    p0_values: tuple[float, ...]
    """[k + 1] from the lowest log score up."""
    p1_edges: tuple[float, ...]
    p1_values: tuple[float, ...]

    def pair(self, log_score: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """p0 and p1, [n] each."""
        logs = clipped(log_score)
        p0 = np.asarray(self.p0_values)[np.searchsorted(self.p0_edges, logs, side="right")]
        p1 = np.asarray(self.p1_values)[np.searchsorted(self.p1_edges, logs, side="left")]
        return p0, p1

    def __call__(self, log_score: npt.ArrayLike) -> FloatArray:
        """Chances, [n]."""
        p0, p1 = self.pair(log_score)
        return p1 / (1 - p0 + p1)

    def problem(self) -> str | None:
        """What is wrong with the parameters."""
        return (
            _problem_of_steps(self.p0_edges, self.p0_values, "p0", rising=True)
            or _problem_of_steps(self.p1_edges, self.p1_values, "p1", rising=True)
            or self._crossing()
        )

    def _crossing(self) -> str | None:
        p0, p1 = self.pair(np.array([*self.p0_edges, *self.p1_edges, LOWEST, HIGHEST]))
        return "p0 is above p1" if (p0 > p1).any() else None


Curve: TypeAlias = Temperature | Sigmoid | Steps | VennAbers

_KINDS: dict[str, type[Temperature] | type[Sigmoid] | type[Steps] | type[VennAbers]] = {
    "temperature": Temperature,
    "sigmoid": Sigmoid,
    "steps": Steps,
    "venn-abers": VennAbers,
}


def to_parameters(curve: Curve) -> dict[str, Any]:
    """Plain values for a file."""
    kind = next(name for name, of in _KINDS.items() if isinstance(curve, of))
    return {"kind": kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in asdict(curve).items()}}


def from_parameters(parameters: Any) -> Curve:
    """A curve from the plain values of a file.

    Raises
    ------
    ArtifactError
        They are not those of a curve, not numbers, outside their ranges, or steps that fall.
    """
    kind = _KINDS.get(str(parameters.get("kind"))) if isinstance(parameters, Mapping) else None
    if kind is None:
        raise ArtifactError(f"A calibrator holds an unknown kind of curve: {parameters!s:.60}.")
    names = list(kind.__dataclass_fields__)
    try:
        curve = kind(**{name: _numbers(parameters[name]) for name in names})
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"A calibrator's curve {parameters['kind']!r} needs the numbers {', '.join(names)}."
        ) from error
    if problem := curve.problem():
        raise ArtifactError(f"A calibrator's curve {parameters['kind']!r} cannot be used: {problem}.")
    return curve


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_numbers(item) for item in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return float(value)


def _problem_of_steps(edges: Sequence[float], values: Sequence[float], name: str, *, rising: bool) -> str | None:
    edge, value = np.asarray(edges, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if value.size != edge.size + 1:
        return f"{edge.size} edges need {edge.size + 1} {name}, not {value.size}"
    if not np.isfinite(edge).all() or (np.diff(edge) <= 0).any():
        return f"the edges of {name} must rise"
    if not ((value >= 0) & (value <= 1)).all():
        return f"{name} must lie in [0, 1]"
    return f"{name} must not fall" if rising and (np.diff(value) < 0).any() else None
