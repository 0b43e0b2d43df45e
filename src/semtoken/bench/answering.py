"""The seam between a run and the engine that answers: prompts in, answers with their records out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from semtoken.backends.prompts import Prompt, encode_prompt
from semtoken.errors import ModelError
from semtoken.generation import Generation
from semtoken.scoring import Scorer
from semtoken.statistics import Decoding, Timings, p_true_log_probs, record_greedy, record_samples
from semtoken.statistics.clustered import clustered_log_scores
from semtoken.statistics.p_true import Spelling
from semtoken.statistics.pairs import FloatArray

if TYPE_CHECKING:
    from semtoken.backends.transformers import STC

GREEDY_FIELDS = frozenset({"log_probs", "top_log_probs"})


class GenerationBackend(Protocol):
    """What answers the prompts of a run. Log-probabilities are raw: temperature 1, before any processing."""

    def greedy(self, prompts: Sequence[Prompt], decoding: Decoding, timings: Timings) -> list[Generation]:
        """Greedy answers with `token_ids`, `token_texts`, `log_probs` and the best alternatives of each step.

        Seconds go to `greedy`, `likelihoods` and `alternatives`.
        """

    def samples(self, prompts: Sequence[Prompt], decoding: Decoding, timings: Timings) -> list[Generation]:
        """Records with `sample_texts`, `sample_token_ids`, `sample_log_probs`, and `hidden_states` if it can.

        The same seed gives the same samples whatever else is asked beside a prompt. Seconds go to `sampling`,
        `sample_likelihoods` and `hidden_states`.
        """

    def clustered(
        self,
        prompts: Sequence[Prompt],
        answers: Sequence[Sequence[int]],
        scorers: Mapping[str, Scorer],
        timings: Timings,
    ) -> dict[str, list[float]]:
        """See `semtoken.statistics.clustered.clustered_log_scores`."""

    def p_true(self, questions: Sequence[str], answers: Sequence[str], spelling: Spelling) -> FloatArray:
        """See `semtoken.statistics.p_true_log_probs`."""


@dataclass(frozen=True)
class TransformersBackend:
    """A transformers model in this process."""

    stc: STC
    batch_size: int
    """Prompts read or answered together."""

    def greedy(self, prompts: Sequence[Prompt], decoding: Decoding, timings: Timings) -> list[Generation]:
        """See `GenerationBackend`."""
        return record_greedy(self.stc, self._encoded(prompts), GREEDY_FIELDS, decoding, timings)

    def samples(self, prompts: Sequence[Prompt], decoding: Decoding, timings: Timings) -> list[Generation]:
        """See `GenerationBackend`. Hidden states are left out of architectures whose layers are not found."""
        blank = [Generation(text="", token_ids=()) for _ in prompts]
        needs = {"hidden_states"} if self._has_layers() else set()
        return record_samples(self.stc, self._encoded(prompts), blank, needs, decoding, timings)

    def clustered(
        self,
        prompts: Sequence[Prompt],
        answers: Sequence[Sequence[int]],
        scorers: Mapping[str, Scorer],
        timings: Timings,
    ) -> dict[str, list[float]]:
        """See `GenerationBackend`."""
        encoded = self._encoded(prompts)
        return clustered_log_scores(self.stc, encoded, answers, scorers, timings, batch_size=self.batch_size)

    def p_true(self, questions: Sequence[str], answers: Sequence[str], spelling: Spelling) -> FloatArray:
        """See `GenerationBackend`."""
        return p_true_log_probs(self.stc, questions, answers, spelling=spelling, batch_size=self.batch_size)

    def _encoded(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        return [encode_prompt(self.stc.tokenizer, prompt, number) for number, prompt in enumerate(prompts)]

    def _has_layers(self) -> bool:
        from semtoken.statistics.decoding import middle_layer

        try:
            middle_layer(self.stc.model)
        except ModelError:
            return False
        return True
