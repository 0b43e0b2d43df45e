"""One pass over answers that exist: what observers record of them, log-probabilities among it, and their STC scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from semtoken.bench.statistics.timings import Timings
from semtoken.core import Scorer
from semtoken.core.results import ScoredAnswer
from semtoken.errors import InvalidLogits
from semtoken.methods.observers.steps import LOG_PROBABILITY, LOGITS, Best, Completion, Observer, Step, best
from semtoken.methods.observers.table import PerStep
from semtoken.models.base import Backend, Prompt
from semtoken.models.prompt_ids import encode_prompts, in_batches_by_length
from semtoken.models.scores import AnswerScores
from semtoken.scored_model import ScoredModel
from semtoken.support.arrays import FloatArray

READING = "reading"
"""The name under which `Timings` keeps the seconds of a pass over answers that exist."""


def backend_of(model: ScoredModel | Backend) -> Backend:
    """The backend of a `ScoredModel`; a backend is returned as it is."""
    return model.backend if isinstance(model, ScoredModel) else model


class LogProbabilities(PerStep):
    """Records the log-probability of every chosen token, from the raw distribution."""

    reads = frozenset({LOG_PROBABILITY})

    def values(self, step: Step) -> list[float]:
        """The log-probabilities of one decoding step; `InvalidLogits` if a row holds no distribution."""
        log_probs: list[float] = step.log_probabilities().tolist()
        for answer, value in zip(step.answers, log_probs, strict=True):
            # Minus infinity is a token of probability zero where the rest of its row is a distribution.
            if not np.isfinite(value) and not (value == -np.inf and _is_sound(step, answer)):
                raise InvalidLogits(
                    f"The logits of step {len(self.recorded(answer))} hold NaN or +inf, or not one finite value: "
                    "there is no distribution to record."
                )
        return log_probs

    def of(self, answer: int) -> FloatArray:
        """[n] log-probabilities of the tokens of an answer."""
        return np.array(self.recorded(answer), dtype=np.float64)


def _is_sound(step: Step, answer: int) -> bool:
    """Return True if there is a distribution from which a token of probability zero was chosen."""
    return step.logits is None or bool(np.isfinite(step.log_normalizers[list(step.answers).index(answer)]))


class BestTokens(PerStep):
    """Records the k best tokens of every step."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.reads = frozenset({best(k)})
        self._k = k

    def values(self, step: Step) -> list[Best]:
        """Ids and log-probabilities of the k best tokens of each answer in a step, best first."""
        return step.best_of(self._k)


class TimedObserver(Observer):
    """Wraps an observer and charges its time to a step of the clock."""

    def __init__(self, observer: Observer, step: str, timings: Timings) -> None:
        self.reads = observer.reads
        self._observer = observer
        self._step = step
        self._timings = timings

    def observe(self, step: Step) -> None:
        """Pass one decoding step on, and add the time that this takes."""
        with self._timings.measure(self._step):
            self._observer.observe(step)

    def finish(self, answer: int, completion: Completion) -> None:
        """Pass on that an answer is complete, and add the time that this takes."""
        with self._timings.measure(self._step):
            self._observer.finish(answer, completion)


def read_by_length(
    backend: Backend,
    prompts: Sequence[Prompt],
    answers: Sequence[Sequence[int]],
    observers: Mapping[str, Observer],
    timings: Timings,
    *,
    batch_size: int,
) -> list[int]:
    """Pass existing answers to observers in one teacher-forced pass, in batches of similar length.

    Returns the place of each answer in the order of reading, which is the number that observers know it by. Up to
    rounding they see what they would while the same answers are generated. Seconds of the pass go to `READING` of
    `timings`, those of each observer to its name. `BackendError` if the backend does not give what one of them reads;
    nothing was read.
    """
    encoded = encode_prompts(backend.tokenizer, prompts)
    lengths = [len(prompt) + len(answer) for prompt, answer in zip(encoded, answers, strict=True)]
    order = [i for batch in in_batches_by_length(lengths, batch_size) for i in batch]
    timed = [TimedObserver(observer, name, timings) for name, observer in observers.items()]
    with timings.measure(READING):
        backend.read([encoded[i] for i in order], [answers[i] for i in order], timed, batch_size=batch_size)
    places: list[int] = np.argsort(order).tolist()
    return places


NORMALIZERS = "normalizers"
"""The name under which `Timings` keeps the seconds of the log normalizers, which all scorers share."""


def clustered_scores(
    model: ScoredModel | Backend,
    prompts: Sequence[Prompt],
    answers: Sequence[Sequence[int]],
    scorers: Mapping[str, Scorer],
    timings: Timings,
    *,
    batch_size: int = 32,
) -> dict[str, list[ScoredAnswer]]:
    """Score every answer by every scorer, from one teacher-forced pass: name of a scorer -> a response for each answer.

    Up to rounding these are the scores that `ScoredModel.generate` gives while it generates the same answers. Seconds
    go to `READING`, `NORMALIZERS`, and for each scorer (see `semtoken.core.scorer_for`) its own to its name.
    `VocabularyMismatch` if a scorer has the vocabulary of another model; nothing was read.
    """
    backend = backend_of(model)
    for scorer in scorers.values():
        backend.check_vocabulary(scorer.vocabulary)
    scores = {name: AnswerScores(scorer) for name, scorer in scorers.items()}
    # All scorers need the normalizers: if the first one computed them, only that one would be charged.
    observers = {NORMALIZERS: _Normalizers(), **scores}
    places = read_by_length(backend, prompts, answers, observers, timings, batch_size=batch_size)
    responses: dict[str, list[ScoredAnswer]] = {}
    for name, own in scores.items():
        with timings.measure(name):
            responses[name] = [own.result(place) for place in places]
    return responses


class _Normalizers(Observer):
    """Reads whole rows, so that their log normalizers are known to those that observe a step after it."""

    reads = frozenset({LOGITS})

    def observe(self, step: Step) -> None:
        """Normalize the rows of one step."""
        _ = step.normalized
