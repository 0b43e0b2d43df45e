"""One pass over answers that exist, and observers that record what methods read: log-probabilities, best tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from semtoken.backends.base import LOG_PROBABILITY, Backend, Completion, Observer, Prompt, Step, best
from semtoken.backends.prompts import encode_prompts, in_batches_by_length
from semtoken.errors import InvalidLogits
from semtoken.statistics.timings import Timings
from semtoken.stc import STC
from semtoken.support.arrays import FloatArray, IdArray

READING = "reading"
"""What the seconds of a pass over answers that exist are called."""


def backend_of(model: STC | Backend) -> Backend:
    """The backend itself, of an `STC` its own."""
    return model.backend if isinstance(model, STC) else model


def read_by_length(
    backend: Backend,
    prompts: Sequence[Prompt],
    answers: Sequence[Sequence[int]],
    observers: Sequence[Observer],
    timings: Timings,
    *,
    batch_size: int,
) -> list[int]:
    """Show answers that exist to observers, in one teacher-forced pass that reads those of similar length together.

    Parameters
    ----------
    backend
        The model that gave the answers.
    prompts, answers
        One answer, as token ids, for each prompt.
    observers
        They know an answer by its place in the order of reading.
    timings
        Takes the seconds of the pass, as `READING`.
    batch_size
        Answers read together.

    Returns
    -------
    list of int
        The order of reading: the number of the answer at each place.
    """
    encoded = encode_prompts(backend.tokenizer, prompts)
    lengths = [len(prompt) + len(answer) for prompt, answer in zip(encoded, answers, strict=True)]
    order = [i for batch in in_batches_by_length(lengths, batch_size) for i in batch]
    with timings.measure(READING):
        backend.read([encoded[i] for i in order], [answers[i] for i in order], observers, batch_size=batch_size)
    return order


class LogProbabilities(Observer):
    """Records the log-probability of every chosen token, from the raw distribution."""

    reads = frozenset({LOG_PROBABILITY})

    def __init__(self) -> None:
        self._found: dict[int, list[float]] = {}

    def observe(self, step: Step) -> None:
        """Take in one step.

        Raises
        ------
        InvalidLogits
            A row holds NaN or +inf, or has no finite value; the message names the step.
        """
        values = step.log_probabilities()
        for answer, value in zip(step.answers, values.tolist(), strict=True):
            steps = self._found.setdefault(answer, [])
            if not np.isfinite(value) and not (value == -np.inf and _is_sound(step, answer)):
                raise InvalidLogits(
                    f"The logits of step {len(steps)} hold NaN or +inf, or not one finite value: "
                    "there is no distribution to record."
                )
            steps.append(value)

    def of(self, answer: int) -> FloatArray:
        """[n] log-probabilities of the tokens of an answer."""
        return np.array(self._found.get(answer, []))


def _is_sound(step: Step, answer: int) -> bool:
    """Whether there is a distribution from which a token of probability zero was chosen."""
    return step.logits is None or bool(np.isfinite(step.log_normalizers[list(step.answers).index(answer)]))


class BestTokens(Observer):
    """Records the k best tokens of every step.

    Parameters
    ----------
    k
        How many.
    """

    def __init__(self, k: int) -> None:
        self.reads = frozenset({best(k)})
        self._k = k
        self._found: dict[int, list[tuple[IdArray, FloatArray]]] = {}

    def observe(self, step: Step) -> None:
        """Take in one step."""
        for answer, found in zip(step.answers, step.best_of(self._k), strict=True):
            self._found.setdefault(answer, []).append(found)

    def of(self, answer: int) -> list[tuple[IdArray, FloatArray]]:
        """Ids and log-probabilities of the best tokens of each step, best first."""
        return self._found.get(answer, [])


class Timed(Observer):
    """Another observer whose seconds are charged to a step of the clock."""

    def __init__(self, observer: Observer, step: str, timings: Timings) -> None:
        self.reads = observer.reads
        self._observer = observer
        self._step = step
        self._timings = timings

    def observe(self, step: Step) -> None:
        """Take in one step."""
        with self._timings.measure(self._step):
            self._observer.observe(step)

    def finish(self, answer: int, completion: Completion) -> None:
        """Pass the finished answer on."""
        with self._timings.measure(self._step):
            self._observer.finish(answer, completion)
