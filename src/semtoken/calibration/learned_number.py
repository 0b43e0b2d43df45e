"""A number that was learned from labels: what it is made of, and how it is applied (numpy alone).

It is the log-odds that an answer is wrong, linear in what one pass leaves: numbers of the answer, and the hidden state
at the position that chose its last token. Standardising and rotating the states are linear too, so that a fitted one is
a weight for each number and each dimension. `learning.py` fits it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from semtoken.errors import ArtifactError, CalibratorMismatch
from semtoken.support.arrays import FloatArray

LEARNED = "learned"
"""The name of the method, a key of `ScoredResponse.scores`."""
DISTANCE = "state_distance"
"""The name of the distance of an answer's state from those that the labels were learned on."""
ARRAYS = ("weights", "state_weights", "centre", "spread", "distances", "expected")
"""The fields of a `LearnedNumber` that are arrays."""


@dataclass(frozen=True)
class LearnedFrom:
    """The model and the form of the prompts behind labelled answers. A field is None where that is not known."""

    weights: str | None = None
    """Hash of samples of the model's weights, which differs between models and precisions."""
    vocabulary: str | None = None
    """Fingerprint of the tokenizer's tokens."""
    depth: float | None = None
    """Depth of the layer whose states are read, in (0, 1]; None where no states are read."""
    given: bool | None = None
    """Whether the answers were read from given texts, which have no terminator, and not generated."""
    before: str | None = None
    """What every labelled prompt begins with."""
    after: str | None = None
    """What every labelled prompt ends with."""

    def require_model(self, other: LearnedFrom) -> None:
        """Raise `CalibratorMismatch` for hidden states of a model whose weights or tokens are known to be others."""
        for name, what in (("weights", "another model or precision"), ("vocabulary", "another tokenizer")):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and theirs is not None and mine != theirs:
                raise CalibratorMismatch(
                    f"This calibrator holds a number that was learned on {what} ({name} {mine:.12}, here "
                    f"{theirs:.12}). What was learned on one model says nothing about another. Make a calibrator of "
                    "this one with `semtoken calibrate --learn`."
                )
        if self.depth is not None and other.depth is not None and self.depth != other.depth:
            raise CalibratorMismatch(
                f"This calibrator reads the states of the layer at {self.depth} of the depth; these are those at "
                f"{other.depth}."
            )
        if self.given is not None and other.given is not None and self.given != other.given:
            kinds = {True: "read from a text, without its terminator", False: "generated"}
            raise CalibratorMismatch(
                f"This calibrator holds a number that was learned on answers that were {kinds[self.given]}; this one "
                f"was {kinds[other.given]}. Their states stand at different tokens."
            )

    def require_prompt(self, prompt: str) -> None:
        """Raise `CalibratorMismatch` for a prompt that does not begin and end as all labelled ones do."""
        parts = (("begins", self.before or "", prompt.startswith), ("ends", self.after or "", prompt.endswith))
        for verb, part, holds in parts:
            if not holds(part):
                raise CalibratorMismatch(
                    f"This calibrator holds a number that was learned on prompts each of which {verb} with "
                    f"{_shortened(part, from_end=verb == 'begins')!r}; this one does not. What was learned on one "
                    "kind of prompt says nothing about another. Ask in the same form, or make a calibrator of this "
                    "form with `semtoken calibrate --learn`."
                )


@dataclass(frozen=True, eq=False)
class Readings:
    """The numbers and hidden states of n answers that a `LearnedNumber` reads."""

    numbers: FloatArray
    """[n, numbers] numbers of the answers, in the order of `LearnedNumber.names`."""
    states: FloatArray | None = None
    """[n, H] hidden state at the position that chose the last token; None where no states are read."""

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, places: Any) -> Readings:
        """The numbers and states of the answers at these places."""
        return Readings(self.numbers[places], None if self.states is None else self.states[places])


