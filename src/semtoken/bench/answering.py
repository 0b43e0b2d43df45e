"""What a run asks of the model that answers: prompts in, answers with their records out, from any backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from semtoken.backends.base import Backend, Prompt
from semtoken.bench.columns import columns_of
from semtoken.choices import PTrueSpelling
from semtoken.errors import BackendError
from semtoken.observers import Statistic
from semtoken.results import ScoredResponse
from semtoken.results.generation import Generation
from semtoken.scoring import Scorer
from semtoken.statistics import AnswerSettings, Timings, p_true_log_probs, record_greedy, record_samples
from semtoken.statistics.decoding import clustered_scores, watched_statistics
from semtoken.statistics.generations import Progress
from semtoken.statistics.pairs import FloatArray
from semtoken.statistics.timings import IN_MODEL

OnAnswered = Callable[[int], None]
"""Called with the number of prompts that are done."""


@dataclass(frozen=True)
class RunAnswerer:
    """Answers the prompts of a run. Log-probabilities are raw: temperature 1, before any processing."""

    backend: Backend
    batch_size: int
    """Prompts read or answered together, where the engine does not decide that itself."""

    def __post_init__(self) -> None:
        if self.backend.distribution != "raw":
            raise BackendError(
                f"A run needs raw log-probabilities; the {self.backend.name} engine gives those of the "
                f"{self.backend.distribution} distribution."
            )

    def greedy(
        self, prompts: Sequence[Prompt], decoding: AnswerSettings, timings: Timings, answered: OnAnswered | None = None
    ) -> list[Generation]:
        """Greedy answers with `token_ids`, `token_texts`, `log_probs` and the best alternatives of each step.

        Seconds go to `greedy`, `likelihoods` and `alternatives`.
        """
        with self._passes(timings):
            return record_greedy(self.backend, prompts, columns_of("greedy"), decoding, timings, _counted(answered))

    def samples(
        self, prompts: Sequence[Prompt], decoding: AnswerSettings, timings: Timings, answered: OnAnswered | None = None
    ) -> list[Generation]:
        """Records with `sample_texts`, `sample_token_ids`, `sample_log_probs`, and `hidden_states` if there are any.

        The same seed gives the same samples whatever else is asked in the same call. Seconds go to `sampling`,
        `sample_likelihoods` and `hidden_states`.
        """
        empty = [Generation(text="", token_ids=()) for _ in prompts]
        needs = {"hidden_states"} if "states" in self.backend.gives else set()
        with self._passes(timings):
            return record_samples(self.backend, prompts, empty, needs, decoding, timings, _counted(answered))

    def _passes(self, timings: Timings) -> AbstractContextManager[None]:
        """Charge passes of the model to `IN_MODEL`, where the backend can tell."""
        timed = getattr(self.backend, "timed_passes", None)
        return nullcontext() if timed is None else timed(partial(timings.measure_too, IN_MODEL))

    def clustered(
        self,
        prompts: Sequence[Prompt],
        answers: Sequence[Sequence[int]],
        scorers: Mapping[str, Scorer],
        timings: Timings,
    ) -> dict[str, list[ScoredResponse]]:
        """The answers scored under each of the scorers; see `semtoken.statistics.decoding.clustered_scores`."""
        return clustered_scores(self.backend, prompts, answers, scorers, timings, batch_size=self.batch_size)

    def watched(
        self,
        prompts: Sequence[Prompt],
        answers: Sequence[Sequence[int]],
        watches: Mapping[str, Statistic],
        timings: Timings,
    ) -> dict[str, list[Any]]:
        """What the watches record of each answer; see `semtoken.statistics.decoding.watched_statistics`."""
        return watched_statistics(self.backend, prompts, answers, watches, timings, batch_size=self.batch_size)

    def p_true(self, questions: Sequence[str], answers: Sequence[str], spelling: PTrueSpelling) -> FloatArray:
        """Log-probabilities of True and False for each answer; see `semtoken.statistics.p_true_log_probs`."""
        return p_true_log_probs(self.backend, questions, answers, spelling=spelling, batch_size=self.batch_size)


def _counted(answered: OnAnswered | None) -> Progress | None:
    return None if answered is None else lambda step, done, total: answered(done)