@dataclass(frozen=True, eq=False)
class LearnedNumber:
    """The log-odds that an answer is wrong, linear in its numbers and hidden state, with weights fitted to labels.

    Fit one with `semtoken.calibration.learning.learn`.
    """

    names: tuple[str, ...]
    """The numbers that it reads; see `semtoken.calibration.learning`."""
    weights: FloatArray
    """[numbers] the weight of each number."""
    intercept: float
    state_weights: FloatArray
    """[H] the weight of each dimension of the hidden state; [0] where no states are read."""
    centre: FloatArray
    """[H] mean of the labelled states."""
    spread: FloatArray
    """[H] standard deviation of the labelled states; 1 in dimensions in which they do not differ."""
    distances: FloatArray
    """[n] distances of the labelled states, ascending; [0] where no states are read."""
    origin: LearnedFrom = LearnedFrom()
    """Where the labelled answers came from."""
    expected: FloatArray = field(default_factory=lambda: np.empty(0))
    """[n] risks of new answers like the labelled ones, ascending: what recent ones are compared with. [0]: unknown."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LearnedNumber) and learned_values(self) == learned_values(other)

    def __hash__(self) -> int:
        return hash((self.names, self.intercept))

    @property
    def reads_states(self) -> bool:
        """Whether the number depends on hidden states."""
        return bool(self.state_weights.size)

    def risk(self, readings: Readings) -> FloatArray:
        """Log-odds that each answer is wrong, [n]; higher is riskier. `CalibratorMismatch` if the states do not fit."""
        log_odds = readings.numbers @ self.weights + self.intercept
        if self.reads_states:
            log_odds = log_odds + self._states(readings) @ self.state_weights
        return np.asarray(log_odds, dtype=np.float64)

    def distance(self, readings: Readings) -> FloatArray:
        """How far each state lies from the centre of the labelled ones, [n], at least 0; about 1 for states like those.

        Mean over the dimensions of the squared distance in standard deviations.
        """
        return distances(self._states(readings), self.centre, self.spread)

    def _states(self, readings: Readings) -> FloatArray:
        states = readings.states
        if states is None or states.shape[1] != self.state_weights.size:
            given = "none" if states is None else f"{states.shape[1]} dimensions"
            raise CalibratorMismatch(
                f"This calibrator reads hidden states of {self.state_weights.size} dimensions; there are {given}. "
                "States come from a model of transformers in this process, the one that was labelled."
            )
        return states


def distances(states: FloatArray, centre: FloatArray, spread: FloatArray) -> FloatArray:
    """How far states [n, H] lie from a centre: the mean over H of the squared distance in standard deviations, [n]."""
    return np.asarray(np.square((states - centre) / spread).mean(axis=1))


def learned_values(learned: LearnedNumber) -> dict[str, Any]:
    """A learned number as plain values that JSON can hold; `learned_from` reads them back."""
    arrays = {name: getattr(learned, name).tolist() for name in ARRAYS}
    origin = {name: value for name, value in asdict(learned.origin).items() if value is not None}
    return {"names": list(learned.names), "intercept": learned.intercept, **arrays, "origin": origin}


def learned_from(values: Any) -> LearnedNumber:
    """Make a learned number from what `learned_values` wrote; `ArtifactError` for wrong fields, lengths or numbers."""
    try:
        given: Mapping[str, Any] = dict(values)
        names, origin = tuple(given["names"]), LearnedFrom(**given["origin"])
        arrays = {name: _plain(given[name]) for name in ARRAYS}
        number = LearnedNumber(names=names, intercept=float(_plain(given["intercept"])), origin=origin, **arrays)
        known = set(given) == {attribute.name for attribute in fields(LearnedNumber)}
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError("The calibrator's learned number has missing or unknown fields.") from error
    flat = all(array.ndim == 1 and bool(np.isfinite(array).all()) for array in arrays.values())
    alike = number.centre.size == number.spread.size == number.state_weights.size and number.weights.size == len(names)
    texts = all(isinstance(name, str) for name in names) and all(
        value is None or isinstance(value, {"depth": float, "given": bool}.get(name, str))
        for name, value in vars(origin).items()
    )
    if not (known and flat and alike and texts and math.isfinite(number.intercept) and bool((number.spread > 0).all())):
        raise ArtifactError("The calibrator's learned number holds values outside their ranges.")
    ascending = bool((np.diff(number.distances, prepend=0.0) >= 0).all() and (np.diff(number.expected) >= 0).all())
    depth = number.origin.depth
    of_states = depth is None if not number.reads_states else depth is not None and 0 < depth <= 1
    of_states &= (number.distances.size > 0) == number.reads_states
    if not (ascending and of_states and 0 < len(set(names)) == len(names)):
        raise ArtifactError("The calibrator's learned number holds values outside their ranges.")
    return number


def _plain(values: Any) -> FloatArray:
    """Numbers of a file, which are neither texts nor beyond what a double can hold."""
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "fiu":
        raise TypeError("no numbers")
    return numbers.astype(np.float64)


def _shortened(text: str, *, from_end: bool) -> str:
    """The forty characters next to the question."""
    if len(text) <= 40:
        return text
    return f"...{text[-40:]}" if from_end else f"{text[:40]}..."
